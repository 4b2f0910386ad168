"""From a contraction to the description of its kernel: the contraction, the sum over groups that follows it, and the
elementwise ops that read only its result.

This module does not change the IR: `describe` reads it and returns a `Kernel`, or raises `Unfit` with the reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.mlir import ir
from ..dialect.constants import is_zero_fill
from ..ir.affine import indexing_maps
from .axes import Axes, axes_of, dims_of, loops_of_contraction, product_of
from .chain import Chain
from .computes import multiply_add, widened_from
from .description import BATCH, COLUMN, GROUP, ROW, Kernel, Unfit
from .factors import both_of_e2m1, decoded_weight, factor, group_of, one_byte, plain_weight
from .gathers import batch_of, counts_of, gathered_rows, ungrouped

if TYPE_CHECKING:
    from ..core.mlir import OpLike


def describe(
    op: OpLike, extended: bool = False, decoded_batches: bool = False, small_floats: bool = False, plain: bool = False
) -> Kernel:
    """The kernel of the contraction `op`: of integer codes, or of floats by a weight that is decoded from codes; with
    `plain`, by a float weight.

    Features that not every generator supports are matched only on request. `extended`: batches of products, gates,
    float activations that are widened before the product, decodes by tables of any form, and products of one-byte
    floats. `decoded_batches`: batches of float products whose weights are decoded by arithmetic. `small_floats`: e2m1
    codes on both sides are multiplied as integers, and bodies may read one-byte floats.

    Raises:
        Unfit: the contraction is not such a kernel.
    """
    value, init = op.results[0], op.operands[2]
    axes = _with_batch(op, loops_of_contraction(op))
    maps = [axes_of(m, axes) for m in indexing_maps(op)]
    if any(m is None for m in maps):
        raise Unfit("an operand's indexing map is not one loop per axis", "a product of plain matrices")
    lhs_axes, rhs_axes, out_axes = (m for m in maps if m is not None)
    body = multiply_add(op)
    if body is None:
        raise Unfit("its body is not a sum of products", "a product of plain matrices")
    floating = isinstance(value.type.element_type, ir.F32Type)
    known = {"", "arith.addf", "arith.extf"} if floating else {"", "arith.addi", "arith.extsi"}
    if extra := ", ".join(sorted({body.addition, *body.extensions} - known)):
        raise Unfit(f"its body holds {extra}", "signed integer codes on both sides, or floats and a weight of codes")
    if not is_zero_fill(init):
        raise Unfit("its initial value is not zero", "add the other tensor behind the product")
    if any(a.letter == BATCH for a in axes) and not extended:
        raise Unfit("a batch of products with separate weights", "one weight for all rows")
    groups = [a for a in axes if a.letter == GROUP]
    depth = [a for a in axes if a.letter == "k"]
    batch = tuple(a for a in axes if a.letter == BATCH)
    lhs = factor(op, 0, lhs_axes, ("b", "m", "g", "k"))
    rhs = factor(op, 1, rhs_axes, ("b", "n", "g", "k"))
    rows = tuple(a for a in lhs_axes if a.letter == ROW)
    columns = tuple(a for a in rhs_axes if a.letter == COLUMN)
    if len(columns) != 1 or len(depth) < 1 or any(a.size is None for a in (*columns, *depth, *groups)):
        raise Unfit("N or K is dynamic, or N is more than one axis", "a static [N, K] weight")
    if batch and (len(rows) != 1 or rows[0].size is None):
        raise Unfit("products of a batch with a dynamic number of rows", "blocks of a static size")
    if sum(a.size is None for a in rows) > 1:
        raise Unfit("more than one axis of the rows is dynamic", "at most one dynamic axis")
    group = product_of([a.size for a in depth]) if groups else None
    fraction, acc = None, value.type.element_type
    codes = both_of_e2m1(lhs, rhs) if small_floats and floating and not batch else None
    if codes is not None:
        (lhs, rhs), fraction, acc = codes, 0.25, ir.IntegerType.get_signless(32)
    elif floating and not (extended and all(one_byte(side.value) for side in (lhs, rhs))):
        if (batch and not decoded_batches) or groups or len(depth) != 1:
            raise Unfit(
                "a float product in groups, or a batch of them", "one weight, dequantised in front of the product"
            )
        lhs = replace(lhs, value=widened_from(lhs.value) if extended else lhs.value)
        rhs = plain_weight(rhs) if plain else decoded_weight(rhs, extended and not decoded_batches)
        group = group_of(rhs)
    products = None
    if batch:
        products, rhs = batch_of(batch[0], ungrouped(rhs))
        products, lhs = gathered_rows(products, ungrouped(lhs))
        products = replace(products, counts=counts_of(products, rows[0].size))
    chain = Chain(value, out_axes, rows, columns[0], batch, small_floats)
    if groups:
        chain.combine(groups)
    elif out_axes != (*batch, *rows, columns[0]):
        raise Unfit("the result is transposed", "a result [M, N]")
    chain.grow(gates=extended)
    k = product_of([a.size for a in (*groups, *depth)])
    assert k is not None
    assert columns[0].size is not None
    return Kernel(
        m=product_of([a.size for a in rows]),
        n=columns[0].size,
        k=k,
        lhs=lhs,
        rhs=rhs,
        acc_type=acc,
        result_type=chain.value.type.element_type,
        group=group,
        fraction=fraction,
        combine=chain.total,
        total_type=chain.total_type,
        stages=tuple(chain.stages),
        row_sizes=tuple(a.size for a in chain.rows),
        batch=products,
        gate=chain.gate,
        operations=(op, *chain.operations),
    )


def _with_batch(op: OpLike, axes: Axes) -> Axes:
    """The axes with a batch, if there is one. Axes that all three tensors have are groups along K, but one that is the
    first of both activation and result is a batch of products."""
    lhs, _, out = (dims_of(m) for m in indexing_maps(op))
    if not lhs or not out or lhs[0] != out[0] or axes[lhs[0]].letter != GROUP:
        return axes
    return tuple(replace(a, letter=BATCH) if a.number == lhs[0] else a for a in axes)
