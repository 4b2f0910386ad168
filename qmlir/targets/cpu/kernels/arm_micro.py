"""Integer register tiles for 64-bit Arm: signed bytes by signed bytes, on vectors of 128 bits.

`sdot` adds the dot product of four pairs to each lane. Four codes of a row are one lane of its second operand, which
the instruction selects by number, so one load of 16 codes serves four steps. `smmla` multiplies two rows of eight codes
by two columns of eight; an accumulator holds two columns of two rows, twice the products of `sdot`. Rows are therefore
copied in pairs, interleaved by eight codes.

Whole bytes are stored signed. Short codes are stored from 0 on, which are valid signed bytes too; the offset missing
from them is added to the accumulators, as on x86 (integer_micro.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from ....core.mlir import arith, vector
from . import emit as e
from .micro import PIECE, QUAD, IntegerMicro, MicroCall, Weights, panels

if TYPE_CHECKING:
    from ....core.mlir import ir
    from ....kernels.layouts import WeightLayout

_LANES, _BYTES = 4, 16
_ROWS = 8
OCT = PIECE  # codes along K of one row or column that `smmla` multiplies
# Independent accumulators that keep the multipliers busy. A product takes three or four cycles, and up to four start in
# each; products that add to the same register may follow one another faster on Neoverse cores, but not on others.
_CHAINS = 12


def _intrinsic(name: str, acc: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return e.intrinsic(f"llvm.aarch64.neon.{name}.v4i32.v16i8", [acc, a, b], acc.type)


def _lanes_of(value: ir.Value, lanes: Sequence[int]) -> ir.Value:
    return vector.shuffle(value, value, list(lanes))


def _doubles(a: ir.Value, b: ir.Value, half: int) -> ir.Value:
    """Concatenate the same half of two vectors of words (`zip1` and `zip2` of doublewords)."""
    return vector.shuffle(a, b, [2 * half, 2 * half + 1, 4 + 2 * half, 5 + 2 * half])


@dataclass(frozen=True)
class Sdot:
    """Tiles of up to 8 rows by 8 columns: 16 accumulators, 8 registers of activations, the weights of one step."""

    name: str = "sdot"
    features: tuple[frozenset[str], ...] = (frozenset({"dotprod"}),)
    lanes: int = _LANES
    vectors: int = 2
    bits: tuple[int, ...] = (8, 4, 2)
    offset: int = 0
    lhs_bytes: int = 1
    reads_rows: bool = False
    in_registers: bool = True
    signed_short: bool = False

    @property
    def panel(self) -> int:
        return self.vectors * self.lanes

    def together(self, rows: int) -> int:
        """See `Micro`."""
        return 1

    def rows(self, weights: Weights) -> int:
        return _ROWS

    def depth(self, weights: Weights) -> int:
        return _BYTES

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        return panels(n, k, k_last, self.panel, self.depth(weights), weights)

    def permit(self) -> None:
        """Nothing to ask for."""

    def begin(self, rows: int) -> None:
        """Nothing to set up."""

    def end(self) -> None:
        """Nothing to release."""

    def dot(self, acc: ir.Value, unsigned: ir.Value, signed: ir.Value, largest: int = 255) -> ir.Value:
        """See `IntegerMicro`; both operands are read as signed, so `largest` is at most 127."""
        return _intrinsic("sdot", acc, unsigned, signed)

    def multiply(self, tile: MicroCall, weights: Weights) -> None:
        for r, row in enumerate(self.accumulate(tile, weights)):
            for v, total in enumerate(row):
                e.store(total, e.at(tile.out, _place(r, v, self.panel)))

    def unpack(self, stored: ir.Value, codes: int, weights: Weights, out: ir.Value, ahead: int) -> None:
        """See `IntegerMicro`."""
        raise AssertionError("codes are unpacked in registers")

    def accumulate(self, tile: MicroCall, weights: Weights) -> list[list[ir.Value]]:
        """See `IntegerMicro`."""
        codes, words = e.vector_of(_BYTES, e.integer(8)), e.vector_of(_LANES, e.integer(32))
        grid = [(r, v) for r in range(tile.rows) for v in range(self.vectors)]
        per_turn = self.depth(weights) // (QUAD * weights.fields)  # stored rows per iteration
        sets = max(1, min(_CHAINS // len(grid), per_turn * weights.fields))
        decode = ShortCodes(weights)
        with e.loop(0, tile.steps, per_turn, _zeros(sets * len(grid))) as turn:
            acc = list(turn.values)
            lhs = e.at(tile.lhs, e.multiply(turn.index, QUAD * weights.fields))
            rhs = e.at(tile.rhs, e.multiply(turn.index, self.vectors * _BYTES))
            rows = [e.load(words, e.at(lhs, r * tile.lhs_stride)) for r in range(tile.rows)]
            for u in range(per_turn):
                stored = [e.load(codes, e.at(rhs, (u * self.vectors + v) * _BYTES)) for v in range(self.vectors)]
                for f in range(weights.fields):
                    quad = u * weights.fields + f
                    columns = [decode(s, f) for s in stored]
                    first = (quad % sets) * len(grid)
                    for r, row in enumerate(rows):
                        four = e.as_bytes(_lanes_of(row, [quad] * _LANES))
                        for v, column in enumerate(columns):
                            i = first + r * self.vectors + v
                            acc[i] = _intrinsic("sdot", acc[i], column, four)
            turn.next = acc
        totals = _added_up(turn.results, len(grid))
        return _started(tile, [totals[r * self.vectors :][: self.vectors] for r in range(tile.rows)], self.panel)


@dataclass(frozen=True)
class Smmla(Sdot):
    """Tiles of rows in pairs by `smmla`, and of one row by `sdot`, with the same stored weights."""

    name: str = "smmla"
    features: tuple[frozenset[str], ...] = (frozenset({"dotprod", "i8mm"}),)
    bits: tuple[int, ...] = (8, 4)

    def together(self, rows: int) -> int:
        """See `Micro`."""
        return 1 if rows == 1 else 2

    def rows(self, weights: Weights) -> int:
        # More rows share the cost of unpacking short codes.
        return _ROWS if weights.bits == 8 else 12

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        return panels(n, k, k_last, self.panel, self.depth(weights), weights, OCT)

    def accumulate(self, tile: MicroCall, weights: Weights) -> list[list[ir.Value]]:
        """See `IntegerMicro`. A vector of weights holds eight codes of two columns."""
        codes = e.vector_of(_BYTES, e.integer(8))
        alone = tile.rows == 1
        pairs, vectors = -(-tile.rows // 2), 2 * self.vectors
        grid = pairs * vectors
        per_turn = self.depth(weights) // (OCT * weights.fields)
        sets = max(1, min(_CHAINS // grid, per_turn * weights.fields))
        decode = ShortCodes(weights)
        # The loop counts quads of each field, `per_turn` octs.
        with e.loop(0, tile.steps, 2 * per_turn, _zeros(sets * grid)) as turn:
            acc = list(turn.values)
            lhs = e.at(tile.lhs, e.multiply(turn.index, QUAD * weights.fields * self.together(tile.rows)))
            rhs = e.at(tile.rhs, e.multiply(turn.index, self.panel * QUAD))
            for u in range(per_turn):
                for f in range(weights.fields):
                    oct_ = u * weights.fields + f
                    first = (oct_ % sets) * grid
                    # 12 rows leave eight registers: each field loads its bytes again, and rows are loaded one by one.
                    read = e.load if weights.fields == 1 else e.reload
                    columns = [decode(read(codes, e.at(rhs, (u * vectors + v) * _BYTES)), f) for v in range(vectors)]
                    for pair in range(pairs):
                        row = self._row(tile, lhs, pair, oct_)
                        for v, column in enumerate(columns):
                            i = first + pair * vectors + v
                            acc[i] = _intrinsic("sdot" if alone else "smmla", acc[i], row, column)
            turn.next = acc
        totals = _added_up(turn.results, grid)
        made = [row for p in range(pairs) for row in _rows_of(totals[p * vectors :][:vectors], alone)]
        return _started(tile, made[: tile.rows], self.panel)

    def _row(self, tile: MicroCall, lhs: ir.Value, pair: int, oct_: int) -> ir.Value:
        """Load eight codes of two rows, or of one row twice."""
        if tile.rows > 1:
            address = e.at(lhs, 2 * (pair * tile.lhs_stride + OCT * oct_))
            return e.load(e.vector_of(_BYTES, e.integer(8)), address)
        eight = e.load(e.integer(64), e.at(lhs, OCT * oct_))
        return vector.bitcast(e.vector_of(_BYTES, e.integer(8)), e.broadcast(eight, 2))


def _rows_of(sums: Sequence[ir.Value], alone: bool) -> list[list[ir.Value]]:
    """Rearrange accumulators of two columns each to rows; `sdot` (`alone`) leaves two partial sums per column."""
    made = []
    for a, b in zip(sums[::2], sums[1::2], strict=True):
        if alone:
            even, odd = (vector.shuffle(a, b, list(range(part, 8, 2))) for part in range(2))
            made.append([arith.addi(even, odd)])
        else:
            made.append([_doubles(a, b, row) for row in range(2)])
    return [list(row) for row in zip(*made, strict=True)]


def _zeros(count: int) -> list[ir.Value]:
    return [e.splat(0, _LANES, e.integer(32))] * count


def _added_up(results: Sequence[ir.Value], grid: int) -> list[ir.Value]:
    """Add up the sets of accumulators."""
    return [reduce(arith.addi, results[i::grid]) for i in range(grid)]


def _place(r: int, v: int, panel: int) -> int:
    """The offset in bytes of vector `v` of row `r` of a tile in memory."""
    return 4 * (r * panel + v * _LANES)


def _started(tile: MicroCall, rows: list[list[ir.Value]], panel: int) -> list[list[ir.Value]]:
    """Add the initial values of the sums: `tile.sums`, and with `tile.add` the tile at `tile.out`."""
    words = e.vector_of(_LANES, e.integer(32))
    for r, row in enumerate(rows):
        if tile.sums is not None:
            bias = e.broadcast(e.load(e.integer(32), e.at(tile.sums, 4 * r)), _LANES)
            row[:] = [arith.addi(value, bias) for value in row]
        if tile.add:
            row[:] = [
                arith.addi(value, e.load(words, e.at(tile.out, _place(r, v, panel)))) for v, value in enumerate(row)
            ]
    return rows


class ShortCodes:
    """Extracts the codes of one field from stored bytes, as the bytes that are multiplied."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        table = weights.table or ()
        self.table = e.bytes_constant([*table, *[0] * (_BYTES - len(table))]) if table else None

    def __call__(self, stored: ir.Value, field: int) -> ir.Value:
        bits = self.weights.bits
        if bits == 8:
            return stored
        code = stored
        if field:
            code = arith.shrui(code, e.splat(bits * field, _BYTES, e.integer(8)))
        if bits * (field + 1) < 8:
            code = arith.andi(code, e.splat((1 << bits) - 1, _BYTES, e.integer(8)))
        if self.table is None:
            return code
        return e.intrinsic("llvm.aarch64.neon.tbl1.v16i8", [self.table, code], code.type)


SDOT, SMMLA = Sdot(), Smmla()
# Best first.
INTEGER_KERNELS: tuple[IntegerMicro, ...] = (SMMLA, SDOT)
