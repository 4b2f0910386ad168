"""qmlir.compat.composable_kernel against Composable Kernel's functors in plain numpy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.compat import composable_kernel as ck
from qmlir.errors import UsageError

F = np.float32
M, N, K = 7, 24, 40
PER_CHANNEL, SCALE_ACC = np.linspace(5e-4, 5e-3, N).astype(F), np.linspace(1e-5, 4e-5, N).astype(F)
# By functor: the arguments of its constructor in quantization_operation.hpp except the activation, and the factors
# among its D tensors.
FACTORS: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "Activation_Mul_Clamp": ({"requantScale": 1e-3}, {}),
    "Activation_Mul2_Clamp": ({}, {"requantScale": PER_CHANNEL}),
    "Add_Activation_Mul_Clamp": ({"requantScale": 1e-3}, {}),
    "Add_Activation_Mul2_Clamp": ({}, {"requantScale": PER_CHANNEL}),
    "Mul_Activation_Mul_Clamp": ({"scale_z_inv": 120.0, "scaleAcc": 2e-5}, {}),
    "Add_Mul_Activation_Mul_Clamp": ({"scale_z_inv": 120.0, "scaleAcc": 2e-5}, {}),
    "Add_Mul2_Activation_Mul_Clamp": ({"scale_z_inv": 120.0}, {"scaleAcc": SCALE_ACC}),
}
ACTIVATIONS = {ck.PassThrough: lambda v: v, ck.Relu: lambda v: np.maximum(v, F(0)), ck.TanH: np.tanh}


def made(name: str, activation: str) -> ck.Functor:
    return getattr(ck, name)(*FACTORS[name][0].values(), activation)  # type: ignore[no-any-return]


def tensors(name: str, bias: Any) -> list[Any]:
    """The D tensors, the bias first."""
    return [*([bias] if name.startswith("Add_") else []), *FACTORS[name][1].values()]


def functor(name: str, activation: str, acc: Any, bias: Any, factors: dict[str, Any]) -> Any:
    """quantization_operation.hpp in numpy, f32 step by f32 step; channels are the last axis of `acc`."""
    y = (acc + bias if name.startswith("Add_") else acc).astype(F)
    if "scaleAcc" in factors:
        y = F(1) * np.asarray(factors["scaleAcc"], F) * y
    y = ACTIVATIONS[activation](y)
    after = np.asarray(factors["scale_z_inv" if "scaleAcc" in factors else "requantScale"], F)
    return np.trunc(np.clip(after * y, F(-128), F(127))).astype(np.int8)


def factors_of(name: str) -> dict[str, Any]:
    return {**FACTORS[name][0], **FACTORS[name][1]}


def operands(data: Any) -> tuple[Any, Any, Any]:
    return data.codes(M, K), data.codes(N, K), data.zeros(N, lo=-20000, hi=20000)


def test_every_functor_is_tried() -> None:
    others = {"Functor", "PassThrough", "Relu", "TanH"}
    assert set(FACTORS) == set(ck.__all__) - others


@pytest.mark.parametrize("name", FACTORS)
def test_constructors_are_those_of_composable_kernel(name: str) -> None:
    assert list(inspect.signature(getattr(ck, name)).parameters) == [*FACTORS[name][0], "activationOp"]
    assert made(name, ck.Relu).tensors == (*(["bias"] if name.startswith("Add_") else []), *FACTORS[name][1])


def some_slow(names: Any, slow: set[str]) -> list[Any]:
    """Test parameters; the names in `slow` run in the slow tier."""
    return [pytest.param(n, marks=pytest.mark.slow) if n in slow else n for n in names]


@pytest.mark.sweep(fast=4, slow=3)
@pytest.mark.parametrize(
    "name", some_slow(FACTORS, {"Activation_Mul2_Clamp", "Add_Activation_Mul_Clamp", "Mul_Activation_Mul_Clamp"})
)
def test_gemm_functors(name: str, data: Any, same: Callable[..., None]) -> None:
    a, b, bias = operands(data)
    activation = ck.TanH if "scaleAcc" in factors_of(name) else ck.Relu if "Mul2" in name else ck.PassThrough
    got = qmlir.ops.scaled_matmul(a, b, **made(name, activation).matmul(*tensors(name, bias)))
    expected = functor(name, activation, a.astype(np.int64) @ b.T.astype(np.int64), bias, factors_of(name))
    if activation == ck.TanH:  # libraries' tanh may differ in the last bit
        assert np.abs(got.astype(int) - expected).max() <= 1
        assert np.mean(got != expected) < 0.01
    else:
        same(got, expected)
    assert len(np.unique(got)) > 20


LAYOUTS = ("mk_nk_mn", "mk_kn_mn", "km_nk_mn", "km_kn_mn")


@pytest.mark.parametrize("layout", some_slow(LAYOUTS, {"mk_kn_mn", "km_kn_mn"}))
def test_gemm_layouts(layout: str, data: Any, same: Callable[..., None]) -> None:
    """The names of the library's instances state the stored axes of A, B and E."""
    a, b, bias = operands(data)
    stored = a.T.copy() if layout.startswith("km") else a, b.T.copy() if "_kn_" in layout else b
    name = "Add_Activation_Mul2_Clamp"
    keywords = made(name, ck.Relu).matmul(*tensors(name, bias), rhs_transposed="_nk_" in layout)
    got = qmlir.ops.scaled_matmul(*stored, lhs_transposed=layout.startswith("km"), **keywords)
    same(got, qmlir.reference.scaled_matmul(
        a, b, rhs_transposed=True, bias=bias, bias_stage="acc", activation="relu", out_dtype="i8",
        out_multiplier=PER_CHANNEL, rounding="trunc",
    ))  # fmt: skip


def test_scales_per_channel_before_the_activation_in_another_layout(data: Any) -> None:
    a, b, bias = operands(data)
    name = "Add_Mul2_Activation_Mul_Clamp"
    keywords = made(name, ck.TanH).matmul(*tensors(name, bias), rhs_transposed=False)
    got = qmlir.ops.scaled_matmul(a, b.T.copy(), **keywords)
    expected = functor(name, ck.TanH, a.astype(np.int64) @ b.T.astype(np.int64), bias, factors_of(name))
    assert np.abs(got.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("rounding", some_slow(("half_even", "half_away"), {"half_even"}))
def test_gemm_rounds_when_asked(rounding: str, data: Any, same: Callable[..., None]) -> None:
    a, b, _ = operands(data)
    keywords = {**ck.Activation_Mul_Clamp(2.0**-10, ck.PassThrough).matmul(), "rounding": rounding}
    got = qmlir.ops.scaled_matmul(a, b, **keywords)
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


def test_grouped_conv(data: Any, same: Callable[..., None]) -> None:
    x, w = data.codes(2, 9, 8, 2, 8), data.codes(2, 6, 3, 3, 8)
    bias, scale = data.zeros(12, lo=-9000, hi=9000), (np.arange(12) + 1).astype(F) * F(3e-4)
    strides, dilations, left, right = ((2, 1), (1, 2), (1, 2), (0, 2))
    got = qmlir.ops.conv2d_q(
        x.reshape(2, 9, 8, 16), w.reshape(12, 3, 3, 8), groups=2, strides=strides, dilations=dilations,
        padding=(*left, *right), **ck.Add_Activation_Mul2_Clamp(ck.Relu).conv2d(bias, scale),
    )  # fmt: skip
    acc = naive_conv(x, w, strides, dilations, left, right)
    acc = acc.reshape(*acc.shape[:3], 12)
    same(got, functor("Add_Activation_Mul2_Clamp", ck.Relu, acc, bias, {"requantScale": scale}))


def test_conv_of_one_group_with_tanh(data: Any) -> None:
    x, w, bias = data.codes(1, 8, 8, 16), data.codes(12, 3, 3, 16), data.zeros(12, lo=-9000, hi=9000)
    factors = {"scaleAcc": np.linspace(1e-5, 3e-5, 12).astype(F), "scale_z_inv": 120.0}
    keywords = ck.Add_Mul2_Activation_Mul_Clamp(120.0, ck.TanH).conv2d(bias, factors["scaleAcc"])
    got = qmlir.ops.conv2d_q(x, w, strides=(2, 2), padding=(1, 1, 1, 1), **keywords)
    acc = naive_conv(x[:, :, :, None], w[None], (2, 2), (1, 1), (1, 1), (1, 1))[:, :, :, 0]
    assert got.shape == (1, 4, 4, 12)
    assert np.abs(got.astype(int) - functor("Add_Mul2_Activation_Mul_Clamp", ck.TanH, acc, bias, factors)).max() <= 1


@pytest.mark.slow
def test_golden_gemm(golden: Any) -> None:
    s = golden.Stream(2_100_000)
    a, b = (s((1024, 1024), -128, 127).astype(np.int8) for _ in range(2))
    got = qmlir.ops.scaled_matmul(a, b.T.copy(), **ck.Activation_Mul_Clamp(2e-4, ck.PassThrough).matmul())
    assert golden._digest(got) == golden.GOLDEN["qmlir14_gemm_scale2e-4"]["sha256"]


@pytest.mark.slow
def test_golden_conv(golden: Any) -> None:
    s = golden.Stream()
    x, w = s((4, 192, 71, 71), -128, 127).astype(np.int8), s((64, 192, 3, 3), -128, 127).astype(np.int8)
    keywords = ck.Activation_Mul2_Clamp(ck.Relu).conv2d(((1 + np.arange(64) / 64) * 2**-12).astype(F))
    got = qmlir.ops.conv2d_q(
        np.moveaxis(x, 1, -1), np.moveaxis(w, 1, -1), strides=(2, 2), padding=(1, 1, 1, 1), **keywords
    )
    digest = golden._digest(np.moveaxis(got, -1, 1)[None])
    assert digest == golden.GOLDEN["qmlir40_relu_perchannel"]["sha256"]


@pytest.mark.slow
def test_on_lavapipe(lavapipe: str, data: Any, same: Callable[..., None]) -> None:
    a, b, bias = operands(data)
    name = "Add_Activation_Mul2_Clamp"
    got = qmlir.ops.scaled_matmul(a, b, **made(name, ck.Relu).matmul(*tensors(name, bias)), target=lavapipe)
    same(got, functor(name, ck.Relu, a.astype(int) @ b.T.astype(int), bias, factors_of(name)))


REFUSALS: list[tuple[str, list[Any], str]] = [
    ("Activation_Mul_Clamp", [np.ones(6, F)], r"Activation_Mul_Clamp takes 0 D tensors \(none\), but 1 are given"),
    ("Add_Activation_Mul2_Clamp", [np.zeros(6, np.int32)], r"takes 2 D tensors \(bias, requantScale\), but 1 are"),
    ("Activation_Mul2_Clamp", [1.0], r"'requantScale' of Activation_Mul2_Clamp must be one value per output channel, "
     r"\[N\], but has shape \[\]"),
    ("Add_Activation_Mul_Clamp", [np.zeros(6, F)], r"'bias' must be integer, but is f32"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ds", "message"), REFUSALS)
def test_refusals(name: str, ds: list[Any], message: str) -> None:
    for epilogue in (made(name, ck.Relu).matmul, made(name, ck.Relu).conv2d):
        with pytest.raises(UsageError, match=message):
            epilogue(*ds)


def test_an_unknown_activation() -> None:
    with pytest.raises(UsageError, match=r"activationOp='Relu' is not known; did you mean 'relu'"):
        ck.Activation_Mul_Clamp(1.0, "Relu")


def test_operands_that_do_not_meet_are_the_verifiers_matter() -> None:
    a, b = np.zeros((4, 8), np.int8), np.zeros((6, 8), np.int8)
    with pytest.raises(qmlir.QmlirError, match="K differs"):
        qmlir.ops.scaled_matmul(a, np.zeros((6, 9), np.int8), **ck.Activation_Mul_Clamp(1.0, ck.Relu).matmul())
    bias = np.zeros(5, np.int32)
    with pytest.raises(qmlir.QmlirError, match="'bias'"):
        qmlir.ops.scaled_matmul(a, b, **ck.Add_Activation_Mul_Clamp(1.0, ck.Relu).matmul(bias))
