"""Code types, zero modes, packings, epilogue steps and the elementwise operations, one case each, on every target."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import qmlir

pytestmark = pytest.mark.sweep(fast=6, slow=40)

R = qmlir.reference
F = np.float32
M, N, K, G = 5, 12, 64, 32


def _packed(d: Any, dtype: str, order: str, count: int) -> Any:
    return R.pack(d.rng.integers(0, count, (N, K)).astype(np.uint8), dtype, order)


def _weights(d: Any, dtype: str, order: str, count: int, **extra: Any) -> dict[str, Any]:
    return {
        "rhs": _packed(d, dtype, order, count),
        "rhs_dtype": dtype,
        "rhs_packing": order,
        "rhs_transposed": True,
        **extra,
    }


def _int8(d: Any) -> dict[str, Any]:
    return {"lhs": d.codes(M, K), "lhs_scale": d.scales(M, 1)}


def _bf16(d: Any, *shape: int) -> Any:
    return d.floats(*shape).astype(ml_dtypes.bfloat16)


# name -> operands and attributes whose results are integers or sums that are exact in f32.
PRODUCTS: dict[str, Any] = {
    "i1": lambda d: {"lhs": d.codes(M, K), **_weights(d, "i1", "low_first", 2), "out_dtype": "i32"},
    "i2": lambda d: {"lhs": d.codes(M, K), **_weights(d, "i2", "high_first", 4), "out_dtype": "i32"},
    "u2": lambda d: {"lhs": d.codes(M, K), **_weights(d, "u2", "interleaved", 4), "out_dtype": "i32"},
    "u4_interleaved": lambda d: {**_int8(d), **_weights(d, "u4", "interleaved", 16, rhs_scale=d.scales(N, 1))},
    "offset_int": lambda d: {**_int8(d), **_weights(d, "u4", "low_first", 16, rhs_scale=d.scales(N, 1)),
                             "rhs_zero_point": d.zeros(N, 1, lo=-8, hi=8), "rhs_zero_mode": "offset_int"},
    "u8_both": lambda d: {"lhs": d.codes(M, K, dtype="u8"), "rhs": d.codes(K, N, dtype="u8"), "lhs_scale": 0.02,
                          "lhs_zero_point": np.uint8(130), "rhs_zero_point": d.codes(1, N, dtype="u8")},
    "alpha_beta": lambda d: {**_int8(d), "rhs": d.codes(K, N), "alpha": 0.5, "beta": 1.25, "c": d.floats(M, N)},
    "bias_out": lambda d: {**_int8(d), "rhs": d.codes(K, N), "bias": d.floats(N).astype(np.float16),
                           "bias_stage": "out", "out_dtype": "f16"},
    "bias_out_bf16": lambda d: {**_int8(d), "rhs": d.codes(K, N), "bias": d.floats(N), "bias_stage": "out",
                                "out_dtype": "bf16"},
    "relu6": lambda d: {**_int8(d), "rhs": d.codes(K, N), "activation": "relu6"},
    "requant_per_token": lambda d: {**_int8(d), "rhs": d.codes(K, N), "out_dtype": "i8",
                                    "out_scale": d.scales(M, 1) * 30,
                                    "out_zero_point": d.zeros(M, 1), "clamp": (-100, 90)},
    "requant_per_channel": lambda d: {**_int8(d), "rhs": d.codes(K, N), "out_dtype": "u8",
                                      "out_multiplier": d.scales(1, N)},
}  # fmt: skip

# name -> the same, with results that are rounded differently: float contractions, groups along K, transcendental
# functions.
CLOSE: dict[str, Any] = {
    "offset_float": lambda d: {**_int8(d), **_weights(d, "u4", "high_first", 16, rhs_scale=d.scales(N, K // G)),
                               "rhs_zero_point": d.floats(N, K // G) * 0.01, "rhs_zero_mode": "offset_float",
                               "lhs_zero_point": d.zeros(M, 1)},
    "rescale_w4a32": lambda d: {"lhs": d.floats(M, K), **_weights(d, "u4", "low_first", 16),
                                "rhs_scale": d.scales(N, K // G), "rhs_zero_point": d.floats(N, K // G) * 0.01,
                                "rhs_zero_mode": "rescale"},
    "packed_int": lambda d: {"lhs": d.floats(M, K), **_weights(d, "u4", "low_first", 16, rhs_scale=d.scales(N, 2)),
                             "rhs_zero_point": R.pack(d.codes(N, 2, dtype="u4"), "u4"), "rhs_zero_mode": "packed_int"},
    "nf4": lambda d: {"lhs": d.floats(M, K), **_weights(d, "nf4", "low_first", 16, rhs_scale=d.scales(N, K // G))},
    "e2m1": lambda d: {"lhs": d.floats(M, K), **_weights(d, "e2m1", "low_first", 16, rhs_scale=d.scales(N, K // 16)),
                       "rhs_global_scale": 0.25},
    "w4_bf16": lambda d: {"lhs": _bf16(d, M, K), **_weights(d, "u4", "low_first", 16, rhs_scale=d.scales(N, K // G))},
    "w8_bf16": lambda d: {"lhs": _bf16(d, M, K), "rhs": d.codes(K, N), "rhs_scale": d.scales(1, N)},
    "bf16": lambda d: {"lhs": _bf16(d, M, K), "rhs": _bf16(d, K, N), "bias": _bf16(d, N), "activation": "relu"},
    "codebook": lambda d: {"lhs": d.floats(M, K), **_weights(d, "codebook", "low_first", 16, rhs_scale=d.scales(N, 1)),
                           "codebook": d.floats(16)},
    "gelu": lambda d: {**_int8(d), "rhs": d.codes(K, N), "activation": "gelu"},
    "gelu_tanh": lambda d: {**_int8(d), "rhs": d.codes(K, N), "activation": "gelu_tanh"},
    "silu": lambda d: {**_int8(d), "rhs": d.codes(K, N), "activation": "silu", "bias": d.floats(N)},
    "tanh_scaled": lambda d: {**_int8(d), "rhs": d.codes(K, N), "activation": "tanh", "act_scale": 3.0},
    "swiglu": lambda d: {**_int8(d), "rhs": d.codes(K, N), "activation": "swiglu"},
    "geglu_interleaved": lambda d: {**_int8(d), "rhs": d.codes(K, N), "activation": "geglu",
                                    "gate_layout": "interleaved"},
}  # fmt: skip


@pytest.mark.sweep(fast=18, slow=40)
@pytest.mark.parametrize("name", PRODUCTS)
def test_exact_products(name: str, target: str, data: Any, same: Any) -> None:
    kw = PRODUCTS[name](data)
    same(qmlir.ops.scaled_matmul(target=target, **kw), R.scaled_matmul(**kw))


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize("name", CLOSE)
def test_close_products(name: str, target: str, data: Any) -> None:
    kw = CLOSE[name](data)
    actual, expected = qmlir.ops.scaled_matmul(target=target, **kw), R.scaled_matmul(**kw)
    assert actual.shape == expected.shape
    # f32 sums of 64 terms of order one and f32 transcendental functions: a few units in the last place.
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_constant_codebook_takes_the_kernel_of_built_in_tables(dtype: Any, target: str, data: Any) -> None:
    lhs, spec = data.floats(M, K), qmlir.TensorSpec((M, K), "f32")
    form = {"target": target, "rhs_scale": data.scales(N, 1)}
    weight = _weights(data, "codebook", "low_first", 16, codebook=data.floats(16).astype(dtype))
    layer = qmlir.ops.scaled_matmul.compile(spec, **weight, **form)
    built_in = qmlir.ops.scaled_matmul.compile(spec, **_weights(data, "nf4", "low_first", 16), **form)
    assert [s["chosen"] for s in layer.manifest.strategies] == [s["chosen"] for s in built_in.manifest.strategies]
    expected = R.scaled_matmul(lhs, **weight, rhs_scale=form["rhs_scale"])
    np.testing.assert_allclose(
        qmlir.load(layer).main(lhs), expected, rtol=2e-5, atol=2e-5 * float(np.abs(expected).max())
    )


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_on_the_cpu(kind: str, data: Any, same: Any) -> None:
    dtype = getattr(ml_dtypes, kind)
    a, b = (data.rng.integers(-4, 5, s).astype(F).astype(dtype) for s in ((M, K), (K, N)))
    kw = {"lhs_scale": data.scales(M, 1), "rhs_scale": data.scales(1, N), "out_dtype": "bf16"}
    same(qmlir.ops.scaled_matmul(a, b, **kw), R.scaled_matmul(a, b, **kw))  # sums of small integers are exact


DEQUANT: dict[str, Any] = {
    "none": lambda d: ((d.codes(M, K), d.scales(M, 1)), {}),
    "int": lambda d: ((d.codes(M, K), d.scales(M, 2), d.zeros(M, 2)), {}),
    "u8": lambda d: ((d.codes(M, K, dtype="u8"), d.scales(1, K), d.codes(1, K, dtype="u8")), {}),
    "offset_int": lambda d: ((_packed(d, "u4", "high_first", 16), d.scales(N, 2), d.zeros(N, 2)),
                             {"dtype": "u4", "packing": "high_first", "zero_mode": "offset_int"}),
    "offset_float": lambda d: ((_packed(d, "u4", "low_first", 16), d.scales(N, 2), d.floats(N, 2)),
                               {"dtype": "u4", "packing": "low_first", "zero_mode": "offset_float"}),
    "rescale_f16": lambda d: ((_packed(d, "u2", "low_first", 4), d.scales(N, 2), d.floats(N, 2)),
                              {"dtype": "u2", "packing": "low_first", "zero_mode": "rescale", "out_dtype": "f16"}),
    "nf4": lambda d: ((_packed(d, "nf4", "low_first", 16), d.scales(N, 2)), {"dtype": "nf4", "packing": "low_first"}),
    "blocks": lambda d: ((d.codes(8, 64), d.scales(2, 4)), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", DEQUANT)
def test_dequant(name: str, target: str, data: Any, same: Any) -> None:
    args, kw = DEQUANT[name](data)
    same(qmlir.ops.dequantize(*args, target=target, **kw), R.dequantize(*args, **kw))


@pytest.mark.parametrize("rounding", ["half_even", "half_away", "trunc"])
def test_quantize(rounding: str, target: str, data: Any, same: Any) -> None:
    x, kw = data.floats(M, K) * 3, {"rounding": rounding}
    args = (x, data.scales(M, 1) * 5, data.zeros(M, 1))
    same(qmlir.ops.quantize(*args, target=target, **kw), R.quantize(*args, **kw))
    args, kw = (x, data.scales(M, 4) * 50), {"rounding": rounding, "out_dtype": "u4", "clamp": (1, 14)}
    same(qmlir.ops.quantize(*args, target=target, **kw), R.quantize(*args, **kw))


DYNAMIC = [("torchao", True, "token"), ("torchao", False, "token"), ("torchao", True, "group"),
           ("amax", True, "tensor"),
           ("onnx", False, "tensor"), ("fbgemm", False, "token")]  # fmt: skip


@pytest.mark.parametrize(("recipe", "symmetric", "granularity"), DYNAMIC)
def test_dynamic_quantize(recipe: str, symmetric: bool, granularity: str, target: str, data: Any, same: Any) -> None:
    x = data.floats(M, K) * 3
    kw: dict[str, Any] = {"recipe": recipe, "symmetric": symmetric, "granularity": granularity}
    if granularity == "group":
        kw["group_size"] = 16
    if recipe == "onnx":
        kw["out_dtype"] = "u8"
    actual = qmlir.ops.dynamic_quantize(x, target=target, **kw)
    expected = [e for e in R.dynamic_quantize(x, **kw) if e is not None]
    for got, want in zip(actual, expected, strict=True):
        same(got, want)


@pytest.mark.parametrize(("symmetric", "dtype", "clamp"), [(True, "i8", (-127, 127)), (False, "u8", (0, 127))])
def test_range_and_smallest_scale(
    symmetric: bool, dtype: str, clamp: tuple[int, int], target: str, data: Any, same: Any
) -> None:
    """Arguments of torch's quantisers: codes that use a part of their range, and a smallest scale."""
    x = data.floats(M, K)
    x[1] *= 1e-4
    kw: dict[str, Any] = {"symmetric": symmetric, "out_dtype": dtype, "clamp": clamp, "eps": 2.0**-12}
    actual = qmlir.ops.dynamic_quantize(x, target=target, **kw)
    expected = [e for e in R.dynamic_quantize(x, **kw) if e is not None]
    assert expected[1][1] == np.float32(2.0**-12) < expected[1][0]
    for got, want in zip(actual, expected, strict=True):
        same(got, want)


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"])
@pytest.mark.parametrize("recipe", ["amax", "torchao"])
def test_dynamic_quantize_to_small_floats(recipe: str, dtype: str, target: str, data: Any, same: Any) -> None:
    """Codes are ml_dtypes' rounding of x/s, clipped to the largest finite value, at every exponent and just below each
    code. NaN becomes 0, and a row of zeros has the recipe's scale."""
    from qmlir.dialect.dtypes import DTYPES

    x = data.floats(M, K) * 3
    x[0], x[1, 3], x[1, 4] = 0.0, 1e-30, -0.0
    largest_code = float(ml_dtypes.finfo(DTYPES[dtype].numpy).max)
    # Row 2: a scale of 1, and values around each small code, also one that rounds up to the smallest normal number.
    x[2] = np.nextafter(np.float32(2) ** -np.arange(K, dtype=np.float32), 0) * np.where(np.arange(K) % 2, 1, -1)
    x[2, 0] = largest_code
    kw = {"recipe": recipe, "out_dtype": dtype}
    codes, scale = qmlir.ops.dynamic_quantize(x, target=target, **kw)
    kind = DTYPES[dtype].numpy
    largest = np.float32(ml_dtypes.finfo(kind).max)
    expected = np.abs(x).max(1, keepdims=True) / largest
    expected[0] = 1 if recipe == "amax" else 0
    same(scale, expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.nan_to_num(x * (np.float32(1) / expected), nan=0.0)
    same(codes.view(np.uint8), np.clip(t, -largest, largest).astype(kind).view(np.uint8))
    for got, want in zip((codes, scale), R.dynamic_quantize(x, **kw), strict=False):
        same(got.view(np.uint8), want.view(np.uint8))
