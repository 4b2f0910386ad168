"""sparse_matmul to linalg, in one of three forms:

* dense: the weight is made dense (2:4 metadata decoded, entries or blocks scattered), and the rest is scaled_matmul;
* rows: entries `[N, W]`, each row of the weight padded to W of them; every product reads its lhs element by position.
  Long rows are cut into pieces, whose sums are added, so that one dense row does not pad all others;
* blocks: blocks `[N/r, L*c]`, padded likewise; the columns of lhs that a block row meets are gathered, and the products
  are a batched contraction for the target's matrix instructions.

`form_of` chooses by the share of entries, padding counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....core.mlir import arith, ir, tensor
from ....dialect.dtypes import DTYPES, Array
from ....dialect.ods import OpError
from ....dialect.ops.common import shape_of
from ....dialect.ops.sparse_matmul import SparseMatmulOp
from ....dialect.reference.sparse import entries
from ....dialect.shapes import show
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import (
    Arg,
    Size,
    collapse,
    crop,
    dense,
    dense_like,
    dims,
    elementwise,
    expand,
    filled,
    generic,
    index,
    loop_index,
    scalar,
    static,
    transpose,
)
from ....ir.scalars import f32, i32, to_f32, to_i32
from .blocks import as_i32, assert_that, bounded, constant, flag, gather, loop_i32, read
from .matmul import Contraction, Numbers, contract, product
from .values import Side, known_sums, make_side, unpack_codes, unpacked_dtype

_SLT, _SLE, _EQ, _SGT, _SGE = (
    getattr(arith.CmpIPredicate, n) for n in ("slt", "sle", "eq", "sgt", "sge")
)  # fmt: skip

# The rule of `form_of`, measured on a CPU with VNNI (N = K = 1024, two threads). Reading lhs by position makes 1 to 3
# products a nanosecond; the dense contraction of i8 30 (one row: reading the weight is the limit) to 360, of f32 10 to
# 190.
ROWS_BELOW = {"int": (1 / 32, 1 / 100), "float": (1 / 16, 1 / 64)}  # share of entries: up to 4 rows of lhs, more rows
BLOCKS_BELOW = 1 / 8
BLOCK_AT_LEAST = 8  # rows and columns: smaller blocks leave matrix instructions mostly empty
DENSE_ELEMENTS = 1 << 30  # a dense weight above this is never made


def lower_sparse_matmul(op: SparseMatmulOp) -> list[ir.Value]:
    """The rule of the op."""
    lhs_shape = dims(op.lhs)
    nb = len(lhs_shape) - 2
    a = make_side("lhs", op.lhs, op.lhs_code, lhs_shape, nb, nb + 1, scale=op.lhs_scale, zero=op.lhs_zero_point,
                  mode=op.lhs_zero_mode, packing="none", global_scale=op.lhs_global_scale)  # fmt: skip
    batch, m = lhs_shape[:nb], lhs_shape[nb]
    k_axis = 1 if op.rhs_transposed else 0
    k, n = op.rhs_shape[k_axis], op.rhs_shape[1 - k_axis]
    codes = op.values
    if op.rhs_code.bits < 8:
        codes = unpack_codes(codes, op.rhs_code, op.rhs_packing, op.values_shape()[-1])
    form = form_of(op)
    if form == "dense":
        b = make_side("rhs", _densified(op, codes), unpacked_dtype(op.rhs_code), op.rhs_shape, 1 - k_axis, k_axis,
                      scale=op.rhs_scale, zero=None, mode="none", packing="none", sum_=known_sums(op),
                      global_scale=op.rhs_global_scale)  # fmt: skip
        return [product(op, a, b, batch, m, n, k)]
    gathered = _blocks(op) if form == "blocks" else _rows(op, codes)
    b = gathered.side
    if a.int_zero:
        b = replace(b, sum=gathered.sums() if op.rhs_sum is None else known_sums(op))
    # What stands in the accumulator is the sum of the true codes.
    b = replace(b, offset=0, d=DTYPES["i8"] if b.d.name == "u8" else b.d)
    return [product(op, a, b, batch, m, n, k, gathered.contraction(batch, m))]


# --------------------------------------------------------------------------------------------------- the choice


def form_of(op: SparseMatmulOp) -> str:
    """`dense`, `rows` or `blocks`. A form that gathers needs a weight `[N, K]` in csr or coo form with scales that are
    constant along K, or a constant bsr one; `qmlir-fold` brings constant weights there. Rows that are known at run time
    are gathered only where the weight is too large to be dense, padded to the longest.

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
    # IREE's SPIR-V route does not compile rows whose padding is known at run time (3.13: memref.alloc).
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
    """Entries that the gathered form works on, of all, with their padding; the weight is constant and `[N, K]`."""
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
    first: Array  # piece of each row
    work: int  # entries with their padding, and sums of pieces


def row_pieces(lengths: Array) -> Pieces:
    """The width that makes the least work; the longest row's where a shorter one does not save a quarter."""
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


# ------------------------------------------------------------------------------------------------ the dense form


def _densified(op: SparseMatmulOp, codes: ir.Value) -> ir.Value:
    """The dense codes of shape `rhs_shape`."""
    rows, columns = op.rhs_shape
    t = codes.type.element_type
    if op.format == "2:4":
        made: ir.Value = _decompressed(op, codes)
        return made
    row, column = _positions(op)
    if not rows * columns or not op.stored:
        return filled([rows, columns], scalar(0, t))
    block_rows, block_columns = op.rows_columns
    flat = elementwise(
        [Arg(row, (0,)), Arg(column, (0,))], [op.stored], i32(),
        lambda r, c: arith.addi(arith.muli(bounded(r, block_rows), constant(block_columns)),
                                bounded(c, block_columns)),
    )  # fmt: skip
    out = _scattered(codes, flat, block_rows * block_columns)
    if op.block is None:
        return expand(out, [[rows, columns]])
    tiles = expand(out, [[block_rows, block_columns], [op.block[0]], [op.block[1]]])
    return collapse(transpose(tiles, [0, 2, 1, 3]), [[0, 1], [2, 3]])


def _decompressed(op: SparseMatmulOp, codes: ir.Value) -> ir.Value:
    """2:4: each group of four has two stored codes, at the positions that four bits of metadata name."""
    rows, k = op.rhs_shape
    groups = k // 4
    if not rows * groups:
        return filled([rows, k], scalar(0, codes.type.element_type))
    # A group's metadata is one unsigned 4-bit code.
    fields = unpack_codes(op.indices, DTYPES["u4"], "low_first", groups)

    def position(field: ir.Value, which: int) -> ir.Value:
        return arith.andi(arith.shrui(to_i32(field), constant(2 * which)), constant(3))

    _refuse([Arg(fields, (0, 1))], 2, lambda f: arith.cmpi(_SGE, position(f, 0), position(f, 1)),
            "a group of the 2:4 metadata of 'indices' does not name two positions in ascending order")  # fmt: skip
    pairs = expand(codes, [[rows], [groups, 2]])
    first, second = (collapse(crop(pairs, [0, 0, i], [rows, groups, 1]), [[0], [1, 2]]) for i in (0, 1))

    def body(x: ir.Value, y: ir.Value, field: ir.Value) -> ir.Value:
        def here(which: int) -> ir.Value:
            return arith.cmpi(_EQ, position(field, which), loop_i32(2))

        return arith.select(here(0), x, arith.select(here(1), y, scalar(0, x.type)))

    args = [Arg(v, (0, 1)) for v in (first, second, fields)]
    return collapse(elementwise(args, [rows, groups, 4], codes.type.element_type, body), [[0], [1, 2]])


def _scattered(values: ir.Value, at: ir.Value, size: int) -> ir.Value:
    """Zeros `[size, ...]` with `values [E, ...]` at the rows `at [E]`, which differ."""
    t = values.type.element_type
    bits = ir.IntegerType.get_signless(t.width) if isinstance(t, ir.FloatType) else t
    sizes = static(dims(values))
    if bits != t:
        values = tensor.bitcast(ir.RankedTensorType.get(sizes, bits), values)
    init = filled([size, *sizes[1:]], scalar(0, bits))
    op = ir.Operation.create(
        "iree_linalg_ext.scatter",
        results=[init.type],
        operands=[values, expand(at, [[sizes[0], 1]]), init],
        attributes={"dimension_map": ir.DenseI64ArrayAttr.get([0]), "unique_indices": ir.BoolAttr.get(True)},
        regions=1,
    )
    block = op.regions[0].blocks.append(bits, bits)
    with ir.InsertionPoint(block):
        ir.Operation.create("iree_linalg_ext.yield", operands=[block.arguments[0]])
    out = op.results[0]
    return out if bits == t else tensor.bitcast(ir.RankedTensorType.get([size, *sizes[1:]], t), out)


# ------------------------------------------------------------------------------------- positions and their checks


def _positions(op: SparseMatmulOp) -> tuple[ir.Value, ir.Value]:
    """Row and column of each entry (`bsr`: block), i32 `[E]`. The program stops where they break the format's rules."""
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
        row = elementwise([], [stored], i32(), lambda: _rank(ends, rows, loop_i32(0), _SLE))
        row = fusion_barrier(row, Reason.INDEXED_READS)
    if stored:
        _check_entries(row, column, rows, columns, stored)
    return row, column


def _refuse(args: Sequence[Arg], loops: int, wrong: Any, message: str) -> None:
    """Stop the program where `wrong` (i1, a body) holds for some element. The loops are summed as outer ones, see
    `blocks.count`."""
    found = generic(args, filled([], constant(0)), [], loops,
                    lambda *xs: arith.addi(xs[-1], flag(wrong(*xs[:-1]))))  # fmt: skip
    assert_that(arith.cmpi(_EQ, tensor.extract(found, []), constant(0)), message)


def _check_pointers(pointers: ir.Value, rows: int, stored: int) -> None:
    message = f"'indptr' of the sparse weight must start at 0, not decrease, and end at {stored}"
    first, last = (tensor.extract(pointers, [index(i)]) for i in (0, rows))
    fits = arith.andi(arith.cmpi(_EQ, first, constant(0)), arith.cmpi(_EQ, last, constant(stored)))
    assert_that(fits, message)
    if rows:
        neighbours = [Arg(crop(pointers, [i], [rows]), (0,)) for i in (0, 1)]
        _refuse(neighbours, 1, lambda x, y: arith.cmpi(_SGT, x, y), message)


def _check_entries(row: ir.Value, column: ir.Value, rows: int, columns: int, stored: int) -> None:
    """Inside the weight, sorted, and none twice."""

    def outside(r: ir.Value, c: ir.Value) -> ir.Value:
        wrong = [arith.cmpi(p, x, constant(bound)) for x, size in ((r, rows), (c, columns))
                 for p, bound in ((_SLT, 0), (_SGE, size))]  # fmt: skip
        return arith.ori(arith.ori(wrong[0], wrong[1]), arith.ori(wrong[2], wrong[3]))

    _refuse([Arg(row, (0,)), Arg(column, (0,))], 1, outside,
            f"an entry of 'indices' of the sparse weight is outside [0, {rows}) x [0, {columns})")  # fmt: skip

    def unsorted(r0: ir.Value, c0: ir.Value, r: ir.Value, c: ir.Value) -> ir.Value:
        same = arith.andi(arith.cmpi(_EQ, r0, r), arith.cmpi(_SGE, c0, c))
        return arith.ori(arith.cmpi(_SGT, r0, r), same)

    if stored > 1:
        pairs = [Arg(crop(x, [i], [stored - 1]), (0,)) for i in (0, 1) for x in (row, column)]
        message = "the entries of 'indices' of the sparse weight must be sorted by row and column, none twice"
        _refuse(pairs, 1, unsorted, message)


def _rank(source: ir.Value, size: int, key: ir.Value, predicate: arith.CmpIPredicate) -> ir.Value:
    """How many elements of the sorted `source [size]` satisfy `predicate(element, key)`, by bisection; in a body."""
    found = constant(0)
    for power in reversed(range(size.bit_length())):
        candidate = arith.addi(found, constant(1 << power))
        fits = arith.cmpi(_SLE, candidate, constant(size))
        element = read(source, bounded(arith.subi(candidate, constant(1)), size))
        found = arith.select(arith.andi(fits, arith.cmpi(predicate, element, key)), candidate, found)
    return found


# ---------------------------------------------------------------------------------------------- the gathered forms


@dataclass(frozen=True)
class _Rows:
    """Entries `[V, W]`: V rows, or pieces of rows, of the weight. `side` has one scale a row, `part` one a piece."""

    side: Side
    part: Side
    positions: ir.Value  # i32 [V, W]: columns
    n: int
    pieces: Pieces | None

    def contraction(self, batch: Sequence[Size], m: Size) -> Contraction:
        """`acc[.., m, n] = sum_w lhs[.., m, positions[n, w]] * codes[n, w]`."""
        loops = len(batch) + 2  # the loop over w

        def run(lhs: ir.Value, numbers: Numbers, bounds: tuple[int, int] | None) -> ir.Value:
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
        """A stored code as the number that it stands for: unsigned ones are held less 128."""
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
        # Rows of several pieces, added up; then each row from there or, of one piece, as it is.
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


def _rows(op: SparseMatmulOp, codes: ir.Value) -> _Rows:
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
    return _Rows(side, part, positions, n, pieces)


def _padded_rows(op: SparseMatmulOp, codes: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Codes and columns `[N, W]`, W the longest row of this call."""
    n, columns = op.rhs_shape
    stored = op.stored
    row, column = _positions(op)
    if op.format == "coo":
        row = fusion_barrier(row, Reason.INDEXED_READS)
        pointers = elementwise([], [n + 1], i32(), lambda: _rank(row, stored, loop_i32(0), _SLT))
    else:
        assert op.indptr is not None
        pointers = as_i32(op.indptr)
    start, end = crop(pointers, [0], [n]), crop(pointers, [1], [n])
    longest = generic([Arg(start, (0,)), Arg(end, (0,))], filled([], constant(1)), [], 1,
                      lambda s, e, acc: arith.maxsi(acc, arith.subi(e, s)))  # fmt: skip
    # Bounded: the checks have not been waited for yet.
    width = arith.minsi(tensor.extract(longest, []), constant(columns))
    sizes: list[Size] = [n, arith.index_cast(ir.IndexType.get(), width)]

    def reading(source: ir.Value) -> ir.Value:
        def body(s: ir.Value, e: ir.Value) -> ir.Value:
            at = arith.addi(s, loop_i32(1))
            value = read(source, bounded(at, stored))
            return arith.select(arith.cmpi(_SLT, at, e), value, scalar(0, value.type))

        return elementwise([Arg(start, (0,)), Arg(end, (0,))], sizes, source.type.element_type, body)

    inside = elementwise([Arg(column, (0,))], [stored], i32(), lambda c: bounded(c, columns))

    def read_apart(source: ir.Value) -> ir.Value:
        return fusion_barrier(reading(fusion_barrier(source, Reason.INDEXED_READS)), Reason.INDEXED_READS)

    return read_apart(codes), read_apart(inside)


@dataclass(frozen=True)
class _Blocks:
    """Blocks `[B, r, Q]`: for each block row the stored blocks side by side, padded. `part` holds them."""

    side: Side
    part: Side
    positions: ir.Value  # i32 [B, Q]: columns

    def contraction(self, batch: Sequence[Size], m: Size) -> Contraction:
        """A batched contraction over block rows, of the gathered columns of lhs."""
        nb = len(batch)

        def run(lhs: ir.Value, numbers: Numbers, bounds: tuple[int, int] | None) -> ir.Value:
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


def _blocks(op: SparseMatmulOp) -> _Blocks:
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
    # The epilogue counts axes of the codes: those of the weight.
    flat = collapse(part.codes, [[0, 1], [2]])
    return _Blocks(replace(side, codes=flat), part, dense(where.reshape(block_rows, longest * c)))
