"""Compiled programs on the CPU against the second oracle."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import oracle
import qmlir
import qmlir.compat.aiter
from oracle import spaces
from oracle.compare import differences
from oracle.operands import arguments

pytestmark = pytest.mark.sweep(fast=3, slow=40)

PRODUCTS = ("scaled_matmul", "conv2d_q", "grouped_matmul", "moe")
# Reasons of refusals: docs/semantics.md defines these operations, but no lowering supports them.
REFUSED = (
    "has an integer zero point, but the other side has float codes",
    "needs integer codes on both sides, or a plain float",
)
ELEMENTWISE = ("dequant", "quantize", "dynamic_quantize", "unpack")


def check(op: str, rows: Any) -> list[str]:
    found = []
    for row in rows:
        arrays, attributes = arguments(op, row)
        fused = {"fused": True} if op in PRODUCTS else {}
        expected = getattr(oracle, op)(**arrays, **attributes, **fused)
        short = (
            {"group_size": 4} if op in ("scaled_matmul", "grouped_matmul", "moe") else {}
        )  # a program has to state the group size
        try:
            made = qmlir.ops.BY_NAME[op](**arrays, **attributes, **short)
        except qmlir.errors.PassError as e:
            if not any(text in str(e) for text in REFUSED):
                raise
            continue
        wrong = differences(made, expected)
        if wrong:
            found.append(f"{row}: {wrong}")
    return found


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize("op", [*PRODUCTS, *ELEMENTWISE])
def test_a_few(op: str) -> None:
    every = list(spaces.more(op, 1 if op == "moe" else 3, seed=7))
    assert not check(op, every)


@pytest.mark.slow
@pytest.mark.parametrize("op", [*PRODUCTS, *ELEMENTWISE])
def test_pairs(op: str) -> None:
    assert not check(op, spaces.rows(op))


CODES = np.random.default_rng(5).integers(0, 256, (4, 64)).astype(np.uint8)
X = np.random.default_rng(6).standard_normal((2, 3, 8)).astype(np.float32)
INTEGERS: dict[str, Any] = {"lhs_dtype": "u8", "lhs_zero_mode": "int", "rhs_dtype": "i2", "rhs_transposed": True}
ONE_BIT: dict[str, Any] = {"rhs_dtype": "i1", "rhs_packing": "low_first", "rhs_transposed": True}
# Each was wrong, or refused by a pass, on the CPU.
ONCE_WRONG: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a global scale of plain floats": (
        "scaled_matmul", {"lhs": X[0], "rhs": CODES[:, :8] & 3, "lhs_global_scale": np.float32(0.5)},
        {"lhs_dtype": "f32", "rhs_dtype": "u2", "rhs_transposed": True},
    ),
    "i32 bias beside a float zero point": (
        "scaled_matmul", {"lhs": CODES[:2, :8], "rhs": (CODES[:, :8] & 1).view(np.int8), "lhs_zero_point": np.int32(9),
                          "rhs_zero_point": np.float32(0.25), "bias": np.arange(4, dtype=np.int32) * 100},
        {**INTEGERS, "rhs_zero_mode": "rescale", "bias_stage": "acc"},
    ),
    "packed zero points of one bit": (
        "scaled_matmul", {"lhs": CODES[:2, :8].view(np.int8), "rhs": CODES[:, :1],
                          "rhs_scale": np.ones((4, 2), np.float32), "rhs_zero_point": CODES[:, 5:6]},
        {**ONE_BIT, "lhs_dtype": "i8", "rhs_zero_mode": "packed_int", "group_size": 4},
    ),
    "a filter of packed codes of one bit": (
        "conv2d_q", {"input": CODES.view(np.int8).reshape(1, 4, 4, 16), "weight": CODES[:, :8].reshape(4, 2, 2, 2)},
        {"input_dtype": "i8", "weight_dtype": "i1", "weight_packing": "low_first"},
    ),
    "zero points of other blocks than the scale": (
        "quantize", {"input": X, "scale": np.full((2, 1, 4), 0.25, np.float32),
                     "zero_point": np.arange(12, dtype=np.int32).reshape(2, 3, 2)}, {"out_dtype": "i8"},
    ),
    "blocks of two sizes": (
        "dequant", {"input": CODES[:, :12].view(np.int8), "scale": np.arange(1, 5, dtype=np.float32).reshape(1, 4),
                    "zero_point": np.arange(8, dtype=np.int32).reshape(4, 2)}, {"dtype": "i8", "zero_mode": "int"},
    ),
    "blocks of which neither divides the other": (
        "dequant", {"input": CODES[:, :12].view(np.int8), "scale": np.arange(1, 5, dtype=np.float32).reshape(1, 4),
                    "zero_point": np.arange(6, dtype=np.int32)}, {"dtype": "i8", "zero_mode": "int"},
    ),
    "a batch of few rows": (
        "scaled_matmul", {"lhs": CODES[:, :42].reshape(2, 12, 7).view(np.int8), "rhs": X[:, 0, :7].reshape(2, 7, 1),
                          "lhs_scale": CODES[0, :24].reshape(2, 12, 1).astype(np.float32)},
        {"lhs_dtype": "i8", "rhs_dtype": "f32"},
    ),
}  # fmt: skip


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize("name", ONCE_WRONG)
def test_once_wrong(name: str) -> None:
    """Every operand is an argument of the program."""
    op, arrays, attributes = ONCE_WRONG[name]
    stated = {k: v for k, v in attributes.items() if k != "group_size"}  # only a program has to state it
    reference = getattr(qmlir.reference, "dequantize" if op == "dequant" else op)(**arrays, **stated)
    np.testing.assert_allclose(
        np.asarray(qmlir.ops.BY_NAME[op](**arrays, **attributes), np.float64),
        np.asarray(reference, np.float64),
        rtol=1e-5,
    )


@pytest.mark.parametrize(("rounding", "dtype"), [("trunc", "i8"), ("half_even", "e4m3")])
def test_recipe_aiter(rounding: str, dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    expected = oracle.dynamic_quantize(x, recipe="aiter", rounding=rounding, out_dtype=dtype)
    assert not differences(qmlir.compat.aiter.pertoken_quant(x, quant_dtype=dtype), expected)
    other = qmlir.reference.dynamic_quantize(x, recipe="amax", rounding=rounding, out_dtype=dtype)[:2]
    if dtype == "i8":  # the two recipes differ
        assert differences(other, expected)


TYPES = {"int4": "i4", "uint4": "u4", "int2": "i2", "uint2": "u2", "uint1": "u1", "float4_e2m1fn": "e2m1"}


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("name", TYPES)
def test_arrays_of_ml_dtypes(name: str) -> None:
    """As an argument, as a constant and in the reference, codes have the values that ml_dtypes gives them."""
    values = np.array(list(itertools.islice(itertools.cycle((0, 1, 2, 3, -1, -2)), 12)), np.float32)
    if name[0] == "u":
        values = np.minimum(np.abs(values), 1)
    codes = np.clip(values, -2, 1 if name == "int2" else 3).reshape(3, 4).astype(getattr(ml_dtypes, name))
    scale, want = np.float32(0.5), codes.astype(np.float32) * np.float32(0.5)
    np.testing.assert_array_equal(qmlir.reference.dequantize(codes, scale), want)
    made = qmlir.ops.dequantize.compile(qmlir.TensorSpec((3, 4), TYPES[name]), scale)
    np.testing.assert_array_equal(qmlir.load(made).main(codes), want)
    made = qmlir.ops.scaled_matmul.compile(qmlir.TensorSpec((2, 3), "f32"), codes, rhs_scale=scale)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(qmlir.load(made).main(x), x @ want)


def test_contradictions_are_refused() -> None:
    codes = np.zeros((2, 2), ml_dtypes.int4)
    with pytest.raises(qmlir.errors.UsageError, match="'input' holds i4 codes, one per element"):
        qmlir.ops.dequantize(codes, 0.5, dtype="u4")
    with pytest.raises(qmlir.errors.UsageError, match="reads bytes, but 'input' holds i4 codes"):
        qmlir.ops.dequantize(codes, 0.5, packing="low_first")
    with pytest.raises(qmlir.errors.UsageError, match="int1"):
        qmlir.ops.dequantize(np.zeros((2, 2), ml_dtypes.int1), 0.5)


def test_offset_modes_read_unsigned_codes() -> None:
    with pytest.raises(qmlir.errors.VerifyError, match="which reads unsigned codes, but they are i4"):
        qmlir.ops.dequantize(np.zeros((2, 2), np.int8), 0.5, dtype="i4", zero_mode="offset_int")
