"""Products of quantised values in FX graphs: each becomes one call of `torch.ops.qmlir.scaled_matmul` or `conv2d_q`,
with the surrounding scales, bias, residual, activation and requantisation as its epilogue.

A `TorchProduct` is read from the node that multiplies (`read_product`). It then absorbs the nodes that follow, one step
at a time in the order of the epilogue (`epilogue.py`; docs/semantics.md, section 4), as long as each intermediate value
has one use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from ..raising import PatternDeclined
from .dtypes import FROM_TORCH, SMALL_FLOATS, TO_TORCH
from .graph import TorchGraph, argument, aten, dtype_of, is_tensor, same, shape_of
from .int4pack import unpack_for_cpu
from .product import BIAS, FLOATS, SCALED, TorchProduct, TorchSide, scale_after, sizes_of
from .quantised import NodeOrTensor, dequantised, reshaped

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.fx.node import Argument

# ------------------------------------------------------------------------------------------------- the factors


def _side(graph: TorchGraph, node: Node) -> TorchSide:
    """A factor: the codes and the scale behind a dequantisation, or the node itself."""
    found = dequantised(graph, node)
    if found is not None:
        return TorchSide(found.codes, found.dtype, found.scale, found.zero_point)
    return TorchSide(node)


def _weight(graph: TorchGraph, node: Node, transposed: bool) -> TorchSide:
    """The right factor, without the transposes of its last two axes before and after its dequantisation."""
    node, transposed = _untransposed(node, transposed)
    side = _side(graph, node)
    if not side.quantised:
        side.transposed = transposed
        return side
    side.node, side.transposed = _untransposed(side.node, transposed)
    if side.transposed != transposed:
        side.scale = _transposed_scale(graph, side.scale)
        side.zero_point = _transposed_scale(graph, side.zero_point)
    return side


def _untransposed(node: Node, transposed: bool) -> tuple[Node, bool]:
    while _swaps_last_axes(node):
        node, transposed = node.args[0], not transposed
    return node, transposed


def _swaps_last_axes(node: Node) -> bool:
    """Whether a node transposes the last two axes."""
    if node.op != "call_function" or not is_tensor(node):
        return False
    rank = len(shape_of(node))
    if node.target is aten.t.default:
        return rank == 2
    if node.target is aten.transpose.int:
        return rank >= 2 and {int(node.args[1]) % rank, int(node.args[2]) % rank} == {rank - 1, rank - 2}
    if node.target is aten.permute.default:
        order = [int(i) % rank for i in node.args[1]]
        return rank >= 2 and order == [*range(rank - 2), rank - 1, rank - 2]
    return False


def _transposed_scale(graph: TorchGraph, value: NodeOrTensor | None) -> NodeOrTensor | None:
    """The scale of the transposed tensor."""
    if value is None:
        return None
    known = graph.constant(value)
    if known is not None:
        return known if known.dim() < 2 else known.transpose(-1, -2).contiguous()
    if not shape_of(value):
        return value
    raise PatternDeclined("the scale of a transposed operand is not a constant")


# ------------------------------------------------------------------------------------------- products by operator


def read_product(graph: TorchGraph, node: Node) -> TorchProduct | None:
    """The product of quantised values that a node computes; None for a float product or any other node.

    Raises PatternDeclined for a product of quantised values that the dialect does not have."""
    reader = PRODUCTS.get(node.target)
    if reader is None or not is_tensor(node):
        return None
    found = reader(graph, node)
    if found is None or not (found.lhs.quantised or found.rhs.quantised):
        return None
    _check(graph, found)
    return found


def _matmul(
    graph: TorchGraph, node: Node, lhs: Node, rhs: Node, transposed: bool, bias: torch.fx.Node | None = None
) -> TorchProduct | None:
    if not is_tensor(lhs) or not is_tensor(rhs) or len(shape_of(lhs)) < 2 or len(shape_of(rhs)) < 2:
        return None
    if dtype_of(node) not in FLOATS:
        return None
    made = TorchProduct("scaled_matmul", _side(graph, lhs), _weight(graph, rhs, transposed), node, node,
                   FLOATS[dtype_of(node)], 1, stage=SCALED)  # fmt: skip
    if bias is not None:
        made.bias, made.stage = bias, BIAS
    return made


def _linear(graph: TorchGraph, node: Node) -> TorchProduct | None:
    return _matmul(graph, node, node.args[0], node.args[1], True, argument(node, "bias"))


def _mm(graph: TorchGraph, node: Node) -> TorchProduct | None:
    return _matmul(graph, node, node.args[0], node.args[1], False)


def _addmm(graph: TorchGraph, node: Node) -> TorchProduct | None:
    bias, lhs, rhs = node.args[:3]
    if argument(node, "beta") != 1 or argument(node, "alpha") != 1 or len(shape_of(bias)) != 1:
        return None
    return _matmul(graph, node, lhs, rhs, False, bias)


def _int_mm(graph: TorchGraph, node: Node) -> TorchProduct | None:
    lhs, rhs = node.args
    right, transposed = _untransposed(rhs, False)
    first = TorchSide(lhs, FROM_TORCH[dtype_of(lhs)])
    second = TorchSide(right, FROM_TORCH[dtype_of(right)], transposed=transposed)
    return TorchProduct("scaled_matmul", first, second, node, node, "i32", 1)


def _scaled_mm(graph: TorchGraph, node: Node) -> TorchProduct | None:
    """fp8 by fp8; scales are per tensor, or `[M, 1]` and `[1, N]`."""
    lhs, rhs = node.args[:2]
    if argument(node, "scale_result") is not None:
        raise PatternDeclined("scale_result is not supported")
    left, right = TorchSide(lhs, FROM_TORCH[dtype_of(lhs)]), _weight(graph, rhs, False)
    right.dtype = FROM_TORCH[dtype_of(right.node)]
    left.scale = _scalar_if_single(graph, node, argument(node, "scale_a"))
    scale = _scalar_if_single(graph, node, argument(node, "scale_b"))
    right.scale = _transposed_scale(graph, scale) if right.transposed else scale
    if dtype_of(node) not in FLOATS:
        raise PatternDeclined(f"the result is {dtype_of(node)}; use a float of 16 or 32 bits")
    made = TorchProduct("scaled_matmul", left, right, node, node, FLOATS[dtype_of(node)], 1, stage=SCALED)
    if argument(node, "bias") is not None:
        made.bias, made.stage = argument(node, "bias"), BIAS
    return made


def _scalar_if_single(graph: TorchGraph, node: Node, scale: NodeOrTensor) -> NodeOrTensor:
    """The scale, as a scalar if it has one element."""
    known = graph.constant(scale)
    if known is not None:
        return known.float().reshape(()) if known.numel() == 1 else known.float()
    return reshaped(graph, node, scale, []) if all(same(s, 1) for s in shape_of(scale)) else scale


def _int8pack_mm(graph: TorchGraph, node: Node) -> TorchProduct | None:
    lhs, rhs, scales = node.args
    known = graph.constant(scales)
    scale = known.float().reshape(-1, 1) if known is not None else reshaped(graph, node, scales, [*shape_of(scales), 1])
    made = TorchProduct("scaled_matmul", TorchSide(lhs), TorchSide(rhs, "i8", scale, transposed=True), node, node,
                   FLOATS[dtype_of(node)], 1, stage=SCALED)  # fmt: skip
    scale_after(made)
    return made


def _int4pack_mm(graph: TorchGraph, node: Node) -> TorchProduct | None:
    """tinygemm's weight: `(q - 8) * scale + zero`, packed in an order that depends on the CPU."""
    lhs, packed, _, scales_and_zeros = node.args
    weight, both = graph.constant(packed), graph.constant(scales_and_zeros)
    if weight is None or both is None:
        raise PatternDeclined("the packed weight or its scales are not constants")
    if weight.dtype != torch.uint8 or weight.dim() != 2:
        raise PatternDeclined(
            "the weight is packed for a GPU; pack it for the CPU (_convert_weight_to_int4pack_for_cpu)"
        )
    codes = graph.new_constant(unpack_for_cpu(weight), node)
    scale, zero = (both[..., i].float().t().contiguous() for i in (0, 1))  # [K/g, N] -> [N, K/g]
    rhs = TorchSide(codes, "u4", scale, zero, transposed=True)
    out_dtype = FLOATS[dtype_of(node)]
    made = TorchProduct("scaled_matmul", TorchSide(lhs), rhs, node, node, out_dtype, 1, stage=SCALED)
    made.attributes["rhs_zero_mode"] = "offset_float"
    return made


def _conv2d(graph: TorchGraph, node: Node) -> TorchProduct | None:
    x, w = node.args[:2]
    general = node.target is aten.convolution.default
    if len(shape_of(w)) != 4 or len(shape_of(x)) != 4:
        return None
    transposed = bool(argument(node, "transposed")) if general else node.target is aten.conv_transpose2d.input
    padding = _padding(argument(node, "padding"), shape_of(w)[2:], _pair(argument(node, "dilation")))
    side = _side(graph, x)
    weight = _side(graph, w)
    if dtype_of(node) not in FLOATS or transposed:
        # A transposed filter is [C, F/groups, KH, KW]: the dialect has no such layout with groups.
        return None
    made = TorchProduct("conv2d_q", side, weight, node, node, FLOATS[dtype_of(node)], 3, stage=SCALED)
    made.attributes.update(
        input_layout="NCHW", weight_layout="FCHW", strides=_pair(argument(node, "stride")),
        dilations=_pair(argument(node, "dilation")), padding=padding, groups=argument(node, "groups"),
    )  # fmt: skip
    if argument(node, "bias") is not None:
        made.bias, made.stage = argument(node, "bias"), BIAS
    return made


def _padding(value: Argument, kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Padding at the top, left, bottom and right. torch's `same` puts an odd element at the end."""
    if value == "valid":
        return [0, 0, 0, 0]
    if value == "same":
        totals = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        return [t // 2 for t in totals] + [t - t // 2 for t in totals]
    top, left = _pair(value)
    return [top, left, top, left]


def _pair(value: Argument) -> list[int]:
    if isinstance(value, int):
        return [value, value]
    return [int(v) for v in value] * (2 if len(value) == 1 else 1)


PRODUCTS: dict[OpOverload, Callable[[TorchGraph, Node], TorchProduct | None]] = {
    aten.linear.default: _linear,
    aten.mm.default: _mm,
    aten.matmul.default: _mm,
    aten.bmm.default: _mm,
    aten.addmm.default: _addmm,
    aten._int_mm.default: _int_mm,
    aten._scaled_mm.default: _scaled_mm,
    aten._weight_int8pack_mm.default: _int8pack_mm,
    aten._weight_int4pack_mm.default: _int4pack_mm,
    aten._weight_int4pack_mm_for_cpu.default: _int4pack_mm,
    aten.conv2d.default: _conv2d,
    aten.conv2d.padding: _conv2d,
    aten.convolution.default: _conv2d,
    # Products that the dialect does not have: listed, so that the report names those that read codes.
    aten.conv1d.default: lambda graph, node: None,
    aten.conv3d.default: lambda graph, node: None,
    aten.conv_transpose2d.input: lambda graph, node: None,
    aten.einsum.default: lambda graph, node: None,
}
# Operators whose operands are always codes: the report names those that are not raised.
QUANTISED_PRODUCTS = (aten._int_mm.default, aten._scaled_mm.default, aten._weight_int8pack_mm.default,
                      aten._weight_int4pack_mm.default, aten._weight_int4pack_mm_for_cpu.default)  # fmt: skip


def reads_codes(graph: TorchGraph, node: Node) -> bool:
    """Whether an operand of a product is a dequantised value."""
    factors = node.args[0] if isinstance(node.args[0], (list, tuple)) else node.args[:2]
    return any(is_tensor(f) and dequantised(graph, _untransposed(f, False)[0]) is not None for f in factors)


def _check(graph: TorchGraph, p: TorchProduct) -> None:
    """Decline a product that the verifier would refuse, so that torch's operators remain."""
    for side, name in ((p.lhs, "left"), (p.rhs, "right")):
        if side.quantised and side.dtype not in ("i8", "u8", "i4", "u4", "i2", "u2") and not _small(side):
            raise PatternDeclined(f"the {name} operand is {side.dtype}")
        if not side.quantised and dtype_of(side.node) not in FLOATS:
            raise PatternDeclined(f"the {name} operand is {dtype_of(side.node)}")
    if p.op == "conv2d_q":
        if not (p.lhs.quantised and p.rhs.quantised):
            raise PatternDeclined("only one operand of the convolution is quantised")
        for value in (p.lhs.scale, p.lhs.zero_point):
            if value is not None and any(not same(s, 1) for s in sizes_of(graph, value)):
                raise PatternDeclined("the input of the convolution is not scaled per tensor")
        return
    k = shape_of(p.lhs.node)[-1]
    if not isinstance(k, int):
        raise PatternDeclined(f"the depth of the product is dynamic ({k})")


def _small(side: TorchSide) -> bool:
    return side.dtype is not None and TO_TORCH.get(side.dtype) in SMALL_FLOATS
