"""Writes docs/pipeline.md (one operation at every stage, taken from the compiler itself) and docs/cases.md (what came
of the test cases in conformance/).

python docs/generate.py           # write
python docs/generate.py --check   # exit 1 when a page is out of date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from qmlir.compiler import default_pipeline, text_at
from qmlir.targets import resolve

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from conformance import report

DOCS = Path(__file__).resolve().parent

EXAMPLE = """\
func.func @main(%x: tensor<?x4xi8>, %x_scale: tensor<?x1xf32>) -> tensor<?x3xi8> {
  %w = arith.constant dense<[[1, -2, 3, -4], [5, 6, -7, 8], [-9, 10, 11, -12]]> : tensor<3x4xi8>
  %w_scale = arith.constant dense<[[0.5], [0.25], [0.125]]> : tensor<3x1xf32>
  %x_zero = arith.constant dense<3> : tensor<i8>
  %out_scale = arith.constant dense<2.0> : tensor<f32>
  %y = "qmlir.scaled_matmul"(%x, %w, %x_scale, %w_scale, %x_zero, %out_scale) {
    rhs_transposed = true, lhs_zero_mode = "int", activation = "relu", rounding = "half_even",
    operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0>
  } : (tensor<?x4xi8>, tensor<3x4xi8>, tensor<?x1xf32>, tensor<3x1xf32>, tensor<i8>, tensor<f32>) -> tensor<?x3xi8>
  return %y : tensor<?x3xi8>
}
"""

INTRO = """\
# How a program goes through the compiler

*This page is written by `python docs/generate.py`; a test keeps it up to date.*

A program is a module of `qmlir` ops among `linalg`, `arith` and `tensor` ops. Stages have names; each can be dumped
(`qmlir compile --dump-stages DIR`), shown (`artifact.source("linalg")`) and restarted from (`qmlir compile --start linalg`).

| stage | what has happened | where |
|---|---|---|
| `import` | parsed; front ends raise their ops to ours | `qmlir/compiler.py` |
| `qmlir` | verified; parameters baked in; weights unpacked and laid out, scales and weight sums folded | `passes/verify.py`, `bake.py`, `fold.py` |
| `linalg` | each op is contractions and elementwise generics on tensors, one form per meaning | `passes/lower/` |
| `configured` | each contraction has the strategy that the target chose; nothing is left that IREE does not know | `passes/select.py`, `guard.py`, `qmlir/targets/` |
| `executable` | device code: `artifact.source("asm")`, `"ptx"`, `"isa"`, `"spirv"` | IREE |
| `vmfb` | one file, its manifest inside | `qmlir/artifact.py` |

The text of the passes that run for `{target}`:

```
{pipeline}
```

## One product at each stage

An int8 product with a zero point on the activations, relu, and an int8 result. The sums that the zero point needs are
constants by the stage `qmlir` (operand `rhs_sum`), and at `linalg` the whole epilogue is one generic, which IREE fuses
with the contraction.
"""  # noqa: E501  (rows of a table)


def page() -> str:
    """The text of the page."""
    target = resolve("rocm:gfx942")
    parts = [INTRO.format(target=target.spelling, pipeline=default_pipeline(target).replace(",", ",\n"))]
    for level in ("import", "qmlir", "linalg", "configured"):
        text = text_at(EXAMPLE, level, target=target.spelling)
        parts.append(f"### `{level}`\n\n```mlir\n{readable(text)}\n```\n")
    return "\n".join(parts)


def readable(text: str) -> str:
    """Without locations."""
    lines = [line for line in text.splitlines() if not line.startswith("#loc")]
    text = "\n".join(re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", line).rstrip() for line in lines).strip()
    # The target's description is long, and the target's own page has it.
    return re.sub(r"hal\.device\.targets = \[.*?\] *\}", "hal.device.targets = [...]}", text)


# File name -> its text.
PAGES = {"pipeline.md": page, "cases.md": report.page}


def main() -> int:
    check, stale = "--check" in sys.argv[1:], 0
    for name, text_of in PAGES.items():
        text, file = text_of(), DOCS / name
        if not check:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            print(f"{name} is out of date: run python docs/generate.py")
            stale = 1
    return stale


if __name__ == "__main__":
    raise SystemExit(main())
