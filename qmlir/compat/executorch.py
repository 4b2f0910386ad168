"""The quantised linear and convolution operators of ExecuTorch's Vulkan backend (`et_vk.*`).

Sources in pytorch/executorch: backends/vulkan/custom_ops_lib.py (signatures), backends/vulkan/patterns (weight layouts)
and backends/vulkan/test (numerics); `linear_qta8a_qga4w_qta8o` is pull request 12006, `linear_qta8a_qga4w` its merged
form, which later versions replaced by `linear_dq8ca_q4gsw`. The names say what is quantised how: `q8ta` 8-bit
activation with one static scale, `dq8ca` 8-bit activation with one dynamic scale a token, `q8csw` 8-bit symmetric
weight with one scale a channel, `q4gsw` 4-bit symmetric weight with one scale a group of input channels.

| operator | nibbles | weight's value | activation's rounding | output |
|---|---|---|---|---|
| `linear_qta8a_qga4w_qta8o` | high first | `(q - 8) * s + z`, z float | already codes | i8, half_away |
| `linear_qta8a_qga4w` | high first | `((q - 8) - z) * s`, z integer | already codes | f32 |
| `linear_q4gsw` | low first | `(q - 8) * s` | float | the input's type |
| `linear_dq8ca_q4gsw` | low first | `(q - 8) * s` | half_even | the input's type |
| `linear_q8csw`, `conv2d_q8csw` | | `q * s` | float | the input's type |
| `linear_q8ta_q8csw`, `conv2d_q8ta_q8csw` | | `q * s` | half_away | the input's type |
| `q8ta_linear`, `q8ta_linear_gemv` | | `q * s` | already codes | i8, half_away |
| `q8ta_conv2d`, `_pw`, `_dw`, `_transposed` | | `q * s` | already codes | i8, half_away |

Requantisation multiplies by `1 / output_scale`. `weight_sums` are part of the signatures and may be None: the compiled
program derives the sums that the zero points need. A bias is float, added in f32 before the output's rounding.
ExecuTorch pads weights, scales and biases to multiples of 4 or 8 for its shaders; parameters that are longer than the
shapes below are cut to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import ops
from ..dialect.dtypes import Array
from ..dialect.shapes import show
from ..errors import UsageError
from ._arguments import FLOATS, dtype_of, expect, floats, integers, one_of, operand, rows, zero_points

__all__ = [
    "choose_qparams_per_row",
    "conv2d_q8csw",
    "conv2d_q8ta_q8csw",
    "linear_dq8ca_q4gsw",
    "linear_q4gsw",
    "linear_q8csw",
    "linear_q8ta_q8csw",
    "linear_qta8a_qga4w",
    "linear_qta8a_qga4w_qta8o",
    "q8ta_conv2d",
    "q8ta_conv2d_dw",
    "q8ta_conv2d_pw",
    "q8ta_conv2d_transposed",
    "q8ta_linear",
    "q8ta_linear_gemv",
]

_ACTIVATIONS = ("none", "relu")


# ---- 4-bit weights


def linear_qta8a_qga4w_qta8o(
    quantized_input: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights_4x2: Any,
    group_size: int,
    weight_scales_and_zeros: Any,
    output_scale: Any,
    output_zero_point: Any,
    *,
    rounding: str = "half_away",
    target: str = "cpu",
) -> Any:
    """8-bit activations a token, 4-bit weights a group, 8-bit output a token.

    Args:
        quantized_input: `[.., M, K]` int8; T is the product of its leading axes.
        input_scale, input_zero_point: `[T]` float, `[T]` integer.
        weights_4x2: `[N, K/2]` uint8; the even code of K is the high nibble.
        group_size: divides K.
        weight_scales_and_zeros: `[K/group_size, N, 2]` float: the scale s and the float zero z of `(q - 8) * s + z`.
        output_scale, output_zero_point: `[T]` float, `[T]` integer.
        rounding: 'half_away', as the operator's test; GLSL leaves it to the device.

    Returns:
        `[.., M, N]` int8: `clamp(round(y * (1 / output_scale)) + output_zero_point, -128, 127)`.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    x, lead = _code_rows(quantized_input, "quantized_input")
    packed, k = _nibbles(weights_4x2, x, "weights_4x2")
    groups = _groups(k, group_size)
    both = floats(weight_scales_and_zeros, "weight_scales_and_zeros")
    expect(both, (groups, len(packed), 2), "weight_scales_and_zeros", "[K/group_size, N, 2]")
    tokens = int(x.shape[0])
    result = ops.scaled_matmul(
        x,
        packed,
        lhs_scale=_per_token(floats(input_scale, "input_scale"), tokens, "input_scale"),
        lhs_zero_point=_per_token(zero_points(input_zero_point, "input_zero_point"), tokens, "input_zero_point"),
        rhs_scale=both[..., 0].T,
        rhs_zero_point=both[..., 1].T,
        rhs_zero_mode="offset_float",
        rhs_dtype="u4",
        rhs_transposed=True,
        rhs_packing="high_first",
        group_size=group_size,
        out_dtype="i8",
        out_scale=_per_token(floats(output_scale, "output_scale"), tokens, "output_scale"),
        out_zero_point=_per_token(zero_points(output_zero_point, "output_zero_point"), tokens, "output_zero_point"),
        rounding=rounding,
        target=target,
    )
    return result.reshape(*lead, len(packed))


def linear_qta8a_qga4w(
    x_quantized: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights_4bit: Any,
    group_size: int,
    weight_scales: Any,
    weight_zeros: Any,
    *,
    target: str = "cpu",
) -> Any:
    """8-bit activations a token, 4-bit weights a group, float output.

    Args:
        x_quantized: `[.., M, K]` int8; T is the product of its leading axes.
        input_scale, input_zero_point: `[T]` float, `[T]` integer.
        weights_4bit: `[N, K/2]` uint8; the even code of K is the high nibble.
        group_size: divides K.
        weight_scales: `[K/group_size, N]` float.
        weight_zeros: `[K/group_size, N]` integer, the z of `((q - 8) - z) * s`.

    Returns:
        `[.., M, N]` f32; an exact i32 sum inside a group, f32 over the groups.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    x, lead = _code_rows(x_quantized, "x_quantized")
    packed, k = _nibbles(weights_4bit, x, "weights_4bit")
    groups = _groups(k, group_size)
    zeros = zero_points(weight_zeros, "weight_zeros")
    expect(zeros, (groups, len(packed)), "weight_zeros", "[K/group_size, N]")
    tokens = int(x.shape[0])
    result = ops.scaled_matmul(
        x,
        packed,
        lhs_scale=_per_token(floats(input_scale, "input_scale"), tokens, "input_scale"),
        lhs_zero_point=_per_token(zero_points(input_zero_point, "input_zero_point"), tokens, "input_zero_point"),
        rhs_scale=_group_scales(weight_scales, groups, len(packed)),
        rhs_zero_point=zeros.T,
        rhs_zero_mode="offset_int",
        rhs_dtype="u4",
        rhs_transposed=True,
        rhs_packing="high_first",
        group_size=group_size,
        target=target,
    )
    return result.reshape(*lead, len(packed))


def linear_q4gsw(
    x: Any, weights: Any, weight_scales: Any, group_size: int, bias: Any = None, *, target: str = "cpu"
) -> Any:
    """Float activations, 4-bit symmetric weights a group.

    Args:
        x: `[.., M, K]` f32, f16 or bf16.
        weights: `[N, K/2]` uint8, `q + 8` in each nibble; the even code of K is the low one.
        weight_scales: `[K/group_size, N]` float.
        group_size: divides K.
        bias: `[N]` float.

    Returns:
        `[.., M, N]` in the type of `x`; weights are dequantised to that type, sums are f32.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    x, lead, dtype = _float_rows(x)
    keywords = _q4gsw(x, weights, weight_scales, group_size, bias)
    result = ops.scaled_matmul(x, **keywords, out_dtype=dtype, target=target)
    return result.reshape(*lead, result.shape[-1])


def linear_dq8ca_q4gsw(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights: Any,
    weight_sums: Any,
    weight_scales: Any,
    group_size: int,
    bias: Any = None,
    *,
    rounding: str = "half_even",
    target: str = "cpu",
) -> Any:
    """Float activations quantised to 8 bits a token with the given scales, 4-bit symmetric weights a group.

    Args:
        x: `[.., M, K]` f32, f16 or bf16; T is the product of its leading axes.
        input_scale, input_zero_point: `[T]` float and `[T]` integer, as `choose_qparams_per_row` returns them.
        weights, weight_scales, group_size, bias: as in `linear_q4gsw`.
        weight_sums: not read; may be None.
        rounding: of the activations to codes.

    Returns:
        `[.., M, N]` in the type of `x`; an exact i32 sum inside a group, f32 over the groups.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    x, lead, dtype = _float_rows(x)
    tokens = int(x.shape[0])
    scale = _per_token(floats(input_scale, "input_scale"), tokens, "input_scale")
    zero = _per_token(zero_points(input_zero_point, "input_zero_point"), tokens, "input_zero_point")
    keywords = _q4gsw(x, weights, weight_scales, group_size, bias)
    codes = ops.quantize(x, scale, zero, rounding=rounding, target=target)
    result = ops.scaled_matmul(codes, **keywords, lhs_scale=scale, lhs_zero_point=zero, out_dtype=dtype, target=target)
    return result.reshape(*lead, result.shape[-1])


def choose_qparams_per_row(x: Any, quant_min: int = -128, quant_max: int = 127, *, target: str = "cpu") -> Any:
    """Scale and zero point of each token: fbgemm's asymmetric recipe, in f64, rounded half to even.

    Args:
        x: `[.., M, K]` f32, f16 or bf16.
        quant_min, quant_max: -128 and 127.

    Returns:
        `(input_scale [T] f32, input_zero_point [T] i32)`, T the product of the leading axes.

    Raises:
        UsageError: another range, or no float activations.
    """
    if (quant_min, quant_max) != (-128, 127):
        raise UsageError(f"the range [{quant_min}, {quant_max}] is not known; codes are int8, [-128, 127]")
    x, _, _ = _float_rows(x)
    _, scale, zero = ops.dynamic_quantize(x, symmetric=False, recipe="fbgemm", target=target)
    return scale.reshape(-1), zero.reshape(-1)


# ---- 8-bit weights


def linear_q8csw(x: Any, weights: Any, weight_scales: Any, bias: Any = None, *, target: str = "cpu") -> Any:
    """Float activations, 8-bit symmetric weights a channel.

    Args:
        x: `[.., M, K]` f32, f16 or bf16.
        weights: `[N, K]` int8.
        weight_scales, bias: `[N]` float.

    Returns:
        `[.., M, N]` in the type of `x`; weights are dequantised to that type, sums are f32.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    x, lead, dtype = _float_rows(x)
    keywords = _q8csw(x, weights, weight_scales, bias)
    result = ops.scaled_matmul(x, **keywords, out_dtype=dtype, target=target)
    return result.reshape(*lead, result.shape[-1])


def linear_q8ta_q8csw(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights: Any,
    weight_sums: Any,
    weight_scales: Any,
    bias: Any = None,
    *,
    rounding: str = "half_away",
    target: str = "cpu",
) -> Any:
    """Float activations quantised to 8 bits with one given scale, 8-bit symmetric weights a channel, float output.

    Args:
        x: `[.., M, K]` f32, f16 or bf16.
        input_scale, input_zero_point: one float, one integer.
        weights, weight_scales, bias: as in `linear_q8csw`.
        weight_sums: not read; may be None.
        rounding: of the activations to codes.

    Returns:
        `[.., M, N]` in the type of `x`; the i32 sum is exact.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    x, lead, dtype = _float_rows(x)
    side = _per_tensor(input_scale, input_zero_point, "input")
    keywords = _q8csw(x, weights, weight_scales, bias)
    codes = ops.quantize(x, *side, rounding=rounding, target=target)
    result = ops.scaled_matmul(
        codes, **keywords, lhs_scale=side[0], lhs_zero_point=side[1], out_dtype=dtype, target=target
    )
    return result.reshape(*lead, result.shape[-1])


def q8ta_linear(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights: Any,
    weight_sums: Any,
    weight_scales: Any,
    output_scale: Any,
    output_zero_point: Any,
    bias: Any = None,
    activation: str = "none",
    *,
    rounding: str = "half_away",
    target: str = "cpu",
) -> Any:
    """8-bit activations and output with one scale each, 8-bit symmetric weights a channel.

    Args:
        x: `[.., M, K]` int8.
        input_scale, input_zero_point, output_scale, output_zero_point: floats and integers, one each.
        weights: `[N, K]` int8.
        weight_sums: not read; may be None.
        weight_scales, bias: `[N]` float.
        activation: 'none' or 'relu', before the output is quantised.
        rounding: of the output.

    Returns:
        `[.., M, N]` int8: `clamp(round(y * (1 / output_scale)) + output_zero_point, -128, 127)`.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    x, lead = _code_rows(x, "x")
    scale, zero = _per_tensor(input_scale, input_zero_point, "input")
    result = ops.scaled_matmul(
        x,
        **_q8csw(x, weights, weight_scales, bias),
        lhs_scale=scale,
        lhs_zero_point=zero,
        **_output(output_scale, output_zero_point, activation, rounding),
        target=target,
    )
    return result.reshape(*lead, result.shape[-1])


def q8ta_linear_gemv(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights: Any,
    weight_sums: Any,
    weight_scales: Any,
    output_scale: Any,
    output_zero_point: Any,
    bias: Any = None,
    activation: str = "none",
    *,
    rounding: str = "half_away",
    target: str = "cpu",
) -> Any:
    """`q8ta_linear` for one row: ExecuTorch names its matrix-vector kernel apart, the meaning is the same."""
    return q8ta_linear(x, input_scale, input_zero_point, weights, weight_sums, weight_scales, output_scale,
                       output_zero_point, bias, activation, rounding=rounding, target=target)  # fmt: skip


# ---- convolutions


def q8ta_conv2d(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights: Any,
    weight_sums: Any,
    weight_scales: Any,
    output_scale: Any,
    output_zero_point: Any,
    bias: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    activation: str = "none",
    *,
    rounding: str = "half_away",
    target: str = "cpu",
) -> Any:
    """A convolution of 8-bit codes with one scale in and out, 8-bit symmetric weights a channel.

    Args:
        x: `[N, IC, H, W]` int8.
        input_scale, input_zero_point, output_scale, output_zero_point: floats and integers, one each.
        weights: `[OC, KH*KW*IC/groups]` int8, input channels innermost.
        weight_sums: not read; may be None.
        weight_scales, bias: `[OC]` float; `bias` may be None.
        kernel_size, stride, padding, dilation: `(h, w)`; padding adds the real value 0 on both sides.
        groups: divides IC and OC.
        activation: 'none' or 'relu', before the output is quantised.
        rounding: of the output.

    Returns:
        `[N, OC, OH, OW]` int8.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    filters = _matrix_filters(x, weights, kernel_size, groups)
    return _q8ta_conv(x, input_scale, input_zero_point, filters, weight_scales, output_scale, output_zero_point, bias,
                      stride, padding, dilation, groups, activation, rounding, target)  # fmt: skip


def q8ta_conv2d_pw(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights: Any,
    weight_sums: Any,
    weight_scales: Any,
    output_scale: Any,
    output_zero_point: Any,
    bias: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    activation: str = "none",
    *,
    rounding: str = "half_away",
    target: str = "cpu",
) -> Any:
    """`q8ta_conv2d` with a 1x1 kernel: weights `[OC, IC]`."""
    if _pair(kernel_size, "kernel_size") != (1, 1):
        raise UsageError(f"a pointwise convolution has a 1x1 kernel, but kernel_size is {list(kernel_size)}; "
                         "use q8ta_conv2d")  # fmt: skip
    return q8ta_conv2d(x, input_scale, input_zero_point, weights, weight_sums, weight_scales, output_scale,
                       output_zero_point, bias, kernel_size, stride, padding, dilation, groups, activation,
                       rounding=rounding, target=target)  # fmt: skip


def q8ta_conv2d_dw(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights: Any,
    weight_sums: Any,
    weight_scales: Any,
    output_scale: Any,
    output_zero_point: Any,
    bias: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    activation: str = "none",
    *,
    rounding: str = "half_away",
    target: str = "cpu",
) -> Any:
    """`q8ta_conv2d` with one input channel a filter: weights `[KH, KW, OC]` int8, groups = IC."""
    codes = integers(weights, "weights", ("i8",))
    kh, kw = _pair(kernel_size, "kernel_size")
    if codes.ndim != 3 or codes.shape[:2] != (kh, kw):
        raise UsageError(f"'weights' of a depthwise convolution must be [KH, KW, OC] = [{kh}, {kw}, OC], but "
                         f"have shape {show(codes.shape)}")  # fmt: skip
    filters = np.moveaxis(codes, 2, 0)[..., None]
    return _q8ta_conv(x, input_scale, input_zero_point, filters, weight_scales, output_scale, output_zero_point, bias,
                      stride, padding, dilation, groups, activation, rounding, target)  # fmt: skip


def q8ta_conv2d_transposed(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights: Any,
    weight_sums: Any,
    weight_scales: Any,
    output_scale: Any,
    output_zero_point: Any,
    bias: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    activation: str = "none",
    *,
    rounding: str = "half_away",
    target: str = "cpu",
) -> Any:
    """The transposed convolution (torch's ConvTranspose2d). Arguments as in `q8ta_conv2d`; weights keep the output
    channels first, `[OC, KH*KW*IC/groups]`; `output_padding` is `(h, w)`."""
    filters = _matrix_filters(x, weights, kernel_size, groups)
    extra = {"transposed": True, "output_padding": _pair(output_padding, "output_padding")}
    return _q8ta_conv(x, input_scale, input_zero_point, filters, weight_scales, output_scale, output_zero_point, bias,
                      stride, padding, dilation, groups, activation, rounding, target, **extra)  # fmt: skip


def conv2d_q8csw(
    x: Any,
    weights: Any,
    weight_scales: Any,
    bias: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *,
    target: str = "cpu",
) -> Any:
    """A convolution of floats `[N, IC, H, W]` with 8-bit symmetric weights a channel; result in the type of `x`.
    Weights and geometry as in `q8ta_conv2d`."""
    filters = _matrix_filters(x, weights, kernel_size, groups)
    x = operand(x, "x", 4)
    geometry = _geometry(filters, weight_scales, bias, stride, padding, dilation, groups)
    return ops.conv2d_q(x, filters, **geometry, out_dtype=_float_dtype(x), target=target)


def conv2d_q8ta_q8csw(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    weights: Any,
    weight_sums: Any,
    weight_scales: Any,
    bias: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *,
    rounding: str = "half_away",
    target: str = "cpu",
) -> Any:
    """A convolution of floats that are quantised to 8 bits with one given scale; float result. Weights and geometry
    as in `q8ta_conv2d`."""
    filters = _matrix_filters(x, weights, kernel_size, groups)
    x = operand(x, "x", 4)
    dtype = _float_dtype(x)
    scale, zero = _per_tensor(input_scale, input_zero_point, "input")
    geometry = _geometry(filters, weight_scales, bias, stride, padding, dilation, groups)
    codes = ops.quantize(x, scale, zero, rounding=rounding, target=target)
    return ops.conv2d_q(
        codes, filters, **geometry, input_scale=scale, input_zero_point=zero, out_dtype=dtype, target=target
    )


# ---- arguments


def _code_rows(x: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """int8 activations as `[T, K]`, and their leading axes."""
    x, lead = rows(x, name)
    if dtype_of(x, name) != "i8":
        raise UsageError(f"{name!r} must be i8 codes, but is {dtype_of(x, name)}")
    return x, lead


def _float_dtype(x: Any) -> str:
    dtype = dtype_of(x, "x")
    if dtype not in FLOATS:
        raise UsageError(f"'x' must be {', '.join(FLOATS)}, but is {dtype}")
    return dtype


def _float_rows(x: Any) -> tuple[Any, tuple[int, ...], str]:
    """Float activations as `[T, K]`, their leading axes, and their dtype."""
    x, lead = rows(x, "x")
    return x, lead, _float_dtype(x)


def _per_token(value: Array, tokens: int, name: str) -> Array:
    """One value a token as `[T, 1]`."""
    if value.size != tokens:
        raise UsageError(f"{name!r} must hold one value a token, [{tokens}], but has shape {show(value.shape)}")
    return value.reshape(tokens, 1)


def _per_tensor(scale: Any, zero_point: Any, prefix: str) -> tuple[Array, Array]:
    """One scale and zero point, both `[]`."""
    pair = floats(scale, f"{prefix}_scale"), zero_points(zero_point, f"{prefix}_zero_point")
    for name, value in zip(("scale", "zero_point"), pair, strict=True):
        if value.size != 1:
            raise UsageError(f"'{prefix}_{name}' is one value, but has shape {show(value.shape)}")
    return pair[0].reshape(()), pair[1].reshape(())


def _per_channel(value: Any, channels: int, name: str) -> Array:
    """`[N]` of a parameter that may be padded."""
    array = floats(value, name).reshape(-1)
    if array.size < channels:
        raise UsageError(f"{name!r} must hold one value an output channel, [{channels}], but holds {array.size}")
    return array[:channels]


def _groups(k: int, group_size: int) -> int:
    if group_size < 1 or k % group_size:
        near = [g for g in (8, 16, 32, 64, 128, 256) if k % g == 0]
        raise UsageError(f"group_size={group_size} does not divide K = {k}"
                         + (f"; these do: {', '.join(map(str, near))}" if near else ""))  # fmt: skip
    return k // group_size


def _nibbles(weights: Any, x: Any, name: str) -> tuple[Array, int]:
    """Packed 4-bit weights `[N, K/2]` without padding of K, and K."""
    packed = integers(weights, name)
    k = int(x.shape[1])
    width = -(-k // 2)
    if packed.ndim != 2 or packed.shape[1] < width:
        raise UsageError(f"{name!r} must be [N, K/2] = [N, {width}] bytes of two codes, but has shape "
                         f"{show(packed.shape)}")  # fmt: skip
    return np.ascontiguousarray(packed[:, :width]).view(np.uint8), k


def _group_scales(scales: Any, groups: int, channels: int) -> Array:
    """`[K/group_size, N]`, N perhaps padded, as `[N, K/group_size]`."""
    array = floats(scales, "weight_scales")
    if array.ndim != 2 or array.shape[0] != groups or array.shape[1] < channels:
        raise UsageError(f"'weight_scales' must have shape [K/group_size, N] = [{groups}, {channels}], but has "
                         f"{show(array.shape)}")  # fmt: skip
    return array[:, :channels].T


def _bias(bias: Any, channels: int) -> dict[str, Any]:
    return {} if bias is None else {"bias": _per_channel(bias, channels, "bias"), "bias_stage": "scaled"}


def _q4gsw(x: Any, weights: Any, weight_scales: Any, group_size: int, bias: Any) -> dict[str, Any]:
    """Operands and attributes of the 4-bit weights."""
    packed, k = _nibbles(weights, x, "weights")
    return {
        "rhs": packed,
        "rhs_scale": _group_scales(weight_scales, _groups(k, group_size), len(packed)),
        "rhs_zero_mode": "offset_int",
        "rhs_dtype": "u4",
        "rhs_transposed": True,
        "rhs_packing": "low_first",
        "group_size": group_size,
        **_bias(bias, len(packed)),
    }


def _q8csw(x: Any, weights: Any, weight_scales: Any, bias: Any) -> dict[str, Any]:
    """Operands and attributes of the 8-bit weights, K perhaps padded."""
    codes, k = integers(weights, "weights", ("i8",)), int(x.shape[1])
    if codes.ndim != 2 or codes.shape[1] < k:
        raise UsageError(f"'weights' must be [N, K] = [N, {k}], but have shape {show(codes.shape)}")
    return {
        "rhs": codes[:, :k],
        "rhs_scale": _per_channel(weight_scales, len(codes), "weight_scales").reshape(-1, 1),
        "rhs_transposed": True,
        **_bias(bias, len(codes)),
    }


def _output(scale: Any, zero_point: Any, activation: str, rounding: str) -> dict[str, Any]:
    """Attributes of the 8-bit output."""
    out_scale, out_zero_point = _per_tensor(scale, zero_point, "output")
    return {
        "activation": one_of(activation, _ACTIVATIONS, "activation"),
        "out_dtype": "i8",
        "out_scale": out_scale,
        "out_zero_point": out_zero_point,
        "rounding": rounding,
    }


def _pair(value: Sequence[int], name: str) -> tuple[int, int]:
    pair = tuple(int(v) for v in value)
    if len(pair) != 2:
        raise UsageError(f"{name} must be (h, w), but is {list(value)}")
    return pair


def _matrix_filters(x: Any, weights: Any, kernel_size: Sequence[int], groups: int) -> Array:
    """`[OC, KH*KW*IC/groups]`, rows perhaps padded, as `[OC, KH, KW, IC/groups]`."""
    codes = integers(weights, "weights", ("i8",))
    channels = int(operand(x, "x", 4).shape[1])
    kh, kw = _pair(kernel_size, "kernel_size")
    if groups < 1 or channels % groups:
        raise UsageError(f"groups={groups} does not divide the {channels} channels of 'x'")
    width = kh * kw * (channels // groups)
    if codes.ndim != 2 or codes.shape[1] < width:
        raise UsageError(f"'weights' must be [OC, KH*KW*IC/groups] = [OC, {width}], but have shape {show(codes.shape)}")
    return codes[:, :width].reshape(len(codes), kh, kw, channels // groups)


def _geometry(
    filters: Array,
    weight_scales: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> dict[str, Any]:
    """Weight parameters and geometry of a convolution."""
    return {
        "weight_scale": _per_channel(weight_scales, len(filters), "weight_scales"),
        "input_layout": "NCHW",
        "strides": _pair(stride, "stride"),
        "padding": _pair(padding, "padding") * 2,
        "dilations": _pair(dilation, "dilation"),
        "groups": int(groups),
        **_bias(bias, len(filters)),
    }


def _q8ta_conv(
    x: Any,
    input_scale: Any,
    input_zero_point: Any,
    filters: Array,
    weight_scales: Any,
    output_scale: Any,
    output_zero_point: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    activation: str,
    rounding: str,
    target: str,
    **extra: Any,
) -> Any:
    x = operand(x, "x", 4)
    if dtype_of(x, "x") != "i8":
        raise UsageError(f"'x' must be i8 codes, but is {dtype_of(x, 'x')}")
    scale, zero = _per_tensor(input_scale, input_zero_point, "input")
    return ops.conv2d_q(
        x,
        filters,
        input_scale=scale,
        input_zero_point=zero,
        **_geometry(filters, weight_scales, bias, stride, padding, dilation, groups),
        **_output(output_scale, output_zero_point, activation, rounding),
        **extra,
        target=target,
    )
