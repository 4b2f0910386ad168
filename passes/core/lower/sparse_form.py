"""The choice between the three forms of a sparse_matmul, by the share of entries, padding included."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ....dialect.dtypes import Array
from ....dialect.ods import OpError
from ....dialect.ops.common import shape_of
from ....dialect.ops.sparse_matmul import SparseMatmulOp
from ....dialect.shapes import show
from ....dialect.sparse_formats import entries

# The limits of `form_of`, measured on a CPU with VNNI (N = K = 1024, two threads). Reading lhs by position computes 1
# to 3 products per nanosecond, the dense i8 contraction 30 (one row: limited by reading the weight) to 360, and the
# dense f32 contraction 10 to 190.
ROWS_BELOW = {"int": (1 / 32, 1 / 100), "float": (1 / 16, 1 / 64)}  # share of entries: for up to 4 lhs rows, for more
BLOCKS_BELOW = 1 / 8
BLOCK_AT_LEAST = 8  # rows and columns: smaller blocks leave matrix instructions mostly empty
DENSE_ELEMENTS = 1 << 30  # a dense weight above this is never made


def form_of(op: SparseMatmulOp) -> str:
    """`dense`, `rows` or `blocks`. A gathering form needs a weight `[N, K]` in csr or coo form with scales that are
    constant along K, or a constant bsr weight; `qmlir-fold` converts constant weights to these. Rows known only at run
    time are gathered only if the weight is too large to be dense; they are padded to the longest.

    Raises:
        OpError: for a weight too large to be made dense, with what would work.
    """
    rows, columns = op.rhs_shape
    large = rows * columns > DENSE_ELEMENTS
    reason = _needs_dense(op)
    if reason:
        if large:
            raise OpError(f"the weight {show(op.rhs_shape)} is too large to be made dense, and {reason}")
        return "dense"
    form = "blocks" if op.format == "bsr" else "rows"
    # Rows whose padding is known only at run time do not compile for every target (`ir/limits.py`).
    few = op.constant() is not None and padded_share(op) <= share_limit(op)
    return form if large or few else "dense"


def _needs_dense(op: SparseMatmulOp) -> str:
    """Why the weight cannot be gathered, "" when it can."""
    if op.format == "2:4" or 0 in op.rhs_shape or not op.stored:
        return f"format '{op.format}' is not gathered" if op.format == "2:4" else "it is empty"
    if op.groups_along_k():
        return "scales in groups along K need the dense form; use scales that are constant along K"
    if op.format == "bsr":
        if op.constant() is None:
            return "blocks that are known at run time are scattered; use format 'csr' with [N, K]"
        if op.rhs_code.name == "u8" and op.lhs_code.is_int:
            return "unsigned blocks need the dense form; use i8 codes"
        assert op.block is not None
        if min(op.block) < BLOCK_AT_LEAST:
            return f"blocks below {BLOCK_AT_LEAST} x {BLOCK_AT_LEAST} are not gathered; use format 'csr'"
    if not op.rhs_transposed:
        return "a weight [K, N] that is known at run time is scattered; give it as [N, K] with 'rhs_transposed'"
    return ""


def share_limit(op: SparseMatmulOp) -> float:
    """The share of entries up to which gathering is expected to be faster than a dense contraction."""
    if op.format == "bsr":
        return BLOCKS_BELOW
    outer = shape_of(op.lhs)[:-1]
    few = None not in outer and math.prod(s or 0 for s in outer) <= 4
    integer = op.lhs_code.is_int and op.rhs_code.is_int
    return ROWS_BELOW["int" if integer else "float"][0 if few else 1]


def padded_share(op: SparseMatmulOp) -> float:
    """The share of all elements that the gathered form computes, with padding, of a constant weight `[N, K]`."""
    size: int = math.prod(op.rhs_shape)
    weight = op.constant()
    depth: int = math.prod(op.block) if op.block is not None else 1
    assert weight is not None
    lengths = np.bincount(entries(op.format, weight.indices, weight.indptr)[0], minlength=op.rows_columns[0])
    if op.block is not None:
        return int(lengths.max()) * lengths.size * depth / size
    return row_pieces(lengths).work / size


@dataclass(frozen=True)
class Pieces:
    """Rows of `lengths` cut into pieces of at most `width` entries."""

    width: int
    count: Array  # of pieces, for each row; at least one
    first: Array  # index of the first piece of each row
    work: int  # entries with their padding, and additions of pieces


def row_pieces(lengths: Array) -> Pieces:
    """Cut rows to the width with the least work; a width is shortened only where that saves over a quarter."""
    longest = max(1, int(lengths.max()))
    best: Pieces | None = None
    for width in sorted({longest, *(1 << p for p in range(3, longest.bit_length()))}, reverse=True):
        count = np.maximum(1, -(-lengths // width))
        total, most = int(count.sum()), int(count.max())
        work = total * width + (int((count > 1).sum()) * most + lengths.size if most > 1 else 0)
        if best is None or work < best.work * 3 / 4:
            best = Pieces(width, count, np.cumsum(count) - count, work)
    assert best is not None
    return best
