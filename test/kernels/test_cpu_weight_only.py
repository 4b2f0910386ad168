"""Products of float activations and quantised weights: every kernel that the host runs, forced, against the reference.
The data are chosen so that all sums are exact in f32: the order of additions does not matter, and results are
bit-exact."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from support import amx
from support.cover import diagonal
from support.kernels import RandomCodes, forced

import qmlir
from qmlir import TensorSpec as T
from qmlir.dialect.dtypes import DTYPES

pytestmark = pytest.mark.usefixtures("emulated_amx")
NAMES = amx.FLOAT
BF16 = [name for name in NAMES if "bf16" in name]  # multiply in bf16
FP16 = [name for name in NAMES if "fp16" in name]  # multiply in f16
FMA = [name for name in NAMES if name not in (*BF16, *FP16)]


SIZES = st.one_of(st.integers(1, 9), st.integers(1, 40))
RANGE = {"i4": (-8, 7), "u4": (0, 15), "i2": (-2, 1), "i8": (-128, 127), "u8": (0, 255)}


def run(name: str, lhs: Any, weights: Any, *, dynamic: bool = False, **kw: Any) -> tuple[Any, Any]:
    """Return the results of the kernel `name` and of the reference."""
    kw = {"rhs_transposed": True, "out_dtype": "f32", **kw}
    rows = None if dynamic else len(lhs)
    spec = T((rows, lhs.shape[1]), next(k for k, d in DTYPES.items() if d.numpy == lhs.dtype))
    artifact = qmlir.ops.scaled_matmul.compile(spec, weights, pipeline=forced(name), **kw)
    decision = artifact.manifest.strategies[0]
    assert decision["chosen"] == name, decision["answers"]
    return np.asarray(qmlir.load(artifact).main(lhs)), np.asarray(qmlir.reference.scaled_matmul(lhs, weights, **kw))


def check(name: str, dtype: str, code: str, m: int, n: int, groups: int, size: int, seed: int, zero: str = "",
          dynamic: bool = False, **kw: Any) -> None:  # fmt: skip
    codes = RandomCodes(seed)
    lo, hi = RANGE[code]
    k = groups * size
    weights = codes.rng.integers(lo, hi + 1, (n, k)).astype(np.uint8 if code[0] == "u" else np.int8)
    lhs = codes.rng.integers(-4, 5, (m, k)).astype(DTYPES[dtype].numpy)
    kw |= {"rhs_scale": (2.0 ** codes.rng.integers(-3, 0, (n, groups))).astype(np.float32), "rhs_dtype": code}
    if zero:
        kw |= {"rhs_zero_point": codes.rng.integers(0, 5, (n, groups)).astype(np.int32), "rhs_zero_mode": "int"}
    got, want = run(name, lhs, weights, dynamic=dynamic, bias=np.ones(n, np.float32), **kw)
    np.testing.assert_array_equal(got, want)


@pytest.mark.sweep(fast=8, slow=60)
@pytest.mark.parametrize(
    ("dtype", "code", "zero", "name"),
    diagonal([("f32", "i4", "int"), ("f16", "i8", ""), ("bf16", "u4", "int"), ("f32", "i2", ""), ("f32", "i4", ""),
              ("f32", "u8", "int"), ("bf16", "i4", "")], FMA),
)  # fmt: skip
@given(m=SIZES, n=st.integers(4, 70), groups=st.integers(1, 4), size=st.sampled_from([16, 32, 35, 48, 96]),
       seed=st.integers(0, 99), dynamic=st.booleans())  # fmt: skip
@settings(max_examples=2)
def test_multiply_adds(
    name: str, dtype: str, code: str, zero: str, m: int, n: int, groups: int, size: int, seed: int, dynamic: bool
) -> None:
    groups = 1 if size in (16, 35, 48) else groups
    check(name, dtype, code, m, n, groups, size, seed, zero, dynamic)


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.skipif("avx512-bf16" not in NAMES, reason="the host has no vdpbf16ps")
@pytest.mark.parametrize(
    ("code", "zero", "name"), diagonal([("i4", ""), ("u4", "int"), ("i2", ""), ("i4", "int")], BF16)
)
@given(m=SIZES, n=st.integers(4, 70), groups=st.integers(1, 4), size=st.sampled_from([16, 32, 35, 48, 96]),
       seed=st.integers(0, 99), dynamic=st.booleans())  # fmt: skip
@settings(max_examples=3)
def test_bfloat16(
    name: str, code: str, zero: str, m: int, n: int, groups: int, size: int, seed: int, dynamic: bool
) -> None:
    groups = 1 if size in (16, 35, 48) else groups
    check(name, "bf16", code, m, n, groups, size, seed, zero, dynamic, compute_dtype="f32")


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.skipif(not FP16, reason="the host has no AVX-512 to stand in for AMX")
@pytest.mark.parametrize(
    ("code", "zero", "name"), diagonal([("i4", ""), ("u4", "int"), ("i2", ""), ("i4", "int")], FP16)
)
@given(m=SIZES, n=st.integers(4, 70), groups=st.integers(1, 4), size=st.sampled_from([16, 32, 35, 48, 96]),
       seed=st.integers(0, 99), dynamic=st.booleans())  # fmt: skip
@settings(max_examples=2)
def test_half_precision(
    name: str, code: str, zero: str, m: int, n: int, groups: int, size: int, seed: int, dynamic: bool
) -> None:
    groups = 1 if size in (16, 35, 48) else groups
    check(name, "f16", code, m, n, groups, size, seed, zero, dynamic, compute_dtype="f32")


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize("name", FMA)
@pytest.mark.parametrize("m", [1, 5])
def test_tables(name: str, m: int) -> None:
    """A codebook of sixteen arbitrary values. Here they are powers of two, so that sums are exact."""
    codes = RandomCodes(3)
    book = (2.0 ** codes.rng.integers(-3, 4, 16)).astype(np.float32) * codes.rng.choice([-1, 1], 16).astype(np.float32)
    weights = codes.rng.integers(0, 16, (37, 96)).astype(np.uint8)
    lhs = codes.rng.integers(-4, 5, (m, 96)).astype(np.float32)
    got, want = run(name, lhs, weights, rhs_dtype="codebook", codebook=book, rhs_scale=np.float32(0.5))
    np.testing.assert_array_equal(got, want)


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.parametrize(
    ("compute", "name"),
    [*diagonal(["f32", "bf16"], FMA), *(("f32", name) for name in BF16)],  # see test_refusals
)
def test_numbers_that_are_not_exact(compute: str, name: str) -> None:
    """Results for Gaussian activations are within the bound of docs/semantics.md, section 5."""
    codes = RandomCodes(11)
    m, n, groups, size = 16, 64, 8, 128
    weights = codes.rng.integers(0, 16, (n, groups * size)).astype(np.uint8)
    lhs = codes.rng.standard_normal((m, groups * size)).astype(DTYPES["bf16"].numpy)
    scale = codes.rng.uniform(0.01, 0.02, (n, groups)).astype(np.float32)
    zero = codes.rng.integers(4, 12, (n, groups)).astype(np.int32)
    got, want = run(name, lhs, weights, rhs_dtype="u4", rhs_scale=scale, rhs_zero_point=zero, rhs_zero_mode="int",
                    compute_dtype=compute)  # fmt: skip
    real = (weights - np.repeat(zero, size, 1)) * np.repeat(scale, size, 1)
    terms = np.abs(lhs.astype(np.float64)) @ np.abs(real).T
    assert (np.abs(got - want) <= 2.0**-22 * np.abs(want) + groups * size * 2.0**-24 * terms).all()


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.skipif("avx512-bf16" not in NAMES, reason="the host has no vdpbf16ps")
@pytest.mark.parametrize(
    ("dtype", "code", "kw", "reason"),
    [
        ("f32", "i4", {}, "activations of f32"),
        ("bf16", "i4", {}, "not a table entry times a scale"),
        ("bf16", "i8", {"compute_dtype": "f32"}, "codes of 8 bits"),
        ("bf16", "nf4", {"compute_dtype": "f32"}, "are not exact in bf16"),
        ("bf16", "u4", {"compute_dtype": "f32", "rhs_zero_point": np.array([[0], [40]] * 16, np.int32),
                        "rhs_zero_mode": "int"}, "zero points from 0 to 40"),
    ],
)  # fmt: skip
def test_refusals(dtype: str, code: str, kw: dict[str, Any], reason: str) -> None:
    weights = np.zeros((32, 64), np.int8 if code[0] == "i" else np.uint8)
    weights[0, :16] = np.arange(16) - (8 if code[0] == "i" else 0)
    weights[1, 0] = 100 if code == "i8" else 0
    artifact = qmlir.ops.scaled_matmul.compile(
        T((4, 64), dtype), weights, rhs_transposed=True, rhs_dtype=code, rhs_scale=np.full((32, 1), 0.5, np.float32),
        target="cpu:znver4", **kw,
    )  # fmt: skip
    answers = artifact.manifest.strategies[0]["answers"]
    refused = next(a for a in answers if a["strategy"] == "avx512-bf16")
    assert not refused["accepted"]
    assert reason in refused["reason"]


def test_scales_of_one_byte_are_left_to_the_stock_route() -> None:
    """Regression: LLVM, which has no such type, crashed on them."""
    import ml_dtypes

    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    w = rng.integers(0, 256, (64, 32), dtype=np.uint8).view(np.int8)
    scale = rng.integers(120, 130, (64, 2)).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
    kw = {"rhs_scale": scale, "rhs_dtype": "e2m1", "rhs_packing": "low_first", "rhs_transposed": True}
    artifact = qmlir.ops.scaled_matmul.compile(qmlir.TensorSpec((3, 64), "f32"), w, target="cpu", **kw)
    want = qmlir.reference.scaled_matmul(x, w, **kw)
    assert np.allclose(qmlir.load(artifact).main(x), want, rtol=0, atol=2.0**-18 * np.abs(want).max())
