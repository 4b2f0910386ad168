"""Writes one page per pass: what it does, its options, and a program before and after it, from its lit tests."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from qmlir.core.mlir import context, ir
from qmlir.errors import DiagnosticsError
from qmlir.ir.barriers import FAULT_OF
from qmlir.passes.base import State
from qmlir.passes.pipeline import Pipeline
from qmlir.passes.registry import PASSES, pass_class
from qmlir.passes.workarounds import workarounds

TESTS = Path(__file__).resolve().parents[2] / "test"
# The source of each pass's example: a lit file, and the number of one of its parts.
EXAMPLES: dict[str, tuple[str, int]] = {
    "qmlir-verify": ("passes/verify.mlir", 1), "qmlir-fold": ("passes/fold.mlir", 0),
    "qmlir-check-indices": ("passes/check_indices.mlir", 0),
    "qmlir-channels-last": ("passes/channels_last.mlir", 1),
    "qmlir-lower-to-linalg": ("passes/lower_elementwise.mlir", 0), "qmlir-select": ("targets/select_rocm.mlir", 0),
    "qmlir-sort-in-stages": ("passes/sort_in_stages.mlir", 0),
    "qmlir-own-destinations": ("passes/own_destinations.mlir", 0),
    "qmlir-resolve-barriers": ("passes/resolve_barriers.mlir", 0),
    "qmlir-decode-small-floats": ("passes/decode_small_floats.mlir", 0),
    "qmlir-exact-divisions": ("passes/exact_divisions.mlir", 0),
    "qmlir-expand-functions": ("passes/expand_functions.mlir", 0),
    "qmlir-neutral-elements": ("passes/neutral_elements.mlir", 0),
    "qmlir-index-slices": ("passes/index_slices.mlir", 0),
    "qmlir-index-sums": ("passes/index_sums.mlir", 0), "qmlir-cut-loops": ("passes/cut_loops.mlir", 0),
    "qmlir-split-broadcast": ("passes/split_broadcast.mlir", 0),
    "qmlir-explicit-sign": ("passes/explicit_sign.mlir", 0), "qmlir-bf16-as-bits": ("passes/bf16_as_bits.mlir", 0),
    "qmlir-store-slices": ("passes/store_slices.mlir", 0),
    "qmlir-store-constants": ("passes/store_constants.mlir", 0),
    "qmlir-expand-bf16": ("passes/expand_bf16.mlir", 0), "qmlir-keep-nan": ("passes/keep_nan.mlir", 0),
    "qmlir-guard-empty": ("passes/guard_empty.mlir", 0), "qmlir-fuse-rows": ("passes/fuse_rows.mlir", 0),
    "qmlir-row-kernels": ("passes/row_kernels.mlir", 0),
    "qmlir-code-kernels": ("passes/code_kernels.mlir", 0), "qmlir-attention": ("passes/attention.mlir", 1),
    "qmlir-widen-masks": ("passes/widen_masks.mlir", 0),
    "qmlir-store-batches": ("passes/store_batches.mlir", 0),
    "qmlir-choose-data-tiling": ("passes/choose_data_tiling.mlir", 0), "qmlir-guard": ("passes/guard.mlir", 0),
    "qmlir-drop-attributes": ("passes/drop_attributes.mlir", 0),
    "qmlir-order-convolutions": ("passes/order_convolutions.mlir", 0),
    "qmlir-order-results": ("passes/order_results.mlir", 0),
    "qmlir-store-broadcasts": ("passes/store_broadcasts.mlir", 0),
    "qmlir-store-pooled": ("passes/store_pooled.mlir", 0),
    "qmlir-spread-scans": ("passes/spread_scans.mlir", 0),
    "qmlir-store-wide": ("passes/store_wide.mlir", 0),
    "qmlir-store-shared": ("passes/store_shared.mlir", 0),
    "qmlir-order-loops": ("passes/order_loops.mlir", 0),
    "qmlir-undo-broadcasts": ("passes/undo_broadcasts.mlir", 0),
    "qmlir-crop-windows": ("passes/crop_windows.mlir", 0),
    "qmlir-guard-divisions": ("passes/guard_divisions.mlir", 0),
    "qmlir-float-convolutions": ("passes/float_convolutions.mlir", 0),
    "qmlir-start-at-zero": ("passes/start_at_zero.mlir", 0),
    "qmlir-bound-operands": ("passes/bound_operands.mlir", 0),
    "qmlir-bound-unit-sums": ("passes/bound_unit_sums.mlir", 0),
    "qmlir-record-copies": ("passes/record_copies.mlir", 0),
    "qmlir-shared-memory": ("passes/shared_memory.mlir", 0),
    "qmlir-recurrences": ("passes/recurrences.mlir", 1),
    "qmlir-coherent-buffers": ("passes/coherent_buffers.mlir", 0),
    "qmlir-sign-matrix-sums": ("passes/sign_matrix_sums.mlir", 0),
}  # fmt: skip
PARAMETERS = """\
util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<2x3xi8>
func.func @main() -> tensor<2x3xi8> {
  %w = util.global.load @w : tensor<2x3xi8>
  return %w : tensor<2x3xi8>
}
"""
MOST_LINES = 60


def page(name: str, readable: Callable[[str], str]) -> str:
    """The text of a pass's page."""
    cls = pass_class(name)
    parts = [f"# {name}\n", "*This page is written by `python docs/generate.py`, which runs the pass.*\n",
             f"{cls.summary[0].upper()}{cls.summary[1:]}.\n"]  # fmt: skip
    module_text = inspect.getdoc(inspect.getmodule(cls)) or ""
    parts.append(module_text.partition("\n\n")[2])  # the first line is the summary
    described = inspect.getdoc(cls) or ""
    if not described.startswith(f"{cls.__name__}("):  # the docstring that dataclasses generate
        parts.append(f"\n{described}")
    options = [f for f in dataclasses.fields(cls)]  # type: ignore[arg-type]  # noqa: C416
    if options:
        rows = [
            f"| `{f.name.replace('_', '-')}` | `{str(f.default).lower() if f.default != '' else '(none)'}` |"
            for f in options
        ]
        parts.append("\n## Options\n\n| option | default |\n|---|---|\n" + "\n".join(rows))
    before, after, command = example(name)
    parts.append(f"\n## Before and after\n\n`{command}`\n\n```mlir\n{short(readable(before))}\n```\n")
    parts.append(f"```{'text' if after.startswith('error') else 'mlir'}\n{short(readable(after))}\n```\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def short(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join([*lines[:MOST_LINES], "..."] if len(lines) > MOST_LINES else lines)


def example(name: str) -> tuple[str, str, str]:
    """A program before the pass, after it (or its errors), and the pass as text."""
    if name == "qmlir-bake-parameters":
        text, pipeline, state = PARAMETERS, name, State()
        state.parameters = lambda scope, key: np.arange(6, dtype=np.int8).reshape(2, 3)
    else:
        path, number = EXAMPLES[name]
        lines = (TESTS / path).read_text()
        found = re.search(r"--pass-pipeline=(?:'([^']*)'|(\S+))", lines)
        assert found, path
        pipeline, state = found[1] or found[2], State()
        chunk = lines.split("// -----")[number]
        text = "\n".join(line for line in chunk.splitlines() if not line.strip().startswith("//"))
        text = re.sub(r" *// (expected|CHECK).*", "", text)
    steps = Pipeline.parse(pipeline)
    at = next(i for i, step in enumerate(steps.steps) if step.text().partition("{")[0] == name)
    with context():
        module = ir.Module.parse(first_function(text))
        Pipeline(steps.steps[:at]).run(module, state, reproducer=False)
        before = str(module)
        try:
            Pipeline([steps.steps[at]]).run(module, state, reproducer=False)
            after = str(module)
        except DiagnosticsError as e:
            after = "\n".join(f"error: {d.message}" for d in e.diagnostics)
    return before, after, steps.steps[at].text()


def first_function(text: str) -> str:
    """The text up to the end of its first function."""
    starts = [m.start() for m in re.finditer(r"^ *func\.func", text, re.M)]
    return text if len(starts) < 2 else text[: starts[1]]


def _listed(names: list[str]) -> str:
    return "\n".join(f"* [{name}]({name}.md): {pass_class(name).summary}" for name in names)


CANARIES = "test/passes/Inputs/canaries"


def workarounds_page() -> str:
    """The text of workarounds.md: a table of the faults that are worked around."""
    of_module = {place.partition(":")[0]: name for name, place in PASSES.items()}
    of_fault = {fault: reason.value for reason, fault in FAULT_OF.items()}
    rows = []
    for module, faults in workarounds():
        name = of_module.get(module.partition(".passes.")[2])
        by = f"[{name}](passes/{name}.md)" if name else f"`{module.replace('.', '/')}.py`"
        for fault in faults:
            by = f"fusion barrier `{of_fault[fault]}`" if fault in of_fault else by
            file = f"{CANARIES}/{fault.canary}.mlir"
            is_file = (TESTS.parent / file).is_file()
            shown = f"[{fault.canary}](../{file})" if is_file else f"`{fault.canary}`"
            owner, repository, _, number = fault.upstream.split("/")[-4:] if fault.upstream else [""] * 4
            upstream = f"[{owner}/{repository}#{number}]({fault.upstream})" if number else "none is known"
            rows.append(f"| {fault.what} | {by} | {shown} | {upstream} |")
    table = "\n".join(rows)
    return f"""# Workarounds for IREE 3.13

*This page is written by `python docs/generate.py` from what each workaround states.*

Faults and limits that the project works around: of IREE 3.13, of its MLIR and LLVM, and of the drivers below it. The
canary of a fault is the smallest known program that shows it: `test/passes/test_canaries.py` compiles it without the
workaround, and is strictly expected to fail. When IREE fixes a fault, that test reports it. A canary without a file is
a program that its test makes. The last column has the upstream issue, open or closed, that describes the fault or a
part of it. The issues and pull requests of IREE and LLVM were searched for each fault; "none is known" means that none
was found.

| fault | worked around by | canary | issue |
|---|---|---|---|
{table}

If a tensor must be computed in a separate dispatch, a fusion barrier states the reason (`qmlir/ir/barriers.py` lists
the reasons); [qmlir-resolve-barriers](passes/qmlir-resolve-barriers.md) drops those that the target does not need.
"""


def pages(readable: Callable[[str], str]) -> dict[str, str]:
    found = {f"passes/{name}.md": page(name, readable) for name in PASSES}
    core = [name for name in PASSES if PASSES[name].startswith("core.")]
    workarounds = [name for name in PASSES if name not in core]
    found["passes/index.md"] = f"""# Passes

*This page is written by `python docs/generate.py`.*

The passes are listed in the order of the default pipelines; [each target's page](../targets/index.md) lists those that
run for it. [How to add a pass](../adding-a-pass.md).

## Core

{_listed(core)}

## Workarounds for IREE 3.13

Each works around a fault or limit of IREE 3.13 or of a driver: [the faults, and the programs that show
them](../workarounds.md).

{_listed(workarounds)}
"""
    return found
