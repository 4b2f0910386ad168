"""Guides with examples that run: why an operation is declined; the first page; the notebook as a page."""

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
FEW_ROWS = f"""\
func.func @main(%x: tensor<1x512xi8>) -> tensor<1x256xi32> {{
  %w = arith.constant dense<1> : tensor<512x256xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w) {{{OPERATIONS}}} : (tensor<1x512xi8>, tensor<512x256xi8>) -> tensor<1x256xi32>
  return %0 : tensor<1x256xi32>
}}
"""
# Title, text, program, target.
CASES = (
    (
        "Unsupported element type",
        "Every strategy declines, so the program is refused; the error lists all reasons.",
        F64,
        "vulkan:ada",
    ),
    (
        "Weight as an argument",
        "The program is compiled, but without a built-in kernel, which would have to pack the weight in every call. "
        "Make the\nweight a constant, or a parameter that is compiled in.",
        product("4", 64, 32),
        "cpu:znver4",
    ),
    (
        "Float products with a dynamic number of rows on Vulkan",
        "Products of codes have a kernel for each range of rows. Products of two float operands use IREE's code "
        "generation, which\ncomputes one element per workgroup when a size is dynamic. That is slow, and the compiler "
        "warns; `--strict` makes the\nwarning an error.",
        product("?", 64, 32, "f16", "f16", "f32"),
        "vulkan:ada",
    ),
    (
        "Too few rows for a matrix instruction",
        "AMX tiles have 16 rows. With few rows vector code is as fast, and is used if its estimate is lower.",
        FEW_ROWS,
        "cpu:sapphirerapids",
    ),
)


def refused_page() -> str:
    parts = [
        f"""# Declined or slow operations

{MADE}

For each product and convolution the compiler asks the target's strategies in turn. Each accepts with a plan, or
declines with a reason and a remedy; the first that accepts is used. `qmlir explain IN --target T` and
`qmlir.explain(...)` show the answers of all strategies. They are also in `artifact.manifest`, and in the error of a
program that every strategy declines.

What helps most often:

* **Do not pad operands yourself.** Strategies pad odd sizes if necessary.
* **Make weights constants**, or parameters that are compiled in: then they are packed at compile time.
* **Use static sizes** if a strategy asks for them; if necessary, compile one program per size.
* **Prefer symmetric activations**: a zero point is exact, but costs a correction of the sums.
* **Choose group sizes of 32, 64 or 128**: a group has to be a multiple of an instruction's K.
"""
    ]
    for title, text, program, target in CASES:
        found = re.sub(r"^-:", "layer.mlir:", qmlir.explain(program, target=target).text(110), flags=re.M)
        parts.append(f"\n## {title}\n\n{text}\n\n```mlir\n{program}```\n\n")
        parts.append(f"`qmlir explain layer.mlir --target {target}`\n\n```text\n{found}\n```\n")
    parts.append("""
## Scales in very short groups along K

A scale of shape `[1, N]` with a transposed weight `[N, K]` is one scale for each of N groups along K, which is rarely
intended. Groups of fewer than 8 elements are refused, and so are groups of fewer than 32 elements if there are as many
groups as channels (or tokens). The error names the shape that was most likely meant:

```text
'rhs_scale' [1, 64] makes groups of 4 along K of 'rhs' [64, 256]; did you mean [64, 1], one value per channel? For
groups of 4 state group_size = 4
```

`group_size = 4` (an attribute of the products, an argument in Python) states that such groups are intended. It is
checked against the shapes and changes no result.

## Arguments of different sizes

Dynamic sizes that an operation requires to be equal have one name in the program's signature, as in
`main(lhs: i8[M, 256], lhs_scale: f32[M, 1])`. A call with unequal sizes is an `InputError` that names both arguments;
the program itself compares them too, in any runtime that loads it. That includes a size of 1: an axis is
broadcast only if the program's type states 1. `TensorSpec(("M", 256), "i8")` gives a size a name, and
sizes of one name are equal.

## Arguments that a program is not for

A signature also states which sizes and values a program accepts, if its operations imply limits:

```text
main(ids: i64[B, S]) -> (f32[B, S, 64]) where S is at most 512, ids are in [0, 31999]
```

Here the program has a table of positions with 512 rows and one of words with 32,000; any other call is an `InputError`
that names the position of the value. Limits of sizes come from tables whose rows are looked up by position, from the
comparisons in the program itself, and from the ranges of `torch.export` (`Dim("S", max=512)`, `4 * Dim("k")`). Limits
of values apply to an argument whose elements are indices: directly, with a constant added, or counted from the end if
negative. Indices that a program computes in another way (positions counted from a mask) are checked by the program
itself unless they are known to be inside (`qmlir-check-indices`).

## Invalid programs

An op that violates the rules of its definition is an error on every target, with its location: shapes that do not
match, a scale that does not divide an axis, a sum that may overflow i32, an unknown attribute. The rules are in the
[numerics contract](semantics.md), the errors in the [error catalogue](errors.md). `artifact.import_report` lists the
operators of a model that were not imported as quantised operations; see [ONNX](onnx.md) and [torch](torch.md).
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

`plot` is one of its extras. Once qmlir is installed, `pip install 'qmlir[onnx]'` adds the packages of another extra;
qmlir itself is not on PyPI.

Multiply two int8 matrices on this CPU:

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

Compile the same product ahead of time, for this CPU and for any x86-64 CPU, inspect one file, and call it:

```python
T = qmlir.TensorSpec
artifact = qmlir.ops.scaled_matmul.compile(T((None, 64), "i8"), w, lhs_scale=0.02, rhs_scale=0.01, target="cpu")
artifact.save("product.vmfb")
product = qmlir.ops.scaled_matmul.compile
product(T((None, 64), "i8"), w, lhs_scale=0.02, rhs_scale=0.01, target="cpu:x86-64").save("any-x86.vmfb")
print(qmlir.inspect("product.vmfb"))
print(qmlir.load("product.vmfb").main(x).shape)
```

Then, from the command line:

```console
$ qmlir explain product.vmfb
$ qmlir bench product.vmfb --size 4
$ qmlir check product.vmfb --against any-x86.vmfb
```

Next:

* compile a model: [torch](torch.md), [ONNX](onnx.md), [checkpoints](checkpoints.md)
* supported codes and scales: [quantisation schemes](schemes/index.md)
* an operation was declined or is slow: [declined or slow operations](refused.md)
* every command with its output: [command line](commands.md); every function: [API reference](api/index.md)
* load a file from someone else: [security model](trust.md)

## Speed

![{speed.PICTURE_TEXT}]({speed.PICTURE})

Figures and how they were measured: [CPU benchmarks](benchmarks-cpu.md); and [known slower cases](losing.md).
"""


def notebook_page(cells: Sequence[Mapping[str, Any]]) -> str:
    """The notebook as a page: its text and code, without outputs."""
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    first, *rest = parts
    note = (
        "*This page is written by `python docs/generate.py` from `samples/11_notebook/torch_to_tuned.ipynb`, which\n"
        "the slow tests execute. Open the notebook to see tables and pictures.*"
    )
    title, _, text = first.partition("\n")
    return "\n\n".join([title, note, text.strip(), *rest]) + "\n"
