"""Gathers in a batch of products: rows of an activation, matrices of a weight."""

from __future__ import annotations

from dataclasses import replace

from ..core.mlir import ir
from ..dialect.constants import is_zero_fill
from ..ir import facts
from ..ir.walk import defining_op, made_by, producer_name
from .axes import Axis, size_of
from .computes import gathered_from, repeated_from, signed_from, unclamped
from .description import BATCH, GROUP, ROW, Batch, Factor, Unfit


def gathered_rows(batch: Batch, lhs: Factor, dynamic: bool = False) -> tuple[Batch, Factor]:
    """The batch and the activation with the gather of rows as part of the batch (`Batch.rows`): rows are read in place.
    `dynamic`: also if the number of rows of the source or of products is dynamic."""
    gathered = gathered_from(lhs.value)
    if gathered is None or ir.RankedTensorType(gathered[1].type).rank != 2:
        return batch, lhs
    source, rows = gathered
    source, repeats = repeated_from(source)
    if not dynamic and None in (batch.size, size_of(source, 0)):
        return batch, lhs
    if size_of(source, 0) == 1:
        repeats = 2**31 - 1  # a single row serves every index (passes/core/lower/grouped.py: slot_rows)
    flipped = signed_from(source)
    if flipped is not None:
        lhs = replace(lhs, flipped=True)
        source = flipped
    return replace(batch, rows=rows, repeats=repeats), replace(lhs, value=source, source_axes=(ROW, "k"))


def batch_of(axis: Axis, rhs: Factor) -> tuple[Batch, Factor]:
    """The batch, and the weight that its matrices are gathered from."""
    gathered = gathered_from(rhs.value)
    if rhs.source_axes[0] != BATCH:
        raise Unfit("the matrices of the weight are not its first axis", "a weight [B, N, K]")
    if gathered is None:
        return Batch(axis.size, axis.size or 0), rhs
    source, index = gathered
    if ir.RankedTensorType(index.type).rank != 1:
        raise Unfit("the index of the matrices has more than one axis", "one matrix per product")
    matrices = size_of(source, 0)
    if matrices is None:
        raise Unfit("the number of matrices is dynamic", "a static [G, N, K] weight")
    return Batch(axis.size, matrices, unclamped(index, matrices)), replace(rhs, value=source)


def ungrouped(factor: Factor) -> Factor:
    """The factor without the view that splits K of a gathered tensor into groups; unchanged if it has no such view."""
    *outer, last, k = factor.source_axes
    if producer_name(factor.value) != "tensor.expand_shape" or (last, k) != (GROUP, "k"):
        return factor
    view = defining_op(factor.value)
    split = [len(list(group)) for group in view.attributes["reassociation"]]
    if split != [1] * len(outer) + [2] or gathered_from(view.operands[0]) is None:
        return factor
    return replace(factor, value=view.operands[0], source_axes=(*outer, "k"))


def counts_of(batch: Batch, rows: int | None) -> tuple[ir.Value, ir.Value] | None:
    """`Batch.counts` if products are blocks of `rows` rows (passes/core/lower/blocks.py): the op that makes
    `Batch.index` counts the matrices whose blocks end at or before each block. It reads each matrix's first block and
    its number of blocks, which is `ceil(rows of a matrix / rows of a block)`."""
    ended = None if batch.index is None else made_by(batch.index, "linalg.generic")
    if ended is None or facts.known(ended, facts.ENDED_BLOCKS) != rows:
        return None
    start, blocks, init = ended.operands
    if not is_zero_fill(init):
        return None
    rounded = made_by(blocks, "linalg.generic")
    return None if rounded is None else (start, rounded.operands[0])
