"""Writes the generated pages: pipeline.md, one operation at every stage, taken from the compiler itself; support.md,
what the tests of the support matrix found (test/support/matrix.json); onnx.md, the patterns of the ONNX front end;
cases.md, what came of the test cases in
conformance/; commands.md, the commands with what they print (commands.py); benchmarks-cpu.md, what
`python -m benchmarks.cpu`, `.decoder` and `.compile` measured (benchmarks/results/*.json);
benchmarks-models.md, what `python -m benchmarks.models` measured.

python docs/generate.py           # write
python docs/generate.py --check   # exit 1 when a page is out of date
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qmlir.compiler.compilation import text_at
from qmlir.compiler.stages import default_pipeline
from qmlir.targets import resolve

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import commands
from pages import errors, instructions, layouts, passes, schemes, speed, targets, told

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

A program is a module of `qmlir` ops among `linalg`, `arith` and `tensor` ops. Stages have names; each can be dumped
(`qmlir compile --dump-stages DIR`), shown (`artifact.source("linalg")`) and restarted from (`qmlir compile --start linalg`).

| stage | what has happened | where |
|---|---|---|
| `import` | parsed; front ends raise their ops to ours | `qmlir/compiler/parsing.py` |
| `qmlir` | verified; parameters baked in; weights unpacked and laid out, scales and weight sums folded | `passes/core/verify.py`, `bake_parameters.py`, `fold.py` |
| `linalg` | each op is contractions and elementwise generics on tensors, one form per meaning | `passes/core/lower/` |
| `configured` | each contraction has the strategy that the target chose; nothing is left that IREE does not know | `passes/core/select.py`, `guard.py`, `qmlir/targets/`; `passes/workarounds/` |
| `executable` | device code: `artifact.source("asm")`, `"ptx"`, `"isa"`, `"spirv"` | IREE |
| `vmfb` | one file, its manifest inside | `qmlir/runtime/artifact.py` |

The text of the passes that run for `{target}`:

```
{pipeline}
```

## One product at each stage

An int8 product with a zero point on the activations, relu, and an int8 result. The sums that the zero point needs are
constants by the stage `qmlir` (attribute `rhs_sum`), and at `linalg` the whole epilogue is one generic, which IREE fuses
with the contraction.
"""  # noqa: E501  (rows of a table)


SUPPORT = """\
# Support matrix

*This page is written by `python docs/generate.py` from `test/support/matrix.json`, which
`python test/support/run.py` finds by compiling every form for every target and reading the code. The tests
compile a part of it again, the slow tier all of it.*

A cell is the instruction that multiplies, as it stands in the compiled code, and the number of kernels of the program.
Sizes are those of one layer (M = 128, N = 256, K = 512; images of 16 x 16 x 64); weights and their scales are
constants. Where "executed" stands in a cell, the program was also executed on an [emulated device](emulation.md), and
its results compared with qmlir.reference: integers exactly, floats within their tolerance. A program for CUDA that is
another target's but for what names the target (the same host code, launches and PTX) counts as executed where that one
was. `python test/emulation/run.py` does so and writes `test/emulation/results.json`, each result with a digest of the
program; a program that has changed since is executed again. What the other cells show is
compiled code. Numerics are tested on the CPU and on lavapipe.

* On NVIDIA through CUDA, products of integer codes are kernels of ours (kernels.md): IREE {iree} has no int8
  tensor core instruction. What they do not take (convolutions in groups of no 16 filters) is exact in f16.
  Sums are cut so that f32 holds them.
* One-byte floats use the target's own instruction where it has one of their format and its sums are f32. Elsewhere
  each code becomes the same number in bf16 or f16. NVIDIA's fp8 instructions keep about 14 bits of a sum up to
  Hopper, and are not used.
* fp4 codes, and integers beside floats, are numbers of f16, and are multiplied as such.
* "vector code" is what there is where nothing is multiplied by a matrix: conversions, depthwise convolutions, and
  sparse weights with so few entries that each product reads its own. Other sparse weights are made dense, or their
  blocks gathered: no target's instruction for 2:4 sparsity is used.
* f16 by weights of codes uses f16 cooperative matrices on Vulkan, in kernels of ours. Other float products are vector
  code there, and the compiler warns where the device has f16 cooperative matrices: IREE {iree} converts those to f32
  before it multiplies, and no device offers cooperative matrices of f32.
* Sizes are static. With a dynamic M constant weights keep these instructions. On Vulkan a weight of integers that is an
  argument, or in a batch, is read as it lies and multiplied by dot products; floats by an argument with a dynamic M are
  slow there, and the compiler warns.
"""


def cell_text(cell: dict[str, Any], notes: list[str], executed: str = "") -> str:
    """One cell; what it has to say more goes to `notes`, and its number into the cell. `executed`: what came of it on
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
    """What came of a row on a target's emulated device."""
    return row.get(target, {}).get("result", "")


def levels(rows: dict[str, dict[str, dict[str, Any]]], executed: dict[str, dict[str, dict[str, str]]]) -> str:
    """How far each target is checked, as a table."""
    lines = ["\n| target | level | rows executed |\n|---|---|---|"]
    lines += ["| cpu, vulkan:lavapipe | runs on hardware: the tests' own CPU | |"]
    for target in next(iter(rows.values())):
        compiled = [name for name, row in rows.items() if row[target]["status"] == "compiled"]
        done = [name for name in compiled if _ran(executed.get(name, {}), target).startswith("executed")]
        level = "executed in an emulator" if done else "compiled"
        lines.append(f"| {target} | {level} | {f'{len(done)} of {len(compiled)}' if done else ''} |")
    others: dict[str, list[str]] = {}  # that have no column of their own
    for row in executed.values():
        for target in row:
            found = _ran(row, target)
            if target not in next(iter(rows.values())) and found.startswith("executed"):
                others.setdefault(target, []).append(found)
    for target, results in sorted(others.items()):
        same = sum(found != "executed" for found in results)
        as_another = f", {same} of them as another target's program" if same else ""
        lines.append(f"| {target} | executed in an emulator | {len(results)} of {len(rows)}{as_another} |")
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
    return "\n".join(parts)


def readable(text: str) -> str:
    """Without locations."""
    lines = [line for line in text.splitlines() if not line.startswith("#loc")]
    text = "\n".join(re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", line).rstrip() for line in lines).strip()
    # The target's description is long, and the target's own page has it.
    return re.sub(r"hal\.device\.targets = \[.*?\] *\}", "hal.device.targets = [...]}", text)


ONNX = """\
# ONNX models

*This page is written by `python docs/generate.py` from the registered patterns.*

`qmlir.compile("model.onnx")` and `qmlir.compile(model_proto)` need `pip install "qmlir[onnx]"`. Opsets 10 to 28; static
and dynamic sizes; weights in the file or beside it. The program has one function, `main`, whose arguments and results
have the names, order and types of the graph's: uint8 stays uint8.

A quantised operator becomes operations of the dialect by a pattern; all others go through torch-mlir, in the same
context. DequantizeLinear, then MatMul, Gemm or Conv with a bias, clamps such as Relu, then QuantizeLinear become one
product whose epilogue does the rest. A quantisation that undoes a dequantisation is taken out where that is exact: the
same scale, zero point and type, with nothing but moves of elements in between. `artifact.import_report` lists what was
raised, what was taken into another operation, and what was left and why; each of the last is a warning too, which
names the node. What is quantised and has no pattern that fits is refused, for torch-mlir's own conversions of these
are not all right.

A float operator that torch-mlir does not convert, and that ONNX defines by others (Attention, RMSNormalization,
RotaryEmbedding, SoftmaxCrossEntropyLoss, ...), is put as that definition. What torch-mlir converts to something else
than ONNX says is built otherwise or refused; all node tests of the onnx package are right or refused by name
(`test/support/onnx_all_nodes.json`).

What is not imported: control flow (If, Loop, Scan), sequences, strings, sparse initializers, and Softmax of opsets
below 13 along another axis than the last.

## Operators with a pattern

A Conv, MatMul or Gemm is meant here when an operand of it is dequantised right before it; other ones are torch-mlir's.

| operator | what it becomes |
|---|---|
"""


ONNX_TESTS = """
## The onnx package's own tests

All backend node tests of the onnx package for the quantisation operators, and for casts from and to the types that they
need, pass on `cpu` and on `vulkan:lavapipe` (193 with onnx 1.23). Codes are compared exactly.
`python test/support/onnx_nodes.py` runs them; the slow tier of the tests runs a share of them for each commit.
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


TUNING = """\
# Tuning

*This page is written by `python docs/generate.py` from `benchmarks/results/tuning-cpu.json`, which
`python -m benchmarks.tuning FOLDER --json FILE` finds by compiling and measuring.*

`qmlir tune model.mlir --budget 5m` tries what the strategies of a target leave open, and writes what was best to a
database that `qmlir compile --tuning tuning.json` reads ([all options](commands.md#tune)).

1. Every strategy declares knobs (`qmlir/targets/strategy.py`, `Tunable`): the sizes of our kernels' chunks, IREE's
   flags, and which strategy is asked first. Combinations that differ from the default in at most two knobs are
   candidates.
2. Each is planned, which takes milliseconds. Candidates whose plans and flags are those of another one are dropped, and
   so are those that the kernel's own model (`qmlir/targets/cpu/kernels/forecast.py`) calls three times as slow as the
   default. The rest is ordered by the model.
3. They are compiled in child processes, as many at once as there are CPUs. Those whose code is another's, byte by byte,
   are dropped.
4. One process with pinned threads times each in alternation with the default, so that what drifts on the machine meets
   both. A candidate whose results are not the default's is refused. The best one is measured again, and counts as the
   slower of the two.
5. A choice is taken when it needs at most 98 % of the default's time; so a tuned program is never slower than an
   untuned one, as far as was measured.

`--emit DIR` and `--measure DIR` are steps 1 to 3 and 4 apart: the second needs the runtime alone, on another machine if
need be; `--dask ADDRESS` has it done by the workers of a Dask cluster. An interrupted search goes on with what is
there.

A database is a sorted JSON file: records by the target, the CPU, both versions, and each product's op, types and sizes
(M rounded up to a power of two). It names values of knobs, never flags, and `--merge` keeps every record of both. The
wheel has the one of the products below: `--tuning shipped` reads it, and so does `--tuning FILE` for what FILE lacks.

## What it gains

Ten int8 products with constant weights and a scale a row and a column, {budget:g} seconds each, on {cpu}, {threads}
threads.

| M x N x K | untuned | best choice | its time | gain |
|---|---|---|---|---|
{rows}

The geometric mean of the gains is **{mean:.3f}**. {verdict}
"""


def tuning_page() -> str:
    """The text of tuning.md."""
    from qmlir.targets.strategy import seconds_text

    found = json.loads((RESULTS / "tuning-cpu.json").read_text())
    rows = []
    for r in found["rows"]:
        choice = ", ".join(f"`{k} {v}`" for k, v in r["choice"].items()) or "the default"
        best = seconds_text(r["seconds"]) if r["choice"] else ""
        rows.append(f"| {' x '.join(map(str, r['shape']))} | {seconds_text(r['baseline'])} | {choice} | {best} | "
                    f"{r['gain']:.3f} |")  # fmt: skip
    same = sum(not r["choice"] for r in found["rows"])
    verdict = (f"For {same} of {len(rows)} the untuned choice was already the best of what was tried:\nthe kernels "
               "choose their sizes from the shape.") if same else ""  # fmt: skip
    machine = found["environment"]
    return TUNING.format(budget=found["budget"], cpu=machine["cpu"], threads=machine["threads"], rows="\n".join(rows),
                         mean=found["geometric_mean"], verdict=verdict)  # fmt: skip


# File name -> its text.
PAGES = {
    "commands.md": commands.page,
    "errors.md": errors.page,
    "onnx.md": onnx_page,
    "pipeline.md": pipeline_page,
    "support.md": support_page,
    "cases.md": report.page,
    "benchmarks-cpu.md": cpu_benchmarks_page,
    "benchmarks-models.md": lambda: models_page(_results("models")),
    "tuning.md": tuning_page,
}


def site_pages() -> dict[str, str]:
    """The pages and pictures that there are several of, by file name."""
    matrix = json.loads(MATRIX.read_text())
    cpu, decoders = (_results(name)[0] for name in ("cpu", "decoder"))
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return {
        **schemes.pages(),
        **passes.pages(readable),
        **targets.pages(matrix, cell_text),
        **instructions.pages(),
        "index.md": told.INDEX,
        "notebook.md": told.notebook_page(cells),
        "refused.md": told.refused_page(),
        "losing.md": speed.losing_page(cpu, decoders),
        "pipeline.svg": layouts.pipeline_picture(),
        speed.PICTURE: speed.picture(cpu, decoders),
    }


def main() -> int:
    check, stale = "--check" in sys.argv[1:], 0
    made = {**{name: text_of() for name, text_of in PAGES.items()}, **site_pages()}
    for folder in ("schemes", "passes", "targets", "instructions"):
        for file in (DOCS / folder).glob("*"):
            if f"{folder}/{file.name}" not in made:
                print(f"{folder}/{file.name} is no page any more")
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
    raise SystemExit(main())
