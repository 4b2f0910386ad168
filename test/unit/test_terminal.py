"""The output of every command: on terminals of 80 and 200 columns, and piped to a file."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest

import qmlir
from qmlir.targets import all_targets

LAYER = """\
func.func @main(%x: tensor<?x64xi8>, %x_scale: tensor<?x1xf32>) -> tensor<?x32xf32> {
  %w = arith.constant dense<1> : tensor<64x32xi8>
  %s = arith.constant dense<0.5> : tensor<1x32xf32>
  %y = "qmlir.scaled_matmul"(%x, %w, %x_scale, %s) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
  } : (tensor<?x64xi8>, tensor<64x32xi8>, tensor<?x1xf32>, tensor<1x32xf32>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
"""
# The command, and the exit code.
COMMANDS = {
    "--help": 0, "--version": 0, "compile layer.mlir -o again.vmfb": 0, "compile none.mlir": 1,
    "compile layer.mlir -v": 0,
    "run layer.vmfb -i x.npy -i s.npy": 0, "check layer.mlir --layers": 0, "check layer.mlir --against wrong.mlir": 1,
    "bench layer.vmfb --rounds 5 --limits 1e12,1e10": 0, "inspect layer.vmfb": 0, "inspect layer.mlir": 0,
    "explain layer.mlir -t rocm:gfx942": 0, "explain layer.vmfb": 0, "targets": 0, "devices": 0,
    "cache path": 0, "cache ls": 0,
    "tune --merge t.json --database u.json": 0, "sign layer.vmfb": 1, "run layer.vmfb --sha256 12": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "layer.mlir").write_text(LAYER)
    (folder / "wrong.mlir").write_text(LAYER.replace("dense<0.5>", "dense<0.25>"))
    (folder / "t.json").write_text('{"format": 1, "entries": {}}')
    np.save(folder / "x.npy", np.ones((2, 64), np.int8))
    np.save(folder / "s.npy", np.ones((2, 1), np.float32))
    qmlir.compile(LAYER).save(folder / "layer.vmfb")
    return folder


def without_columns() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}


def on_terminal(words: list[str], place: Path, columns: int) -> tuple[str, int]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = without_columns()
    command = [sys.executable, "-m", "qmlir", *words]
    child = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, cwd=place, env={**environment, "TERM": "xterm"}
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(master)
    return seen.decode(), child.wait()


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_as_it_is_seen(command: str, place: Path) -> None:
    words = command.split()
    for columns in (80, 200):
        seen, code = on_terminal(words, place, columns)
        assert code == COMMANDS[command], seen
        # Only the last drawing of a progress bar counts, and colours have no width. Paths and hashes are not cut.
        drawn = [line.rpartition("\r")[2] for line in seen.replace("\r\n", "\n").split("\n")]
        lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in drawn]
        wide = [line for line in lines if len(line.rstrip()) > columns and not re.search(r"/|[0-9a-f]{64}", line)]
        assert not wide, wide
        assert seen.strip()
    again = [sys.executable, "-m", "qmlir", *words]
    piped = subprocess.run(again, cwd=place, env=without_columns(), capture_output=True, text=True, check=False)
    assert piped.returncode == COMMANDS[command], piped.stderr
    assert "\x1b" not in piped.stdout + piped.stderr
    assert bool(piped.stdout) == (piped.returncode == 0 or command.startswith("check")), "errors go to stderr"
    if command == "targets":
        assert len(piped.stdout.splitlines()) == 2 + len(all_targets()), "a line a target, the host and the head"
