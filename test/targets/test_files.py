"""The program files of every target: a fresh process opens a file that another one wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from qmlir.targets import all_targets

# A product and its scale.
FUNCTION = """
func.func @NAME(%x: tensor<ROWSx64xi8>, %s: tensor<ROWSx1xf32>) -> tensor<ROWSx32xf32> {
  %w = arith.constant dense<3> : tensor<64x32xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {
    operand_names = ["lhs", "rhs", "lhs_scale"]
  } : (tensor<ROWSx64xi8>, tensor<64x32xi8>, tensor<ROWSx1xf32>) -> tensor<ROWSx32xf32>
  return %0 : tensor<ROWSx32xf32>
}
"""


def command(*words: str) -> None:
    """Run a qmlir command in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "qmlir", *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.sweep(fast=45, slow=60)
@pytest.mark.parametrize("target", [t.spelling for t in all_targets()])
def test_a_saved_program_is_opened(target: str, tmp_path: Path) -> None:
    """Regression: programs with cooperative matrices were edited after packing, and their files could not be opened."""
    source, file = tmp_path / "p.mlir", str(tmp_path / "p.vmfb")
    rows = {"static": "16", "dynamic": "?"}  # two functions, to compile half as often
    source.write_text("".join(FUNCTION.replace("NAME", n).replace("ROWS", r) for n, r in rows.items()))
    command("compile", str(source), "-q", "-t", target, "-o", file)
    command("inspect", "-q", file)
