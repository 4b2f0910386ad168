"""Workgroups that split K (stream-K): removing any part of their synchronisation is noticed, in any order of runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptx.program import Program, interpret
from support.cover import diagonal

import qmlir
from qmlir import TensorSpec as T
from qmlir.emulation.cuda.formats import Array
from qmlir.emulation.cuda.instructions import PtxError
from qmlir.emulation.cuda.text import parse
from qmlir.kernels import emit as e
from qmlir.targets.gpu_kernels import stream_k

pytestmark = pytest.mark.sweep(fast=3, slow=40)

M, N, K = 33, 72, 1100
CHOICE = {"strategy": "mma-sync-int8", "mma-sync-int8-tile": "16x64x128x1x4x1x4-stream-k"}
ORDERS: tuple[dict[str, Any], ...] = ({}, {"resident": 1}, {"seed": 1, "resident": 1}, {"seed": 2, "resident": 5})
COUNT = "atom.acq_rel.gpu.global.add.u32"


def operands() -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    return rng.integers(-128, 128, (M, K), dtype=np.int8), rng.integers(-128, 128, (N, K), dtype=np.int8)


def program() -> Program:
    """Compile a product with an i32 result."""
    artifact = qmlir.ops.scaled_matmul.compile(
        T((M, K), "i8"), operands()[1], rhs_transposed=True, out_dtype="i32", target="cuda:sm_80", choice=CHOICE
    )
    return interpret(artifact)


def right(made: Program) -> bool:
    lhs, rhs = operands()
    return bool((made.main(lhs) == lhs.astype(np.int32) @ rhs.astype(np.int32).T).all())


def broken(made: Program, change: Callable[[str], str]) -> Program:
    text = change(made.compiled.text)
    assert text != made.compiled.text
    wrong = Program(replace(made.compiled, ptx=parse(text)), options=made.options)
    wrong.functions = {name: replace(f, program=wrong) for name, f in made.functions.items()}
    return wrong


def without_barrier(text: str) -> str:
    """Remove the barrier in front of the atomic count."""
    front, back = text.split(COUNT)
    at = front.rindex("bar.sync")
    return front[:at] + front[front.index("\n", at) :] + COUNT + back


@pytest.fixture(scope="module")
def made() -> Program:
    return program()


@pytest.mark.slow
@pytest.mark.sweep(slow=40)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_the_order_of_workgroups_changes_nothing(made: Program, order: dict[str, Any]) -> None:
    made.options = order
    assert right(made)
    assert len(made.dispatches) == 1
    assert made.dispatches[0].grid[0] == 3 * 2 * 9  # 3 x 2 tiles of 16 x 64, and 9 steps of 128
    assert right(made), "counters of a second call start at zero"


CHANGES: dict[str, Callable[[str], str]] = {
    "relaxed": lambda text: text.replace(COUNT, COUNT.replace("acq_rel", "relaxed")),
    "no acquire": lambda text: text.replace(COUNT, COUNT.replace("acq_rel", "release")),
    "no release": lambda text: text.replace(COUNT, COUNT.replace("acq_rel", "acquire")),
    "of a workgroup": lambda text: text.replace(COUNT, COUNT.replace("gpu", "cta")),
    "not all is stored": without_barrier,
}


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize(("change", "order"), diagonal(list(CHANGES), ORDERS))
def test_parts_that_may_not_be_seen_are_noticed(made: Program, change: str, order: dict[str, Any]) -> None:
    made.options = order
    wrong = broken(made, CHANGES[change])
    with pytest.raises(PtxError, match="is read, which another warp wrote"):
        right(wrong)


@pytest.mark.slow
def test_fences_around_a_relaxed_count_are_enough(made: Program) -> None:
    made.options = {"seed": 1, "resident": 2}
    relaxed = COUNT.replace("acq_rel", "relaxed")

    def fenced(text: str) -> str:
        line = next(x for x in text.splitlines() if COUNT in x)
        new = f"\tfence.acq_rel.gpu;\n{line.replace(COUNT, relaxed)}\n\tfence.acq_rel.gpu;"
        return text.replace(line, new)

    good = broken(made, fenced)
    assert right(good)


@pytest.mark.slow
def test_a_count_by_two_finishes_the_wrong_tiles(made: Program) -> None:
    made.options = {}
    lines = made.compiled.text.splitlines(keepends=True)
    counted = [line.replace("], 1;", "], 2;") if COUNT in line else line for line in lines]
    wrong = broken(made, lambda text: "".join(counted))
    with pytest.raises(PtxError, match="is read, which another warp wrote"):
        right(wrong)
    made.options = {"resident": 1}  # here no workgroup reaches the count that completes a tile
    assert not right(broken(made, lambda text: "".join(counted)))


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A monkeypatch with a separate cache, so that broken kernels are not kept."""
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path))
    return monkeypatch


@pytest.mark.slow
def test_a_wrong_number_of_parts_is_a_wrong_result(patch: pytest.MonkeyPatch) -> None:
    original = stream_k._Part.__init__

    def one_more(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self.parts = e.add(self.parts, 1)

    patch.setattr(stream_k._Part, "__init__", one_more)
    assert not right(program())


@pytest.mark.slow
def test_a_part_that_is_added_twice_is_a_wrong_result(patch: pytest.MonkeyPatch) -> None:
    from qmlir.core.mlir import arith

    original = stream_k._Part._total

    def twice(self: Any, state: list[Any], alone: Any) -> list[Any]:
        return [arith.addi(a, b) for a, b in zip(original(self, state, alone), state, strict=True)]

    patch.setattr(stream_k._Part, "_total", twice)
    assert not right(program())


def test_parts_in_one_place_are_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stream_k._Part, "_slot", lambda self, owner: 0)
    made = program()
    made.options = {"resident": 1}
    with pytest.raises(PtxError, match="is written by two workgroups"):
        right(made)


@pytest.mark.parametrize(
    ("workgroups", "steps", "tiles"), [(7, 9, 5), (216, 8, 27), (10, 1, 10), (108, 112, 64), (3, 2, 5)]
)
def test_shares_are_equal(workgroups: int, steps: int, tiles: int) -> None:
    shares = stream_k.Shares(workgroups, steps, tiles)
    starts = [shares.start(w) for w in range(workgroups + 1)]
    assert starts[0] == 0
    assert starts[-1] == steps * tiles
    lengths = np.diff(starts)
    assert lengths.max() - lengths.min() <= 1
    for step in range(steps * tiles):
        owner = shares.owner(step)
        assert starts[owner] <= step < starts[owner + 1]
