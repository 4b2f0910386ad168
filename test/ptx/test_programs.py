"""Whole programs of several dispatches, and conversions whose results are compared bit by bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx.program import interpret

import qmlir
from qmlir import TensorSpec as T

R = qmlir.reference


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize(
    "kind",
    [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz],
    ids=lambda k: np.dtype(k).name,
)
def test_conversions_to_8_bit_floats(kind: Any) -> None:
    """`arith.truncf`, as integer arithmetic, against ml_dtypes: every code, its neighbours, ties, zeros, infinities."""
    element = {"float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2", "float8_e4m3fnuz": "f8E4M3FNUZ",
               "float8_e5m2fnuz": "f8E5M2FNUZ"}[np.dtype(kind).name]  # fmt: skip
    codes = np.sort(np.arange(256, dtype=np.uint8).view(kind).astype(np.float32))
    codes = codes[np.isfinite(codes)]
    x = np.concatenate([codes, (codes[1:] + codes[:-1]) / 2, [np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, -0.0]])
    x = x.astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    text = f"""
    #id = affine_map<(i) -> (i)>
    func.func @main(%x: tensor<{x.size}xf32>) -> tensor<{x.size}x{element}> {{
      %e = tensor.empty() : tensor<{x.size}x{element}>
      %0 = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel"]}}
          ins(%x : tensor<{x.size}xf32>) outs(%e : tensor<{x.size}x{element}>) {{
      ^bb0(%in: f32, %out: {element}):
        %1 = arith.truncf %in : f32 to {element}
        linalg.yield %1 : {element}
      }} -> tensor<{x.size}x{element}>
      return %0 : tensor<{x.size}x{element}>
    }}"""
    got = interpret(qmlir.compile(text, target="cuda:sm_80")).main(x)
    want = x.astype(kind)
    nan = np.isnan(want.astype(np.float32))
    assert np.array_equal(np.isnan(got.astype(np.float32)), nan)
    assert np.array_equal(got.view(np.uint8)[~nan], want.view(np.uint8)[~nan])


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_quantised_dynamically_then_multiplied(target: str) -> None:
    """The codes and scales of one program are the arguments of the next."""
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (40, 64), dtype=np.int8)
    program = interpret(qmlir.ops.dynamic_quantize.compile(T((None, 64), "f32"), target=target, granularity="token"))
    x = rng.standard_normal((9, 64)).astype(np.float32)
    codes, scale, *_ = program.main(x)
    want_codes, want_scale, *_ = R.dynamic_quantize(x, granularity="token")
    assert np.array_equal(codes, want_codes)
    assert np.array_equal(scale, want_scale)
    product = interpret(qmlir.ops.scaled_matmul.compile(
        T((None, 64), "i8"), w, rhs_transposed=True, lhs_scale=T((None, 1), "f32"), rhs_scale=np.float32(0.01),
        target=target))  # fmt: skip
    got = product.main(codes, scale)
    want = R.scaled_matmul(codes, w, rhs_transposed=True, lhs_scale=scale, rhs_scale=np.float32(0.01))
    assert np.array_equal(got, want)
    assert len(product.dispatches) == 1


@pytest.mark.slow
def test_products_of_experts() -> None:
    """Sort, gathers, product, scatter: dispatches that depend on each other through transient buffers."""
    rng = np.random.default_rng(1)
    tokens, experts, hidden, inner = 5, 4, 32, 16
    ids = np.stack([rng.permutation(experts)[:2] for _ in range(tokens)]).astype(np.int32)
    lhs = rng.integers(-128, 128, (tokens, hidden), dtype=np.int8)
    rhs = rng.integers(-128, 128, (experts, inner, hidden), dtype=np.int8)
    program = interpret(qmlir.ops.grouped_matmul.compile(
        T((tokens, hidden), "i8"), rhs, expert_ids=T((tokens, 2), "i32"), rhs_transposed=True, out_dtype="i32",
        target="cuda:sm_80"))  # fmt: skip
    got = program.main(lhs, ids)
    assert np.array_equal(got, R.grouped_matmul(lhs, rhs, expert_ids=ids, rhs_transposed=True, out_dtype="i32"))
    with pytest.raises(qmlir.InputError, match="outside"):
        program.main(lhs, ids + experts)


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize(("m", "k"), [(1, 508), (1, 511), (5, 508)])
def test_the_last_codes_of_a_few_rows(m: int, k: int) -> None:
    """K is whole rounds of a warp, but not whole chunks. Regression: LLVM widened each lane's loads of words or bytes
    to 16 bytes, and the last lane's load ended after the end of the activations."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, 8)))
    made = qmlir.ops.scaled_matmul.compile(T(a.shape, "i8"), b, out_dtype="i32", target="cuda:sm_80")
    assert made.manifest.strategies[0]["chosen"] == "gemv-int8"
    np.testing.assert_array_equal(interpret(made).main(a), R.scaled_matmul(a, b, out_dtype="i32"))


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("lhs", ["i8", "u8"])
def test_padding_of_a_large_filter(lhs: str) -> None:
    """A filter with more rows plus columns than a word has bits: the image is not copied to pad it either."""
    rng = np.random.default_rng(3)
    x = rng.integers(*((0, 256) if lhs == "u8" else (-128, 128)), (1, 4, 5, 16)).astype(
        {"i8": np.int8, "u8": np.uint8}[lhs]
    )
    weight = rng.integers(-128, 128, (16, 3, 31, 16), dtype=np.int8)
    given: dict[str, Any] = {"padding": (1, 15, 1, 15), "weight_scale": np.full(16, 0.5, np.float32),
                             "input_scale": np.float32(0.25)}  # fmt: skip
    if lhs == "u8":
        given["input_zero_point"] = np.uint8(117)
    made = qmlir.ops.conv2d_q.compile(T(x.shape, lhs), weight, target="cuda:sm_80", **given)
    program = interpret(made)
    np.testing.assert_array_equal(program.main(x), R.conv2d_q(x, weight, **given))
    assert len(program.dispatches) == 1
