"""qmlir.compat.executorch against plain numpy in float64 and the reference with the scheme written out by hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.compat import executorch as et
from qmlir.errors import UsageError

F, H = np.float32, np.float16
M, N, K, G = 6, 12, 32, 8


def exact(x: Any) -> Any:
    return np.asarray(x, np.float64)


def sizes(a: Any, w: Any) -> Any:
    return a.shape[-1] * (np.abs(exact(a)) @ np.abs(exact(w)).T)


def half_away(x: Any) -> Any:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def to_codes(y: Any, scale: Any, zero: Any, rounded: Callable[[Any], Any] = half_away) -> Any:
    return np.clip(rounded(y / scale) + zero, -128, 127).astype(np.int8)


def high_first(q: Any) -> Any:
    return (q[:, ::2] << 4 | q[:, 1::2]).astype(np.uint8)


def low_first(q: Any) -> Any:
    return (q[:, 1::2] << 4 | q[:, ::2]).astype(np.uint8)


def powers(data: Any, *shape: int, lo: int = 3, hi: int = 6) -> Any:
    """Scales that are powers of two, so that f32 results are exact."""
    return (2.0 ** -data.rng.integers(lo, hi, shape)).astype(F)


def u4(packing: str) -> dict[str, Any]:
    """4-bit weights `[N, K/2]` in groups along K."""
    return {"rhs_dtype": "u4", "rhs_transposed": True, "rhs_packing": packing, "group_size": G}


# Two schemes that pull request 12006 of pytorch/executorch named, `linear_qta8a_qga4w_qta8o` and `linear_qta8a_qga4w`.


def test_float_zeros_and_8_bit_output(data: Any, same: Callable[..., None]) -> None:
    x, q = data.codes(2, 3, K), data.codes(N, K, dtype="u4")
    s_in, z_in, s_out = powers(data, M), data.zeros(M, lo=-10, hi=10), powers(data, M, lo=0, hi=3)
    z_out, both = data.zeros(M, lo=-10, hi=10), np.stack([powers(data, K // G, N), powers(data, K // G, N)], -1)
    got = qmlir.ops.scaled_matmul(
        x.reshape(M, K), high_first(q), **u4("high_first"), lhs_scale=s_in[:, None], lhs_zero_point=z_in[:, None],
        rhs_scale=both[..., 0].T, rhs_zero_point=both[..., 1].T, rhs_zero_mode="offset_float", out_dtype="i8",
        out_scale=s_out[:, None], out_zero_point=z_out[:, None], rounding="half_away",
    )  # fmt: skip
    w = (exact(q) - 8) * np.repeat(both[..., 0].T, G, 1) + np.repeat(both[..., 1].T, G, 1)
    y = (exact(x.reshape(M, K)) - z_in[:, None]) * s_in[:, None] @ w.T
    same(got, to_codes(y, exact(s_out)[:, None], z_out[:, None]))


def test_integer_zeros_and_float_output(data: Any, same: Callable[..., None]) -> None:
    x, q = data.codes(M, K), data.codes(N, K, dtype="u4")
    s_in, z_in, s_w = powers(data, M), data.zeros(M, lo=-10, hi=10), powers(data, K // G, N)
    zeros = data.zeros(K // G, N, lo=-128, hi=128)
    got = qmlir.ops.scaled_matmul(
        x, high_first(q), **u4("high_first"), lhs_scale=s_in[:, None], lhs_zero_point=z_in[:, None], rhs_scale=s_w.T,
        rhs_zero_point=zeros.T, rhs_zero_mode="offset_int",
    )  # fmt: skip
    same(got, qmlir.reference.scaled_matmul(
        x, q, rhs_dtype="u4", rhs_transposed=True, lhs_scale=s_in[:, None], lhs_zero_point=z_in[:, None],
        rhs_scale=s_w.T, rhs_zero_point=zeros.T, rhs_zero_mode="offset_int",
    ))  # fmt: skip
    w = (exact(q) - 8 - np.repeat(zeros.T, G, 1)) * np.repeat(s_w.T, G, 1)
    same(got, ((exact(x) - z_in[:, None]) * s_in[:, None] @ w.T).astype(F))


@pytest.mark.parametrize("dtype", [F, pytest.param(H, marks=pytest.mark.slow)])
def test_q4gsw(dtype: Any, data: Any, near: Callable[..., None]) -> None:
    x, q = data.floats(2, 3, K).astype(dtype), data.codes(N, K, dtype="u4")
    scales, bias = (data.rng.random((K // G, N)) * 0.01 + 0.005).astype(F), data.floats(N)
    w = ((exact(q) - 8) * np.repeat(scales.T, G, 1)).astype(F).astype(dtype)
    got = et.linear_q4gsw(x, low_first(q), scales, G, bias)
    assert got.dtype == dtype
    near(got, exact(x) @ exact(w).T + bias, sizes(x, w) + np.abs(bias))
    # ExecuTorch pads K in the weights and N in scales and bias.
    padded = np.pad(low_first(q), ((0, 0), (0, 4)), constant_values=0x88)
    again = et.linear_q4gsw(x, padded, np.pad(scales, ((0, 0), (0, 4))), G, np.pad(bias, (0, 4)))
    np.testing.assert_array_equal(got, again)


def choose_qparams_per_row(x: Any) -> tuple[Any, Any]:
    """The scales and zero points that ExecuTorch's shader of that name computes."""
    _, scale, zero = qmlir.ops.dynamic_quantize(x, symmetric=False, recipe="fbgemm")
    return scale.reshape(-1), zero.reshape(-1)


def test_dq8ca_q4gsw_with_the_scales_of_choose_qparams(data: Any, near: Callable[..., None]) -> None:
    x, q = data.floats(M, K), data.codes(N, K, dtype="u4")
    scale, zero = choose_qparams_per_row(x)
    lo, hi = np.minimum(exact(x).min(1), 0), np.maximum(exact(x).max(1), 0)
    np.testing.assert_allclose(scale, (hi - lo) / 255, rtol=2e-7)
    assert (zero.dtype, scale.shape, zero.shape) == (np.int32, (M,), (M,))
    assert np.abs(zero - (-128 - lo / ((hi - lo) / 255))).max() <= 1
    s_w = (data.rng.random((K // G, N)) * 0.01 + 0.005).astype(F)
    got = et.linear_dq8ca_q4gsw(x, scale, zero, low_first(q), None, s_w, G)
    codes = np.clip(np.rint((x * (F(1) / scale[:, None])).astype(F)) + zero[:, None], -128, 127)
    a = (codes - zero[:, None]) * exact(scale)[:, None]
    w = (exact(q) - 8) * np.repeat(exact(s_w).T, G, 1)
    near(got, a @ w.T, 4 * sizes(a, w))


def channels(data: Any) -> tuple[Any, Any, Any]:
    return data.rng.integers(-127, 128, (N, K)).astype(np.int8), powers(data, N, lo=5, hi=8), data.floats(N)


def test_q8csw(data: Any, near: Callable[..., None]) -> None:
    """`linear_q8csw` of the runtime, which has no operator in Python."""
    weights, scales, bias = channels(data)
    x, w = data.floats(M, K), exact(weights) * exact(scales)[:, None]
    kw: dict[str, Any] = {"bias": bias, "bias_stage": "scaled", "out_dtype": "f32", "rhs_transposed": True}
    near(
        qmlir.ops.scaled_matmul(x, weights, rhs_scale=scales[:, None], **kw),
        exact(x) @ w.T + bias,
        sizes(x, w) + np.abs(bias),
    )


def test_q8ta_q8csw_rounds_half_away(data: Any, same: Callable[..., None]) -> None:
    weights, scales, _ = channels(data)
    x = data.rng.integers(-300, 300, (M, K)).astype(F) / 64  # half of the codes are ties at this scale
    got = et.linear_q8ta_q8csw(x, 1 / 32, -2, weights, None, scales)
    codes = to_codes(exact(x), 1 / 32, -2)
    assert (codes != to_codes(exact(x), 1 / 32, -2, np.rint)).any()
    same(got, ((exact(codes) + 2) / 32 @ (exact(weights) * exact(scales)[:, None]).T).astype(F))


@pytest.mark.parametrize("activation", ["none", pytest.param("relu", marks=pytest.mark.slow)])
def test_q8ta_linear(activation: str, data: Any, same: Callable[..., None]) -> None:
    weights, scales, bias = channels(data)
    x, bias = data.codes(M, K), np.rint(bias * 64).astype(F) / 64
    got = et.q8ta_linear(x, 2**-5, -2, weights, weights.sum(1), scales, 0.25, -1, bias, activation)
    y = (exact(x) + 2) * 2**-5 @ (exact(weights) * exact(scales)[:, None]).T + bias
    same(got, to_codes(np.maximum(y, 0) if activation == "relu" else y, 0.25, -1))
    padded = et.q8ta_linear(x, 2**-5, -2, np.pad(weights, ((0, 0), (0, 3))), None, np.pad(scales, (0, 3)), 0.25, -1,
                            np.pad(bias, (0, 3)), activation)  # fmt: skip
    same(padded, got)
    same(et.q8ta_linear_gemv(x, 2**-5, -2, weights, None, scales, 0.25, -1, bias, activation), got)


def test_golden_q8ta_linear(golden: Any) -> None:
    s = golden.Stream(60_000)
    a, w = s((32, 128), -128, 128).astype(np.int8), s((64, 128), -127, 128).astype(np.int8)
    bias, scale = (s((64,), -64, 64) / 64).astype(F), ((1 + np.arange(64) / 64) * 2**-7).astype(F)
    got = et.q8ta_linear(a, 2**-7, -2, w, None, scale, 1 / 16, -1, bias, rounding="half_even")
    assert golden._digest(got) == golden.GOLDEN["qmlir_q8ta_linear_none_half_even"]["sha256"]


# ---- convolutions: [N, C, H, W] with weights [OC, KH*KW*IC/groups], input channels innermost


def images(data: Any, channels: int) -> Any:
    return data.codes(2, channels, 7, 6)


def naive(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """NCHW * [OC, KH, KW, IC/groups] in float64, tap by tap."""
    (sh, sw), (ph, pw), (dh, dw) = stride, padding, dilation
    x = np.pad(exact(x), ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    n, c, h, width = x.shape
    oc, kh, kw, _ = w.shape
    oh, ow = (h - dh * (kh - 1) - 1) // sh + 1, (width - dw * (kw - 1) - 1) // sw + 1
    x, w = x.reshape(n, groups, c // groups, h, width), exact(w).reshape(groups, oc // groups, kh, kw, c // groups)
    out = np.zeros((n, groups, oc // groups, oh, ow))
    for i in range(kh):
        for j in range(kw):
            part = x[..., i * dh : i * dh + (oh - 1) * sh + 1 : sh, j * dw : j * dw + (ow - 1) * sw + 1 : sw]
            out += np.einsum("ngchw,gkc->ngkhw", part, w[:, :, i, j])
    return out.reshape(n, oc, oh, ow)


def naive_transposed(x: Any, w: Any, stride: Any, padding: Any, extra: Any) -> Any:
    """The scatter form of a transposed convolution, one group, dilation 1."""
    n, _, h, width = x.shape
    oc, kh, kw, _ = w.shape
    out = np.zeros((n, oc, (h - 1) * stride[0] + kh + extra[0], (width - 1) * stride[1] + kw + extra[1]))
    for i in range(h):
        for j in range(width):
            tap = np.einsum("nc,kyxc->nkyx", exact(x)[:, :, i, j], exact(w))
            out[:, :, i * stride[0] : i * stride[0] + kh, j * stride[1] : j * stride[1] + kw] += tap
    return out[:, :, padding[0] : out.shape[2] - padding[0], padding[1] : out.shape[3] - padding[1]]


def filters(data: Any, *shape: int) -> tuple[Any, Any, Any]:
    bias = (data.rng.integers(-64, 64, shape[0]) / 64).astype(F)
    return data.rng.integers(-127, 128, shape).astype(np.int8), powers(data, shape[0], lo=5, hi=8), bias


def test_q8ta_conv2d(data: Any, same: Callable[..., None]) -> None:
    x, (w, scales, bias) = images(data, 8), filters(data, 6, 3, 2, 4)
    geometry: dict[str, Any] = {"stride": [2, 1], "padding": [1, 2], "dilation": [1, 2], "groups": 2}
    got = et.q8ta_conv2d(x, 2**-6, 2, w.reshape(6, -1), None, scales, 0.25, -1, bias, [3, 2], *geometry.values(),
                         "relu")  # fmt: skip
    y = naive(exact(x) - 2, w, *geometry.values()) * 2**-6 * exact(scales).reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)
    same(got, to_codes(np.maximum(y, 0), 0.25, -1))


def test_q8ta_conv2d_dw(data: Any, same: Callable[..., None]) -> None:
    x, (w, scales, bias) = images(data, 8), filters(data, 8, 3, 3, 1)
    args = ([1, 1], [1, 1], [1, 1], 8)
    got = et.q8ta_conv2d_dw(
        x, 2**-6, 2, np.moveaxis(w[..., 0], 0, 2), None, scales, 0.25, -1, bias, [3, 3], *args, "none"
    )
    y = naive(exact(x) - 2, w, *args) * 2**-6 * exact(scales).reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)
    same(got, to_codes(y, 0.25, -1))


@pytest.mark.slow
def test_q8ta_conv2d_pw(data: Any, same: Callable[..., None]) -> None:
    x, (w, scales, _) = images(data, 8), filters(data, 6, 1, 1, 8)
    args = ([1, 1], [0, 0], [1, 1], 1)
    got = et.q8ta_conv2d_pw(x, 2**-6, 2, w.reshape(6, 8), None, scales, 0.25, -1, None, [1, 1], *args, "none")
    same(got, to_codes(naive(exact(x) - 2, w, *args) * 2**-6 * exact(scales).reshape(-1, 1, 1), 0.25, -1))


def test_q8ta_conv2d_transposed(data: Any, same: Callable[..., None]) -> None:
    x, (w, scales, bias) = images(data, 8), filters(data, 6, 3, 3, 8)
    got = et.q8ta_conv2d_transposed(x, 2**-6, 2, w.reshape(6, -1), None, scales, 0.25, -1, bias, [3, 3], [2, 2], [1, 1],
                                    [1, 0], [1, 1], 1, "none")  # fmt: skip
    y = naive_transposed(exact(x) - 2, w, (2, 2), (1, 1), (1, 0)) * 2**-6 * exact(scales).reshape(-1, 1, 1)
    # Output padding adds rows at the end, which the scatter form leaves in place.
    same(got, to_codes(y + bias.reshape(-1, 1, 1), 0.25, -1))


# Two convolutions of the runtime that have no operator in Python.
GEOMETRY: dict[str, Any] = {"input_layout": "NCHW", "padding": (1, 1, 1, 1)}


@pytest.mark.slow
def test_conv2d_q8csw(data: Any, near: Callable[..., None]) -> None:
    w, scales, bias = filters(data, 6, 3, 3, 8)
    x, args = data.floats(2, 8, 7, 6), ([1, 1], [1, 1], [1, 1], 1)
    got = qmlir.ops.conv2d_q(x, w, weight_scale=scales, bias=bias, bias_stage="scaled", **GEOMETRY, out_dtype="f32")
    real = exact(w) * exact(scales).reshape(-1, 1, 1, 1)
    terms = 72 * naive(np.abs(x), np.abs(real), *args) + 1
    near(got, naive(x, real, *args) + bias.reshape(-1, 1, 1), terms)


@pytest.mark.slow
def test_conv2d_q8ta_q8csw(data: Any, same: Callable[..., None]) -> None:
    w, scales, bias = filters(data, 6, 3, 3, 8)
    x, args = data.rng.integers(-300, 300, (2, 8, 7, 6)).astype(F) / 64, ([1, 1], [1, 1], [1, 1], 1)
    side = F(1 / 32), np.int32(-3)
    got = qmlir.ops.conv2d_q(
        qmlir.ops.quantize(x, *side, rounding="half_away"), w, input_scale=side[0], input_zero_point=side[1],
        weight_scale=scales, bias=bias, bias_stage="scaled", **GEOMETRY, out_dtype="f32",
    )  # fmt: skip
    codes = exact(to_codes(exact(x), 1 / 32, -3)) + 3
    y = naive(codes, w, *args) / 32 * exact(scales).reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)
    same(got, y.astype(F))


def test_torch_in_torch_out(data: Any) -> None:
    torch = pytest.importorskip("torch")
    x, q = data.floats(2, 3, K), data.codes(N, K, dtype="u4")
    scales, bias = powers(data, K // G, N), data.floats(N)
    args = [torch.from_numpy(a) for a in (x, low_first(q), scales)]
    got = et.linear_q4gsw(*args, G, torch.from_numpy(bias))
    assert got.dtype == torch.float32
    np.testing.assert_array_equal(got.numpy(), et.linear_q4gsw(x, low_first(q), scales, G, bias))
    scale, zero = choose_qparams_per_row(args[0])
    out = et.linear_dq8ca_q4gsw(args[0], scale, zero, args[1], None, args[2], G)
    assert (scale.dtype, zero.dtype, out.dtype) == (torch.float32, torch.int32, torch.float32)


@pytest.mark.slow
def test_on_lavapipe(lavapipe: str, data: Any, same: Callable[..., None]) -> None:
    weights, scales, bias = channels(data)
    x = data.codes(M, K)
    args = (x, 2**-5, -2, weights, None, scales, 0.25, -1, np.rint(bias).astype(F))
    same(et.q8ta_linear(*args, target=lavapipe), et.q8ta_linear(*args))


# The schemas of backends/vulkan/custom_ops_lib.py in release 1.4.1, types without their spaces.
SCHEMAS = {
    "linear_q4gsw": "Tensor self, Tensor weights, Tensor weight_scales, int group_size, Tensor? bias = None",
    "linear_dq8ca_q4gsw": "Tensor input, Tensor input_scales, Tensor input_zp, Tensor weights, Tensor weight_sums, "
    "Tensor weight_scales, int group_size, Tensor? bias = None",
    "linear_q8ta_q8csw": "Tensor x, float input_scale, int input_zero_point, Tensor weights, Tensor weight_sums, "
    "Tensor weight_scales, Tensor? bias = None",
    "q8ta_linear": "Tensor x, float input_scale, int input_zero_point, Tensor weights, Tensor weight_sums, "
    'Tensor weight_scales, float output_scale, int output_zero_point, Tensor? bias = None, str activation = "none"',
    "q8ta_conv2d": "Tensor x, float input_scale, int input_zero_point, Tensor weights, Tensor weight_sums, "
    "Tensor weight_scales, float output_scale, int output_zero_point, Tensor? bias, SymInt[] kernel_size, "
    "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups, str activation",
}
SCHEMAS["q8ta_linear_gemv"] = SCHEMAS["q8ta_linear"]
SCHEMAS["q8ta_conv2d_pw"] = SCHEMAS["q8ta_conv2d_dw"] = SCHEMAS["q8ta_conv2d"]
SCHEMAS["q8ta_conv2d_transposed"] = SCHEMAS["q8ta_conv2d"].replace(
    "SymInt[] padding", "SymInt[] padding, SymInt[] output_padding"
)


def test_the_operators_are_those_of_executorch() -> None:
    assert set(et.__all__) == set(SCHEMAS)
    with pytest.raises(AttributeError, match=r"no operator 'linear_q8csw'; use qmlir.ops.scaled_matmul"):
        _ = et.linear_q8csw


@pytest.mark.parametrize("name", SCHEMAS)
def test_signatures_are_those_of_executorch(name: str) -> None:
    function = getattr(et, name)
    parameters = inspect.signature(function).parameters.values()
    own = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    expected = [(text.split(" = ")[0].split()[1], text.partition(" = ")[2]) for text in SCHEMAS[name].split(", ")]
    given = {inspect.Parameter.empty: "", None: "None", "none": '"none"'}
    assert [(p.name, given[p.default]) for p in own] == expected
    assert {p.name for p in parameters} - {p.name for p in own} <= {"rounding", "target"}
    assert f"`torch.ops.et_vk.{name}`" in (function.__doc__ or "")


I8, X = np.zeros((4, 16), np.int8), np.zeros((4, 16), F)
NIBBLES, IMAGE = np.zeros((6, 8), np.uint8), np.zeros((1, 4, 5, 5), np.int8)
CONV = (IMAGE, 1.0, 0, np.zeros((6, 36), np.int8), None, np.ones(6, F), 1.0, 0, None, [3, 3], [1, 1], [0, 0], [1, 1], 1,
        "none")  # fmt: skip


def conv(**at: Any) -> tuple[Any, ...]:
    names = list(inspect.signature(et.q8ta_conv2d).parameters)
    return tuple(at.get(n, v) for n, v in zip(names, CONV, strict=False))


REFUSALS: list[tuple[str, tuple[Any, ...], str]] = [
    ("linear_q8ta_q8csw", (X, 1.0, 0, np.zeros((6, 15), np.int8), None, np.ones(6, F)),
     r"'weights' must be \[N, K\] = \[N, 16\]"),
    ("linear_q4gsw", (I8, NIBBLES, np.ones((2, 6), F), 8), r"'self' must be f32, f16, bf16, but is i8"),
    ("linear_q4gsw", (X[0], NIBBLES, np.ones((2, 6), F), 8),
     r"'self' must have at least two axes, but has shape \[16\]"),
    ("linear_q4gsw", (X, NIBBLES, np.ones((2, 6), F), 5), r"group_size=5 does not divide K = 16; these do: 8, 16"),
    ("linear_q4gsw", (X, NIBBLES[:, :7], np.ones((2, 6), F), 8), r"'weights' must be \[N, K/2\] = \[N, 8\] bytes"),
    ("linear_q4gsw", (X, NIBBLES.astype(F), np.ones((2, 6), F), 8), r"'weights' must be i8 or u8, but is f32"),
    ("linear_q4gsw", (X, NIBBLES, np.ones((6, 2), F), 8), r"'weight_scales' must have shape \[K/group_size, N\] = "
     r"\[2, 6\], but has \[6, 2\]"),
    ("linear_q4gsw", (X, NIBBLES, np.ones((2, 6), F), 8, np.ones(5, F)), r"'bias' must hold one value per "
     r"output channel, \[6\], but holds 5"),
    ("linear_dq8ca_q4gsw", (X, np.ones(3, F), np.zeros(4, int), NIBBLES, None, np.ones((2, 6), F), 8),
     r"'input_scales' must hold one value per token, \[4\], but has shape \[3\]"),
    ("linear_dq8ca_q4gsw", (X, np.ones(4, F), np.zeros(4, F), NIBBLES, None, np.ones((2, 6), F), 8),
     r"'input_zp' must be integer, but is f32"),
    ("linear_q8ta_q8csw", (X, np.ones(2, F), 0, np.zeros((6, 16), np.int8), None, np.ones(6, F)),
     r"'input_scale' is one value, but has shape \[2\]"),
    ("q8ta_linear", (X, 1.0, 0, np.zeros((6, 16), np.int8), None, np.ones(6, F), 1.0, 0), r"'x' must be i8 codes"),
    ("q8ta_linear", (I8, 1.0, 0, np.zeros((6, 16), np.int8), None, np.ones(6, F), 1.0, 0, None, "gelu"),
     r"activation='gelu' is not known; did you mean 'relu'"),
    ("q8ta_conv2d", conv(x=IMAGE[0]), r"'x' must have 4 axes, but has shape \[4, 5, 5\]"),
    ("q8ta_conv2d", conv(x=IMAGE.astype(F)), r"'x' must be i8 codes, but is f32"),
    ("q8ta_conv2d", conv(groups=3), r"groups=3 does not divide the 4 channels of 'x'"),
    ("q8ta_conv2d", conv(kernel_size=[4, 4]), r"'weights' must be \[OC, KH\*KW\*IC/groups\] = \[OC, 64\]"),
    ("q8ta_conv2d", conv(stride=[1]), r"stride must be \(h, w\), but is \[1\]"),
    ("q8ta_conv2d_pw", conv(), r"a pointwise convolution has a 1x1 kernel, but kernel_size is \[3, 3\]"),
    ("q8ta_conv2d_dw", conv(), r"'weights' of a depthwise convolution must be \[KH, KW, OC\] = \[3, 3, OC\]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "message"), REFUSALS)
def test_refusals(name: str, args: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        getattr(et, name)(*args)


def test_an_unknown_rounding_is_the_operations_matter() -> None:
    with pytest.raises(UsageError, match="rounding='up' is not known"):
        et.q8ta_linear(I8, 1.0, 0, np.zeros((6, 16), np.int8), None, np.ones(6, F), 1.0, 0, rounding="up")
