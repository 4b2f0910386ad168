"""The IR of the f16 route: what `exact_f16` decides, built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.mlir import arith, ir, linalg
from ...dialect.constants import is_zero_fill
from ...ir.affine import indexing_maps
from ...ir.walk import defining_op
from ..strategy import Contraction
from ..tensors import (
    elementwise,
    filled,
    generic,
    merge,
    multiply_add,
    pad_end,
    permuted,
    sizes_of,
    split,
    sum_over,
    type_of,
)
from .split import Split

if TYPE_CHECKING:
    from ...core.mlir import OpLike


def _as_f16(value: ir.Value, dtype: str) -> ir.Value:
    """The codes of an i8 tensor as f16; `dtype` says whether they are signed."""
    f16 = ir.F16Type.get()
    convert = arith.uitofp if dtype == "ui8" else arith.sitofp
    return elementwise(value, f16, lambda x: convert(f16, x))


def _as_i32(x: ir.Value) -> ir.Value:
    return arith.fptosi(ir.IntegerType.get_signless(32), x)


def _add_init(value: ir.Value, init: ir.Value) -> ir.Value:
    """The f32 sums as i32, added to what the op accumulates onto unless that is zero."""
    i32 = ir.IntegerType.get_signless(32)
    if is_zero_fill(init):
        return elementwise(value, i32, _as_i32)
    identity = ir.AffineMap.get_identity(type_of(value).rank)
    parallel = ["parallel"] * type_of(value).rank
    return generic([value], init, [identity] * 2, parallel, lambda x, acc: arith.addi(_as_i32(x), acc))


def matmul_in_f16(op: OpLike, c: Contraction, cut: Split, dim: int) -> tuple[ir.Value, OpLike]:
    """The i32 result of a matmul-like op computed in f16, and the f16 contraction's op."""
    maps = indexing_maps(op)
    kinds = ["reduction" if role == "k" else "parallel" for role in c.roles]
    operands = [op.operands[0], op.operands[1]]
    init = op.operands[2]
    f32 = ir.F32Type.get()
    out_sizes = sizes_of(init)
    if cut.chunks == 1:
        casts = [_as_f16(operands[0], c.lhs), _as_f16(operands[1], c.rhs)]
        sums = generic(casts, filled(out_sizes, f32), maps, kinds, multiply_add)
        return _add_init(sums, init), defining_op(sums)

    new_maps = []
    for position, affine_map in enumerate(maps):
        exprs = []
        for axis, result in enumerate(affine_map.results):
            old = ir.AffineDimExpr(result).position
            if old == dim:
                padding = cut.chunks * cut.length - (c.sizes[dim] or 0)
                operands[position] = pad_end(operands[position], axis, padding)
                operands[position] = split(operands[position], axis, cut.chunks, cut.length)
                exprs.append(ir.AffineDimExpr.get(0))
            exprs.append(ir.AffineDimExpr.get(old + 1))
        if position == 2:
            exprs.insert(0, ir.AffineDimExpr.get(0))
        new_maps.append(ir.AffineMap.get(affine_map.n_dims + 1, 0, exprs))
    # Cast after padding: what is padded is stored, and int8 is half of it.
    casts = [_as_f16(operands[0], c.lhs), _as_f16(operands[1], c.rhs)]
    partial = filled([cut.chunks, *out_sizes], f32)
    sums = generic(casts, partial, new_maps, ["parallel", *kinds], multiply_add)
    return sum_over(sums, 0, init, _as_i32), defining_op(sums)


def convolution_in_f16(op: OpLike, c: Contraction, cut: Split) -> ir.Value:
    """The i32 result of a 2-D convolution computed in f16.

    Chunks of the channels are groups: [N,H,W,C] -> [N,H,W,P,C/P], and one result per chunk, added in i32.
    """
    data, weight = op.operands[0], op.operands[1]
    init = op.operands[2]
    window = {name: op.attributes[name] for name in ("strides", "dilations") if name in op.attributes}
    out_sizes = sizes_of(init)
    f32 = ir.F32Type.get()
    if cut.chunks == 1:
        build = getattr(linalg, op.name.removeprefix("linalg."))
        return _add_init(
            build(_as_f16(data, c.lhs), _as_f16(weight, c.rhs), outs=[filled(out_sizes, f32)], **window), init
        )

    grouped = "nhwgc" in op.name
    channels_last = "hwcf" not in op.name
    channel = 4 if grouped else 3
    axis = type_of(weight).rank - 1 if channels_last else 2
    channels = type_of(data).get_dim_size(channel)
    padding = cut.chunks * cut.length - channels
    data = split(pad_end(data, channel, padding), channel, cut.chunks, cut.length)
    weight = split(pad_end(weight, axis, padding), axis, cut.chunks, cut.length)
    if grouped:
        # [N,H,W,G,P,C] -> [N,H,W,G*P,C]; [G,F,KH,KW,P,C] -> [G,P,F,KH,KW,C] -> [G*P,F,KH,KW,C]
        data = merge(data, 3)
        weight = merge(permuted(weight, (0, 4, 1, 2, 3, 5)), 0)
        groups = out_sizes[3]
        assert isinstance(groups, int)
        sums = filled([*out_sizes[:3], groups * cut.chunks, out_sizes[4]], f32)
        sums = linalg.conv_2d_nhwgc_gfhwc(_as_f16(data, c.lhs), _as_f16(weight, c.rhs), outs=[sums], **window)
        return sum_over(split(sums, 3, groups, cut.chunks), 4, init, _as_i32)
    # [F,KH,KW,P,C] or [KH,KW,P,C,F] -> [P,F,KH,KW,C]
    weight = permuted(weight, (3, 0, 1, 2, 4) if channels_last else (2, 4, 0, 1, 3))
    sums = filled([*out_sizes[:3], cut.chunks, out_sizes[3]], f32)
    sums = linalg.conv_2d_nhwgc_gfhwc(_as_f16(data, c.lhs), _as_f16(weight, c.rhs), outs=[sums], **window)
    return sum_over(sums, 3, init, _as_i32)
