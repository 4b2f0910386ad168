"""A program that is known to be slow gives one warning, also from the cache, and an error with `strict`."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support.caches import own_cache

import qmlir
from qmlir.compiler import compilation, notes, run
from qmlir.errors import CompileError

# lavapipe has no good code for floats by floats with a dynamic M, see qmlir/targets/vulkan/strategies.py.
PROGRAM = """\
func.func @main(%x: tensor<?x16xf32>, %w: tensor<16x8xf32>) -> tensor<?x8xf32> {
  %y = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"]
  } : (tensor<?x16xf32>, tensor<16x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
"""
TARGET = "vulkan:lavapipe"
REASON = "compiles this matmul to slow code: a size is dynamic"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(own_cache(tmp_path / "cache")))
    monkeypatch.setattr(notes, "_warned", set())
    path = tmp_path / "slow.mlir"
    path.write_text(PROGRAM)
    return path


def test_said_once_and_again_from_the_cache(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(qmlir.SlowFallbackWarning, match=REASON) as caught:
        artifact = qmlir.compile(program, target=TARGET)
    assert len(caught) == 1
    assert caught[0].filename == __file__  # the warning points to the caller
    assert str(caught[0].message).startswith(f"{program}:2:8: {TARGET} ")
    assert [n.location for n in artifact.notes] == [f"{program}:2:8"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qmlir.compile(program, target=TARGET)  # the warning was given already

    monkeypatch.setattr(notes, "_warned", set())  # as in a new process
    monkeypatch.setattr(compilation, "run_compiler", None)  # from the cache, then
    with pytest.warns(qmlir.SlowFallbackWarning, match=REASON):
        qmlir.compile(program, target=TARGET)
    with pytest.raises(CompileError, match=f"slow.mlir:2:8: error: .*{REASON}"):
        qmlir.compile(program, target=TARGET, strict=True)


def test_strict_stops_before_iree(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "invoke", None)
    with pytest.raises(CompileError, match=f"slow.mlir:2:8: error: .*{REASON}"):
        qmlir.compile(program, target=TARGET, strict=True)
    T = qmlir.TensorSpec
    with pytest.raises(CompileError, match=REASON):
        qmlir.ops.scaled_matmul.compile(T((None, 16), "f32"), T((16, 8), "f32"), target=TARGET, strict=True)


def test_nothing_is_said_of_what_is_not_slow(program: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert qmlir.compile(program, target="cpu", strict=True).notes == []


@pytest.mark.slow
def test_command_line(program: Path) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "qmlir", "compile", str(program), "--target", TARGET, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    output = program.with_suffix(".vmfb")
    refused = run("--strict")
    assert refused.returncode == 1
    assert f"{program}:2:8: error: {TARGET} {REASON}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not output.exists()

    told = run()
    assert told.returncode == 0
    assert told.stderr.startswith(f"qmlir: warning: {program}:2:8: {TARGET} {REASON}")
    assert told.stderr.count("\n") == 1
    assert output.exists()

    quiet = run("--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
