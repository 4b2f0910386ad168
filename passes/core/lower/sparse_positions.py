"""The positions of the entries of a sparse weight, and checks that they follow the rules of its format."""

from __future__ import annotations

from ....core.mlir import arith, ir, tensor
from ....dialect.ops.sparse_matmul import SparseMatmulOp
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import Arg, collapse, crop, elementwise, index
from ....ir.checks import assert_that, refuse
from ....ir.scalars import i32
from .blocks import as_i32, bounded, constant, loop_i32, read

_SLT, _SLE, _EQ, _SGT, _SGE = (getattr(arith.CmpIPredicate, n) for n in ("slt", "sle", "eq", "sgt", "sge"))


def positions_of(op: SparseMatmulOp) -> tuple[ir.Value, ir.Value]:
    """Row and column of each entry (`bsr`: block), i32 `[E]`. The program stops if they break the format's rules."""
    rows, columns = op.rows_columns
    stored = op.stored
    if op.format == "coo":
        both = as_i32(op.indices)
        row, column = (collapse(crop(both, [i, 0], [1, stored]), [[0, 1]]) for i in (0, 1))
    else:
        assert op.indptr is not None
        pointers = as_i32(op.indptr)
        _check_pointers(pointers, rows, stored)
        column = as_i32(op.indices)
        if not stored:
            return column, column
        ends = fusion_barrier(crop(pointers, [1], [rows]), Reason.INDEXED_READS)
        row = elementwise([], [stored], i32(), lambda: rank(ends, rows, loop_i32(0), _SLE))
        row = fusion_barrier(row, Reason.INDEXED_READS)
    if stored:
        _check_entries(row, column, rows, columns, stored)
    return row, column


def _check_pointers(pointers: ir.Value, rows: int, stored: int) -> None:
    message = f"'indptr' of the sparse weight must start at 0, not decrease, and end at {stored}"
    first, last = (tensor.extract(pointers, [index(i)]) for i in (0, rows))
    fits = arith.andi(arith.cmpi(_EQ, first, constant(0)), arith.cmpi(_EQ, last, constant(stored)))
    assert_that(fits, message)
    if rows:
        neighbours = [Arg(crop(pointers, [i], [rows]), (0,)) for i in (0, 1)]
        refuse(neighbours, 1, lambda x, y: arith.cmpi(_SGT, x, y), message)


def _check_entries(row: ir.Value, column: ir.Value, rows: int, columns: int, stored: int) -> None:
    """Check that entries are inside the weight, sorted, and not repeated."""

    def outside(r: ir.Value, c: ir.Value) -> ir.Value:
        wrong = [arith.cmpi(p, x, constant(bound)) for x, size in ((r, rows), (c, columns))
                 for p, bound in ((_SLT, 0), (_SGE, size))]  # fmt: skip
        return arith.ori(arith.ori(wrong[0], wrong[1]), arith.ori(wrong[2], wrong[3]))

    refuse([Arg(row, (0,)), Arg(column, (0,))], 1, outside,
            f"an entry of 'indices' of the sparse weight is outside [0, {rows}) x [0, {columns})")  # fmt: skip

    def unsorted(r0: ir.Value, c0: ir.Value, r: ir.Value, c: ir.Value) -> ir.Value:
        same = arith.andi(arith.cmpi(_EQ, r0, r), arith.cmpi(_SGE, c0, c))
        return arith.ori(arith.cmpi(_SGT, r0, r), same)

    if stored > 1:
        pairs = [Arg(crop(x, [i], [stored - 1]), (0,)) for i in (0, 1) for x in (row, column)]
        message = "the entries of 'indices' of the sparse weight must be sorted by row and column, none twice"
        refuse(pairs, 1, unsorted, message)


def rank(source: ir.Value, size: int, key: ir.Value, predicate: arith.CmpIPredicate) -> ir.Value:
    """How many elements of the sorted `source [size]` satisfy `predicate(element, key)`, by bisection; in a body."""
    found = constant(0)
    for power in reversed(range(size.bit_length())):
        candidate = arith.addi(found, constant(1 << power))
        fits = arith.cmpi(_SLE, candidate, constant(size))
        element = read(source, bounded(arith.subi(candidate, constant(1)), size))
        found = arith.select(arith.andi(fits, arith.cmpi(predicate, element, key)), candidate, found)
    return found
