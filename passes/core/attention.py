"""qmlir-attention: lower attention to a kernel of the target, or to two matrix products and a softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...core.mlir import arith, ir, math, tensor
from ...core.spelling import location_text
from ...ir.build import Arg, Extent, collapse, dims, elementwise, expand, filled, generic, inlined, scalar, transpose
from ...ir.products import matrix_product
from ...ir.walk import collect
from ...kernels.attention import OP, Attention, AttentionTensor, describe, has_body
from ...kernels.description import Unfit
from ...targets import backend_of, resolve
from ...targets.strategy import Contraction, Decision, GroupStrategy, Plan, first_accepted
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike


@dataclass(frozen=True)
class AttentionPass(Pass):
    """Replaces each `iree_linalg_ext.attention` with a kernel of the target. If no kernel accepts it, it becomes two
    matrix products and a softmax, which subtracts the largest score first; queries whose keys are all masked get zeros.
    Kernels are not asked about an attention with a body that changes the scores before the mask is added. It becomes
    products as well, because IREE's own lowering of such a body is wrong (`kernels/attention.has_body`).
    """

    name: ClassVar[str] = "qmlir-attention"
    summary: ClassVar[str] = "lower attention to a kernel of the target, or to products and a softmax"
    target: str = "cpu"

    def run(self, module: ir.Module, state: State) -> None:
        target = resolve(self.target)
        strategies = backend_of(target).attention_strategies(target)
        for op in _attention_ops(module):
            try:
                attention = describe(op)
            except Unfit:
                continue
            decision, plan = _decide(attention, () if has_body(op) else strategies)
            if plan is not None:
                state.decisions.append(decision)
            with op.context, op.location:
                if plan is not None:
                    plan.apply(op)
                elif _decomposable(attention):
                    with ir.InsertionPoint(op):
                        result = _decomposed(attention)
                    op.results[0].replace_all_uses_with(result)
                    op.erase()


def _decide(a: Attention, strategies: Sequence[GroupStrategy[Attention]]) -> tuple[Decision, Plan | None]:
    """Ask the strategies in order until one accepts. If none does, the decision is not reported: the op becomes
    products, and `qmlir-select` makes decisions about these."""
    kind = str(ir.RankedTensorType(a.q.value.type).element_type)
    m, n, k = (a.sizes[one[0]] if len(one) == 1 else None for one in (a.rows, a.keys, a.inner))
    batch = tuple(a.sizes[b] for b in a.batch)
    about = Contraction("attention", batch, m, n, k, kind, kind, kind, location=location_text(a.op.location))
    return first_accepted(about, strategies, a)


def _attention_ops(module: ir.Module) -> list[OpLike]:
    return collect(module, OP)


def _query_batch(a: Attention) -> tuple[int, ...]:
    """Batch axes along which queries share keys and values; they become additional rows."""
    return tuple(b for b in a.batch if b not in a.k.axes)


def _key_batch(a: Attention) -> tuple[int, ...]:
    return tuple(b for b in a.batch if b in a.k.axes)


def _decomposable(a: Attention) -> bool:
    """Whether there is one axis of each kind besides the batch, whose axes can be merged, and one float type."""
    kinds = {str(ir.RankedTensorType(t.value.type).element_type) for t in a.tensors}
    groups = (a.rows, a.keys, a.inner, a.columns)
    merged = all(
        sum(a.sizes[b] is None for b in merging) < 2 for merging in (_key_batch(a), (*_query_batch(a), *a.rows))
    )
    return merged and kinds == {str(a.scale.type)} and all(len(group) == 1 for group in groups)


def _decomposed(a: Attention) -> ir.Value:
    """The op's result, at the insertion point. Products have one batch axis, the form that every target compiles."""
    sizes = a.size_values()
    (m,), (keys,), (inner,), (columns,) = a.rows, a.keys, a.inner, a.columns
    t = ir.RankedTensorType(a.q.value.type).element_type
    batch, rows = _key_batch(a), (*_query_batch(a), m)
    queries = _ordered(a.q, (*batch, *rows, inner))
    scores = _product(sizes, batch, rows, queries, _ordered(a.k, (*batch, inner, keys)), keys, t)
    loops = (*batch, *rows, keys)
    shape = [sizes[i] for i in loops]
    everywhere = tuple(range(len(loops)))
    of_rows = everywhere[:-1]
    args = [Arg(scores, everywhere)]
    if a.mask is not None:
        args.append(Arg(a.mask.value, tuple(loops.index(i) for i in a.mask.axes)))

    def masked(score: ir.Value, *mask: ir.Value) -> ir.Value:
        scaled = inlined(a.op.regions[0].blocks[0], [arith.mulf(score, a.scale)])
        return arith.addf(scaled, mask[0]) if mask else scaled

    def over_keys(value: ir.Value, start: float, combine: Callable[..., ir.Value]) -> ir.Value:
        return generic([Arg(value, everywhere)], filled(shape[:-1], scalar(start, t)), of_rows, len(loops), combine)

    scores = elementwise(args, shape, t, masked)
    largest = over_keys(scores, float("-inf"), arith.maximumf)

    def weight(score: ir.Value, top: ir.Value) -> ir.Value:
        """`exp(score - top)`, with 0 for `top` where all keys are masked: their weights are then 0."""
        return math.exp(arith.subf(score, _replaced(top, float("-inf"), 0.0)))

    weights = elementwise([Arg(scores, everywhere), Arg(largest, of_rows)], shape, t, weight)
    total = over_keys(weights, 0.0, arith.addf)
    weights = elementwise(
        [Arg(weights, everywhere), Arg(total, of_rows)],
        shape,
        t,
        lambda w, sum_: arith.divf(w, _replaced(sum_, 0.0, 1.0)),
    )
    result = _product(sizes, batch, rows, weights, _ordered(a.v, (*batch, keys, columns)), columns, t)
    found = (*batch, *rows, columns)
    return _cast(transpose(result, [found.index(i) for i in a.out.axes]), a.out.value.type)


def _replaced(x: ir.Value, value: float, instead: float) -> ir.Value:
    """`x`, or `instead` where `x` equals `value`."""
    same = arith.cmpf(arith.CmpFPredicate.OEQ, x, scalar(value, x.type))
    return arith.select(same, scalar(instead, x.type), x)


def _ordered(t: AttentionTensor, loops: tuple[int, ...]) -> ir.Value:
    """The tensor with its axes in the order of the loops."""
    return transpose(t.value, [t.axes.index(i) for i in loops])


def _product(
    sizes: list[Extent],
    batch: Sequence[int],
    rows: Sequence[int],
    lhs: ir.Value,
    rhs: ir.Value,
    column: int,
    t: ir.Type,
) -> ir.Value:
    """The product of `[batch.., rows.., K]` and `[batch.., K, N]`."""
    count = len(batch)
    lead = [list(range(count))] if count else []
    lhs = collapse(lhs, [*lead, [count + i for i in range(len(rows))], [count + len(rows)]])
    rhs = collapse(rhs, [*lead, [count], [count + 1]])
    out = filled([*dims(lhs)[:-1], sizes[column]], scalar(0.0, t))
    product = matrix_product(lhs, rhs, out)
    wide = [[sizes[b] for b in batch]] if count else []
    return expand(product, [*wide, [sizes[r] for r in rows], [sizes[column]]])


def _cast(value: ir.Value, kind: ir.Type) -> ir.Value:
    return value if value.type == kind else tensor.CastOp(kind, value).result
