"""Batches of products that each have their own weights, experts among them: every register tile, forced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import amx
from support.cover import diagonal
from support.kernels import RandomCodes, forced

import qmlir
from qmlir import TensorSpec as T

pytestmark = [pytest.mark.usefixtures("emulated_amx"), pytest.mark.sweep(fast=6, slow=40)]
NAMES = amx.INTEGER
SOME = [*NAMES[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]


def chosen(artifact: Any, name: str) -> None:
    for decision in artifact.manifest.strategies:
        assert decision["chosen"] == name, decision["answers"]


@pytest.mark.parametrize(("residual", "name"), diagonal([False, True], NAMES))
def test_a_batch_with_its_own_weights(name: str, residual: bool) -> None:
    codes = RandomCodes(1)
    lhs, rhs = codes(3, 14, 70), codes(3, 37, 70)
    kw: dict[str, Any] = {"rhs_transposed": True, "rhs_scale": codes.powers(3, 37, 1), "bias": codes.powers(37)}
    c = [codes.powers(3, 14, 37)] if residual else []
    specs = {"c": T((3, 14, 37), "f32"), "beta": 0.5} if residual else {}
    artifact = qmlir.ops.scaled_matmul.compile(T(lhs.shape, "i8"), rhs, pipeline=forced(name), **kw, **specs)
    chosen(artifact, name)
    want = qmlir.reference.scaled_matmul(lhs, rhs, **(kw | ({"c": c[0], "beta": 0.5} if residual else {})))
    np.testing.assert_array_equal(qmlir.load(artifact).main(lhs, *c), want)


@pytest.mark.parametrize("name", SOME)
def test_a_batch_whose_k_is_several_blocks(name: str) -> None:
    """Sums that wait between blocks of K fit the stack. Regression: with AMX they had room twice, and IREE refused
    the program."""
    codes = RandomCodes(6)
    lhs, rhs = codes(2, 96, 3080), codes(2, 128, 3080)
    artifact = qmlir.ops.scaled_matmul.compile(
        T(lhs.shape, "i8"), rhs, pipeline=forced(name), rhs_transposed=True, out_dtype="i32"
    )
    chosen(artifact, name)
    want = qmlir.reference.scaled_matmul(lhs, rhs, rhs_transposed=True, out_dtype="i32")
    np.testing.assert_array_equal(qmlir.load(artifact).main(lhs), want)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_with_groups_along_k(name: str) -> None:
    codes = RandomCodes(2)
    k = 3 * (64 if name.startswith("amx") else 32)
    lhs, rhs = codes(4, 5, k), codes(4, 21, k, lo=-8, hi=7)
    kw: dict[str, Any] = {"rhs_transposed": True, "rhs_dtype": "i4", "rhs_scale": codes.powers(4, 21, 3)}
    artifact = qmlir.ops.scaled_matmul.compile(T(lhs.shape, "i8"), rhs, pipeline=forced(name), **kw)
    chosen(artifact, name)
    np.testing.assert_array_equal(qmlir.load(artifact).main(lhs), qmlir.reference.scaled_matmul(lhs, rhs, **kw))


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("transposed", [True, False])
def test_rows_sorted_by_group(name: str, transposed: bool) -> None:
    """Groups without a row, and with more rows than a block."""
    codes = RandomCodes(3)
    lhs, rhs = codes(32, 40), codes(4, 21, 40) if transposed else codes(4, 40, 21)
    scale = codes.powers(4, 21, 1) if transposed else codes.powers(4, 1, 21)
    kw: dict[str, Any] = {"rhs_transposed": transposed, "rhs_scale": scale}
    artifact = qmlir.ops.grouped_matmul.compile(
        T(lhs.shape, "i8"), rhs, group_sizes=T((4,), "i32"), pipeline=forced(name), **kw
    )
    chosen(artifact, name)
    program = qmlir.load(artifact)
    for sizes in ([3, 0, 20, 9], [0, 0, 0, 32], [8, 8, 8, 8]):
        given = np.array(sizes, np.int32)
        want = qmlir.reference.grouped_matmul(lhs, rhs, group_sizes=given, **kw)
        np.testing.assert_array_equal(program.main(lhs, given), want)


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize(
    ("tokens", "experts", "topk", "unsigned"), diagonal([(1, 8, 2), (5, 4, 2), (40, 3, 1), (33, 16, 4)], [False, True])
)
def test_rows_routed_to_experts(name: str, tokens: int, experts: int, topk: int, unsigned: bool) -> None:
    """Rows are read in place, by an index; unused blocks are not computed."""
    codes = RandomCodes(4)
    lhs, rhs = codes(tokens, 40, unsigned=unsigned), codes(experts, 21, 40)
    ids = np.stack([codes.rng.permutation(experts)[:topk] for _ in range(tokens)]).astype(np.int32)
    kw: dict[str, Any] = {"rhs_transposed": True, "rhs_scale": codes.powers(experts, 21, 1)}
    artifact = qmlir.ops.grouped_matmul.compile(
        T(lhs.shape, "u8" if unsigned else "i8"), rhs, expert_ids=T(ids.shape, "i32"), pipeline=forced(name), **kw
    )
    chosen(artifact, name)
    want = qmlir.reference.grouped_matmul(lhs, rhs, expert_ids=ids, **kw)
    np.testing.assert_array_equal(qmlir.load(artifact).main(lhs, ids), want)


@pytest.mark.slow
@pytest.mark.sweep(slow=40)
@pytest.mark.parametrize("name", NAMES)
def test_a_dynamic_number_of_tokens(name: str) -> None:
    codes = RandomCodes(5)
    rhs = codes(4, 21, 40)
    kw: dict[str, Any] = {"rhs_transposed": True, "rhs_scale": codes.powers(4, 21, 1)}
    artifact = qmlir.ops.grouped_matmul.compile(
        T((None, 40), "i8"), rhs, expert_ids=T((None, 2), "i32"), pipeline=forced(name), **kw
    )
    chosen(artifact, name)
    program = qmlir.load(artifact)
    for tokens in (1, 9, 70):
        lhs, ids = codes(tokens, 40), codes.rng.integers(0, 4, (tokens, 2)).astype(np.int32)
        want = qmlir.reference.grouped_matmul(lhs, rhs, expert_ids=ids, **kw)
        np.testing.assert_array_equal(program.main(lhs, ids), want)
