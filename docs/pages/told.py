"""Refusals and their remedies; the first page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import qmlir

from . import speed

MADE = "*This page is written by `python docs/generate.py`, which runs the examples.*"

OPERATIONS = 'operand_names = ["lhs", "rhs"]'


def product(m: str, k: int, n: int, lhs: str = "i8", rhs: str = "i8", out: str = "i32") -> str:
    a, b, c = f"tensor<{m}x{k}x{lhs}>", f"tensor<{k}x{n}x{rhs}>", f"tensor<{m}x{n}x{out}>"
    return (f'func.func @main(%x: {a}, %w: {b}) -> {c} {{\n  %0 = "qmlir.scaled_matmul"(%x, %w) {{{OPERATIONS}}}\n'
            f"    : ({a}, {b}) -> {c}\n  return %0 : {c}\n}}\n")  # fmt: skip


F64 = """\
func.func @main(%x: tensor<4x4xf64>, %z: tensor<4x4xf64>) -> tensor<4x4xf64> {
  %0 = linalg.matmul ins(%x, %x : tensor<4x4xf64>, tensor<4x4xf64>) outs(%z : tensor<4x4xf64>) -> tensor<4x4xf64>
  return %0 : tensor<4x4xf64>
}
"""
# Title, text, program, target.
CASES = (
    ("A type that the target has not", "Every strategy says no: the program is refused, with all reasons.", F64,
     "vulkan:ada"),
    ("A weight that is an argument", "It is compiled, but not by the kernel that packs weights once: make the weight a "
     "constant, or a parameter that is baked in.", product("4", 64, 32), "cpu:znver4"),
    ("A dynamic number of rows on Vulkan", "It is compiled, one element a workgroup, and a warning says so. `--strict` "
     "makes that an error.", product("?", 64, 32), "vulkan:ada"),
    ("Too few rows for a matrix instruction", "AMX tiles have 16 rows; below 8 the vector kernel is as fast.",
     product("1", 64, 32), "cpu:sapphirerapids"),
)  # fmt: skip


def refused_page() -> str:
    parts = [
        f"""# Why was my op refused?

{MADE}

For each product and convolution the target's strategies are asked in turn. Each accepts with a plan or declines with a
reason, and says what would make it fit; the first that accepts is taken. `qmlir explain IN --target T` shows them all,
and so do `qmlir.explain(...)`, the error of a program that nobody takes, and `artifact.manifest`.

What helps most often:

* **Pad nothing yourself.** Odd sizes are padded by the strategies that can.
* **Make weights constants**, or parameters that are baked in: then they are packed when the program is compiled.
* **Give static sizes** where a strategy asks for them; several programs for several sizes are cheap.
* **Prefer symmetric activations**: a zero point is exact and costs a correction; none costs nothing.
* **Choose groups of 32, 64 or 128**: a group has to be a multiple of what one instruction takes along K.
"""
    ]
    for title, text, program, target in CASES:
        found = re.sub(r"^-:", "layer.mlir:", qmlir.explain(program, target=target).text(110), flags=re.M)
        parts.append(f"\n## {title}\n\n{text}\n\n```mlir\n{program}```\n\n")
        parts.append(f"`qmlir explain layer.mlir --target {target}`\n\n```text\n{found}\n```\n")
    parts.append("""
## A scale in very short groups along K

A scale of shape `[1, N]` with a transposed weight `[N, K]` is one scale for each of N groups along K, which is seldom
meant. Groups of fewer than 8 elements are refused, and so are groups of fewer than 32 of which there are as many as
channels (or tokens), with the shape that was most likely meant:

```text
'rhs_scale' [1, 64] makes groups of 4 along K of 'rhs' [64, 256]; did you mean [64, 1], one value a channel? For groups
of 4 state group_size = 4
```

`group_size = 4` (an attribute of the products, an argument in Python) states that such groups are meant. It is compared
with the shapes and changes no result.

## Arguments whose sizes differ

Dynamic sizes that an operation takes to be the same have one name in the program's signature, as in
`main(lhs: i8[M, 256], lhs_scale: f32[M, 1])`. A call with other sizes is an `InputError` that names both arguments; the
program itself compares them too, in whatever runtime it is loaded. A size of 1 is no exception: what shall be broadcast
is 1 in the program's own type. `TensorSpec(("M", 256), "i8")` gives a size a name, and sizes of one name are the same.

## Refused before any target is asked

An op that is used against its definition is an error with its place: shapes that do not fit, a scale that does not
divide an axis, a sum that may leave i32, an attribute that is unknown. [The op's meaning](semantics.md) says what is
asked for. A model's operator that no pattern raises is named by `artifact.import_report`; see [ONNX](onnx.md) and
[torch](torch.md).
""")
    return "".join(parts)


INDEX = f"""# qmlir

{MADE}

A compiler for quantised linear algebra: matrix products, convolutions and mixtures of experts on int8, int4, fp8 and
other codes, from torch, ONNX or a checkpoint to one file for a CPU, CUDA, ROCm or Vulkan device.

![From a model to one file: import, verify, fold, lower, select, compile](pipeline.svg)

## Five minutes

Install it into an environment of Python 3.10 or newer, from a checkout:

```sh
pip install -e '.[plot]'
qmlir --version
```

One product, now, on this CPU:

```python
import numpy as np
import qmlir

rng = np.random.default_rng(0)
x = rng.integers(-128, 128, (4, 64), dtype=np.int8)
w = rng.integers(-128, 128, (64, 16), dtype=np.int8)
y = qmlir.ops.scaled_matmul(x, w, lhs_scale=0.02, rhs_scale=np.full((1, 16), 0.01, np.float32))
assert np.array_equal(
    y, qmlir.reference.scaled_matmul(x, w, lhs_scale=0.02, rhs_scale=np.full((1, 16), 0.01, np.float32))
)
```

The same ahead of time, to a file, and what is in it:

```python
T = qmlir.TensorSpec
artifact = qmlir.ops.scaled_matmul.compile(T((None, 64), "i8"), w, lhs_scale=0.02, rhs_scale=0.01, target="cpu")
artifact.save("product.vmfb")
print(qmlir.inspect("product.vmfb"))
print(qmlir.load("product.vmfb").main(x).shape)
```

Then, from the command line:

```console
$ qmlir explain product.vmfb
$ qmlir bench product.vmfb --size 4
$ qmlir check product.vmfb --against product.vmfb
```

* a model of yours: [torch](torch.md), [ONNX](onnx.md), [checkpoints](checkpoints.md)
* what codes and scales may be: [schemes](schemes/index.md)
* something was refused or is slow: [why](refused.md)
* every command with what it prints: [the command line](commands.md)
* a file from somebody else: [security model](trust.md)

## How fast it is

![{speed.PICTURE_TEXT}]({speed.PICTURE})

Figures and how they were measured: [CPU benchmarks](benchmarks-cpu.md); and [known slower cases](losing.md).
"""


def notebook_page(cells: Sequence[Mapping[str, Any]]) -> str:
    """The notebook as a page: its text and code. What it shows is seen when it is run."""
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    first, *rest = parts
    note = (
        "*This page is written by `python docs/generate.py` from `samples/11_notebook/torch_to_tuned.ipynb`, which\n"
        "the slow tier executes. Open that to see tables and pictures.*"
    )
    title, _, text = first.partition("\n")
    return "\n\n".join([title, note, text.strip(), *rest]) + "\n"
