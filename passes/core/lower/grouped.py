"""grouped_matmul to linalg: rows are gathered into blocks of one group each (`blocks`), a batched product multiplies
each block by the weight of its group, and the rows are gathered back to their places."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ....core.mlir import arith, tensor
from ....dialect.dtypes import DType
from ....dialect.ods import FieldView, OpError
from ....dialect.ops.common import shape_of
from ....dialect.ops.grouped_matmul import GroupedMatmulOp
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import (
    Arg,
    Extent,
    collapse,
    dims,
    element,
    elementwise,
    expand,
    filled,
    generic,
    index,
    loop_index,
    repeat,
    scalar,
)
from ....ir.scalars import add, cast_f, const, f32, to_f32
from .blocks import Ranked, RowBlocks, Sorted, as_i32, assert_ids
from .matmul import product
from .unpacked import unpack_codes, unpack_stored, unpacked_dtype
from .values import constant_sums, full_rank, make_side, repeated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.mlir import ir

# Epilogue operands: one value per column, or one row of values per row of the result or block of rows.
_EPILOGUE = ("c", "act_scale", "out_scale", "out_multiplier", "out_zero_point")
_FEW_SLOTS = 16
ROW_PARAMETERS = ("lhs_scale", "lhs_zero_point", *_EPILOGUE)


def lower_grouped_matmul(op: GroupedMatmulOp) -> list[ir.Value]:
    """The lowering rule of the op."""
    groups = shape_of(op.rhs)[0]
    assert groups is not None
    if op.expert_ids is not None:
        return [_routed(op, groups)]
    assert op.group_sizes is not None
    blocks = RowBlocks(Sorted(as_i32(op.group_sizes), dims(op.lhs)[0], groups))
    view = FieldView(GroupedMatmulOp, {n: blocked_rows(blocks, getattr(op, n)) for n in ROW_PARAMETERS}, base=op)
    return [blocks.back(blocked_product(view, blocks, blocks.rows_of(op.lhs)), None)]


def spread(value: ir.Value, rows: Sequence[Extent]) -> ir.Value:
    """Repeat a parameter `[.., X]` of blocks of rows so that it has one value per row; axes of size one stay."""
    for axis, (own, whole) in enumerate(zip(shape_of(value), rows, strict=False)):
        if own not in (None, 0, 1, whole) and isinstance(whole, int):
            value = repeated(value, axis, whole // own)
    return value


def blocked_rows(blocks: RowBlocks, value: ir.Value | None) -> ir.Value | None:
    """Gather a parameter `[R, X]` of rows, or of blocks of rows, to `[NB, B, X]`; `[]` and `[1, X]` stay."""
    if value is None or value.type.rank < 2 or shape_of(value)[0] == 1:
        return value
    return fusion_barrier(blocks.rows_of(spread(value, [blocks.routing.rows])), Reason.SMALL_GATHER)


def _group_parameter(blocks: RowBlocks, value: ir.Value | None) -> ir.Value | None:
    """Gather a parameter `[G, X, Y]` of groups, or of blocks of groups, to `[NB, X, Y]`; shared parameters stay."""
    if value is None or value.type.rank < 3 or shape_of(value)[0] == 1:
        return value
    return fusion_barrier(blocks.weights_of(spread(value, [blocks.routing.groups])), Reason.SMALL_GATHER)


def blocked_product(op: FieldView, blocks: RowBlocks, x: ir.Value) -> ir.Value:
    """`[NB, B, N]`: the batched product of the blocks `x [NB, B, K]` with the weights of their groups.

    `op` is a grouped_matmul, or a view of one, whose row parameters are in block form.
    """
    rhs_shape = dims(op.rhs)
    for i, s in enumerate(op.rhs_codes_shape()):
        if s is not None:
            rhs_shape[i] = s
    codes = op.rhs
    if op.rhs_packing != "none" or op.rhs_code.name == "i1":
        codes = unpack_codes(op.rhs, op.rhs_code, op.rhs_packing, rhs_shape[-1])
    gathered = blocks.weights_of(codes)
    k_b = 2 if op.rhs_transposed else 1
    a = make_side("lhs", x, op.lhs_code, dims(x), 1, 2, scale=op.lhs_scale, zero=op.lhs_zero_point,
                  mode=op.lhs_zero_mode, packing="none", global_scale=op.lhs_global_scale)  # fmt: skip
    zero, mode = op.rhs_zero_point, op.rhs_zero_mode
    if zero is not None and mode == "packed_int":
        zero, mode = unpack_stored(zero, op.rhs_code, op.rhs_packing, dims(op.rhs_scale)[-1]), "int"
    b = make_side("rhs", gathered, unpacked_dtype(op.rhs_code), dims(gathered), 3 - k_b, k_b,
                  scale=_group_parameter(blocks, op.rhs_scale), zero=_group_parameter(blocks, zero), mode=mode,
                  packing="none", codebook=op.codebook, global_scale=op.rhs_global_scale)  # fmt: skip
    sums = constant_sums(a, b, op.rhs, op.rhs_code, op.rhs_packing, k_b)
    b = b if sums is None else replace(b, sum=blocks.weights_of(sums))
    view: GroupedMatmulOp | FieldView = op
    if op.bias is not None and op.bias.type.rank == 2 and shape_of(op.bias)[0] != 1:
        per_block = fusion_barrier(blocks.weights_of(op.bias), Reason.SMALL_GATHER)
        n, width = dims(per_block)
        view = FieldView(GroupedMatmulOp, {"bias": expand(per_block, [[n], [1, width]])}, base=op)
    return product(view, a, b, [blocks.count], blocks.width, rhs_shape[3 - k_b], rhs_shape[k_b])


def _routed(op: GroupedMatmulOp, groups: int) -> ir.Value:
    """The routed form: each token is multiplied by the weights of the experts that its ids name."""
    assert op.expert_ids is not None
    blocks, slots = route_rows(op.expert_ids, groups, op.skip_invalid)
    per_token = op.lhs.type.rank == 2
    values: dict[str, object] = {
        n: blocked_rows(blocks, slot_rows(getattr(op, n), slots, per_token)) for n in ROW_PARAMETERS
    }
    if op.routing_weights is not None:
        values["out_dtype"] = "f32"
    view = FieldView(GroupedMatmulOp, values, base=op)
    lhs = slot_rows(op.lhs, slots, per_token)
    assert lhs is not None
    y = blocked_product(view, blocks, blocks.rows_of(lhs))
    if op.routing_weights is None:
        return unblocked(blocks, y, slots, op.skip_invalid)
    return combine(blocks, y, slots, op.skip_invalid, op.routing_weights, op.out_code)


def route_rows(
    expert_ids: ir.Value, groups: int, skip_invalid: bool, width: int | None = None
) -> tuple[RowBlocks, list[Extent]]:
    """The blocks (of `width` rows if given) of the `T * topk` slots, and `[T, topk]`."""
    if not skip_invalid:
        assert_ids(expert_ids, groups)
    ids = as_i32(expert_ids)
    tokens, topk = dims(ids)
    if not isinstance(topk, int):
        raise OpError("the second axis of 'expert_ids' (top-k) must be static")
    owner = collapse(ids, [[0, 1]])
    return RowBlocks(Ranked(owner, dims(owner)[0], groups), width), [tokens, topk]


def slot_rows(value: ir.Value | None, slots: list[Extent], per_token: bool) -> ir.Value | None:
    """Expand a parameter of tokens `[T, X]` (`per_token`), of slots `[T, topk, X]`, or of blocks of either to one row
    per slot; shared parameters stay."""
    if value is None or value.type.rank < 2:
        return value
    tokens, topk = slots
    assert isinstance(topk, int)
    if value.type.rank == 2 and per_token:
        value = spread(value, [tokens])
        return value if shape_of(value)[0] == 1 else repeat(value, 0, topk)
    value = spread(full_rank(value, 3), slots)
    for axis, size in ((0, tokens), (1, topk)) if set(shape_of(value)[:2]) != {1} else ():
        if shape_of(value)[axis] == 1:
            if not isinstance(size, int):
                raise OpError("a parameter whose token axis has size 1 needs a static number of tokens")
            value = repeat(value, axis, size)
    return collapse(value, [[0, 1], [2]])


def unblocked(blocks: RowBlocks, y: ir.Value, slots: list[Extent], skips: bool) -> ir.Value:
    """`[NB, B, N]` to `[T, topk, N]`; with `skips`, skipped slots are zero."""
    flat = blocks.back(y, scalar(0, y.type.element_type) if skips else None)
    return expand(flat, [slots, [dims(flat)[1]]])


def combine(
    blocks: RowBlocks, y: ir.Value, slots: list[Extent], skips: bool, weights: ir.Value | None, d: DType
) -> ir.Value:
    """`[NB, B, N]` to `[T, N]`: the sum over a token's slots, weighted, in f32 and ascending order; then the cast.

    Up to `_FEW_SLOTS` slots are unrolled: rows are then read directly from the blocks, as contiguous elements.
    """
    tokens, topk = slots
    n = dims(y)[2]

    def term(total: ir.Value, weight: ir.Value | None, value: ir.Value) -> ir.Value:
        return add(total, value if weight is None else arith.mulf(to_f32(weight), value))

    if isinstance(topk, int) and topk <= _FEW_SLOTS:
        skipped = scalar(0, y.type.element_type) if skips else None

        def body() -> ir.Value:
            token, total = loop_index(0), const(0.0)
            for k in range(topk):
                row = arith.addi(arith.muli(token, index(topk)), index(k))
                weight = None if weights is None else tensor.extract(weights, [token, index(k)])
                total = term(total, weight, blocks.value_back(y, skipped, row, loop_index(1)))
            return total

        found = elementwise([], [tokens, n], f32(), body)
    else:
        args = [Arg(unblocked(blocks, y, slots, skips), (1, 0, 2))]
        if weights is not None:
            args.append(Arg(weights, (1, 0)))

        def added(v: ir.Value, *rest: ir.Value) -> ir.Value:
            return term(rest[-1], rest[0] if len(rest) > 1 else None, v)

        found = generic(args, filled([tokens, n], const(0.0)), [1, 2], 3, added)
    t = element(d.name)
    return found if t == f32() else elementwise([Arg(found, (0, 1))], [tokens, n], t, lambda v: cast_f(v, t))
