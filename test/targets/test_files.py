"""Every target's programs as files: what one process writes, a fresh one opens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from qmlir.targets import all_targets

# A product and what follows it, of M rows.
PROGRAM = """
func.func @main(%x: tensor<MxK_i8>, %s: tensor<Mx1xf32>) -> tensor<Mx32xf32> {
  %w = arith.constant dense<3> : tensor<64x32xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {
    operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>
  } : (tensor<MxK_i8>, tensor<64x32xi8>, tensor<Mx1xf32>) -> tensor<Mx32xf32>
  return %0 : tensor<Mx32xf32>
}
""".replace("K_", "64x")
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
    """Programs with cooperative matrices were edited after they had been packed: none of their files could be opened."""
    targets = [t.spelling for t in all_targets()]
    files = []
    for name, rows in (("static", "16"), ("dynamic", "?")):
        source = tmp_path / f"{name}.mlir"
        source.write_text(PROGRAM.replace("M", rows))
        files += [(source, t, tmp_path / f"{name}-{t.replace(':', '-')}.vmfb") for t in targets]
    codes, told = commands([["compile", str(s), "-q", "-t", t, "-o", str(f)] for s, t, f in files], tmp_path / "crumb")
    assert codes == [0] * len(files), told
    codes, told = commands([["inspect", "-q", str(f)] for _, _, f in files], tmp_path / "crumb")
    assert codes == [0] * len(files), told
