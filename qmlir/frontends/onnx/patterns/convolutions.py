"""Convolutions: QLinearConv, ConvInteger, and Conv of dequantised values."""

from __future__ import annotations

from collections.abc import Sequence

from ...raising import NotQuantised, PatternDeclined, Tensor, raises
from ...tensors import drop_axis, new_axis
from ..node import Node, OnnxProduct
from .common import DequantizedValue, quantised_input
from .products import CODES, bias_of, keep, output_of, quantised, requantised, taken


@raises("onnx.QLinearConv")
def qlinear_conv(op: Node) -> Tensor:
    """(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias): w per tensor or per filter, bias i32."""
    x = quantised(op.operand(0), op.operand(1), op.optional(2), 0)
    w = quantised(op.operand(3), op.operand(4), op.optional(5), 0)
    product = conv_product(op, x, w, op.optional(8))
    return requantised(op, product, output_of(op, 6))


@raises("onnx.ConvInteger")
def conv_integer(op: Node) -> Tensor:
    """(x, w, x_zero, w_zero) to i32."""
    x, w = quantised(op.operand(0), None, op.optional(2), 0), quantised(op.operand(1), None, op.optional(3), 0)
    p = conv_product(op, x, w, None)
    return p.finish(op.build(p.operation, **p.arguments, out_dtype="i32"))


@raises("onnx.Conv")
def conv(op: Node) -> Tensor:
    """`conv2d_q`, if the weight or both operands are results of a DequantizeLinear."""
    x: DequantizedValue | Tensor | None = quantised_input(op, 0)
    w: DequantizedValue | Tensor | None = quantised_input(op, 1)
    if x is None and w is None:
        raise NotQuantised
    x, w = x if x is not None else op.operand(0), w if w is not None else op.operand(1)
    bias, nodes = bias_of(op, 2, x, w)
    return keep(op, conv_product(op, x, w, bias, (*taken(x, w), *nodes)))


def conv_product(
    op: Node,
    x: DequantizedValue | Tensor,
    w: DequantizedValue | Tensor,
    bias: Tensor | None,
    nodes: tuple[Node, ...] = (),
) -> OnnxProduct:
    """A convolution of NCHW or NCW operands.

    Raises:
        PatternDeclined: more than two spatial axes, scales that vary within a filter, padding that depends on a
            dynamic size.
    """
    codes = [side.codes if isinstance(side, DequantizedValue) else side for side in (x, w)]
    rank = len(codes[1].shape)
    if rank not in (3, 4) or len(codes[0].shape) != rank:
        raise PatternDeclined(f"a convolution over {rank - 2} axes; one and two are raised")
    for name, side in (("x", x), ("w", w)):
        if not isinstance(side, DequantizedValue):
            continue
        if side.codes.dtype not in CODES:
            raise PatternDeclined(f"{name} has codes of type {side.codes.dtype}")
        if side.block or (not side.per_tensor and (name == "x" or side.axis != 0)):
            raise PatternDeclined(f"{name} is quantised {side.described()}; x is raised per tensor and w per filter")
        if side.zero is not None and len(side.zero.shape) > (0 if name == "x" else 1):
            raise PatternDeclined(f"{name} has zero points {side.zero.spec}")
    strides, dilations, padding = _geometry(op, codes[0].shape[2:], codes[1].shape[2:])
    finish = _plain
    if rank == 3:
        codes = [new_axis(c, 2) for c in codes]
        strides, dilations, finish = [1, *strides], [1, *dilations], _without_height
        padding = [0, padding[0], 0, padding[1]]
    arguments = {
        "input": codes[0], "weight": codes[1], "input_layout": "NCHW", "weight_layout": "FCHW",
        "strides": tuple(strides), "dilations": tuple(dilations), "padding": tuple(padding),
        "groups": int(op.attributes.get("group", 1)),
        "input_zero_point": x.zero if isinstance(x, DequantizedValue) else None,
        "weight_zero_point": w.zero if isinstance(w, DequantizedValue) else None,
    }  # fmt: skip
    scales = [s.scale if isinstance(s, DequantizedValue) else None for s in (x, w)]
    factors = (scales[0], scales[1]) if scales[0] is not None and scales[1] is not None else None
    return OnnxProduct("conv2d_q", arguments, scales[0], scales[1], factors, bias, nodes, finish)


def _plain(t: Tensor) -> Tensor:
    return t


def _without_height(t: Tensor) -> Tensor:
    return drop_axis(t, 2)


def _geometry(
    op: Node, size: Sequence[int | None], kernel: Sequence[int | None]
) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations, and padding before each axis and then after each."""
    axes, lengths = len(kernel), [k for k in kernel if k is not None]
    if len(lengths) < axes:
        raise PatternDeclined("a kernel of dynamic size")
    stated = list(op.attributes.get("kernel_shape", lengths))
    if stated != lengths:
        raise PatternDeclined(f"kernel_shape {stated} contradicts a weight of {lengths}")
    strides = [int(s) for s in op.attributes.get("strides", [1] * axes)]
    dilations = [int(d) for d in op.attributes.get("dilations", [1] * axes)]
    mode = op.attributes.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", "VALID"):
        padding = [int(p) for p in op.attributes.get("pads", [0] * 2 * axes)] if mode == "NOTSET" else [0] * 2 * axes
        if min(len(strides), len(dilations)) != axes or len(padding) != 2 * axes:
            raise PatternDeclined("strides, dilations or pads do not have as many axes as the kernel")
        return strides, dilations, padding
    before, after = [], []
    for n, k, s, d in zip(size, lengths, strides, dilations, strict=True):
        if n is None and s != 1:
            raise PatternDeclined(f"auto_pad {mode} of a dynamic size with stride {s}")
        reach = d * (k - 1) + 1
        total = reach - 1 if n is None else max((-(-n // s) - 1) * s + reach - n, 0)
        less, more = total // 2, total - total // 2
        before.append(less if mode == "SAME_UPPER" else more)
        after.append(more if mode == "SAME_UPPER" else less)
    return strides, dilations, [*before, *after]
