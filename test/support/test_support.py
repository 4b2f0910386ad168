"""The support matrix: every form is on the best instruction that its target has for it, or the cell says why not.

matrix.json is what `python test/support/run.py` found. The fast tier finds some of its cells again, other ones for each
commit, the slow tier all.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.forms import FORMS, Form
from support.run import TARGETS, compile_cell, read

from qmlir.targets import resolve
from qmlir.targets.gpu import parse_mma

RESULTS = read()
BY_NAME = {form.name: form for form in FORMS}
# One form of each kind, where its route is a different one.
SAMPLE = (
    ("scaled_matmul: s8 x s8, per token and channel", "cuda:sm_90a"),
    ("scaled_matmul: s8 x s4, group 128", "rocm:gfx1100"),
    ("scaled_matmul: f16 x s8, per channel", "vulkan:ada"),
    ("scaled_matmul: bf16 x s4, group 128", "vulkan:rdna3"),
    ("scaled_matmul: f32 x s4, group 128", "cuda:sm_80"),
    ("scaled_matmul: e4m3 x e4m3", "rocm:gfx942"),
    ("scaled_matmul: e4m3 x e4m3", "rocm:gfx950"),
    ("scaled_matmul: fp4 e2m1 x e2m1, MX (32, e8m0)", "cuda:sm_90a"),
    ("conv2d_q: u8 x s8, zero point", "rocm:gfx1201"),
    ("dequant: e4m3", "cuda:sm_80"),
)


def test_every_cell_is_there() -> None:
    assert len(BY_NAME) == len(FORMS), "two rows have one name"
    assert list(RESULTS) == list(BY_NAME), "run python test/support/run.py"
    assert all(tuple(row) == TARGETS for row in RESULTS.values()), "run python test/support/run.py"


AS_IT_LIES = ("as an argument", "batched", "at run time")
# f16 by codes that fit eight bits: see vulkan/kernels/matrix.py.
INTEGER_CODES = r": f16 x (?:[su]\d|nf4|codebook)|computed in f16|moe: f16"


def best_instruction(form: Form, target: str) -> str:
    """A pattern of the instructions that the form has to be on; "" where the target has none for it."""
    described = resolve(target)
    kinds = {k.lhs for k in map(parse_mma, described.capabilities.mma)}
    if form.product == "int8":
        if described.backend == "vulkan":
            # What no constant packs for a cooperative matrix is read as it lies, by dot products, in one dispatch.
            dots = "|OpSDot" if any(text in form.name for text in AS_IT_LIES) else ""
            return f"OpCooperativeMatrix.* i8{dots}"
        return r"v_\w+_(?:iu8|i8)|(?:mma\.sync|wgmma).*s8\.s8"
    if form.product.startswith("f8") and form.product in kinds and described.backend == "rocm":
        return "fp8|bf8|f8f6f4"
    if form.product == "f32":
        return "mfma_f32.*f32" if "f32" in kinds else ""
    if "e2m1 x e2m1" in form.name:  # twice a code is an integer
        return "bf16|f16|f8f6f4|i8|iu8|OpSDot"
    if described.backend == "vulkan":
        # Others have no such kernel, and IREE 3.13 makes no f16 cooperative matrix that a device could run: it warns.
        return "OpCooperativeMatrix.* f16" if re.search(INTEGER_CODES, form.name) else ""
    return "bf16|f16|fp8_bf8|f8f6f4"  # two formats: AMD has instructions for the pair


@pytest.mark.parametrize(
    ("target", "integer"),
    [(target, integer) for target in TARGETS for integer in (True, False)],
)
def test_the_best_instruction_is_found(target: str, integer: bool) -> None:
    """No scheme is silently computed by multiply-adds where the target has an integer or 16-bit matrix instruction."""
    wrong = []
    for form in FORMS:
        cell = RESULTS[form.name][target]
        if not form.product or (form.product == "int8") != integer or cell["status"] == "refused":
            continue
        assert cell["status"] == "compiled", (form.name, cell)
        pattern = best_instruction(form, target)
        found = pattern and re.search(pattern, cell["instruction"]) and cell["fast"] >= cell["products"] > 0
        if not found and not (cell.get("notes") and not pattern):
            wrong.append((form.name, cell))
    assert not wrong


def test_refusals_say_what_would_fit() -> None:
    """Never a message of IREE, a crash, or a name without a remedy."""
    for name, row in RESULTS.items():
        for target, cell in row.items():
            if cell["status"] != "compiled":
                assert cell["status"] == "refused", (name, target)
                assert cell["error"] == "PassError", (name, target)
                assert "use one of" in cell["reason"], (name, target)


def test_forms_without_a_product_compile_everywhere() -> None:
    assert all(cell["status"] == "compiled" for f in FORMS if not f.product for cell in RESULTS[f.name].values())


def test_dynamic_quantisation_is_one_pass_over_memory() -> None:
    """Two with the product behind it."""
    names = [name for name in BY_NAME if "dynamic_quantize" in name]
    assert len(names) == 4
    for name in names:
        most = 2 if name.startswith("program") else 1
        assert all(cell["kernels"] <= most for cell in RESULTS[name].values()), name


@pytest.mark.parametrize("target", ["cpu", "cpu:znver4", "cpu:neoverse-v1"])
def test_dynamic_quantisation_is_one_dispatch_on_cpus(target: str, tmp_path: Path) -> None:
    BY_NAME["dynamic_quantize: f16, per token, asymmetric"].compile(
        target, m=None, flags=(f"--iree-hal-dump-executable-sources-to={tmp_path}",)
    )
    assert len(list(tmp_path.glob("*.mlir"))) == 1  # by a kernel of ours, or of IREE's


@pytest.mark.parametrize(("name", "target"), SAMPLE, ids=str)
def test_sample(name: str, target: str) -> None:
    assert compile_cell(BY_NAME[name], target) == RESULTS[name][target]


@pytest.mark.parametrize("number", range(len(TARGETS)))
def test_cells_of_this_commit(number: int, rotation: int) -> None:
    """One of each target."""
    form, target = FORMS[(rotation + 13 * number) % len(FORMS)], TARGETS[number]
    assert compile_cell(form, target) == RESULTS[form.name][target], (form.name, target)


@pytest.mark.sweep(slow=2)
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_whole_matrix(target: str) -> None:
    found = {form.name: compile_cell(form, target) for form in FORMS}
    assert found == {name: row[target] for name, row in RESULTS.items()}


@pytest.mark.sweep(slow=2)
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("target", ["cuda:sm_86", "cuda:sm_89", "cuda:sm_120"])
def test_other_cuda_targets_do_as_the_first(target: str) -> None:
    """They have its instructions and less shared memory: other tiles, nothing else."""

    def unnamed(cell: dict[str, Any]) -> dict[str, Any]:
        return {**cell, "notes": [note.replace(target, "cuda:sm_80") for note in cell.get("notes", [])]}

    found = {form.name: unnamed(compile_cell(form, target)) for form in FORMS}
    assert found == {name: unnamed(row["cuda:sm_80"]) for name, row in RESULTS.items()}


@pytest.mark.sweep(slow=2)
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("target", [t for t in TARGETS if not t.startswith("vulkan")])
def test_dynamic_rows_stay_on_matrix_instructions(target: str) -> None:
    """On Vulkan a dynamic M has no matrix instruction, which is a warning there (docs/adding-a-target.md)."""
    wrong: list[Any] = []
    for form in FORMS:
        if form.product in ("", "f32") or "batched" in form.scheme:
            continue
        cell = compile_cell(form, target, m=None)
        if cell["status"] != "compiled" or (cell["fast"] < cell["products"] and not cell.get("notes")):
            wrong.append((form.name, cell))
    assert not wrong
