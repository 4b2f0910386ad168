"""The command line's two processes: a compiler that crashes, hangs or is interrupted, and the files left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from robustness.command_line import MATMUL, Result, command, edited, environment


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "good.mlir"
    path.write_text(MATMUL)
    (tmp_path / "out").mkdir()
    return path


def leftovers(folder: Path) -> list[str]:
    """Files that no command should leave: outputs, partial files, locks, temporary folders."""
    found = [*(folder / "out").rglob("*"), *(folder / "tmp").iterdir()]
    cached = [p for p in (folder / "cache").rglob("*") if p.is_file() and p.parent.name != "tests"]
    found += [p for p in cached if p.suffix not in (".vmfb", ".sha256")]
    return [str(p.relative_to(folder)) for p in found]


def run(folder: Path, *words: str, program: str = "qmlir", **kw: Any) -> Result:
    done = subprocess.run(command(*words, program=program), env=environment(folder), capture_output=True, text=True,
                          check=False, cwd=folder, **kw)  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


# A module pass of IREE under func.func aborts the process: a crash that does not depend on a defect of qmlir.
CRASH = "func.func(iree-abi-transformation-pipeline)"


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("program", ["qmlir", "qmlir-opt"])
def test_crash_of_the_compiler(program: str, source: Path, tmp_path: Path) -> None:
    words = ["compile", str(source), "-o", "out/x.vmfb", "--no-cache", "--pipeline", CRASH]
    if program == "qmlir-opt":
        words = [str(source), "-o", "out/x.mlir", "--pass-pipeline", CRASH]
    result = run(tmp_path, *words, program=program)
    assert result.code == 1
    assert re.match(rf"{program}: error: \S*good\.mlir: the compiler crashed \(SIG\w+\) in ", result.err), result.err
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) == 3, "the crash, how to repeat it, where the details are"
    details = re.search(r"^details: (.*)$", result.err, re.M)
    assert details
    text = Path(details[1]).read_text()
    assert CRASH in text
    assert "signal: SIG" in text
    repeat = re.search(r"^reproducer: (.*)$", result.err, re.M)
    assert repeat
    tools = Path(__file__).parents[2] / "tools" / "bin"
    places = {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": sys.executable}
    again = subprocess.run(repeat[1], shell=True, cwd=tmp_path, env={**environment(tmp_path), **places},
                           capture_output=True, text=True, check=False)  # fmt: skip
    assert again.returncode == 1
    assert "the compiler crashed" in again.stderr
    assert leftovers(tmp_path) == []


def test_timeout(source: Path, tmp_path: Path) -> None:
    result = run(tmp_path, "compile", str(source), "-o", "out/x.vmfb", "--timeout", "0.05")
    assert result.code == 1
    assert result.err == f"qmlir: error: {source}: the compiler did not finish in 0.05 s\n"
    assert leftovers(tmp_path) == []


def interrupted(folder: Path, source: Path, delay: float, number: int, whole_group: bool) -> Result:
    """Compile, and send a signal `delay` seconds after the child's folder appeared."""
    process = subprocess.Popen(
        command("compile", str(source), "-o", "out/x.vmfb"), env=environment(folder), cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while not any((folder / "tmp").iterdir()) and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    if process.poll() is None:
        if whole_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return Result(process.returncode, out, err)


def test_interrupt_leaves_nothing(source: Path, tmp_path: Path) -> None:
    codes = []
    # Both ways in which an interrupt comes: from the terminal to both processes, from a supervisor to one.
    ways = ((signal.SIGINT, True), (signal.SIGTERM, False))
    for i in range(10):
        result = interrupted(tmp_path, source, 0.12 * i, *ways[i % 2])
        codes.append(result.code)
        assert "Traceback" not in result.err
        if result.code == 0:  # it finished before the signal
            (tmp_path / "out" / "x.vmfb").unlink()
        else:
            assert (result.code, result.err) == (130, "qmlir: interrupted\n")
        assert leftovers(tmp_path) == []
    assert codes[0] == 130, codes


# The exit handlers run in reverse order: this one runs after the command's own.
ENDS_SLOWLY = """
import atexit, sys, time
from qmlir.cli import main
def slow():
    print("ending", flush=True)
    time.sleep(1)
atexit.register(slow)
sys.exit(main(sys.argv[1:]))
"""


def test_an_interrupt_of_what_has_finished(source: Path, tmp_path: Path) -> None:
    """Regression: the output was written, but the signal killed Python while it exited."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENDS_SLOWLY, "compile", str(source), "-o", "out/x.vmfb"], env=environment(tmp_path),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    while "ending" not in (line := process.stdout.readline()):
        assert line
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert (tmp_path / "out" / "x.vmfb").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").chmod(0o500)
    result = run(tmp_path, "compile", str(source), "-o", "out/x.vmfb")
    (tmp_path / "out").chmod(0o700)
    assert result.code == 1
    assert re.match(r"qmlir: error: cannot write out/x\.vmfb: no permission in out\n", result.err)
    assert leftovers(tmp_path) == []


def test_existing_output_survives_a_failure(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "x.vmfb").write_bytes(b"before")
    source.write_text(edited(("8x16xi8", "9x16xi8")))
    result = run(tmp_path, "compile", str(source), "-o", "out/x.vmfb")
    assert result.code == 1
    assert f"{source}:2:8: error: 'qmlir.scaled_matmul' op K differs" in result.err
    assert (tmp_path / "out" / "x.vmfb").read_bytes() == b"before"


def test_standard_input_of_qmlir_opt(tmp_path: Path) -> None:
    result = run(tmp_path, "-", "--pass-pipeline=qmlir-verify", program="qmlir-opt",
                 input=edited(("8x16xi8", "9x16xi8")))  # fmt: skip
    assert result.code == 1
    assert result.err.startswith("<stdin>:2:8: error: 'qmlir.scaled_matmul' op K differs")
