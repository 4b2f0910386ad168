"""Every target's programs as files: what one process writes, a fresh one opens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from qmlir.targets import all_targets

# A product of M rows and what follows it.
FUNCTION = """
func.func @NAME(%x: tensor<ROWSx64xi8>, %s: tensor<ROWSx1xf32>) -> tensor<ROWSx32xf32> {
  %w = arith.constant dense<3> : tensor<64x32xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {
    operand_names = ["lhs", "rhs", "lhs_scale"]
  } : (tensor<ROWSx64xi8>, tensor<64x32xi8>, tensor<ROWSx1xf32>) -> tensor<ROWSx32xf32>
  return %0 : tensor<ROWSx32xf32>
}
"""
COMMANDS = """
import json, sys, warnings
from qmlir.cli import main
warnings.simplefilter("ignore")
print("\\n" + json.dumps([main(words) for words in json.load(sys.stdin)]))
"""


def commands(words: list[list[str]], crumb: Path) -> tuple[list[int], str]:
    """The exit codes of commands that a process of its own runs one after another, and what it wrote on stderr."""
    environment = {**os.environ, "QMLIR_IN_CHILD": str(crumb)}
    done = subprocess.run([sys.executable, "-c", COMMANDS], input=json.dumps(words), env=environment, check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_saved_program_of_every_target_is_opened(tmp_path: Path) -> None:
    """Programs with cooperative matrices were edited after they had been packed: their files could not be opened."""
    source = tmp_path / "p.mlir"
    rows = {"static": "16", "dynamic": "?"}  # two functions, to compile half as often
    source.write_text("".join(FUNCTION.replace("NAME", n).replace("ROWS", r) for n, r in rows.items()))
    files = {t.spelling: str(tmp_path / f"{t.spelling.replace(':', '-')}.vmfb") for t in all_targets()}
    crumb = tmp_path / "crumb"
    codes, told = commands([["compile", str(source), "-q", "-t", t, "-o", f] for t, f in files.items()], crumb)
    assert [t for t, code in zip(files, codes, strict=True) if code] == [], told
    codes, told = commands([["inspect", "-q", f] for f in files.values()], crumb)
    assert [t for t, code in zip(files, codes, strict=True) if code] == [], told
