"""The support matrix: every form uses the best instruction that its target has for it, or the cell says why not.

matrix.json holds the results of `python test/support/run.py`, which judges each cell (`judge.py`). The fast tier
compiles and judges some cells again, different ones for each commit; the slow tier all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.forms import FORMS, Form
from support.judge import problem
from support.run import TARGETS, Cell, compile_cell, read

RESULTS = read()
BY_NAME = {form.name: form for form in FORMS}
# Forms of each kind, on targets that compile them by different routes.
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


def found(form: Form, target: str) -> Cell:
    """Compile and judge a cell again."""
    cell = compile_cell(form, target)
    assert not problem(form, target, cell), (form.name, target, cell)
    return cell


def test_a_bad_cell_is_noticed() -> None:
    form, target = BY_NAME["scaled_matmul: s8 x s8, per token and channel"], "cuda:sm_80"
    good = RESULTS[form.name][target]
    assert not problem(form, target, good)
    assert problem(form, target, {**good, "instruction": "mad.lo.s32"}) == "it is not on the best instruction"
    assert problem(form, target, {**good, "fast": 0})
    assert problem(form, target, {"status": "failed", "reason": "the compiler crashed"})
    assert problem(form, target, {"status": "refused", "error": "PassError", "reason": "no"})
    quantised = BY_NAME["dynamic_quantize: f16, per token"]
    assert problem(quantised, target, {**RESULTS[quantised.name][target], "kernels": 2})


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("target", ["cpu", "cpu:znver4", "cpu:neoverse-v1"])
def test_dynamic_quantisation_is_one_dispatch_on_cpus(target: str, tmp_path: Path) -> None:
    BY_NAME["dynamic_quantize: f16, per token, asymmetric"].compile(
        target, m=None, flags=(f"--iree-hal-dump-executable-sources-to={tmp_path}",)
    )
    assert len(list(tmp_path.glob("*.mlir"))) == 1  # by a kernel of qmlir's or of IREE's


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.parametrize(("name", "target"), SAMPLE, ids=str)
def test_sample(name: str, target: str) -> None:
    assert found(BY_NAME[name], target) == RESULTS[name][target]


@pytest.mark.parametrize("number", range(len(TARGETS)))
def test_cells_of_this_commit(number: int, rotation: int) -> None:
    """One cell of each target."""
    form, target = FORMS[(rotation + 13 * number) % len(FORMS)], TARGETS[number]
    assert found(form, target) == RESULTS[form.name][target], (form.name, target)


@pytest.mark.sweep(slow=26)
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_whole_matrix(target: str) -> None:
    every = {form.name: found(form, target) for form in FORMS}
    assert every == {name: row[target] for name, row in RESULTS.items()}


@pytest.mark.sweep(slow=26)
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("target", ["cuda:sm_86", "cuda:sm_89", "cuda:sm_120"])
def test_other_cuda_targets_do_as_the_first(target: str) -> None:
    """They have the instructions of sm_80 and less shared memory, so only their tiles differ."""

    def unnamed(cell: dict[str, Any]) -> dict[str, Any]:
        return {**cell, "notes": [note.replace(target, "cuda:sm_80") for note in cell.get("notes", [])]}

    every = {form.name: unnamed(compile_cell(form, target)) for form in FORMS}
    assert every == {name: unnamed(row["cuda:sm_80"]) for name, row in RESULTS.items()}


@pytest.mark.sweep(slow=26)
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
