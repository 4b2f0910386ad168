"""qmlir.compat.composable_kernel: the functors as Composable Kernel writes them, in plain numpy, and its layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.compat import composable_kernel as ck
from qmlir.errors import UsageError

F = np.float32
M, N, K = 7, 24, 40
FACTORS: dict[str, dict[str, Any]] = {
    "Activation_Mul_Clamp": {"requant_scale": 1e-3},
    "Activation_Mul2_Clamp": {"requant_scale": np.linspace(5e-4, 5e-3, N).astype(F)},
    "Add_Activation_Mul_Clamp": {"requant_scale": 1e-3},
    "Add_Activation_Mul2_Clamp": {"requant_scale": np.linspace(5e-4, 5e-3, N).astype(F)},
    "Mul_Activation_Mul_Clamp": {"scale_acc": 2e-5, "scale_z_inv": 120.0},
    "Add_Mul_Activation_Mul_Clamp": {"scale_acc": 2e-5, "scale_z_inv": 120.0},
    "Add_Mul2_Activation_Mul_Clamp": {
        "scale_acc": np.linspace(1e-5, 4e-5, N).astype(F),
        "scale_z_inv": 120.0,
    },
}


def functor(name: str, activation: str, acc: Any, bias: Any, factors: dict[str, Any]) -> Any:
    """quantization_operation.hpp in numpy, f32 step by f32 step; channels are the last axis of `acc`."""
    y = (acc + bias if name.startswith("Add_") else acc).astype(F)
    if "scale_acc" in factors:
        y = F(1) * np.asarray(factors["scale_acc"], F).reshape(-1) * y
    y = {"PassThrough": lambda v: v, "Relu": lambda v: np.maximum(v, F(0)), "TanH": np.tanh}[activation](y)
    after = np.asarray(factors["scale_z_inv" if "scale_acc" in factors else "requant_scale"], F).reshape(-1)
    return np.trunc(np.clip(after * y, F(-128), F(127))).astype(np.int8)


def operands(data: Any) -> tuple[Any, Any, Any]:
    return data.codes(M, K), data.codes(N, K), data.zeros(N, lo=-20000, hi=20000)


def test_every_functor_is_tried() -> None:
    assert set(FACTORS) == set(ck.FUNCTORS)


def some_slow(names: Any, slow: set[str]) -> list[Any]:
    """Parameters, those of `slow` in the slow tier."""
    return [pytest.param(n, marks=pytest.mark.slow) if n in slow else n for n in names]


@pytest.mark.parametrize(
    "name", some_slow(FACTORS, {"Activation_Mul2_Clamp", "Add_Activation_Mul_Clamp", "Mul_Activation_Mul_Clamp"})
)
def test_gemm_functors(name: str, data: Any, same: Callable[..., None]) -> None:
    a, b, bias = operands(data)
    activation = "TanH" if "scale_acc" in FACTORS[name] else "Relu" if "Mul2" in name else "PassThrough"
    given = {"bias": bias} if name.startswith("Add_") else {}
    got = ck.gemm_quantization(a, b, name, activation=activation, **given, **FACTORS[name])
    expected = functor(name, activation, a.astype(np.int64) @ b.T.astype(np.int64), bias, FACTORS[name])
    if activation == "TanH":  # libraries' tanh may differ in the last bit
        assert np.abs(got.astype(int) - expected).max() <= 1
        assert np.mean(got != expected) < 0.01
    else:
        same(got, expected)
    assert len(np.unique(got)) > 20


@pytest.mark.parametrize("layout", some_slow(ck.GEMM_LAYOUTS, {"mk_kn_mn", "km_kn_mn"}))
def test_gemm_layouts(layout: str, data: Any, same: Callable[..., None]) -> None:
    a, b, bias = operands(data)
    stored = a.T.copy() if layout.startswith("km") else a, b.T.copy() if "_kn_" in layout else b
    got = ck.gemm_quantization(
        *stored, "Add_Activation_Mul2_Clamp", activation="Relu", bias=bias, layout=layout,
        **FACTORS["Add_Activation_Mul2_Clamp"],
    )  # fmt: skip
    same(got, qmlir.reference.scaled_matmul(
        a, b, rhs_transposed=True, bias=bias, bias_stage="acc", activation="relu", out_dtype="i8",
        out_multiplier=FACTORS["Add_Activation_Mul2_Clamp"]["requant_scale"], rounding="trunc",
    ))  # fmt: skip


def test_scales_per_channel_before_the_activation_in_another_layout(data: Any) -> None:
    a, b, bias = operands(data)
    name = "Add_Mul2_Activation_Mul_Clamp"
    got = ck.gemm_quantization(a, b.T.copy(), name, activation="TanH", bias=bias, layout="mk_kn_mn", **FACTORS[name])
    expected = functor(name, "TanH", a.astype(np.int64) @ b.T.astype(np.int64), bias, FACTORS[name])
    assert np.abs(got.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("rounding", some_slow(("half_even", "half_away"), {"half_even"}))
def test_gemm_rounds_when_asked(rounding: str, data: Any, same: Callable[..., None]) -> None:
    a, b, _ = operands(data)
    got = ck.gemm_quantization(a, b, requant_scale=2.0**-10, rounding=rounding)
    acc = a.astype(np.int64) @ b.T.astype(np.int64)
    t = acc / 1024
    r = np.rint(t) if rounding == "half_even" else np.sign(t) * np.floor(np.abs(t) + 0.5)
    same(got, np.clip(r, -128, 127).astype(np.int8))


def naive_conv(x: Any, w: Any, strides: Any, dilations: Any, left: Any, right: Any) -> Any:
    """NHWGC * GKYXC in int64, one tap at a time."""
    x = np.pad(x.astype(np.int64), ((0, 0), (left[0], right[0]), (left[1], right[1]), (0, 0), (0, 0)))
    g, k, fy, fx, _ = w.shape
    ho = (x.shape[1] - dilations[0] * (fy - 1) - 1) // strides[0] + 1
    wo = (x.shape[2] - dilations[1] * (fx - 1) - 1) // strides[1] + 1
    out = np.zeros((x.shape[0], ho, wo, g, k), np.int64)
    for i in range(fy):
        for j in range(fx):
            rows = slice(i * dilations[0], i * dilations[0] + (ho - 1) * strides[0] + 1, strides[0])
            cols = slice(j * dilations[1], j * dilations[1] + (wo - 1) * strides[1] + 1, strides[1])
            out += np.einsum("nhwgc,gkc->nhwgk", x[:, rows, cols], w[:, :, i, j].astype(np.int64))
    return out


@pytest.mark.parametrize("weight_layout", ["GKYXC", "KYXGC"])
def test_grouped_conv(weight_layout: str, data: Any, same: Callable[..., None]) -> None:
    x, w = data.codes(2, 9, 8, 2, 8), data.codes(2, 6, 3, 3, 8)
    bias, scale = data.zeros(2, 6, lo=-9000, hi=9000), (np.arange(12).reshape(2, 6) + 1).astype(F) * F(3e-4)
    geometry = ((2, 1), (1, 2), (1, 2), (0, 2))
    stored = w if weight_layout == "GKYXC" else np.transpose(w, (1, 2, 3, 0, 4)).copy()
    got = ck.conv2d_fwd_quantization(
        x, stored, "Add_Activation_Mul2_Clamp", activation="Relu", bias=bias, requant_scale=scale,
        conv_filter_strides=geometry[0], conv_filter_dilations=geometry[1], input_left_pads=geometry[2],
        input_right_pads=geometry[3], weight_layout=weight_layout,
    )  # fmt: skip
    acc = naive_conv(x, w, *geometry)
    expected = functor("Add_Activation_Mul2_Clamp", "Relu", acc.reshape(*acc.shape[:3], 12), bias.reshape(-1),
                       {"requant_scale": scale})  # fmt: skip
    same(got, expected.reshape(acc.shape))


def test_conv_of_one_group_with_tanh(data: Any) -> None:
    x, w, bias = data.codes(1, 8, 8, 16), data.codes(12, 3, 3, 16), data.zeros(12, lo=-9000, hi=9000)
    factors = {"scale_acc": np.linspace(1e-5, 3e-5, 12).astype(F), "scale_z_inv": 120.0}
    got = ck.conv2d_fwd_quantization(
        x, w, "Add_Mul2_Activation_Mul_Clamp", activation="TanH", bias=bias, conv_filter_strides=(2, 2),
        input_left_pads=(1, 1), input_right_pads=(1, 1), **factors,
    )  # fmt: skip
    acc = naive_conv(x[:, :, :, None], w[None], (2, 2), (1, 1), (1, 1), (1, 1))[:, :, :, 0]
    assert got.shape == (1, 4, 4, 12)
    assert np.abs(got.astype(int) - functor("Add_Mul2_Activation_Mul_Clamp", "TanH", acc, bias, factors)).max() <= 1


@pytest.mark.slow
def test_golden_gemm(golden: Any) -> None:
    s = golden.Stream(2_100_000)
    a, b = (s((1024, 1024), -128, 127).astype(np.int8) for _ in range(2))
    got = ck.gemm_quantization(a, b.T.copy(), requant_scale=2e-4)
    assert golden._digest(got) == golden.GOLDEN["qmlir14_gemm_scale2e-4"]["sha256"]


@pytest.mark.slow
def test_golden_conv(golden: Any) -> None:
    s = golden.Stream()
    x, w = s((4, 192, 71, 71), -128, 127).astype(np.int8), s((64, 192, 3, 3), -128, 127).astype(np.int8)
    got = ck.conv2d_fwd_quantization(
        np.moveaxis(x, 1, -1), np.moveaxis(w, 1, -1), "Activation_Mul2_Clamp", activation="Relu",
        requant_scale=((1 + np.arange(64) / 64) * 2**-12).astype(F), conv_filter_strides=(2, 2),
        input_left_pads=(1, 1), input_right_pads=(1, 1),
    )  # fmt: skip
    digest = golden._digest(np.moveaxis(got, -1, 1)[None])
    assert digest == golden.GOLDEN["qmlir40_relu_perchannel"]["sha256"]


@pytest.mark.slow
def test_on_lavapipe(lavapipe: str, data: Any, same: Callable[..., None]) -> None:
    a, b, bias = operands(data)
    kw: dict[str, Any] = {"activation": "Relu", "bias": bias, **FACTORS["Add_Activation_Mul2_Clamp"]}
    got = ck.gemm_quantization(a, b, "Add_Activation_Mul2_Clamp", **kw, target=lavapipe)
    same(got, functor("Add_Activation_Mul2_Clamp", "Relu", a.astype(int) @ b.T.astype(int), bias, kw))


A, B = np.zeros((4, 8), np.int8), np.zeros((6, 8), np.int8)
X, W = np.zeros((1, 5, 5, 2, 4), np.int8), np.zeros((2, 3, 3, 3, 4), np.int8)
GEMM: list[tuple[dict[str, Any], str]] = [
    ({"functor": "Activation_Mul_Clam", "requant_scale": 1.0}, r"functor='Activation_Mul_Clam' is not known; did you "
     r"mean 'Activation_Mul_Clamp'"),
    ({"activation": "relu", "requant_scale": 1.0}, r"activation='relu' is not known; did you mean 'Relu'"),
    ({"layout": "nk_mk_mn", "requant_scale": 1.0}, r"layout='nk_mk_mn' is not known; did you mean"),
    ({"rounding": "down", "requant_scale": 1.0}, r"rounding='down' is not known"),
    ({}, r"functor 'Activation_Mul_Clamp' takes 'requant_scale', but 'requant_scale' is missing"),
    ({"requant_scale": 1.0, "scale_acc": 1.0}, r"takes 'requant_scale', but 'scale_acc' is given"),
    ({"functor": "Mul_Activation_Mul_Clamp", "scale_acc": 1.0}, r"takes 'scale_acc' and 'scale_z_inv', but "
     r"'scale_z_inv' is missing"),
    ({"requant_scale": 1.0, "bias": np.zeros(6, np.int32)}, r"takes no bias; use 'Add_Activation_Mul_Clamp'"),
    ({"functor": "Add_Activation_Mul_Clamp", "requant_scale": 1.0}, r"needs an i32 'bias'"),
    ({"requant_scale": np.ones(6, F)}, r"takes one 'requant_scale', but it has shape \[6\]; 'Activation_Mul2_Clamp' "
     r"takes one an output channel"),
    ({"functor": "Activation_Mul2_Clamp", "requant_scale": 1.0}, r"takes one 'requant_scale' an output channel, \[6\], "
     r"but it has shape \[\]"),
    ({"functor": "Add_Activation_Mul_Clamp", "requant_scale": 1.0, "bias": np.zeros(5, np.int32)}, r"'bias' must hold "
     r"one value an output channel, \[6\], but has shape \[5\]"),
    ({"functor": "Add_Activation_Mul_Clamp", "requant_scale": 1.0, "bias": np.zeros(6, F)}, r"'bias' must be integer, "
     r"but is f32"),
    ({"a": A.astype(np.uint8), "requant_scale": 1.0}, r"'a' must be i8, but is u8"),
    ({"a": A[None], "requant_scale": 1.0}, r"'a' must have 2 axes, but has shape \[1, 4, 8\]"),
    ({"b": B.astype(F), "requant_scale": 1.0}, r"'b' must be i8, but is f32"),
    ({"b": B[0], "requant_scale": 1.0}, r"'b' must have two axes, but has shape \[8\]"),
]  # fmt: skip


@pytest.mark.parametrize(("kw", "message"), GEMM)
def test_gemm_refusals(kw: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ck.gemm_quantization(**{"a": A, "b": B, **kw})


CONV: list[tuple[dict[str, Any], str]] = [
    ({"weight": W[0]}, r"'input' and 'weight' must be \[N, Hi, Wi, G, C\] and GKYXC"),
    (
        {"weight": W[:1]},
        r"'input' must have shape \[N, Hi, Wi, G, C\].* = \[1, 5, 5, 1, 4\], but has \[1, 5, 5, 2, 4\]",
    ),
    ({"weight_layout": "KCYX"}, r"weight_layout='KCYX' is not known"),
    ({"conv_filter_strides": (1, 1, 1)}, r"conv_filter_strides must be \(y, x\), but is \(1, 1, 1\)"),
    ({"input": X.astype(F)}, r"'input' must be i8, but is f32"),
]


@pytest.mark.parametrize(("kw", "message"), CONV)
def test_conv_refusals(kw: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ck.conv2d_fwd_quantization(**{"input": X, "weight": W, "requant_scale": 1.0, **kw})


def test_operands_that_do_not_meet_are_the_verifiers_matter() -> None:
    with pytest.raises(qmlir.QmlirError, match="K differs"):
        ck.gemm_quantization(A, np.zeros((6, 9), np.int8), requant_scale=1.0)
