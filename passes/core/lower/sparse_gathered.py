"""The gathered forms of a sparse_matmul: rows whose products read lhs by position, and blocks whose columns of lhs are
gathered for a batched contraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....core.mlir import arith, ir, tensor
from ....dialect.ops.common import shape_of
from ....dialect.ops.sparse_matmul import SparseMatmulOp
from ....dialect.sparse_formats import entries
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import (
    Arg,
    Extent,
    collapse,
    crop,
    dense,
    dense_like,
    dims,
    elementwise,
    expand,
    filled,
    generic,
    loop_index,
    scalar,
    transpose,
)
from ....ir.scalars import f32, i32, to_f32, to_i32
from .blocks import as_i32, bounded, constant, gather, loop_i32, read
from .contraction import contract
from .matmul import ContractionBuilder, SideNumbers
from .sparse_form import Pieces, row_pieces
from .sparse_positions import positions_of, rank
from .unpacked import unpacked_dtype
from .values import Side, make_side

_SLT, _SGE = (getattr(arith.CmpIPredicate, n) for n in ("slt", "sge"))


@dataclass(frozen=True)
class GatheredRows:
    """Entries `[V, W]`: V rows, or pieces of rows, of the weight. `side` has a scale per row, `part` one per piece."""

    side: Side
    part: Side
    positions: ir.Value  # i32 [V, W]: columns
    n: int
    pieces: Pieces | None

    def contraction(self, batch: Sequence[Extent], m: Extent) -> ContractionBuilder:
        """`acc[.., m, n] = sum_w lhs[.., m, positions[n, w]] * codes[n, w]`."""
        loops = len(batch) + 2  # the loop over w

        def run(lhs: ir.Value, numbers: SideNumbers, bounds: tuple[int, int] | None) -> ir.Value:
            lhs = fusion_barrier(lhs, Reason.INDEXED_READS)

            def body(y: ir.Value, column: ir.Value, acc: ir.Value) -> ir.Value:
                at = [loop_index(i) for i in range(loops - 1)]
                x = tensor.extract(lhs, [*at, arith.index_cast(ir.IndexType.get(), column)])
                if bounds is None:
                    return arith.addf(acc, arith.mulf(to_f32(x), to_f32(y)))
                return arith.addi(acc, arith.muli(to_i32(x), self._true(y)))

            v = dims(self.positions)[0]
            zero = scalar(0, f32() if bounds is None else i32())
            args = [Arg(numbers(self.part), (loops - 1, loops)), Arg(self.positions, (loops - 1, loops))]
            return self._joined(generic(args, filled([*batch, m, v], zero), range(loops), loops + 1, body))

        return run

    def sums(self) -> ir.Value:
        """Sums of the codes along K, i32 `[N]`."""
        v = dims(self.positions)[0]
        total = generic([Arg(self.part.codes, (0, 1))], filled([v], constant(0)), [0], 2,
                        lambda y, acc: arith.addi(acc, self._true(y)))  # fmt: skip
        return self._joined(total)

    def _true(self, code: ir.Value) -> ir.Value:
        """The value of a stored code: unsigned codes are stored less 128."""
        number = to_i32(code)
        return arith.addi(number, constant(self.part.offset)) if self.part.offset else number

    def _joined(self, value: ir.Value) -> ir.Value:
        """`[.., V]` of pieces to `[.., N]` of rows."""
        pieces = self.pieces
        if pieces is None:
            return value
        value = fusion_barrier(value, Reason.INDEXED_READS)
        *outer, _ = dims(value)
        rank = len(outer)
        t = value.type.element_type
        plus = arith.addf if t == f32() else arith.addi
        cut = np.flatnonzero(pieces.count > 1)
        most = int(pieces.count.max())
        # Add up the rows of several pieces; then take each row from these sums or, if it is one piece, unchanged.
        which = np.full(self.n, -1)
        which[cut] = np.arange(cut.size)
        tables = (pieces.first, pieces.first[cut], pieces.count[cut], which)
        first, first_cut, counts, places = (dense(x.astype(np.int32)) for x in tables)

        def at(source: ir.Value, position: ir.Value) -> ir.Value:
            last = arith.index_cast(ir.IndexType.get(), position)
            return tensor.extract(source, [*(loop_index(i) for i in range(rank)), last])

        def piece(start: ir.Value, count: ir.Value, number: ir.Value, acc: ir.Value) -> ir.Value:
            inside = arith.cmpi(_SLT, number, count)
            x = at(value, arith.select(inside, arith.addi(start, number), start))
            return plus(acc, arith.select(inside, x, scalar(0, t)))

        numbers = dense(np.arange(most, dtype=np.int32))
        args = [Arg(first_cut, (rank,)), Arg(counts, (rank,)), Arg(numbers, (rank + 1,))]
        sums = generic(args, filled([*outer, cut.size], scalar(0, t)), range(rank + 1), rank + 2, piece)
        sums = fusion_barrier(sums, Reason.INDEXED_READS)

        def row(start: ir.Value, long: ir.Value) -> ir.Value:
            several = arith.cmpi(_SGE, long, constant(0))
            return arith.select(several, at(sums, arith.maxsi(long, constant(0))), at(value, start))

        return elementwise([Arg(first, (rank,)), Arg(places, (rank,))], [*outer, self.n], t, row)


def rows_of(op: SparseMatmulOp, codes: ir.Value) -> GatheredRows:
    weight = op.constant()
    n = op.rhs_shape[0]
    pieces = owner = None
    if weight is not None:
        row, column = entries(op.format, weight.indices, weight.indptr)
        lengths = np.bincount(row, minlength=n)
        pieces = row_pieces(lengths)
        within = np.arange(row.size) - (np.cumsum(lengths) - lengths)[row]
        at = pieces.first[row] + within // pieces.width, within % pieces.width
        table = np.zeros((int(pieces.count.sum()), pieces.width), weight.codes.dtype)
        where = np.zeros(table.shape, np.int32)
        table[at], where[at] = weight.codes, column
        owner = np.repeat(np.arange(n), pieces.count)
        padded, positions = dense_like(table, op.values), dense(where)
        if pieces.count.max() == 1:
            pieces = None
    else:
        padded, positions = _padded_rows(op, codes)
    side = make_side("rhs", padded, unpacked_dtype(op.rhs_code), [n, dims(padded)[1]], 0, 1, scale=op.rhs_scale,
                     zero=None, mode="none", packing="none", global_scale=op.rhs_global_scale)  # fmt: skip
    part = side
    if pieces is not None and side.scale is not None and shape_of(side.scale)[0] != 1:
        assert owner is not None
        part = replace(side, scale=gather(side.scale, dense(owner.astype(np.int32))))
    return GatheredRows(side, part, positions, n, pieces)


def _padded_rows(op: SparseMatmulOp, codes: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Codes and columns `[N, W]`, W the longest row of this call."""
    n, columns = op.rhs_shape
    stored = op.stored
    row, column = positions_of(op)
    if op.format == "coo":
        row = fusion_barrier(row, Reason.INDEXED_READS)
        pointers = elementwise([], [n + 1], i32(), lambda: rank(row, stored, loop_i32(0), _SLT))
    else:
        assert op.indptr is not None
        pointers = as_i32(op.indptr)
    start, end = crop(pointers, [0], [n]), crop(pointers, [1], [n])
    longest = generic([Arg(start, (0,)), Arg(end, (0,))], filled([], constant(1)), [], 1,
                      lambda s, e, acc: arith.maxsi(acc, arith.subi(e, s)))  # fmt: skip
    # Bounded, because the host has not waited for the checks yet.
    width = arith.minsi(tensor.extract(longest, []), constant(columns))
    sizes: list[Extent] = [n, arith.index_cast(ir.IndexType.get(), width)]

    def reading(source: ir.Value) -> ir.Value:
        def body(s: ir.Value, e: ir.Value) -> ir.Value:
            at = arith.addi(s, loop_i32(1))
            value = read(source, bounded(at, stored))
            return arith.select(arith.cmpi(_SLT, at, e), value, scalar(0, value.type))

        return elementwise([Arg(start, (0,)), Arg(end, (0,))], sizes, source.type.element_type, body)

    inside = elementwise([Arg(column, (0,))], [stored], i32(), lambda c: bounded(c, columns))

    def read_stored(source: ir.Value) -> ir.Value:
        return fusion_barrier(reading(fusion_barrier(source, Reason.INDEXED_READS)), Reason.INDEXED_READS)

    return read_stored(codes), read_stored(inside)


@dataclass(frozen=True)
class GatheredBlocks:
    """Blocks `[B, r, Q]`: for each block row the stored blocks concatenated along K, padded; the codes of `part`."""

    side: Side
    part: Side
    positions: ir.Value  # i32 [B, Q]: columns

    def contraction(self, batch: Sequence[Extent], m: Extent) -> ContractionBuilder:
        """A batched contraction over block rows, of the gathered columns of lhs."""
        nb = len(batch)

        def run(lhs: ir.Value, numbers: SideNumbers, bounds: tuple[int, int] | None) -> ir.Value:
            lhs = fusion_barrier(lhs, Reason.INDEXED_READS)
            block_rows, depth = dims(self.positions)
            r = dims(self.part.codes)[1]

            def pick(column: ir.Value) -> ir.Value:
                at = [loop_index(i) for i in (*range(nb), nb + 1)]
                return tensor.extract(lhs, [*at, arith.index_cast(ir.IndexType.get(), column)])

            x = elementwise([Arg(self.positions, (nb, nb + 2))], [*batch, block_rows, m, depth],
                            lhs.type.element_type, pick)  # fmt: skip
            loops = [*range(nb), nb, nb + 1, nb + 2, nb + 3]  # batch.., block row, m, r, q
            acc = contract(x, [*loops[: nb + 2], nb + 3], numbers(self.part), [nb, nb + 2, nb + 3],
                           [*batch, block_rows, m, r], nb + 4, range(nb + 3), bounds)  # fmt: skip
            order = [*range(nb), nb + 1, nb, nb + 2]
            return collapse(transpose(acc, order), [*([i] for i in range(nb + 1)), [nb + 1, nb + 2]])

        return run

    def sums(self) -> ir.Value:
        """Sums of the codes along K, i32 `[N]`."""
        block_rows, r, _ = dims(self.part.codes)
        total = generic([Arg(self.part.codes, (0, 1, 2))], filled([block_rows, r], constant(0)), [0, 1], 3,
                        lambda y, acc: arith.addi(acc, to_i32(y)))  # fmt: skip
        return collapse(total, [[0, 1]])


def blocks_of(op: SparseMatmulOp) -> GatheredBlocks:
    weight = op.constant()
    assert weight is not None
    assert op.block is not None
    r, c = op.block
    block_rows = op.rows_columns[0]
    row, column = entries("bsr", weight.indices, weight.indptr)
    lengths = np.bincount(row, minlength=block_rows)
    longest = int(lengths.max())
    within = np.arange(row.size) - (np.cumsum(lengths) - lengths)[row]
    table = np.zeros((block_rows, longest, r, c), weight.codes.dtype)
    where = np.zeros((block_rows, longest, c), np.int32)
    table[row, within] = weight.codes
    where[row, within] = column[:, None] * c + np.arange(c)
    stacked = np.ascontiguousarray(table.swapaxes(1, 2)).reshape(block_rows, r, longest * c)
    side = make_side("rhs", dense_like(stacked, op.values), unpacked_dtype(op.rhs_code), op.rhs_shape, 0, 1,
                     scale=op.rhs_scale, zero=None, mode="none", packing="none",
                     global_scale=op.rhs_global_scale)  # fmt: skip
    scale = side.scale
    if scale is not None:
        one = shape_of(scale)[0] == 1
        scale = expand(scale, [[1, 1] if one else [block_rows, r], [1]])
    part = replace(side, scale=scale, row=1, k=2)
    # The epilogue reads the rank of the codes, which must be that of the weight.
    flat = collapse(part.codes, [[0, 1], [2]])
    return GatheredBlocks(replace(side, codes=flat), part, dense(where.reshape(block_rows, longest * c)))
