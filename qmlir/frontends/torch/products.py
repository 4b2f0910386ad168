"""Products of quantised values in FX graphs: each becomes one call of `torch.ops.qmlir.scaled_matmul` or `conv2d_q`,
with the scales, the bias, the residual, the activation and the requantisation around it as its epilogue.

A `Product` is read from the node that multiplies (`read_product`) and then takes in what follows it, a step at a time,
in the order of the epilogue (docs/semantics.md, section 4), as long as nobody else reads the value in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from ...dialect.shapes import group_along
from ..raising import Decline
from .dtypes import FROM_TORCH, SMALL_FLOATS, TO_TORCH
from .graph import (
    VIEWS,
    Graph,
    argument,
    aten,
    dtype_of,
    is_tensor,
    retyped,
    same,
    same_shape,
    shape_of,
    sole_user,
)
from .int4pack import unpack_for_cpu
from .quantised import Operand, dequantised, quantised, reshaped

# The steps of the epilogue, in order.
ACCUMULATOR, SCALED, BIAS, RESIDUAL, ACTIVATION, DONE = range(6)
_OUT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


@dataclass
class Side:
    """One factor: codes with their scale, or a plain float node."""

    node: Node
    dtype: str | None = None  # of codes; None for a plain float
    scale: Operand | None = None
    zero_point: Operand | None = None
    transposed: bool = False  # stored with its last two axes exchanged

    @property
    def quantised(self) -> bool:
        return self.dtype is not None


@dataclass
class Product:
    """A product being read. `out` is the node whose value it computes so far, at step `stage` of the epilogue."""

    op: str
    lhs: Side
    rhs: Side
    root: Node
    out: Node
    out_dtype: str
    columns: int  # the axis of the result that the weight's channels are along, from the end
    bias: Operand | None = None
    residual: Node | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    out_multiplier: torch.Tensor | None = None
    out_scale: Operand | None = None
    out_zero_point: Operand | None = None
    stage: int = ACCUMULATOR
    absorbed: list[Node] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------- the factors


def _side(graph: Graph, node: Node) -> Side:
    """A factor as it is stored."""
    found = dequantised(graph, node)
    if found is not None:
        return Side(found.codes, found.dtype, found.scale, found.zero_point)
    return Side(node)


def _weight(graph: Graph, node: Node, transposed: bool) -> Side:
    """The right factor, looked at through transpositions of its last two axes, before and after dequantisation."""
    node, transposed = _untransposed(node, transposed)
    side = _side(graph, node)
    if not side.quantised:
        side.transposed = transposed
        return side
    inner, side.transposed = _untransposed(side.node, transposed)
    if inner is not side.node:
        side.node = inner
        side.scale = _exchanged(graph, side.scale)
        side.zero_point = _exchanged(graph, side.zero_point)
    return side


def _untransposed(node: Node, transposed: bool) -> tuple[Node, bool]:
    while _exchanges(node):
        node, transposed = node.args[0], not transposed
    return node, transposed


def _exchanges(node: Node) -> bool:
    """Whether a node exchanges the last two axes."""
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


def _exchanged(graph: Graph, value: Operand | None) -> Operand | None:
    """A scale of the transposed tensor."""
    if value is None:
        return None
    known = graph.constant(value)
    if known is not None:
        return known if known.dim() < 2 else known.transpose(-1, -2).contiguous()
    if not shape_of(value):
        return value
    raise Decline("the scale of a transposed operand is no constant")


# ------------------------------------------------------------------------------------------- products by operator


def read_product(graph: Graph, node: Node) -> Product | None:
    """The product of quantised values that a node is; None for floats, or for anything else.

    Raises Decline for a product of quantised values that the dialect does not have."""
    reader = PRODUCTS.get(node.target)
    if reader is None or not is_tensor(node):
        return None
    found = reader(graph, node)
    if found is None or not (found.lhs.quantised or found.rhs.quantised):
        return None
    _check(graph, found)
    return found


def _matmul(
    graph: Graph, node: Node, lhs: Node, rhs: Node, transposed: bool, bias: torch.fx.Node | None = None
) -> Product | None:
    if not is_tensor(lhs) or not is_tensor(rhs) or len(shape_of(lhs)) < 2 or len(shape_of(rhs)) < 2:
        return None
    if dtype_of(node) not in _OUT:
        return None
    made = Product("scaled_matmul", _side(graph, lhs), _weight(graph, rhs, transposed), node, node,
                   _OUT[dtype_of(node)], 1, stage=SCALED)  # fmt: skip
    if bias is not None:
        made.bias, made.stage = bias, BIAS
    return made


def _linear(graph: Graph, node: Node) -> Product | None:
    return _matmul(graph, node, node.args[0], node.args[1], True, argument(node, "bias"))


def _mm(graph: Graph, node: Node) -> Product | None:
    return _matmul(graph, node, node.args[0], node.args[1], False)


def _addmm(graph: Graph, node: Node) -> Product | None:
    bias, lhs, rhs = node.args[:3]
    if argument(node, "beta") != 1 or argument(node, "alpha") != 1 or len(shape_of(bias)) != 1:
        return None
    return _matmul(graph, node, lhs, rhs, False, bias)


def _int_mm(graph: Graph, node: Node) -> Product | None:
    lhs, rhs = node.args
    right, transposed = _untransposed(rhs, False)
    return Product("scaled_matmul", Side(lhs, FROM_TORCH[dtype_of(lhs)]),
                   Side(right, FROM_TORCH[dtype_of(right)], transposed=transposed), node, node, "i32", 1)  # fmt: skip


def _scaled_mm(graph: Graph, node: Node) -> Product | None:
    """fp8 by fp8; scales are per tensor, or `[M, 1]` and `[1, N]`."""
    lhs, rhs = node.args[:2]
    if argument(node, "scale_result") is not None:
        raise Decline("scale_result is not supported")
    left, right = Side(lhs, FROM_TORCH[dtype_of(lhs)]), _weight(graph, rhs, False)
    right.dtype = FROM_TORCH[dtype_of(right.node)]
    left.scale = _rank(graph, node, argument(node, "scale_a"))
    scale = _rank(graph, node, argument(node, "scale_b"))
    right.scale = _exchanged(graph, scale) if right.transposed else scale
    if dtype_of(node) not in _OUT:
        raise Decline(f"the result is {dtype_of(node)}; use a float of 16 or 32 bits")
    made = Product("scaled_matmul", left, right, node, node, _OUT[dtype_of(node)], 1, stage=SCALED)
    if argument(node, "bias") is not None:
        made.bias, made.stage = argument(node, "bias"), BIAS
    return made


def _rank(graph: Graph, node: Node, scale: Any) -> Operand:
    """A scale of one element as a scalar."""
    known = graph.constant(scale)
    if known is not None:
        return known.float().reshape(()) if known.numel() == 1 else known.float()
    return reshaped(graph, node, scale, []) if all(same(s, 1) for s in shape_of(scale)) else scale


def _int8pack_mm(graph: Graph, node: Node) -> Product | None:
    lhs, rhs, scales = node.args
    known = graph.constant(scales)
    scale = known.float().reshape(-1, 1) if known is not None else reshaped(graph, node, scales, [*shape_of(scales), 1])
    made = Product("scaled_matmul", Side(lhs), Side(rhs, "i8", scale, transposed=True), node, node,
                   _OUT[dtype_of(node)], 1, stage=SCALED)  # fmt: skip
    _scaled_after(made)
    return made


def _int4pack_mm(graph: Graph, node: Node) -> Product | None:
    """tinygemm's weight: `(q - 8) * scale + zero`, packed in an order that depends on the CPU."""
    lhs, packed, _, scales_and_zeros = node.args
    weight, both = graph.constant(packed), graph.constant(scales_and_zeros)
    if weight is None or both is None:
        raise Decline("the packed weight or its scales are no constants")
    if weight.dtype != torch.uint8 or weight.dim() != 2:
        raise Decline("the weight is packed for a GPU; pack it for the CPU (_convert_weight_to_int4pack_for_cpu)")
    codes = graph.new_constant(unpack_for_cpu(weight), node)
    scale, zero = (both[..., i].float().t().contiguous() for i in (0, 1))  # [K/g, N] -> [N, K/g]
    made = Product("scaled_matmul", Side(lhs), Side(codes, "u4", scale, zero, transposed=True), node, node,
                   _OUT[dtype_of(node)], 1, stage=SCALED)  # fmt: skip
    made.attributes["rhs_zero_mode"] = "offset_float"
    return made


def _conv2d(graph: Graph, node: Node) -> Product | None:
    x, w = node.args[:2]
    general = node.target is aten.convolution.default
    if len(shape_of(w)) != 4 or len(shape_of(x)) != 4:
        return None
    transposed = bool(argument(node, "transposed")) if general else node.target is aten.conv_transpose2d.input
    padding = _padding(argument(node, "padding"), shape_of(w)[2:], _pair(argument(node, "dilation")))
    side = _side(graph, x)
    weight = _side(graph, w)
    if dtype_of(node) not in _OUT or transposed:
        # A transposed filter is [C, F/groups, KH, KW]: another layout than any of the dialect's with groups.
        return None
    made = Product("conv2d_q", side, weight, node, node, _OUT[dtype_of(node)], 3, stage=SCALED)
    made.attributes.update(
        input_layout="NCHW", filter_layout="FCHW", strides=_pair(argument(node, "stride")),
        dilations=_pair(argument(node, "dilation")), padding=padding, groups=argument(node, "groups"),
    )  # fmt: skip
    if argument(node, "bias") is not None:
        made.bias, made.stage = argument(node, "bias"), BIAS
    return made


def _padding(value: Any, kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Top, left, bottom, right. torch's `same` puts the odd one after."""
    if value == "valid":
        return [0, 0, 0, 0]
    if value == "same":
        totals = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        return [t // 2 for t in totals] + [t - t // 2 for t in totals]
    top, left = _pair(value)
    return [top, left, top, left]


def _pair(value: Any) -> list[int]:
    if isinstance(value, int):
        return [value, value]
    return [int(v) for v in value] * (2 if len(value) == 1 else 1)


PRODUCTS: dict[Any, Callable[[Graph, Node], Product | None]] = {
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
    # Products that the dialect has no form of: read, so that one of codes does not become one of floats unsaid.
    aten.conv1d.default: lambda graph, node: None,
    aten.conv3d.default: lambda graph, node: None,
    aten.conv_transpose2d.input: lambda graph, node: None,
    aten.einsum.default: lambda graph, node: None,
}
# Operators whose operands are codes whatever they are: left alone, they are worth a warning.
QUANTISED_PRODUCTS = (aten._int_mm.default, aten._scaled_mm.default, aten._weight_int8pack_mm.default,
                      aten._weight_int4pack_mm.default, aten._weight_int4pack_mm_for_cpu.default)  # fmt: skip


def reads_codes(graph: Graph, node: Node) -> bool:
    """Whether an operand of a product is a dequantised value."""
    factors = node.args[0] if isinstance(node.args[0], (list, tuple)) else node.args[:2]
    return any(is_tensor(f) and dequantised(graph, _untransposed(f, False)[0]) is not None for f in factors)


def _check(graph: Graph, p: Product) -> None:
    """What the verifier would refuse is left to torch instead."""
    for side, name in ((p.lhs, "left"), (p.rhs, "right")):
        if side.quantised and side.dtype not in ("i8", "u8", "i4", "u4", "i2", "u2") and not _small(side):
            raise Decline(f"the {name} operand is {side.dtype}")
        if not side.quantised and dtype_of(side.node) not in _OUT:
            raise Decline(f"the {name} operand is {dtype_of(side.node)}")
    if p.op == "conv2d_q":
        if not (p.lhs.quantised and p.rhs.quantised):
            raise Decline("only one operand of the convolution is quantised")
        for value in (p.lhs.scale, p.lhs.zero_point):
            if value is not None and any(not same(s, 1) for s in _sizes(graph, value)):
                raise Decline("the input of the convolution is not scaled per tensor")
        return
    k = shape_of(p.lhs.node)[-1]
    if not isinstance(k, int):
        raise Decline(f"the depth of the product is dynamic ({k})")


def _small(side: Side) -> bool:
    return side.dtype is not None and TO_TORCH.get(side.dtype) in SMALL_FLOATS


def _sizes(graph: Graph, value: Operand) -> Sequence[torch.SymInt | int]:
    known = graph.constant(value)
    return tuple(known.shape) if known is not None else shape_of(value)


# --------------------------------------------------------------------------------------------------- the epilogue


def absorb(graph: Graph, p: Product) -> None:
    """Take in what follows the product, as far as the epilogue goes."""
    while p.stage < DONE:
        user = sole_user(p.out)
        if user is None or not is_tensor(user):
            return
        step = next((s for s in _STEPS if s(graph, p, user)), None)
        if step is None:
            return
        p.absorbed.append(user)
        p.out = user


def _to_float(graph: Graph, p: Product, user: Node) -> bool:
    """The accumulator as a float; a narrower result."""
    if user.target not in (aten._to_copy.default, aten.to.dtype) or dtype_of(user) not in _OUT:
        return False
    if p.out_dtype == "i32":
        p.out_dtype, p.stage = _OUT[dtype_of(user)], SCALED
        return True
    if p.out_dtype == "f32" and dtype_of(user) in (torch.float16, torch.bfloat16):
        p.out_dtype, p.stage = _OUT[dtype_of(user)], DONE
        return True
    return False


def _scale(graph: Graph, p: Product, user: Node) -> bool:
    """A scale a row or a column, before anything was added."""
    if user.target is not aten.mul.Tensor or p.op != "scaled_matmul" or p.stage != SCALED or p.bias is not None:
        return False
    factor = _other(user, p.out)
    known = graph.constant(factor)
    if known is None and not is_tensor(factor):
        return False
    shape = [*([1] * (len(shape_of(p.out)) - len(_sizes(graph, factor)))), *_sizes(graph, factor)]
    n = shape_of(p.out)[-1]
    if known is not None and all(same(s, 1) for s in shape[:-1]) and (same(shape[-1], n) or same(shape[-1], 1)):
        return _scale_columns(graph, p, known.float().reshape(-1))
    row = same(shape[-1], 1) and same_shape(shape[:-1], shape_of(p.out)[:-1])
    if known is None and row and p.lhs.quantised and p.lhs.scale is None and dtype_of(factor) == torch.float32:
        p.lhs.scale = factor
        return True
    return False


def _scale_columns(graph: Graph, p: Product, factor: torch.Tensor) -> bool:
    if not p.rhs.quantised:
        return False
    column = factor.reshape(-1, 1) if p.rhs.transposed else factor.reshape(1, -1)
    own = None if p.rhs.scale is None else graph.constant(p.rhs.scale)
    if p.rhs.scale is not None and own is None:
        return False
    if p.attributes.get("rhs_zero_mode") == "offset_float":
        return False
    p.rhs.scale = column if own is None else own * column
    _scaled_after(p)
    return True


def _scaled_after(p: Product) -> None:
    """torch multiplies by bare codes, which 16-bit floats hold exactly, and scales the sum. Codes that are scaled
    first are no longer exact in 16 bits: f32 holds them."""
    if not p.lhs.quantised and dtype_of(p.lhs.node) in (torch.bfloat16, torch.float16):
        p.attributes["compute_dtype"] = "f32"


def _add(graph: Graph, p: Product, user: Node) -> bool:
    """The bias, then a residual of the result's shape."""
    if user.target is not aten.add.Tensor or argument(user, "alpha") != 1 or p.out_dtype == "i32":
        return False
    other = _other(user, p.out)
    if not is_tensor(other) or not same_shape(shape_of(user), shape_of(p.out)):
        return False
    if dtype_of(user) != dtype_of(p.out):
        return False
    shape = shape_of(other)
    channels = shape_of(p.out)[-p.columns]
    bias = [s for s in shape if not same(s, 1)]
    aligned = len(shape) >= p.columns and same(shape[-p.columns], channels)
    known = graph.constant(other)
    if p.stage <= SCALED and p.bias is None and len(bias) == 1 and aligned and known is not None:
        p.bias, p.stage = known.reshape(-1), BIAS
        return True
    if p.stage <= BIAS and same_shape(shape, shape_of(p.out)):
        p.residual, p.stage = other, RESIDUAL
        return True
    return False


_ACTIVATIONS = {aten.relu.default: "relu", aten.relu6.default: "relu6", aten.silu.default: "silu",
                aten.tanh.default: "tanh"}  # fmt: skip


def _activation(graph: Graph, p: Product, user: Node) -> bool:
    if p.stage >= ACTIVATION or p.out_dtype == "i32":
        return False
    told: dict[str, Any] = {}
    if user.target in _ACTIVATIONS:
        told["activation"] = _ACTIVATIONS[user.target]
    elif user.target is aten.gelu.default:
        told["activation"] = "gelu" if argument(user, "approximate") == "none" else "gelu_tanh"
    elif user.target in (aten.hardtanh.default, aten.clamp.default):
        lo, hi = user.args[1:3] if len(user.args) == 3 else (-1.0, 1.0)
        if not all(isinstance(v, (int, float)) for v in (lo, hi)) or user.kwargs:
            return False
        if user.target is aten.clamp.default and len(user.args) != 3:
            return False
        told = {"activation": "clamp", "act_clamp": [float(lo), float(hi)]}
    else:
        return False
    p.attributes.update(told)
    p.stage = ACTIVATION
    return True


def _requantise(graph: Graph, p: Product, user: Node) -> bool:
    """The next layer's codes, by a scale that is constant."""
    if p.out_dtype not in ("f32",):
        return False
    try:
        q = quantised(graph, user)
    except Decline:
        return False
    if q is None or q.source is not p.out or q.dtype not in ("i8", "u8"):
        return False
    scale = graph.constant(q.scale)
    zero = None if q.zero_point is None else graph.constant(q.zero_point)
    if scale is None or scale.numel() != 1 or (q.zero_point is not None and zero is None):
        return False
    if q.multiplier is not None:
        p.out_multiplier = torch.tensor(q.multiplier, dtype=torch.float32)
    else:
        p.out_scale = scale.reshape(())
    p.out_zero_point = None if zero is None else zero.reshape(())
    p.out_dtype, p.stage = q.dtype, DONE
    if (q.lo, q.hi) != ((-128, 127) if q.dtype == "i8" else (0, 255)):
        p.attributes["clamp"] = [q.lo, q.hi]
    return True


def _unflattened(graph: Graph, p: Product, user: Node) -> bool:
    """Rows given their own axes again: the product is made on those, so that what follows is still its epilogue."""
    if user.target not in VIEWS or p.op != "scaled_matmul" or p.residual is not None:
        return False
    source = p.lhs.node
    if source.op != "call_function" or source.target not in VIEWS or len(shape_of(p.rhs.node)) != 2:
        return False
    wide: torch.fx.Node = source.args[0]
    shape = shape_of(wide)
    if not shape or not same(shape[-1], shape_of(source)[-1]) or len(shape_of(user)) < 2:
        return False
    if not same_shape(shape[:-1], shape_of(user)[:-1]) or not same(shape_of(user)[-1], shape_of(p.out)[-1]):
        return False
    changed: dict[str, Operand | None] = {}
    for name in ("scale", "zero_point"):
        value = getattr(p.lhs, name)
        if value is None or all(same(s, 1) for s in _sizes(graph, value)):
            continue
        if not isinstance(value, Node) or value.op != "call_function" or value.target not in VIEWS:
            return False
        if not same_shape(shape_of(value.args[0]), [*shape[:-1], 1]):
            return False
        changed[name] = value.args[0]
    for name, value in changed.items():
        setattr(p.lhs, name, value)
    p.lhs.node = wide
    return True


_STEPS = (_to_float, _scale, _add, _activation, _requantise, _unflattened)


def _other(user: Node, node: Node) -> torch.fx.Node:
    """The other operand of a binary operator."""
    return user.args[1] if user.args[0] is node else user.args[0]


# ------------------------------------------------------------------------------------------------------- writing


def _group(p: Product) -> int | None:
    """The shortest groups along K, which the program states as blocks."""
    found = []
    for side, axis in ((p.lhs, -1), (p.rhs, -1 if p.rhs.transposed else -2)):
        shapes = [_known_shape(v) for v in (side.scale, side.zero_point)]
        found.append(group_along(_known_shape(side.node) or (), axis, *shapes))
    groups = [g for g in found if g is not None]
    return math.gcd(*groups) if groups else None


def _known_shape(value: Operand | None) -> tuple[int | None, ...] | None:
    """The shape of an operand, None for a number or no operand; sizes that are symbols are None."""
    shape = shape_of(value) if isinstance(value, Node) else getattr(value, "shape", None)
    return None if shape is None else tuple(s if isinstance(s, int) else None for s in shape)


def emit(graph: Graph, p: Product) -> Node:
    """Write the product in place of what it took in."""
    kwargs: dict[str, Any] = {}

    def operand(name: str, value: Operand | None) -> None:
        if value is not None:
            kwargs[name] = value if isinstance(value, Node) else graph.new_constant(value, p.out)

    for side, name in zip((p.lhs, p.rhs), ("input", "weight") if p.op == "conv2d_q" else ("lhs", "rhs"), strict=True):
        operand(f"{name}_scale", side.scale)
        operand(f"{name}_zero_point", side.zero_point)
        if side.dtype is not None and side.dtype not in (FROM_TORCH[dtype_of(side.node)],):
            kwargs[f"{name}_dtype"] = side.dtype
    if p.rhs.transposed:
        kwargs["rhs_transposed"] = True
    if p.op == "scaled_matmul" and (group := _group(p)) is not None:
        kwargs["group_size"] = group
    if p.out_dtype != "i32":
        operand("bias", p.bias)
    if p.residual is not None:
        operand("c", p.residual)
        kwargs["beta"] = 1.0
    operand("out_multiplier", p.out_multiplier)
    operand("out_scale", p.out_scale)
    operand("out_zero_point", p.out_zero_point)
    kwargs.update(p.attributes, out_dtype=p.out_dtype)
    target = getattr(torch.ops.qmlir, p.op).default
    val = retyped(p.out.meta["val"], TO_TORCH[p.out_dtype])
    new = graph.call(p.out, target, (p.lhs.node, p.rhs.node), kwargs, val)
    new.meta["qmlir_root"] = p.root
    graph.replace(p.out, new)
    return new
