"""qmlir.reference against the second oracle, on every legal pair of values of every operation's parameters."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import oracle
import qmlir
from oracle import spaces
from oracle.compare import differences
from oracle.operands import arguments
from oracle.tensor import InfiniteSum
from qmlir.sparse import SparseWeight

OPS = tuple(spaces.EXTRA)


def reference(op: str, kw: dict[str, Any]) -> Any:
    """The reference's result."""
    if op == "sparse_matmul":
        names = (
            "format",
            "rhs_shape",
            "values",
            "indices",
            "indptr",
            "block",
            "rhs_transposed",
            "rhs_dtype",
            "rhs_packing",
        )
        weight_kw = {n: kw.get(n) for n in names}
        weight_kw |= {"shape": weight_kw.pop("rhs_shape"), "dtype": weight_kw.pop("rhs_dtype"),
                      "packing": weight_kw.pop("rhs_packing")}  # fmt: skip
        rest = {n: v for n, v in kw.items() if n not in (*names, "rhs_zero_mode", "lhs")}
        return qmlir.reference.sparse_matmul(kw["lhs"], SparseWeight(**weight_kw), **rest)
    found = qmlir.reference.BY_NAME[op](**kw)
    return [x for x in found if x is not None] if isinstance(found, tuple) else found


def disagreements(op: str, rows: Any) -> list[str]:
    found, compared, infinite = [], 0, 0
    for row in rows:
        arrays, attributes = arguments(op, row)
        kw = {**arrays, **attributes}
        try:
            expected = getattr(oracle, op)(**kw)
        except InfiniteSum:
            infinite += 1
            continue
        compared += 1
        with np.errstate(all="ignore"):
            wrong = differences(reference(op, kw), expected)
        if wrong:
            found.append(f"{row}: {wrong}")
    assert infinite <= compared // 100, "too many rows end in infinities"
    return found


@pytest.mark.parametrize("op", spaces.EXTRA)
def test_every_field_is_a_parameter(op: str) -> None:
    assert not spaces.uncovered(op)


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize("op", OPS)
def test_pairs(op: str) -> None:
    assert not disagreements(op, islice(spaces.rows(op), 0, None, 9))


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_all_pairs(op: str) -> None:
    assert not disagreements(op, spaces.rows(op))


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_many(op: str) -> None:
    assert not disagreements(op, spaces.more(op, 1500, seed=1))


def _sum(**kw: Any) -> Any:
    lhs, rhs = np.array([[1, 2, 3, 4]], np.int8), np.array([[1], [2], [3], [4]], np.int8)
    return qmlir.reference.scaled_matmul(lhs, rhs, **kw)


def test_bias_of_a_raw_sum() -> None:
    found = _sum(out_dtype="i32", bias=np.array([100], np.int32), bias_stage="out")
    assert found.tolist() == [[130]]
    x, w = np.ones((1, 1, 1, 2), np.int8), np.full((1, 1, 1, 2), 3, np.int8)
    kw = {"out_dtype": "i32", "bias": np.array([100], np.int32), "bias_stage": "out"}
    assert qmlir.reference.conv2d_q(x, w, **kw).ravel().tolist() == [106]
    assert qmlir.ops.conv2d_q(x, w, **kw).ravel().tolist() == [106]


def test_float_zero_point_with_blocks_of_its_own() -> None:
    zero = np.array([[10.0], [20.0]], np.float32)
    found = _sum(rhs_scale=np.float32(1), rhs_zero_point=zero, rhs_zero_mode="rescale")
    assert found.tolist() == [[30 - 10 * 3 - 20 * 7]]


def test_accumulator_bias_beside_a_float_zero_point() -> None:
    found = _sum(rhs_scale=np.float32(2), rhs_zero_point=np.float32(1), rhs_zero_mode="rescale",
                 bias=np.array([5], np.int32), bias_stage="acc")  # fmt: skip
    assert found.tolist() == [[(30 + 5) * 2 - 10]]


def test_accumulator_bias_wraps() -> None:
    found = _sum(rhs_scale=np.float32(1), bias=np.array([2**31 - 1], np.int32), bias_stage="acc")
    assert found.tolist() == [[float(np.float32(30 + 2**31 - 1 - 2**32))]]


@pytest.mark.parametrize("zero", [1000, 2**31 - 1, -(2**31)])
def test_zero_points_outside_of_the_codes(zero: int) -> None:
    """Differences and sums are modulo 2^32."""
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.integers(-128, 128, s).astype(np.int8) for s in ((3, 16), (16, 2)))
    far, near = np.int32(zero), np.int32(7)
    scales = np.array([[0.5], [0.25]], np.float32)
    product = {"lhs": lhs, "rhs": rhs, "lhs_dtype": "i8", "rhs_dtype": "i8"}
    modes = {"lhs_zero_mode": "int", "rhs_zero_mode": "int"}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("dequant", {"input": lhs, "scale": np.float32(0.5), "zero_point": far, "dtype": "i8", "zero_mode": "int"}),
        *[("scaled_matmul", {**product, **modes, "lhs_zero_point": a, "rhs_zero_point": b, **out})
          for a, b in ((far, near), (near, far), (far, far))
          for out in ({"out_dtype": "i32"}, {"rhs_scale": np.float32(0.5)}, {"rhs_scale": scales})],
        ("scaled_matmul", {**product, "lhs_zero_mode": "int", "lhs_zero_point": far, "rhs_zero_mode": "rescale",
                           "rhs_scale": scales, "rhs_zero_point": np.float32([[3], [5]])}),
        ("conv2d_q", {"input": lhs.reshape(1, 3, 4, 4), "weight": rhs.reshape(2, 2, 2, 4), "input_dtype": "i8",
                      "weight_dtype": "i8", "input_zero_mode": "int", "weight_zero_mode": "int",
                      "input_zero_point": far, "weight_zero_point": far, "out_dtype": "i32"}),
    ]  # fmt: skip
    for op, kw in cases:
        assert not differences(reference(op, kw), getattr(oracle, op)(**kw)), (op, kw)


def test_unsigned_ceiling_division() -> None:
    from qmlir.dialect.reference.scalars import _BINARY

    x = np.array([-2, 7], np.int32)
    assert _BINARY["arith.ceildivui"](x, np.array([3, 2], np.int32)).tolist() == [(2**32 - 2 + 2) // 3, 4]
