"""moe, its router and its sort to linalg.

The layer stays in blocks from the first product to the last: one sort, one gather of tokens, two batched products
with any requantisation between them, and one gather back to the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....core.mlir import arith, ir, math as math_ops
from ....dialect.ods import FieldView
from ....dialect.ops.common import shape_of
from ....dialect.ops.dynamic_quantize import DynamicQuantizeOp
from ....dialect.ops.moe import MoeOp
from ....dialect.ops.moe_align_block_size import MoeAlignBlockSizeOp
from ....dialect.ops.route import RouteOp
from ....ir.build import Arg, collapse, dense, dims, elementwise, filled, generic
from ....ir.scalars import cast_f, const, f32, i32, maximum, sigmoid, to_f32
from .blocks import constant, count, flag, loop_i32, read
from .dynamic import lower_dynamic_quantize
from .grouped import blocked_product, blocked_rows, combine, route_rows, slot_rows, spread
from .values import full_rank


def lower_moe(op: MoeOp) -> list[ir.Value]:
    """The lowering rule of the op."""
    experts = shape_of(op.w1)[0]
    assert experts is not None
    blocks, slots = route_rows(op.expert_ids, experts, op.skip_invalid)
    x, scale = op.input, op.input_scale
    if op.routing_stage == "input":
        x, scale = _weighted(op)
    per_token = op.input.type.rank == 2
    lhs = slot_rows(x, slots, x.type.rank == 2)
    assert lhs is not None
    rows = blocks.rows_of(lhs)
    values = {"lhs_scale": scale, "lhs_zero_point": op.input_zero_point}
    values = {n: blocked_rows(blocks, slot_rows(v, slots, per_token)) for n, v in values.items()}
    hidden = blocked_product(op.first(**values), blocks, rows)
    inner, zero = op.intermediate_scale, op.intermediate_zero_point
    if op.quantises_dynamically:
        recipe = {"input": hidden, "out_dtype": op.intermediate_dtype, "symmetric": op.symmetric, "recipe": op.recipe,
                  "rounding": op.rounding}  # fmt: skip
        hidden, inner, *rest = lower_dynamic_quantize(FieldView(DynamicQuantizeOp, recipe))
        zero = rest[0] if rest else None
    weighted = op.routing_stage == "output"
    y = blocked_product(op.second(hidden, inner, zero, out_dtype="f32"), blocks, hidden)
    return [combine(blocks, y, slots, op.skip_invalid, op.routing_weights if weighted else None, op.out_code)]


def _weighted(op: MoeOp) -> tuple[ir.Value, ir.Value | None]:
    """The tokens of each slot times their routing weight, and their scale. Codes stay, and their scale is multiplied,
    `[T, topk, 1]`; floats without a scale are multiplied themselves, `[T, topk, H]`, and rounded to their type."""
    tokens, topk = dims(op.routing_weights)
    weights = Arg(op.routing_weights, (0, 1))
    t = op.input.type.element_type
    axes = (0, 2) if op.input.type.rank == 2 else (0, 1, 2)
    if op.input_scale is None and isinstance(t, (ir.F32Type, ir.F16Type, ir.BF16Type)):
        sizes = [tokens, topk, dims(op.input)[-1]]
        return elementwise([Arg(op.input, axes), weights], sizes, t,
                           lambda v, w: cast_f(arith.mulf(to_f32(v), to_f32(w)), t)), None  # fmt: skip
    scale = dense(np.ones((), np.float32)) if op.input_scale is None else op.input_scale
    if scale.type.rank > 1:
        scale = spread(full_rank(scale, len(axes)), [tokens, topk][: len(axes) - 1])
    shape = shape_of(scale)
    loops = axes[len(axes) - len(shape) :]
    sizes = [tokens, topk, dims(scale)[-1] if shape else 1]
    kept = tuple(None if s == 1 and sizes[at] != 1 else at for s, at in zip(shape, loops, strict=True))
    product = elementwise([Arg(scale, kept), weights], sizes, f32(), lambda s, w: arith.mulf(to_f32(s), to_f32(w)))
    return op.input, product


def lower_route(op: RouteOp) -> list[ir.Value]:
    """The lowering rule of the op. The rank of an expert is the number of experts that sort before it. The k-th result
    is a sum over experts in which only the expert of rank k counts."""
    tokens, experts = dims(op.logits)
    topk = op.topk

    def key(x: ir.Value) -> ir.Value:
        """A logit as f32, with NaN as the smallest value."""
        x = to_f32(x)
        return arith.select(arith.cmpf(arith.CmpFPredicate.UNO, x, x), const(-math.inf), x)

    def before(at: Callable[[int], ir.Value], mine: ir.Value, other: ir.Value) -> ir.Value:
        a, b = key(other), key(mine)
        more = arith.cmpf(arith.CmpFPredicate.OGT, a, b)
        tie = arith.andi(arith.cmpf(arith.CmpFPredicate.OEQ, a, b), arith.cmpi(arith.CmpIPredicate.slt, at(2), at(1)))
        return flag(arith.ori(more, tie))

    rank = count([Arg(op.logits, (0, 1)), Arg(op.logits, (0, 2))], [tokens, experts, experts], [0, 1], before)

    def chosen(at: Callable[[int], ir.Value], r: ir.Value) -> ir.Value:
        return arith.select(arith.cmpi(arith.CmpIPredicate.eq, r, at(1)), at(2), constant(0))

    scores = _scores(op)
    ids = count([Arg(rank, (0, 2))], [tokens, topk, experts], [0, 1], chosen)

    weights = elementwise([Arg(ids, (0, 1))], [tokens, topk], f32(), lambda e: read(scores, loop_i32(0), e))
    if op.renormalize:
        total = _row_sums(weights)
        weights = elementwise([Arg(weights, (0, 1)), Arg(total, (0,))], [tokens, topk], f32(), arith.divf)
    return [ids, weights]


def _scores(op: RouteOp) -> ir.Value:
    """`[T, E]` f32: softmax over the experts, or sigmoid."""
    sizes = dims(op.logits)
    if op.scoring == "sigmoid":
        return elementwise([Arg(op.logits, (0, 1))], sizes, f32(), lambda x: sigmoid(to_f32(x)))
    # The reduced loop is the outer one: see blocks.count.
    top = generic([Arg(op.logits, (1, 0))], filled(sizes[:1], const(-math.inf)), [1], 2,
                  lambda x, acc: maximum(acc, to_f32(x)))  # fmt: skip
    powers = elementwise([Arg(op.logits, (0, 1)), Arg(top, (0,))], sizes, f32(),
                         lambda x, m: math_ops.exp(arith.subf(to_f32(x), m)))  # fmt: skip
    total = _row_sums(powers)
    return elementwise([Arg(powers, (0, 1)), Arg(total, (0,))], sizes, f32(), arith.divf)


def _row_sums(values: ir.Value) -> ir.Value:
    """`[T, X]` to `[T]`."""
    init = filled(dims(values)[:1], const(0.0))
    return generic([Arg(values, (1, 0))], init, [1], 2, lambda x, acc: arith.addf(acc, x))


def lower_moe_align_block_size(op: MoeAlignBlockSizeOp) -> list[ir.Value]:
    """The lowering rule of the op."""
    blocks, _ = route_rows(op.expert_ids, op.experts, op.skip_invalid, op.block_size)
    rows = blocks.routing.rows
    none = constant(rows) if isinstance(rows, int) else arith.index_cast(i32(), rows)
    places = collapse(blocks.padded_rows(none), [[0, 1]])
    padded = elementwise([Arg(blocks.used, ())], [], i32(), lambda n: arith.muli(n, constant(op.block_size)))
    return [places, blocks.padded_groups(), padded]
