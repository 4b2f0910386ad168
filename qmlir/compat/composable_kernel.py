"""Composable Kernel's quantised GEMM and convolution, with its functors as options.

Sources: example/14_gemm_quantization, example/40_conv2d_fwd_quantization and client_example/09_quantization of
ROCm/composable_kernel; the functors are those of
include/ck/tensor_operation/gpu/element/quantization_operation.hpp. Conventions: int8 codes without zero points, an
exact i32 sum, an i32 bias on that sum, the activation on its f32 value, then a product with a requantisation multiplier
(never a quotient), a clamp to [-128, 127], and truncation toward zero.

| functor | bias | factor before the activation | factor after it |
|---|---|---|---|
| `Activation_Mul_Clamp` | | | `requant_scale` |
| `Activation_Mul2_Clamp` | | | `requant_scale [K]` |
| `Add_Activation_Mul_Clamp` | i32 | | `requant_scale` |
| `Add_Activation_Mul2_Clamp` | i32 | | `requant_scale [K]` |
| `Mul_Activation_Mul_Clamp` | | `scale_acc` | `scale_z_inv` |
| `Add_Mul_Activation_Mul_Clamp` | i32 | `scale_acc` | `scale_z_inv` |
| `Add_Mul2_Activation_Mul_Clamp` | i32 | `scale_acc [K]` | `scale_z_inv` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import ops
from ..dialect.dtypes import Array
from ..dialect.enums import ROUNDING
from ..dialect.shapes import show
from ..errors import UsageError
from ._arguments import dtype_of, expect, floats, integers, one_of, operand, zero_points

__all__ = ["ACTIVATIONS", "FUNCTORS", "GEMM_LAYOUTS", "conv2d_fwd_quantization", "gemm_quantization"]

# Functor -> (takes a bias, its first factor, its second factor, that factor is per channel).
FUNCTORS: dict[str, tuple[bool, str | None, str, str | None]] = {
    "Activation_Mul_Clamp": (False, None, "requant_scale", None),
    "Activation_Mul2_Clamp": (False, None, "requant_scale", "requant_scale"),
    "Add_Activation_Mul_Clamp": (True, None, "requant_scale", None),
    "Add_Activation_Mul2_Clamp": (True, None, "requant_scale", "requant_scale"),
    "Mul_Activation_Mul_Clamp": (False, "scale_acc", "scale_z_inv", None),
    "Add_Mul_Activation_Mul_Clamp": (True, "scale_acc", "scale_z_inv", None),
    "Add_Mul2_Activation_Mul_Clamp": (True, "scale_acc", "scale_z_inv", "scale_acc"),
}
_PER_CHANNEL_FORM = {
    ("Activation_Mul_Clamp", "requant_scale"): "Activation_Mul2_Clamp",
    ("Add_Activation_Mul_Clamp", "requant_scale"): "Add_Activation_Mul2_Clamp",
    ("Add_Mul_Activation_Mul_Clamp", "scale_acc"): "Add_Mul2_Activation_Mul_Clamp",
}
ACTIVATIONS = {"PassThrough": "none", "Relu": "relu", "TanH": "tanh"}
# Layouts of the library's instances: the stored axes of A, B and E -> (A transposed, B transposed).
GEMM_LAYOUTS = {
    "mk_nk_mn": (False, True),
    "mk_kn_mn": (False, False),
    "km_nk_mn": (True, True),
    "km_kn_mn": (True, False),
}
# Stored axes of the weight, by their place in GKYXC.
_WEIGHT_LAYOUTS = {"GKYXC": (0, 1, 2, 3, 4), "KYXGC": (3, 0, 1, 2, 4)}


def _epilogue(
    functor: str, channels: int, activation: str, bias: Any, rounding: str, factors: dict[str, Any]
) -> tuple[dict[str, Any], Array | None]:
    """The epilogue's keywords, and the factor on the accumulator: `[]` or `[channels]`."""
    takes_bias, before, after, per_channel = FUNCTORS[one_of(functor, FUNCTORS, "functor")]
    if takes_bias != (bias is not None):
        needs = "needs an i32 'bias'" if takes_bias else f"takes no bias; use {'Add_' + functor!r}"
        raise UsageError(f"functor {functor!r} {needs}")
    given: dict[str, Array] = {}
    for name, value in factors.items():
        if (value is not None) != (name in (before, after)):
            uses = " and ".join(repr(n) for n in (before, after) if n)
            state = "missing" if value is None else "given"
            raise UsageError(f"functor {functor!r} takes {uses}, but {name!r} is {state}")
        if value is None:
            continue
        factor = floats(value, name)
        if name == per_channel:
            if factor.size != channels:
                raise UsageError(f"functor {functor!r} takes one {name!r} an output channel, [{channels}], but it has "
                                 f"shape {show(factor.shape)}")  # fmt: skip
            given[name] = factor.reshape(channels)
        elif factor.size == 1:
            given[name] = factor.reshape(())
        else:
            other = _PER_CHANNEL_FORM.get((functor, name))
            also = f"; {other!r} takes one an output channel" if other else ""
            raise UsageError(f"functor {functor!r} takes one {name!r}, but it has shape {show(factor.shape)}{also}")
    keywords: dict[str, Any] = {
        "activation": ACTIVATIONS[one_of(activation, ACTIVATIONS, "activation")],
        "out_multiplier": given[after],
        "out_dtype": "i8",
        "rounding": one_of(rounding, ROUNDING, "rounding"),
    }
    if bias is not None:
        row = zero_points(bias, "bias")
        if row.size != channels:
            raise UsageError(f"'bias' must hold one value an output channel, [{channels}], but has shape "
                             f"{show(row.shape)}")  # fmt: skip
        keywords |= {"bias": row.reshape(channels), "bias_stage": "acc"}
    return keywords, None if before is None else given[before]


def gemm_quantization(
    a: Any,
    b: Any,
    functor: str = "Activation_Mul_Clamp",
    *,
    activation: str = "PassThrough",
    bias: Any = None,
    requant_scale: Any = None,
    scale_acc: Any = None,
    scale_z_inv: Any = None,
    layout: str = "mk_nk_mn",
    rounding: str = "trunc",
    target: str = "cpu",
) -> Any:
    """`e = trunc(clamp(requant_scale * activation(a @ b.T + bias)))` and its kin, int8 in and out.

    The defaults are those of example 14: `a` row-major, `b` column-major, truncation.

    Args:
        a: `[M, K]` int8 (`[K, M]` in the layouts `km_*`).
        b: `[N, K]` int8 (`[K, N]` in the layouts `*_kn_*`).
        functor: one of `FUNCTORS`; see the module's table.
        activation: `PassThrough`, `Relu` or `TanH`.
        bias: `[N]` i32, for the functors `Add_*`.
        requant_scale, scale_acc, scale_z_inv: the functor's factors: one value, or `[N]` where it says `Mul2`.
        layout: a library instance's name, the stored axes of A, B and E.
        rounding: 'trunc' as CK; 'half_even' and 'half_away' for those who want rounding.

    Returns:
        `[M, N]` int8.

    Raises:
        UsageError, VerifyError: arguments that do not fit the functor, the layout or each other.
    """
    a = _codes(a, "a", 2)
    codes = integers(b, "b", ("i8",))
    lhs_transposed, rhs_transposed = GEMM_LAYOUTS[one_of(layout, GEMM_LAYOUTS, "layout")]
    if codes.ndim != 2:
        raise UsageError(f"'b' must have two axes, but has shape {show(codes.shape)}")
    channels = codes.shape[0 if rhs_transposed else 1]
    factors = {"requant_scale": requant_scale, "scale_acc": scale_acc, "scale_z_inv": scale_z_inv}
    epilogue, before = _epilogue(functor, channels, activation, bias, rounding, factors)
    if before is not None:
        shape = () if before.ndim == 0 else (channels, 1) if rhs_transposed else (1, channels)
        epilogue["rhs_scale"] = before.reshape(shape)
    return ops.scaled_matmul(
        a, codes, lhs_transposed=lhs_transposed, rhs_transposed=rhs_transposed, target=target, **epilogue
    )


def conv2d_fwd_quantization(
    input: Any,
    weight: Any,
    functor: str = "Activation_Mul_Clamp",
    *,
    activation: str = "PassThrough",
    bias: Any = None,
    requant_scale: Any = None,
    scale_acc: Any = None,
    scale_z_inv: Any = None,
    conv_filter_strides: Sequence[int] = (1, 1),
    conv_filter_dilations: Sequence[int] = (1, 1),
    input_left_pads: Sequence[int] = (0, 0),
    input_right_pads: Sequence[int] = (0, 0),
    weight_layout: str = "GKYXC",
    rounding: str = "trunc",
    target: str = "cpu",
) -> Any:
    """The forward convolution of example 40: int8 in and out, grouped, with the functors of `gemm_quantization`.

    CK's own host reference casts the accumulator to int8 before it requantises, so that it disagrees with CK's kernels;
    this is what the functors say.

    Args:
        input: `[N, Hi, Wi, G, C]` int8 (NHWGC), or `[N, Hi, Wi, C]` for one group.
        weight: `[G, K, Y, X, C]` int8 (`weight_layout` 'GKYXC'), or `[K, Y, X, G, C]` ('KYXGC'); C and K count per
            group. With a four-axis input `[K, Y, X, C]`.
        functor, activation: as in `gemm_quantization`.
        bias: `[G, K]` or `[G * K]` i32, for the functors `Add_*`.
        requant_scale, scale_acc, scale_z_inv: the functor's factors: one value, or `[G, K]` (or `[G * K]`) where it
            says `Mul2`.
        conv_filter_strides, conv_filter_dilations: `(y, x)`.
        input_left_pads, input_right_pads: `(y, x)` of code 0 before and after.

    Returns:
        `[N, Ho, Wo, G, K]` int8 (NHWGK), or `[N, Ho, Wo, K]` for a four-axis input.

    Raises:
        UsageError, VerifyError: arguments that do not fit the functor or each other.
    """
    input = _codes(input, "input", None)
    codes = integers(weight, "weight", ("i8",))
    order = _WEIGHT_LAYOUTS[one_of(weight_layout, _WEIGHT_LAYOUTS, "weight_layout")]
    grouped = len(input.shape) == 5
    if len(input.shape) not in (4, 5) or codes.ndim != len(input.shape):
        raise UsageError(
            f"'input' and 'weight' must be [N, Hi, Wi, G, C] and {weight_layout}, or [N, Hi, Wi, C] and [K, Y, X, C], "
            f"but have shapes {show(input.shape)} and {show(codes.shape)}"
        )
    if not grouped:
        codes = codes[None] if order[0] == 0 else codes[:, :, :, None]
        input = input[..., None, :]
    codes = np.transpose(codes, order)
    g, k, y, x, c = codes.shape
    n, hi, wi = (int(d) for d in input.shape[:3])
    expect(input, (n, hi, wi, g, c), "input", "[N, Hi, Wi, G, C], with G and C of the weight,")
    factors = {"requant_scale": requant_scale, "scale_acc": scale_acc, "scale_z_inv": scale_z_inv}
    epilogue, before = _epilogue(functor, g * k, activation, bias, rounding, factors)
    result = ops.conv2d_q(
        input.reshape(n, hi, wi, g * c),
        codes.reshape(g * k, y, x, c),
        weight_scale=before,
        groups=g,
        strides=_pair(conv_filter_strides, "conv_filter_strides"),
        dilations=_pair(conv_filter_dilations, "conv_filter_dilations"),
        padding=(*_pair(input_left_pads, "input_left_pads"), *_pair(input_right_pads, "input_right_pads")),
        target=target,
        **epilogue,
    )
    return result.reshape(*result.shape[:3], g, k) if grouped else result


def _codes(value: Any, name: str, rank: int | None) -> Any:
    value = operand(value, name, rank)
    if dtype_of(value, name) != "i8":
        raise UsageError(f"{name!r} must be i8, but is {dtype_of(value, name)}")
    return value


def _pair(value: Sequence[int], name: str) -> tuple[int, int]:
    pair = tuple(int(v) for v in value)
    if len(pair) != 2:
        raise UsageError(f"{name} must be (y, x), but is {value!r}")
    return pair
