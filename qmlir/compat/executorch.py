"""The quantised linear and convolution operators of ExecuTorch's Vulkan backend, `torch.ops.et_vk.*`.

Each function here is the operator of that name in backends/vulkan/custom_ops_lib.py of pytorch/executorch (seen in
release 1.4.1 and at commit cff6f4d), with the arguments of its schema and, in addition, `rounding` and `target`. An
operator computes what its shaders compute (backends/vulkan/runtime/graph/ops); the layouts of weights are those that
backends/vulkan/patterns writes. The names state the quantisation: `q8ta` 8-bit activations with one static scale,
`dq8ca` with one dynamic scale per token, `q8csw` 8-bit symmetric weights with one scale per channel, `q4gsw` 4-bit
symmetric weights with one scale per group of input channels.

| operator | nibbles | weight's value | activation's rounding | output |
|---|---|---|---|---|
| `linear_q4gsw` | low first | `(q - 8) * s` | float | the input's type |
| `linear_dq8ca_q4gsw` | low first | `(q - 8) * s` | half_even | the input's type |
| `linear_q8ta_q8csw` | | `q * s` | half_away | the input's type |
| `q8ta_linear`, `q8ta_linear_gemv` | | `q * s` | already codes | i8, half_away |
| `q8ta_conv2d`, `_pw`, `_dw`, `_transposed` | | `q * s` | already codes | i8, half_away |

Requantisation multiplies by `1 / output_scale`. `weight_sums` are part of the signatures and may be None: the compiled
program derives the sums that zero points need. A bias is float, added in f32 before the output's rounding. ExecuTorch
pads weights, scales and biases to multiples of 4 or 8 for its shaders; parameters that are longer than the shapes below
are cut to them. Every function raises UsageError or VerifyError for shapes and dtypes that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import ops
from ..dialect.dtypes import Array
from ..dialect.shapes import show
from ..errors import UsageError
from . import _arguments
from ._arguments import FLOATS, ArrayLike, dtype_of, floats, integers, one_of, operand, pair, rows, zero_points

__all__ = [
    "linear_dq8ca_q4gsw",
    "linear_q4gsw",
    "linear_q8ta_q8csw",
    "q8ta_conv2d",
    "q8ta_conv2d_dw",
    "q8ta_conv2d_pw",
    "q8ta_conv2d_transposed",
    "q8ta_linear",
    "q8ta_linear_gemv",
]

_ACTIVATIONS = ("none", "relu")

# Names that only ExecuTorch's C++ runtime registers or an unmerged pull request used, and the equivalent operations.
_NO_OPERATORS = {
    "choose_qparams_per_row": "dynamic_quantize",
    "conv2d_q8csw": "conv2d_q",
    "conv2d_q8ta_q8csw": "conv2d_q",
    "linear_q8csw": "scaled_matmul",
    "linear_qta8a_qga4w": "scaled_matmul",
    "linear_qta8a_qga4w_qta8o": "scaled_matmul",
}


def __getattr__(name: str) -> object:
    if name in _NO_OPERATORS:
        raise AttributeError(f"torch.ops.et_vk has no operator {name!r}; use qmlir.ops.{_NO_OPERATORS[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- linear layers


def linear_q4gsw(
    self: ArrayLike, weights: ArrayLike, weight_scales: ArrayLike, group_size: int, bias: ArrayLike | None = None, *,
    target: str = "cpu",
) -> ArrayLike:  # fmt: skip
    """`torch.ops.et_vk.linear_q4gsw`: float activations, 4-bit symmetric weights per group.

    Args:
        self: `[.., M, K]` f32, f16 or bf16.
        weights: `[N, K/2]` uint8, `q + 8` in each nibble; the even code of K is the low one.
        weight_scales: `[K/group_size, N]` float.
        group_size: divides K.
        bias: `[N]` float.

    Returns:
        `[.., M, N]` in the type of `self`; weights are dequantised to that type, sums are f32.
    """
    x, lead, dtype = _float_rows(self, "self")
    keywords = _q4gsw(x, weights, weight_scales, group_size, bias)
    result = ops.scaled_matmul(x, **keywords, out_dtype=dtype, target=target)
    return _leading(result, lead)


def linear_dq8ca_q4gsw(
    input: ArrayLike, input_scales: ArrayLike, input_zp: ArrayLike, weights: ArrayLike, weight_sums: ArrayLike | None,
    weight_scales: ArrayLike, group_size: int, bias: ArrayLike | None = None, *, rounding: str = "half_even",
    target: str = "cpu",
) -> ArrayLike:  # fmt: skip
    """`torch.ops.et_vk.linear_dq8ca_q4gsw`: float activations quantised to 8 bits per token with the given scales,
    4-bit symmetric weights per group.

    Args:
        input: `[.., M, K]` f32, f16 or bf16; T is the product of its leading axes.
        input_scales, input_zp: `[T]` float and `[T]` integer, as
            `qmlir.ops.dynamic_quantize(recipe="fbgemm", symmetric=False)` computes them.
        weights, weight_scales, group_size, bias: as in `linear_q4gsw`.
        weight_sums: not read; may be None.
        rounding: of the activations to codes.

    Returns:
        `[.., M, N]` in the type of `input`; sums are exact i32 within a group, f32 over the groups.
    """
    x, lead, dtype = _float_rows(input, "input")
    tokens = int(x.shape[0])
    scale = _arguments.per_token(floats(input_scales, "input_scales"), tokens, "input_scales")
    zero = _arguments.per_token(zero_points(input_zp, "input_zp"), tokens, "input_zp")
    keywords = _q4gsw(x, weights, weight_scales, group_size, bias)
    codes = ops.quantize(x, scale, zero, rounding=rounding, target=target)
    result = ops.scaled_matmul(codes, **keywords, lhs_scale=scale, lhs_zero_point=zero, out_dtype=dtype, target=target)
    return _leading(result, lead)


def linear_q8ta_q8csw(
    x: ArrayLike, input_scale: float, input_zero_point: int, weights: ArrayLike, weight_sums: ArrayLike | None,
    weight_scales: ArrayLike, bias: ArrayLike | None = None, *, rounding: str = "half_away", target: str = "cpu",
) -> ArrayLike:  # fmt: skip
    """`torch.ops.et_vk.linear_q8ta_q8csw`: float activations quantised to 8 bits with one given scale, 8-bit symmetric
    weights per channel, float output.

    Args:
        x: `[.., M, K]` f32, f16 or bf16.
        weights: `[N, K]` int8.
        weight_sums: not read; may be None.
        weight_scales, bias: `[N]` float.
        rounding: of the activations to codes.

    Returns:
        `[.., M, N]` in the type of `x`; the i32 sum is exact.
    """
    x, lead, dtype = _float_rows(x, "x")
    side = _arguments.per_tensor(input_scale, input_zero_point, "input")
    keywords = _q8csw(x, weights, weight_scales, bias)
    codes = ops.quantize(x, *side, rounding=rounding, target=target)
    result = ops.scaled_matmul(
        codes, **keywords, lhs_scale=side[0], lhs_zero_point=side[1], out_dtype=dtype, target=target
    )
    return _leading(result, lead)


def q8ta_linear(
    x: ArrayLike, input_scale: float, input_zero_point: int, weights: ArrayLike, weight_sums: ArrayLike | None,
    weight_scales: ArrayLike, output_scale: float, output_zero_point: int, bias: ArrayLike | None = None,
    activation: str = "none", *, rounding: str = "half_away", target: str = "cpu",
) -> ArrayLike:  # fmt: skip
    """`torch.ops.et_vk.q8ta_linear`: 8-bit activations and output with one scale each, 8-bit symmetric weights per
    channel.

    Args:
        x: `[.., M, K]` int8.
        weights: `[N, K]` int8.
        weight_sums: not read; may be None.
        weight_scales, bias: `[N]` float.
        activation: 'none' or 'relu', before the output is quantised.
        rounding: of the output; `half_even` is what torch's `quantize_per_tensor` does.

    Returns:
        `[.., M, N]` int8: `clamp(round(y * (1 / output_scale)) + output_zero_point, -128, 127)`.
    """
    x, lead = rows(x, "x")
    _expect_codes(x)
    scale, zero = _arguments.per_tensor(input_scale, input_zero_point, "input")
    result = ops.scaled_matmul(
        x,
        **_q8csw(x, weights, weight_scales, bias),
        lhs_scale=scale,
        lhs_zero_point=zero,
        **_output(output_scale, output_zero_point, activation, rounding),
        target=target,
    )
    return _leading(result, lead)


def q8ta_linear_gemv(
    x: ArrayLike, input_scale: float, input_zero_point: int, weights: ArrayLike, weight_sums: ArrayLike | None,
    weight_scales: ArrayLike, output_scale: float, output_zero_point: int, bias: ArrayLike | None = None,
    activation: str = "none", *, rounding: str = "half_away", target: str = "cpu",
) -> ArrayLike:  # fmt: skip
    """`torch.ops.et_vk.q8ta_linear_gemv`: the same as `q8ta_linear`; ExecuTorch has a kernel for one row."""
    return q8ta_linear(x, input_scale, input_zero_point, weights, weight_sums, weight_scales, output_scale,
                       output_zero_point, bias, activation, rounding=rounding, target=target)  # fmt: skip


# ---- convolutions


def q8ta_conv2d(
    x: ArrayLike, input_scale: float, input_zero_point: int, weights: ArrayLike, weight_sums: ArrayLike | None,
    weight_scales: ArrayLike, output_scale: float, output_zero_point: int, bias: ArrayLike | None,
    kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    activation: str, *, rounding: str = "half_away", target: str = "cpu",
) -> ArrayLike:  # fmt: skip
    """`torch.ops.et_vk.q8ta_conv2d`: a convolution of 8-bit codes with one scale in and out, 8-bit symmetric weights
    per channel.

    Args:
        x: `[N, IC, H, W]` int8.
        weights: `[OC, KH*KW*IC/groups]` int8, input channels innermost.
        weight_sums: not read; may be None.
        weight_scales, bias: `[OC]` float; `bias` may be None.
        kernel_size, stride, padding, dilation: `(h, w)`; padding adds the real value 0 on both sides.
        groups: divides IC and OC.
        activation: 'none' or 'relu', before the output is quantised.
        rounding: of the output.

    Returns:
        `[N, OC, OH, OW]` int8.
    """
    return _conv(
        x, _matrix_filters(x, weights, kernel_size, groups), weight_scales, bias, (input_scale, input_zero_point),
        _output(output_scale, output_zero_point, activation, rounding), (stride, padding, dilation), groups, target,
    )  # fmt: skip


def q8ta_conv2d_pw(
    x: ArrayLike, input_scale: float, input_zero_point: int, weights: ArrayLike, weight_sums: ArrayLike | None,
    weight_scales: ArrayLike, output_scale: float, output_zero_point: int, bias: ArrayLike | None,
    kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    activation: str, *, rounding: str = "half_away", target: str = "cpu",
) -> ArrayLike:  # fmt: skip
    """`torch.ops.et_vk.q8ta_conv2d_pw`: `q8ta_conv2d` with a 1x1 kernel; weights `[OC, IC]`."""
    if pair(kernel_size, "kernel_size") != (1, 1):
        raise UsageError(f"a pointwise convolution has a 1x1 kernel, but kernel_size is {list(kernel_size)}; "
                         "use q8ta_conv2d")  # fmt: skip
    return q8ta_conv2d(x, input_scale, input_zero_point, weights, weight_sums, weight_scales, output_scale,
                       output_zero_point, bias, kernel_size, stride, padding, dilation, groups, activation,
                       rounding=rounding, target=target)  # fmt: skip


def q8ta_conv2d_dw(
    x: ArrayLike, input_scale: float, input_zero_point: int, weights: ArrayLike, weight_sums: ArrayLike | None,
    weight_scales: ArrayLike, output_scale: float, output_zero_point: int, bias: ArrayLike | None,
    kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    activation: str, *, rounding: str = "half_away", target: str = "cpu",
) -> ArrayLike:  # fmt: skip
    """`torch.ops.et_vk.q8ta_conv2d_dw`: `q8ta_conv2d` with one input channel per filter; weights `[KH, KW, OC]` int8,
    groups = IC."""
    codes = integers(weights, "weights", ("i8",))
    kh, kw = pair(kernel_size, "kernel_size")
    if codes.ndim != 3 or codes.shape[:2] != (kh, kw):
        raise UsageError(f"'weights' of a depthwise convolution must be [KH, KW, OC] = [{kh}, {kw}, OC], but "
                         f"have shape {show(codes.shape)}")  # fmt: skip
    return _conv(
        x, np.moveaxis(codes, 2, 0)[..., None], weight_scales, bias, (input_scale, input_zero_point),
        _output(output_scale, output_zero_point, activation, rounding), (stride, padding, dilation), groups, target,
    )  # fmt: skip


def q8ta_conv2d_transposed(
    x: ArrayLike, input_scale: float, input_zero_point: int, weights: ArrayLike, weight_sums: ArrayLike | None,
    weight_scales: ArrayLike, output_scale: float, output_zero_point: int, bias: ArrayLike | None,
    kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], output_padding: Sequence[int],
    dilation: Sequence[int], groups: int, activation: str, *, rounding: str = "half_away", target: str = "cpu",
) -> ArrayLike:  # fmt: skip
    """`torch.ops.et_vk.q8ta_conv2d_transposed`: the transposed convolution (torch's ConvTranspose2d). Arguments as in
    `q8ta_conv2d`; weights keep the output channels first, `[OC, KH*KW*IC/groups]`; `output_padding` is `(h, w)`."""
    return _conv(
        x, _matrix_filters(x, weights, kernel_size, groups), weight_scales, bias, (input_scale, input_zero_point),
        _output(output_scale, output_zero_point, activation, rounding), (stride, padding, dilation), groups, target,
        transposed=True, output_padding=pair(output_padding, "output_padding"),
    )  # fmt: skip


def _conv(
    x: ArrayLike, filters: Array, weight_scales: ArrayLike, bias: ArrayLike | None, side: tuple[float, int],
    output: dict[str, object], geometry: tuple[Sequence[int], Sequence[int], Sequence[int]], groups: int, target: str,
    **transposed: object,
) -> ArrayLike:  # fmt: skip
    """A convolution of codes with filters `[OC, KH, KW, IC/groups]`; geometry: stride, padding, dilation."""
    x = operand(x, "x", 4)
    _expect_codes(x)
    scale, zero = _arguments.per_tensor(*side, "input")
    stride, padding, dilation = geometry
    result: ArrayLike = ops.conv2d_q(
        x,
        filters,
        input_scale=scale,
        input_zero_point=zero,
        weight_scale=_arguments.per_channel(weight_scales, len(filters), "weight_scales"),
        input_layout="NCHW",
        strides=pair(stride, "stride"),
        padding=pair(padding, "padding") * 2,
        dilations=pair(dilation, "dilation"),
        groups=int(groups),
        **_bias(bias, len(filters)),
        **output,
        **transposed,
        target=target,
    )
    return result


# ---- arguments


def _expect_codes(x: ArrayLike) -> None:
    if dtype_of(x, "x") != "i8":
        raise UsageError(f"'x' must be i8 codes, but is {dtype_of(x, 'x')}")


def _float_rows(x: ArrayLike, name: str) -> tuple[ArrayLike, tuple[int, ...], str]:
    """Float activations as `[T, K]`, their leading axes, and their dtype."""
    x, lead = rows(x, name)
    dtype = dtype_of(x, name)
    if dtype not in FLOATS:
        raise UsageError(f"{name!r} must be {', '.join(FLOATS)}, but is {dtype}")
    return x, lead, dtype


def _leading(result: ArrayLike, lead: tuple[int, ...]) -> ArrayLike:
    """Reshape `[T, N]` to the leading axes of the activations."""
    return result.reshape(*lead, result.shape[-1])


def _bias(bias: ArrayLike | None, channels: int) -> dict[str, object]:
    return {} if bias is None else {"bias": _arguments.per_channel(bias, channels, "bias"), "bias_stage": "scaled"}


def _q4gsw(
    x: ArrayLike, weights: ArrayLike, weight_scales: ArrayLike, group_size: int, bias: ArrayLike | None
) -> dict[str, object]:
    """Operands and attributes of the 4-bit weights. K may be padded in the weights, N in the scales."""
    packed, k = integers(weights, "weights"), int(x.shape[1])
    width = -(-k // 2)
    if packed.ndim != 2 or packed.shape[1] < width:
        raise UsageError(f"'weights' must be [N, K/2] = [N, {width}] bytes of two codes, but has shape "
                         f"{show(packed.shape)}")  # fmt: skip
    if group_size < 1 or k % group_size:
        near = [g for g in (8, 16, 32, 64, 128, 256) if k % g == 0]
        raise UsageError(f"group_size={group_size} does not divide K = {k}"
                         + (f"; these do: {', '.join(map(str, near))}" if near else ""))  # fmt: skip
    groups, channels, scales = k // group_size, len(packed), floats(weight_scales, "weight_scales")
    if scales.ndim != 2 or scales.shape[0] != groups or scales.shape[1] < channels:
        raise UsageError(f"'weight_scales' must have shape [K/group_size, N] = [{groups}, {channels}], but has "
                         f"{show(scales.shape)}")  # fmt: skip
    return {
        "rhs": np.ascontiguousarray(packed[:, :width]).view(np.uint8),
        "rhs_scale": scales[:, :channels].T,
        "rhs_zero_mode": "offset_int",
        "rhs_dtype": "u4",
        "rhs_transposed": True,
        "rhs_packing": "low_first",
        "group_size": group_size,
        **_bias(bias, channels),
    }


def _q8csw(x: ArrayLike, weights: ArrayLike, weight_scales: ArrayLike, bias: ArrayLike | None) -> dict[str, object]:
    """Operands and attributes of the 8-bit weights, whose K may be padded."""
    codes, k = integers(weights, "weights", ("i8",)), int(x.shape[1])
    if codes.ndim != 2 or codes.shape[1] < k:
        raise UsageError(f"'weights' must be [N, K] = [N, {k}], but have shape {show(codes.shape)}")
    return {
        "rhs": codes[:, :k],
        "rhs_scale": _arguments.per_channel(weight_scales, len(codes), "weight_scales").reshape(-1, 1),
        "rhs_transposed": True,
        **_bias(bias, len(codes)),
    }


def _output(scale: float, zero_point: int, activation: str, rounding: str) -> dict[str, object]:
    """Attributes of the 8-bit output."""
    out_scale, out_zero_point = _arguments.per_tensor(scale, zero_point, "output")
    return {
        "activation": one_of(activation, _ACTIVATIONS, "activation"),
        "out_dtype": "i8",
        "out_scale": out_scale,
        "out_zero_point": out_zero_point,
        "rounding": rounding,
    }


def _matrix_filters(x: ArrayLike, weights: ArrayLike, kernel_size: Sequence[int], groups: int) -> Array:
    """Weights `[OC, KH*KW*IC/groups]`, whose rows may be padded, as `[OC, KH, KW, IC/groups]`."""
    codes = integers(weights, "weights", ("i8",))
    channels = int(operand(x, "x", 4).shape[1])
    kh, kw = pair(kernel_size, "kernel_size")
    if groups < 1 or channels % groups:
        raise UsageError(f"groups={groups} does not divide the {channels} channels of 'x'")
    width = kh * kw * (channels // groups)
    if codes.ndim != 2 or codes.shape[1] < width:
        raise UsageError(f"'weights' must be [OC, KH*KW*IC/groups] = [OC, {width}], but have shape {show(codes.shape)}")
    return codes[:, :width].reshape(len(codes), kh, kw, channels // groups)
