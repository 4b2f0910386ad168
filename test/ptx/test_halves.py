"""Codes as 16-bit floats (`cuda/kernels/halves.py`) are bit-exact: one-hot activations select single weights."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx.program import interpret

import qmlir
from qmlir import TensorSpec
from qmlir.dialect.dtypes import DTYPES

N, K, GROUP = 72, 256, 64
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
# Codes are converted in the activation's type if the scales have that type and its mantissa is long enough for them.
CASES = [
    ("f16", "i4", "f16", False, "add.rn.f16x2"),
    ("f16", "u4", "f16", True, "sub.rn.f16x2"),
    ("f16", "i8", "f16", False, "add.rn.f16x2"),
    ("f16", "i2", "f32", False, "cvt.rn.f16x2.f32"),
    ("bf16", "i4", "bf16", False, "rn.bf16x2"),
    ("bf16", "u4", "bf16", True, "rn.bf16x2"),
    ("bf16", "i8", "bf16", False, "cvt.rn.bf16x2.f32"),
    ("bf16", "u4", "f32", True, "cvt.rn.bf16x2.f32"),
]
FAST = CASES[1], CASES[6]


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(
    ("lhs", "dtype", "scale", "zeros", "instruction"),
    [pytest.param(*c, marks=[] if c in FAST else [pytest.mark.slow]) for c in CASES],
)
@pytest.mark.parametrize("target", ["cuda:sm_80", pytest.param("cuda:sm_90a", marks=pytest.mark.slow)])
def test_the_numbers_are_those_of_the_reference(
    lhs: str, dtype: str, scale: str, zeros: bool, instruction: str, target: str
) -> None:
    rng, kind = np.random.default_rng(1), DTYPES[dtype]
    codes = rng.integers(kind.lo, kind.hi + 1, (N, K)).astype(kind.numpy)
    operands: dict[str, Any] = {
        "rhs": qmlir.reference.pack(codes, dtype, "low_first") if kind.bits < 8 else codes,
        "rhs_scale": (rng.random((N, K // GROUP)) * 2.0 ** rng.integers(-20, 4, (N, 1))).astype(FLOATS[scale]),
        "rhs_transposed": True, **({"rhs_dtype": dtype, "rhs_packing": "low_first"} if kind.bits < 8 else {}),
    }  # fmt: skip
    if zeros:
        operands["rhs_zero_point"] = rng.integers(0, 16, (N, K // GROUP)).astype(np.uint8)
    x = np.eye(K, dtype=FLOATS[lhs])[rng.permutation(K)[:33]]
    artifact = qmlir.ops.scaled_matmul.compile(TensorSpec(x.shape, lhs), target=target, out_dtype="f32", **operands)
    program = interpret(artifact)
    assert instruction in program.compiled.text
    assert "cvt.rn.f32.s" not in program.compiled.text.split("mma.sync")[1]  # no code is converted one by one
    want = qmlir.reference.scaled_matmul(x, **operands, out_dtype="f32")
    np.testing.assert_array_equal(program.main(x), want)
