"""The libraries of the emulated drivers, and their use on the command line."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.cli import main
from qmlir.emulation import kernarg
from qmlir.emulation.backends import BACKENDS
from qmlir.emulation.launch import ArgumentLayout
from qmlir.emulation.memory import Memory
from qmlir.emulation.shim import build
from qmlir.errors import UsageError

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`x + x` of 6 codes in i32, for sm_80."""
    path = tmp_path_factory.mktemp("program") / "p.vmfb"
    w = np.eye(8, dtype=np.int8) * 2
    made = qmlir.ops.scaled_matmul.compile(
        qmlir.TensorSpec((None, 8), "i8"), w, rhs_transposed=True, out_dtype="i32", target="cuda:sm_80"
    )
    made.save(path)
    return path


def python(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_a_library_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path))
    first = build.library("cuda.c", "libcuda.so")
    stamp = first.stat().st_mtime_ns
    monkeypatch.setattr(build, "compiler", lambda: pytest.fail("built again"))
    assert build.library("cuda.c", "libcuda.so") == first
    assert first.stat().st_mtime_ns == stamp
    assert [p.name for p in first.parent.iterdir()] == ["libcuda.so"]


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(qmlir.QmlirError, match=r"need a C compiler once, and there is none .*qmlir\[emulate\]"):
        build.library("cuda.c", "libcuda.so")


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build, "compiler", lambda: ("false",))
    with pytest.raises(qmlir.QmlirError, match=r"false fails to build cuda\.c"):
        build.library("cuda.c", "libcuda.so")
    assert not list(tmp_path.rglob("*.so"))


def test_processes_build_at_the_same_time(program: Path, tmp_path: Path) -> None:
    load = f"p = qmlir.load({str(program)!r}, emulate=True)"
    text = f"import qmlir, numpy as np; {load}; print(p.main(np.ones((1, 8), np.int8)))"
    runs = [
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         env={**os.environ, "QMLIR_CACHE_DIR": str(tmp_path)})
        for _ in range(3)
    ]  # fmt: skip
    for run in runs:
        assert run.communicate()[0] == "[[2 2 2 2 2 2 2 2]]\n"


def test_the_vendors_driver_is_not_shadowed(program: Path, tmp_path: Path) -> None:
    """The process has already loaded a `libcuda.so.1`."""
    made = build.library("cuda.c", "libcuda.so")
    real = tmp_path / "libcuda.so.1"
    real.write_bytes(made.read_bytes())
    done = python(f"""
import ctypes, qmlir
ctypes.CDLL({str(real)!r})
try:
    qmlir.load({str(program)!r}, emulate=True)
except qmlir.QmlirError as e:
    print(e)
""")
    assert "this process has loaded the driver" in done.stdout, done.stderr
    assert "libcuda.so.1; an emulated device needs a process without it" in done.stdout


def test_nothing_is_loaded_where_nobody_asks() -> None:
    done = python("import sys, qmlir, qmlir.runtime; print([m for m in sys.modules if 'emulation.' in m])")
    assert done.stdout == "[]\n", done.stderr


def test_a_failed_launch_does_not_end_the_device(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from qmlir.emulation.cuda.execute import CudaExecutor

    loaded = qmlir.load(program, emulate=True)
    x = np.arange(8, dtype=np.int8)[None]

    def fail(*_: Any) -> Any:
        raise qmlir.EmulationError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(CudaExecutor, "run", fail)
        with pytest.raises(qmlir.EmulationError, match="broken"):
            loaded.main(x)
    assert np.array_equal(loaded.main(x), x.astype(np.int32) * 2)


def test_progress_and_how_it_ends_a_call(program: Path) -> None:
    class Enough(Exception):
        pass

    told: list[int] = []

    def progress(instructions: int) -> None:
        told.append(instructions)
        if len(told) == 1:
            raise Enough

    loaded = qmlir.load(program, emulate=qmlir.Emulation(progress=progress))
    with pytest.raises(Enough):
        loaded.main(np.ones((1, 8), np.int8))
    assert loaded.main(np.ones((1, 8), np.int8)).sum() == 16
    assert told == sorted(told)


def test_an_interrupt_ends_a_call(program: Path) -> None:
    """It ends a call that is executing kernels; the program can be called again."""
    done = python(f"""
import os, signal, threading
import numpy as np
import qmlir
from qmlir.emulation.cuda import execute
def forever(self, launch, memory, settings):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        settings.progress(1)
kept, execute.CudaExecutor.run = execute.CudaExecutor.run, forever
loaded = qmlir.load({str(program)!r}, emulate=True)
try:
    loaded.main(np.ones((1, 8), np.int8))
except KeyboardInterrupt:
    execute.CudaExecutor.run = kept
    print(loaded.main(np.ones((1, 8), np.int8)).sum())
""")
    assert done.stdout == "16\n", done.stderr


def test_the_child_of_a_fork_is_told(program: Path) -> None:
    done = python(f"""
import os, sys
import numpy as np
import qmlir
loaded = qmlir.load({str(program)!r}, emulate=True)
child = os.fork()
if child == 0:
    for attempt in (lambda: loaded.main(np.ones((1, 8), np.int8)), lambda: qmlir.load({str(program)!r}, emulate=True)):
        try:
            attempt()
        except qmlir.QmlirError as e:
            print(e)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
print(loaded.main(np.ones((1, 8), np.int8)).sum())
""")
    assert done.stdout.count("this process was forked from one that emulates a device") == 2, done.stderr
    assert done.stdout.endswith("16\n")


@pytest.mark.slow
def test_parameters_kept_apart(tmp_path: Path) -> None:
    """IREE loads them from their file while the program's initialisers run, some of which launch kernels."""
    sample = Path(__file__).resolve().parents[2] / "samples" / "01_digits"
    files = {"digits": str(sample / "digits.safetensors")}
    made = qmlir.compile(sample / "digits.mlir", target="cuda:sm_80", parameters=files, keep_parameters=True)
    loaded = qmlir.load(made, parameters=files, emulate=True)
    baked = qmlir.load(qmlir.compile(sample / "digits.mlir", target="cpu", parameters=files))
    x = np.random.default_rng(0).integers(-128, 128, (2, 8, 8, 1), dtype=np.int8)
    assert np.array_equal(loaded.main(x), baked.main(x))


def test_wrong_arguments_are_refused_as_ever(program: Path) -> None:
    loaded = qmlir.load(program, emulate=True)
    with pytest.raises(qmlir.InputError, match=r"argument 0 \('\w+'\) of main must be"):
        loaded.main(np.ones((1, 9), np.int8))
    assert loaded.main(np.ones((0, 8), np.int8)).shape[0] == 0  # no launch: a device refuses an empty grid
    assert loaded.main(np.ones((1, 8), np.int8)).shape == (1, 8)


# ---- the command line


def test_run(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 8), np.int8))
    words = ["run", str(program), "--emulate", "-i", str(tmp_path / "x.npy"), "--order-seed", "1"]
    assert main([*words, "-o", str(tmp_path / "y.npy")]) == 0
    assert (np.load(tmp_path / "y.npy") == 2).all()
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"results": [{"shape": [2, 8], "dtype": "int32"}]}
    wrong = ((["--repeats", "2"], "--emulate measures no time"), (["--device", "cuda"], "cannot be combined with"))
    for more, match in wrong:
        assert main([*words, *more]) == 1
        assert match in capsys.readouterr().err
    assert main(["run", str(program), "--order-seed", "1"]) == 1
    assert "--order-seed goes with --emulate" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "emulated"), [("cuda:sm_80", True), ("rocm:gfx942", True), ("vulkan:ada", False)])
def test_without_a_device_emulation_is_offered(target: str, emulated: bool, tmp_path: Path) -> None:
    x = qmlir.TensorSpec((2, 8), "i8")
    made = qmlir.ops.scaled_matmul.compile(x, qmlir.TensorSpec((8, 8), "i8"), target=target)
    made.save(tmp_path / "p.vmfb")
    words = ["bench", str(tmp_path / "p.vmfb"), "--device", f"{made.manifest.driver}://99"]
    done = subprocess.run([sys.executable, "-m", "qmlir", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no device for the driver" in done.stderr
    assert ("; emulate=True (--emulate) executes the program without one" in " ".join(done.stderr.split())) == emulated


@pytest.mark.parametrize(
    ("version", "said"),
    [((3, 10, 4), r"tinygrad, which needs Python 3\.11 or newer; this is Python 3\.10$"),
     ((3, 11, 0), r"tinygrad: pip install 'qmlir\[emulate\]'$")],
)  # fmt: skip
def test_a_package_that_is_missing(version: tuple[int, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="emulating HIP devices needs the package " + said):
        BACKENDS["rocm"].check()


def test_bench_counts(program: Path) -> None:
    words = [sys.executable, "-m", "qmlir", "bench", str(program), "--emulate", "--size", "2"]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["programs"]
    assert found["total"] == sum(found["instructions"].values()) > 0
    assert found["bytes_written"] == 2 * 8 * 4
    assert 0 <= found["matrix_share"] < 1
    assert "seconds" not in done.stdout
    done = subprocess.run([*words, "--rounds", "3"], capture_output=True, text=True, check=False)
    assert "--emulate counts, and measures no time: leave out --rounds" in done.stderr


def test_targets_say_emulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "--json"]) == 0
    rows = {r["target"]: r["emulated"] for r in json.loads(capsys.readouterr().out)}
    assert rows["cuda:sm_80"]
    assert rows["rocm:gfx942"] == BACKENDS["rocm"].complete
    assert not rows["vulkan:ada"]
    assert not rows["cpu"]
    assert main(["targets", "cuda"]) == 0
    assert capsys.readouterr().out.count("emulated") == sum(name.startswith("cuda:") for name in rows)


# ---- units


def test_memory_knows_who_wrote_what() -> None:
    data = np.zeros(96, np.uint8)
    memory = Memory()
    at = data.ctypes.data
    memory.add(at, 32)
    memory.add(at + 64, 32, host_visible=True)
    assert memory.find(at + 32) is None
    memory.mark_written(at, 8)
    memory.copy_written(at + 16, at, 16)
    written = memory.find(at + 5).written  # type: ignore[union-attr]
    assert written is not None
    assert written.sum() == 16
    memory.copy_written(at + 8, at + 64, 4)  # from memory that the host may have written
    assert written[8:12].all()
    memory.remove(at)
    assert memory.find(at) is None


def test_hidden_arguments_of_an_amd_kernel() -> None:
    layout = ArgumentLayout(((0, 8),), 24, (("hidden_block_count_x", 8, 4), ("hidden_group_size_y", 12, 2)))
    segment = kernarg.with_hidden(b"A" * 8, layout, (7, 1, 1), (32, 3, 1))
    assert segment == b"A" * 8 + (7).to_bytes(4, "little") + (3).to_bytes(2, "little") + bytes(10)


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"\x07", 7), (b"\xff", -1), (b"\xcd\x01\x00", 256), (b"\xa2hi", "hi"), (b"\x92\x01\xc3", [1, True]),
     (b"\x81\xa1k\xd1\xff\xfe", {"k": -2}), (b"\xd9\x01x", "x"), (b"\xdc\x00\x01\xc0", [None])],
)  # fmt: skip
def test_messagepack(data: bytes, value: Any) -> None:
    assert kernarg._unpacked(data, 0) == (value, len(data))
