"""Float kernels for 64-bit Arm, executed in an emulator: products by quantised weights, row kernels and attention."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from support.arm import Emulator
from support.attention import FORMS
from support.cover import diagonal, others_slow
from support.kernels import RandomCodes

import qmlir
from qmlir import TensorSpec as T
from qmlir.dialect.dtypes import DTYPES

RANGE = {"i4": (-8, 7), "u4": (0, 15), "i2": (-2, 1), "i8": (-128, 127), "u8": (0, 255), "nf4": (0, 15)}


def run(arm: Emulator, lhs: Any, weights: Any, target: str, **kw: Any) -> tuple[Any, Any]:
    """The result of the compiled and emulated product, and the reference's."""
    kw = {"rhs_transposed": True, "out_dtype": "f32", **kw}
    spec = T(lhs.shape, next(k for k, d in DTYPES.items() if d.numpy == lhs.dtype))
    artifact = qmlir.ops.scaled_matmul.compile(spec, weights, target=target, **kw)
    decision = artifact.manifest.strategies[0]
    assert decision["chosen"] == "neon-fma", decision["answers"]
    return arm.run(artifact, [[lhs]])[0], np.asarray(qmlir.reference.scaled_matmul(lhs, weights, **kw))


def check(
    arm: Emulator, dtype: str, code: str, m: int, n: int, groups: int, size: int, zero: bool, target: str, seed: int = 0
) -> None:
    """All sums are exact in f32, so the order of additions makes no difference."""
    codes = RandomCodes(seed)
    lo, hi = RANGE[code]
    weights = codes.rng.integers(lo, hi + 1, (n, groups * size)).astype(np.uint8 if code[0] == "u" else np.int8)
    lhs = codes.rng.integers(-4, 5, (m, groups * size)).astype(DTYPES[dtype].numpy)
    kw: dict[str, Any] = {
        "rhs_scale": (2.0 ** codes.rng.integers(-3, 0, (n, groups))).astype(np.float32), "rhs_dtype": code,
    }  # fmt: skip
    if zero:
        kw |= {"rhs_zero_point": codes.rng.integers(0, 5, (n, groups)).astype(np.int32), "rhs_zero_mode": "int"}
    np.testing.assert_array_equal(*run(arm, lhs, weights, target, bias=np.ones(n, np.float32), **kw))


FORMATS = [
    ("f32", "i4", 1, 128, True), ("f16", "i8", 13, 35, False), ("bf16", "u4", 5, 32, True), ("f32", "i2", 3, 48, False),
    ("f32", "u8", 10, 64, True),
]  # fmt: skip


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.parametrize(
    ("dtype", "code", "m", "size", "zero", "target"), diagonal(FORMATS, ["cpu:aarch64", "cpu:neoverse-v1"])
)
def test_multiply_adds(arm: Emulator, dtype: str, code: str, m: int, size: int, zero: bool, target: str) -> None:
    check(arm, dtype, code, m, 45, 1 if size in (35, 48) else 4, size, zero, target)


@pytest.mark.slow
@given(
    form=st.sampled_from(FORMATS), m=st.integers(1, 40), n=st.integers(1, 70), groups=st.integers(1, 4),
    size=st.sampled_from([16, 32, 96]), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=20, derandomize=False)
def test_many_multiply_adds(arm: Emulator, form: Any, m: int, n: int, groups: int, size: int, seed: int) -> None:
    dtype, code, _, _, zero = form
    check(arm, dtype, code, m, n, groups, size, zero, "cpu:neoverse-v1", seed)


@pytest.mark.parametrize("target", ["cpu:aarch64", pytest.param("cpu:neoverse-v1", marks=pytest.mark.slow)])
def test_numbers_that_are_not_bfloat16(arm: Emulator, target: str) -> None:
    """bf16 cannot represent the table's values: all four bytes are looked up. The order of additions matters here."""
    codes = RandomCodes(3)
    lhs, weights = codes.rng.standard_normal((6, 128)).astype(np.float32), codes.rng.integers(0, 16, (24, 128))
    got, want = run(arm, lhs, weights.astype(np.int8), target, rhs_dtype="nf4", rhs_scale=codes.powers(24, 2))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_weights_that_are_decoded_one_by_one(arm: Emulator) -> None:
    """A float zero point is part of the decoding of a code."""
    codes = RandomCodes(4)
    lhs = codes.rng.integers(-4, 5, (7, 64)).astype(np.float32)
    weights = codes.rng.integers(0, 16, (24, 64)).astype(np.uint8)
    kw: dict[str, Any] = {
        "rhs_dtype": "u4", "rhs_scale": np.full((24, 2), 0.5, np.float32), "rhs_zero_mode": "offset_float",
        "rhs_zero_point": codes.rng.integers(0, 8, (24, 2)).astype(np.float32),
    }  # fmt: skip
    np.testing.assert_array_equal(*run(arm, lhs, weights, "cpu:neoverse-n1", **kw))


# The last axis has whole vectors or not, is quantised in groups, or by its least and its largest value.
ROWS: dict[str, tuple[tuple[int | None, ...], dict[str, Any]]] = {
    "rows": ((None, 384), {}),
    "ragged": ((None, 101), {}),
    "range": ((None, 60), {"symmetric": False}),
    "groups": ((None, 96), {"granularity": "group", "group_size": 32}),
    "onnx": ((7, 64), {"recipe": "onnx", "symmetric": False, "out_dtype": "u8"}),
    "fbgemm": ((7, 71), {"recipe": "fbgemm", "symmetric": False, "out_dtype": "u8"}),
}


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("name", others_slow(list(ROWS), "ragged", "range"))
def test_dynamic_quantisation_is_exact(arm: Emulator, name: str) -> None:
    shape, options = ROWS[name]
    artifact = qmlir.ops.dynamic_quantize.compile(T(shape, "f32"), target="cpu:neoverse-n1", **options)
    assert "_rows_0" in artifact.source("configured")
    rng = np.random.default_rng(0)
    calls = []
    for rows in (11, 1):
        x = (30 * rng.standard_normal([rows if s is None else s for s in shape])).astype(np.float32)
        x[-1] = 0
        x[0] *= 1e-3
        calls.append([x])
    for (x,), results in zip(calls, arm.run(artifact, calls), strict=True):
        for got, expected in zip(results, qmlir.reference.dynamic_quantize(x, **options), strict=False):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", others_slow(list(FORMS), "heads-mixed"))
def test_attention(arm: Emulator, name: str) -> None:
    form = FORMS[name]
    artifact = qmlir.compile(form.text(), target="cpu:neoverse-n1")
    assert "_attention_0" in artifact.source("configured")
    rng = np.random.default_rng(1)
    calls = []
    for shape in ((2, 33, 129), (1, 1, 1), (3, 7, 5)):
        sizes = form.sizes(*shape)
        axes = (form.q, form.k, form.v, *([form.mask] if form.mask else []))
        calls.append([(1.5 * rng.standard_normal([sizes[a] for a in each])).astype(np.float32) for each in axes])
    for arguments, got in zip(calls, arm.run(artifact, calls), strict=True):
        np.testing.assert_allclose(got, form.expected(*arguments), rtol=2e-5, atol=2e-5)
