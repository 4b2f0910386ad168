"""Absorb the nodes after a product of quantised values in an FX graph into its epilogue, and write the call that
replaces them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from ... import ops
from ...dialect.shapes import group_along
from ..raising import PatternDeclined
from .dtypes import FROM_TORCH, TO_TORCH
from .graph import (
    VIEWS,
    TorchGraph,
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
from .product import ACTIVATION, BIAS, DONE, FLOATS, RESIDUAL, SCALED, TorchProduct, scale_after, sizes_of
from .quantised import NodeOrTensor, quantised

if TYPE_CHECKING:
    from torch.fx.node import Argument


def absorb(graph: TorchGraph, p: TorchProduct) -> None:
    """Absorb the nodes that follow the product, as far as the epilogue can express them."""
    while p.stage < DONE:
        user = sole_user(p.out)
        if user is None or not is_tensor(user):
            return
        step = next((s for s in _STEPS if s(graph, p, user)), None)
        if step is None:
            return
        p.absorbed.append(user)
        p.out = user


def _to_float(graph: TorchGraph, p: TorchProduct, user: Node) -> bool:
    """The conversion of the accumulator to a float, or of the result to a narrower float."""
    if user.target not in (aten._to_copy.default, aten.to.dtype) or dtype_of(user) not in FLOATS:
        return False
    if p.out_dtype == "i32":
        p.out_dtype, p.stage = FLOATS[dtype_of(user)], SCALED
        return True
    if p.out_dtype == "f32" and dtype_of(user) in (torch.float16, torch.bfloat16):
        p.out_dtype, p.stage = FLOATS[dtype_of(user)], DONE
        return True
    return False


def _scale(graph: TorchGraph, p: TorchProduct, user: Node) -> bool:
    """One scale per row or column, before anything is added."""
    if user.target is not aten.mul.Tensor or p.op != "scaled_matmul" or p.stage != SCALED or p.bias is not None:
        return False
    if dtype_of(user) != dtype_of(p.out) or not same_shape(shape_of(user), shape_of(p.out)):
        return False
    factor = _other(user, p.out)
    known = graph.constant(factor)
    if known is None and not is_tensor(factor):
        return False
    shape = [*([1] * (len(shape_of(p.out)) - len(sizes_of(graph, factor)))), *sizes_of(graph, factor)]
    n = shape_of(p.out)[-1]
    if known is not None and all(same(s, 1) for s in shape[:-1]) and (same(shape[-1], n) or same(shape[-1], 1)):
        return _scale_columns(graph, p, known.float().reshape(-1))
    row = same(shape[-1], 1) and same_shape(shape[:-1], shape_of(p.out)[:-1])
    if known is None and row and p.lhs.quantised and p.lhs.scale is None and dtype_of(factor) == torch.float32:
        p.lhs.scale = factor
        return True
    return False


def _scale_columns(graph: TorchGraph, p: TorchProduct, factor: torch.Tensor) -> bool:
    if not p.rhs.quantised:
        return False
    column = factor.reshape(-1, 1) if p.rhs.transposed else factor.reshape(1, -1)
    own = None if p.rhs.scale is None else graph.constant(p.rhs.scale)
    if p.rhs.scale is not None and own is None:
        return False
    if p.attributes.get("rhs_zero_mode") == "offset_float":
        return False
    p.rhs.scale = column if own is None else own * column
    scale_after(p)
    return True


def _add(graph: TorchGraph, p: TorchProduct, user: Node) -> bool:
    """The bias, then a residual of the result's shape."""
    if user.target is not aten.add.Tensor or argument(user, "alpha") != 1 or p.out_dtype == "i32":
        return False
    other = _other(user, p.out)
    if not is_tensor(other) or not same_shape(shape_of(user), shape_of(p.out)):
        return False
    if dtype_of(user) != dtype_of(p.out) or not dtype_of(other).is_floating_point:
        return False
    shape = shape_of(other)
    channels = shape_of(p.out)[-p.columns]
    others = [s for i, s in enumerate(shape) if i != len(shape) - p.columns]
    aligned = len(shape) >= p.columns and same(shape[-p.columns], channels) and all(same(s, 1) for s in others)
    known = graph.constant(other)
    if p.stage <= SCALED and p.bias is None and aligned and known is not None:
        p.bias, p.stage = known.reshape(-1), BIAS
        return True
    if p.stage <= BIAS and same_shape(shape, shape_of(p.out)):
        p.residual, p.stage = other, RESIDUAL
        return True
    return False


_ACTIVATIONS = {aten.relu.default: "relu", aten.relu6.default: "relu6", aten.silu.default: "silu",
                aten.tanh.default: "tanh"}  # fmt: skip
_CLAMPS = {aten.hardtanh.default: ("min_val", "max_val"), aten.clamp.default: ("min", "max")}


def _activation(graph: TorchGraph, p: TorchProduct, user: Node) -> bool:
    if p.stage >= ACTIVATION or p.out_dtype == "i32":
        return False
    found_attributes: dict[str, object] = {}
    if user.target in _ACTIVATIONS:
        found_attributes["activation"] = _ACTIVATIONS[user.target]
    elif user.target is aten.gelu.default:
        found_attributes["activation"] = "gelu" if argument(user, "approximate") == "none" else "gelu_tanh"
    elif user.target in _CLAMPS:
        lo, hi = (argument(user, name) for name in _CLAMPS[user.target])
        if not all(isinstance(v, (int, float)) for v in (lo, hi)):
            return False
        found_attributes = {"activation": "clamp", "act_clamp": [float(lo), float(hi)]}
    else:
        return False
    p.attributes.update(found_attributes)
    p.stage = ACTIVATION
    return True


def _requantise(graph: TorchGraph, p: TorchProduct, user: Node) -> bool:
    """The quantisation to the next layer's codes, by a constant per-tensor scale."""
    if p.out_dtype not in ("f32",):
        return False
    try:
        q = quantised(graph, user)
    except PatternDeclined:
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


def _unflatten_rows(graph: TorchGraph, p: TorchProduct, user: Node) -> bool:
    """A view that splits rows into their former axes: the product is computed on these, so that its epilogue goes
    on."""
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
    changed: dict[str, NodeOrTensor | None] = {}
    for name in ("scale", "zero_point"):
        value = getattr(p.lhs, name)
        if value is None or all(same(s, 1) for s in sizes_of(graph, value)):
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


_STEPS = (_to_float, _scale, _add, _activation, _requantise, _unflatten_rows)


def _other(user: Node, node: Node) -> torch.fx.Node:
    """The other operand of a binary operator."""
    return user.args[1] if user.args[0] is node else user.args[0]


# ------------------------------------------------------------------------------------------------------- writing


def _group_size(p: TorchProduct) -> int | None:
    """The size of the shortest groups along K, which the program states as blocks."""
    found = []
    for side, axis in ((p.lhs, -1), (p.rhs, -1 if p.rhs.transposed else -2)):
        shapes = [_known_shape(v) for v in (side.scale, side.zero_point)]
        found.append(group_along(_known_shape(side.node) or (), axis, *shapes))
    groups = [g for g in found if g is not None]
    return math.gcd(*groups) if groups else None


def _known_shape(value: NodeOrTensor | None) -> tuple[int | None, ...] | None:
    """The shape of an operand, with None for symbolic sizes; None for a number or a missing operand."""
    shape = shape_of(value) if isinstance(value, Node) else getattr(value, "shape", None)
    return None if shape is None else tuple(s if isinstance(s, int) else None for s in shape)


def emit(graph: TorchGraph, p: TorchProduct) -> Node:
    """Write the product in place of the nodes that it absorbed."""
    kwargs: dict[str, Argument] = {}

    def operand(name: str, value: NodeOrTensor | None) -> None:
        if value is not None:
            kwargs[name] = value if isinstance(value, Node) else graph.new_constant(value, p.out)

    for side, fields in zip((p.lhs, p.rhs), ops.named(p.op).definition.SIDES, strict=True):
        operand(fields.scale, side.scale)
        operand(fields.zero_points[0], side.zero_point)
        if side.dtype is not None and side.dtype not in (FROM_TORCH[dtype_of(side.node)],):
            kwargs[fields.dtype] = side.dtype
    if p.rhs.transposed:
        kwargs["rhs_transposed"] = True
    if p.op == "scaled_matmul" and (group := _group_size(p)) is not None:
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
