"""Writes the generated pages and pictures (`PAGES`, `FOLDERS`). Among them are: pipeline.md, one operation at every
stage, taken from the compiler; support.md, the results of the tests of the support matrix (test/support/matrix.json);
onnx.md, the patterns of the ONNX front end; cases.md, the results of the cases in conformance/; commands.md, the
commands with their outputs (commands.py); benchmarks-cpu.md, the measurements of `python -m benchmarks.cpu`, `.decoder`
and `.compile` (benchmarks/results/*.json); benchmarks-models.md, those of `python -m benchmarks.models`.

python docs/generate.py                # write
python docs/generate.py errors.md api  # only these pages, or folders of pages
python docs/generate.py --check        # exit 1 when a page is out of date
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qmlir.compiler.compilation import text_at
from qmlir.compiler.stages import default_pipeline
from qmlir.targets import resolve

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import commands
from pages import api, errors, gpu, guides, instructions, layouts, passes, schemes, speed, targets, tuning

from benchmarks.compile import section as compile_section
from benchmarks.cpu.report import page as benchmarks_page
from benchmarks.decoder import section as decoder_section
from benchmarks.models.report import page as models_page
from conformance import report

DOCS = Path(__file__).resolve().parent
EXECUTED = DOCS.parent / "test" / "emulation" / "results.json"
RESULTS = DOCS.parent / "benchmarks" / "results"
NOTEBOOK = DOCS.parent / "samples" / "11_notebook" / "torch_to_tuned.ipynb"
MATRIX = DOCS.parent / "test" / "support" / "matrix.json"

EXAMPLE = """\
func.func @main(%x: tensor<16x4xi8>, %x_scale: tensor<16x1xf32>) -> tensor<16x3xi8> {
  %w = arith.constant dense<[[1, -2, 3, -4], [5, 6, -7, 8], [-9, 10, 11, -12]]> : tensor<3x4xi8>
  %w_scale = arith.constant dense<[[0.5], [0.25], [0.125]]> : tensor<3x1xf32>
  %x_zero = arith.constant dense<3> : tensor<i8>
  %out_scale = arith.constant dense<2.0> : tensor<f32>
  %y = "qmlir.scaled_matmul"(%x, %w, %x_scale, %w_scale, %x_zero, %out_scale) {
    rhs_transposed = true, lhs_zero_mode = "int", activation = "relu", rounding = "half_even",
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "lhs_zero_point", "out_scale"]
  } : (tensor<16x4xi8>, tensor<3x4xi8>, tensor<16x1xf32>, tensor<3x1xf32>, tensor<i8>, tensor<f32>) -> tensor<16x3xi8>
  return %y : tensor<16x3xi8>
}
"""

INTRO = """\
# Compilation pipeline

*This page is written by `python docs/generate.py`; a test keeps it up to date.*

A program is a module with `qmlir`, `linalg`, `arith` and `tensor` ops. Each stage has a name and can be dumped
(`qmlir compile --dump-stages DIR`), printed (`artifact.source("linalg")`) and compiled from (`qmlir compile --start linalg`).

| stage | state of the program | code |
|---|---|---|
| `import` | parsed; front ends have raised quantised operators to `qmlir` ops | `qmlir/compiler/parsing.py` |
| `qmlir` | verified; parameters baked in; weights unpacked and laid out, scales and weight sums folded | `passes/core/verify.py`, `bake_parameters.py`, `fold.py` |
| `linalg` | each op is lowered to contractions and elementwise generics on tensors, in one canonical form | `passes/core/lower/` |
| `configured` | each contraction has the strategy that the target chose; all ops are IREE's | `passes/core/select.py`, `qmlir/targets/`; `passes/workarounds/` |
| `executable` | device code: `artifact.source("asm")`, `"ptx"`, `"isa"`, `"spirv"` | IREE |
| `vmfb` | one file, its manifest inside | `qmlir/runtime/artifact.py` |

The pass pipeline for `{target}`:

```
{pipeline}
```

## One product at each stage

An int8 product with a zero point on the activations, relu, and an int8 result. At stage `linalg` the sums of the
weight that the zero point needs are a constant, and the whole epilogue is one generic, which IREE fuses with the
contraction.
"""  # noqa: E501  (rows of a table)


SUPPORT = """\
# Support matrix

*This page is written by `python docs/generate.py` from `test/support/matrix.json`, which
`python test/support/run.py` makes by compiling every form for every target and reading the code. The fast tests
compile some of the forms again, the slow tests all of them.*

A cell has the multiply instruction found in the compiled code, and the number of kernels of the program if there are
several. Sizes are those of one layer (M = 128, N = 256, K = 512; images of 16 x 16 x 64); weights and their scales are
constants. "executed": the program was also executed on an [emulated device](emulation.md), and its results were
compared with qmlir.reference, integers exactly and floats within their tolerance. Cells without "executed" show
compiled code only. CUDA programs of two targets that differ only in the target's name (same host code, launches and
PTX) are executed once. `python test/emulation/run.py` executes them and writes `test/emulation/results.json`. Numerics
are tested on the CPU and on lavapipe.

* CUDA: products of integer codes use [built-in kernels](kernels.md), because IREE {iree} has no int8 tensor core
  instruction. Contractions that the kernels decline (grouped convolutions whose groups are not a multiple of 16
  filters) are computed in f16, with sums split so that they are exact in f32.
* One-byte floats use the target's instruction for their format if it accumulates in f32. Elsewhere each code is
  converted to bf16 or f16, exactly. NVIDIA's fp8 instructions up to Hopper keep about 14 bits of a sum and are not
  used.
* fp4 codes, and integers multiplied with floats, are converted to f16.
* "vector code": the program has no matrix or dot product instruction. This is so for conversions, depthwise
  convolutions and very sparse weights, whose entries are gathered. Other sparse weights are made dense or multiplied
  block by block; no target's instruction for 2:4 sparsity is used.
* Vulkan: products of f16 by weights of codes use f16 cooperative matrices, in built-in kernels. Other float products
  are vector code, and the compiler warns where the device has f16 cooperative matrices: IREE {iree} converts them to
  f32 first, and no device has cooperative matrices of f32.
* Sizes are static here. With a dynamic M, products by constant weights use the same instructions. On Vulkan, an integer
  weight that is an argument or batched is read in its stored layout and multiplied by dot products; products of two
  float operands with a dynamic M are slow there, and the compiler warns.
"""


def cell_text(cell: dict[str, Any], notes: list[str], executed: str = "") -> str:
    """The text of one cell. Remarks are appended to `notes`, and the cell has their numbers. `executed`: the result on
    an emulated device."""

    def note(text: str) -> str:
        if text not in notes:
            notes.append(text)
        return f" ({notes.index(text) + 1})"

    if cell["status"] != "compiled":
        return cell["status"] + note(cell["reason"])
    kernels = f", {cell['kernels']} kernels" if cell["kernels"] > 1 else ""
    if executed.startswith("executed"):
        kernels += ", executed"
    elif executed:
        kernels += ", not executed" + note(executed)
    if "instruction" not in cell:
        return f"vector code{kernels}"
    name = f"`{cell['instruction']}`" if cell["kind"] in ("matrix", "dot") else cell["kind"]
    slow = "".join(note(text.partition(": ")[2]) for text in cell.get("notes", ()))
    return f"{name}{kernels}{slow}"


def _ran(row: dict[str, dict[str, str]], target: str) -> str:
    """The result of a row on a target's emulated device."""
    return row.get(target, {}).get("result", "")


def levels(rows: dict[str, dict[str, dict[str, Any]]], executed: dict[str, dict[str, dict[str, str]]]) -> str:
    """A table of the level of proof of each target."""
    lines = ["\n| target | level | rows executed in an emulator |\n|---|---|---|"]
    lines += [f"| cpu, vulkan:lavapipe | {resolve('cpu').status} | |"]
    for target in next(iter(rows.values())):
        compiled = [name for name, row in rows.items() if row[target]["status"] == "compiled"]
        done = [name for name in compiled if _ran(executed.get(name, {}), target).startswith("executed")]
        lines.append(f"| {target} | {resolve(target).status} | {f'{len(done)} of {len(compiled)}' if done else ''} |")
    others: dict[str, list[str]] = {}  # targets without a column
    for row in executed.values():
        for target in row:
            found = _ran(row, target)
            if target not in next(iter(rows.values())) and found.startswith("executed"):
                others.setdefault(target, []).append(found)
    for target, results in sorted(others.items()):
        same = sum(found != "executed" for found in results)
        as_another = f", {same} of them as another target's program" if same else ""
        lines.append(f"| {target} | {resolve(target).status} | {len(results)} of {len(rows)}{as_another} |")
    return "\n".join(lines)


def support_page() -> str:
    """The text of support.md."""
    rows: dict[str, dict[str, dict[str, Any]]] = json.loads(MATRIX.read_text())
    targets = list(next(iter(rows.values())))
    notes: list[str] = []
    executed: dict[str, dict[str, dict[str, str]]] = json.loads(EXECUTED.read_text()) if EXECUTED.exists() else {}
    parts = [SUPPORT.format(iree=version("iree-base-compiler")), levels(rows, executed)]
    operation = ""
    for name, row in rows.items():
        op, _, scheme = name.partition(": ")
        if op != operation:
            operation = op
            title = "Programs of several operations" if op == "program" else f"`{op}`"
            parts.append(f"\n## {title}\n\n| scheme | {' | '.join(targets)} |\n|{'---|' * (len(targets) + 1)}")
        ran = executed.get(name, {})
        parts.append(f"| {scheme} | {' | '.join(cell_text(row[t], notes, _ran(ran, t)) for t in targets)} |")
    if notes:
        parts.append("\n## Notes\n")
        parts += [f"{i}. " + "\n   ".join(text.splitlines()) for i, text in enumerate(notes, 1)]
    return "\n".join(parts) + "\n"


def pipeline_page() -> str:
    """The text of pipeline.md."""
    target = resolve("rocm:gfx942")
    parts = [INTRO.format(target=target.spelling, pipeline=default_pipeline(target).replace(",", ",\n"))]
    for level in ("import", "qmlir", "linalg", "configured"):
        text = text_at(EXAMPLE, level, target=target.spelling)
        parts.append(f"### `{level}`\n\n```mlir\n{readable(text)}\n```\n")
    return "\n".join([*parts, EPILOGUE])


def readable(text: str) -> str:
    """The text without locations and the description of the target."""
    lines = [line for line in text.splitlines() if not line.startswith("#loc")]
    text = "\n".join(re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", line).rstrip() for line in lines).strip()
    # The target's description is long, and the target's page has it.
    return re.sub(r"hal\.device\.targets = \[.*?\] *\}", "hal.device.targets = [...]}", text)


EPILOGUE = """\
## The epilogue: named fields, or a list of steps

All products have one epilogue. It is declared once (`dialect/ops/product.py`), and `scaled_matmul`, `conv2d_q`,
`grouped_matmul` and `sparse_matmul` inherit it; `moe` shares the fields of the activation between its two products.
[The numerics contract](semantics.md) fixes the order of its steps; only the bias may be at one of three places,
which `bias_stage` names. The text of an op states only attributes that differ from their defaults. The alternative that
was considered is a list of steps:

```mlir
// fields: the chosen form
"qmlir.scaled_matmul"(%x, %w, %b, %s) {operand_names = ["lhs", "rhs", "bias", "out_scale"],
  activation = "relu"} : ...
// a list of steps
"qmlir.scaled_matmul"(%x, %w, %b, %s) {operand_names = ["lhs", "rhs", "bias", "out_scale"],
  epilogue = [{step = "bias", at = "scaled", value = "bias"}, {step = "activation", kind = "relu"},
              {step = "requantise", scale = "out_scale", rounding = "half_even"}]} : ...
```

| | fields | list of steps |
|---|---|---|
| text of a bias, an activation and an int8 result | 1 attribute | 1 attribute of 3 dictionaries with 8 entries |
| orders that can be written | those of the contract | all; the verifier refuses all but those of the contract |
| arguments in Python, torch schemas, `help()` | the same names | names that are derived from the steps |
| a new step | a field with a default, which no saved program has | a dictionary, which no saved program has |
| operands | by name | by name, and once more inside the list |

A list would be shorter only if products had steps in different orders. Therefore the epilogue has fields.
"""


ONNX = """\
# ONNX models

*This page is written by `python docs/generate.py` from the registered patterns.*

`qmlir.compile("model.onnx")` and `qmlir.compile(model_proto)` need `pip install "qmlir[onnx]"`. Opsets 9 to 28; static
and dynamic sizes; weights in the model file or in external data files. The program has one function, `main`, whose
arguments and results have the names, order and types of the graph's inputs and outputs: uint8 stays uint8.

Patterns raise quantised operators to operations of the dialect; torch-mlir imports all others, in the same context.
DequantizeLinear, then MatMul, Gemm or Conv with a bias, clamps such as Relu, then QuantizeLinear become one product
with an epilogue. A DequantizeLinear followed by a QuantizeLinear is removed if that is exact: the same scale, zero
point and type, and only moves of elements in between. `artifact.import_report` lists the operators that were raised,
those that were fused into another operation, and those that were left, with the reason; a warning names each node that
was left. A quantised operator that no pattern matches is refused, because torch-mlir's conversions of some of them are
wrong.

A float operator that torch-mlir does not convert, and that ONNX defines as a function of others (Attention,
RMSNormalization, RotaryEmbedding, SoftmaxCrossEntropyLoss, ...), is expanded to that function. Where torch-mlir
deviates from ONNX, the operator is imported in another way or refused; every node test of the onnx package either
passes or is refused by name (`test/support/onnx_all_nodes.json`).

Models that onnxruntime has optimised, and decoders exported for its generation API, are imported too: `com.microsoft`'s
attention with its states, grouped queries and caches that are longer than their contents, rotary embeddings, layer
normalisations after sums and embeddings, activations, fused products and convolutions, and experts. Save an optimised
model at the level `ORT_ENABLE_EXTENDED`: models of the level `ORT_ENABLE_ALL` contain machine-specific layouts.

Not supported: control flow (Loop, Scan, an If whose condition is computed), sequences, strings, sparse initializers,
and Softmax of opsets below 13 along an axis other than the last.

## Operators with a pattern

Conv, MatMul and Gemm are raised when an operand is the direct result of a DequantizeLinear; otherwise torch-mlir
imports them.

| operator | imported as |
|---|---|
"""


ONNX_TESTS = """
## Node tests of the onnx package

All backend node tests of the onnx package for the quantisation operators, and for casts from and to the types that
these operators need, pass on `cpu` and on `vulkan:lavapipe` (193 with onnx 1.23). Codes are compared exactly.
`python test/support/onnx_nodes.py` runs them; the slow tests run a share of them, chosen by the commit.
"""


def onnx_page() -> str:
    """The text of onnx.md."""
    from qmlir.compiler import patterns as registered
    from qmlir.frontends.onnx import patterns

    parts = [ONNX.rstrip("\n")]
    for name, pattern in sorted(registered._PATTERNS.items()):
        if pattern.__module__.startswith(f"{patterns.__name__}."):
            first = (pattern.__doc__ or "").strip().partition("\n\n")[0]
            parts.append(f"| `{name.removeprefix('onnx.')}` | {' '.join(first.split())} |")
    return "\n".join([*parts, ONNX_TESTS])


def cpu_benchmarks_page() -> str:
    """The text of benchmarks-cpu.md."""
    text = benchmarks_page(_results("cpu"))
    text += "".join(decoder_section(found) for found in _results("decoder"))
    return text + "".join(compile_section(found) for found in _results("compile"))


def _results(name: str) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(RESULTS.glob(f"{name}-*.json"))]


def readable_passes() -> dict[str, str]:
    return passes.pages(readable)


def target_pages() -> dict[str, str]:
    return targets.pages(json.loads(MATRIX.read_text()), cell_text)


def _machines() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The measurements on each CPU, by the name of its picture. The README shows the CPU with measured decoders."""
    decoders = {found["environment"]["cpu"]: found for found in _results("decoder")}
    machines = {}
    for file in sorted(RESULTS.glob("cpu-*.json")):
        cpu = json.loads(file.read_text())
        decoder = decoders.get(cpu["environment"]["cpu"])
        name = speed.PICTURE if decoder else file.stem.replace("cpu", "results", 1) + ".svg"
        machines[name] = cpu, decoder or {"rows": []}
    return machines


# File name -> its text.
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "errors.md": errors.page,
    "onnx.md": onnx_page,
    "pipeline.md": pipeline_page,
    "support.md": support_page,
    "cases.md": report.page,
    "benchmarks-cpu.md": cpu_benchmarks_page,
    "benchmarks-gpu.md": lambda: gpu.page(_results("gpu")),
    "benchmarks-models.md": lambda: models_page(_results("models")),
    "tuning.md": tuning.page,
    "workarounds.md": passes.workarounds_page,
    "index.md": lambda: guides.INDEX,
    "notebook.md": lambda: guides.notebook_page(json.loads(NOTEBOOK.read_text())["cells"]),
    "refused.md": guides.refused_page,
    "losing.md": lambda: speed.losing_page(_machines()),
    "pipeline.svg": layouts.pipeline_picture,
    **{name: partial(speed.picture, *found) for name, found in _machines().items()},
}
# Folder -> its pages and pictures, by file name.
FOLDERS: dict[str, Callable[[], dict[str, str]]] = {
    "schemes": schemes.pages,
    "passes": readable_passes,
    "targets": target_pages,
    "instructions": instructions.pages,
    "api": api.pages,
}


def main(arguments: Sequence[str]) -> int:
    check, stale = "--check" in arguments, 0
    names = [a.rstrip("/") for a in arguments if a != "--check"]
    if unknown := sorted({*names} - {*PAGES} - {*FOLDERS}):
        print(f"no such page: {', '.join(unknown)}; there are {', '.join((*PAGES, *FOLDERS))}")
        return 2
    made = {name: text_of() for name, text_of in PAGES.items() if not names or name in names}
    for folder, pages in FOLDERS.items():
        if names and folder not in names:
            continue
        made |= (found := pages())
        for file in (DOCS / folder).glob("*"):
            if f"{folder}/{file.name}" not in found:
                print(f"{folder}/{file.name} is no longer a page")
                stale = 1
    for name, text in made.items():
        file = DOCS / name
        if not check:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            print(f"{name} is out of date: run python docs/generate.py")
            stale = 1
    return stale


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
