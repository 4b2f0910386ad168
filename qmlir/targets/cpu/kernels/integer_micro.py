"""Integer register tiles for x86, which multiply `rows` rows of activations by one panel of weights.

The weights are stored as unsigned codes: 8 bits (the code plus 128), or 4 or 2 bits, with a table of their unsigned
bytes if the codes are not consecutive numbers. The activations are signed bytes. The dot product of four pairs,
`vpdpbusd`, therefore takes the weights as its unsigned operand and four activations, the same for all columns, as its
signed one. The contribution of the weights' offset, `offset * sum(activations)`, is one number per row, which the
accumulators start from.

Panels are stored `[K / depth][columns][4]`: four consecutive codes along K of a column, then the next column; with 4 or
2 bits, 2 or 4 of these rows share their bytes, the first in the lowest bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from ....core.mlir import arith, vector
from . import emit as e, tiles
from .micro import QUAD, IntegerMicro, MicroCall, Weights, panels

if TYPE_CHECKING:
    from ....core.mlir import ir
    from ....kernels.layouts import WeightLayout

_APART = 16  # accumulators of a tile whose fields have separate ones, at most
# With so few rows, weights of short codes are prefetched: unpacking them leaves little time for reads. Whole bytes are
# faster without it (measured on Zen 5: 4 percent gained, 6 lost).
_FEW_ROWS, _AHEAD = 2, 2048

_DOT = {64: "llvm.x86.avx512.vpdpbusd.512", 32: "llvm.x86.avx512.vpdpbusd.256", 16: "llvm.x86.avx512.vpdpbusd.128"}
_SHUFFLE = {64: "llvm.x86.avx512.pshuf.b.512", 32: "llvm.x86.avx2.pshuf.b"}


def dot(acc: ir.Value, unsigned: ir.Value, signed: ir.Value) -> ir.Value:
    """Each i32 lane of `acc` plus the dot product of its four pairs of bytes."""
    return e.intrinsic(_DOT[unsigned.type.shape[0]], [acc, unsigned, signed], acc.type)


@dataclass(frozen=True)
class Vnni:
    """`vpdpbusd` on vectors of `lanes` i32."""

    name: str
    features: tuple[frozenset[str], ...]
    lanes: int
    vectors: int = 2
    bits: tuple[int, ...] = (8, 4, 2)
    offset: int = -128
    lhs_bytes: int = 1
    reads_rows: bool = False
    in_registers: bool = True
    signed_short: bool = False
    # Whether a field may be multiplied at its position in the stored byte, and the sum shifted.
    multiplies_in_place: bool = True

    def dot(self, acc: ir.Value, unsigned: ir.Value, signed: ir.Value, largest: int = 255) -> ir.Value:
        """See `IntegerMicro`."""
        return dot(acc, unsigned, signed)

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        return panels(n, k, k_last, self.panel, self.depth(weights), weights)

    def together(self, rows: int) -> int:
        """See `Micro`."""
        return 1

    def permit(self) -> None:
        """Nothing to ask for."""

    def begin(self, rows: int) -> None:
        """Nothing to set up."""

    def end(self) -> None:
        """Nothing to release."""

    @property
    def panel(self) -> int:
        return self.vectors * self.lanes

    def rows(self, weights: Weights) -> int:
        # Registers: the accumulators, and the weights of one step as stored and decoded, their mask and table, and
        # one broadcast activation.
        registers = 32 if self.lanes == 16 else 16
        decoding = 0 if weights.bits == 8 else self.vectors + 1 + (weights.table is not None)
        return min(12, (registers - 1 - self.vectors - decoding) // self.vectors)

    def depth(self, weights: Weights) -> int:
        return QUAD * max(4, weights.fields)

    def _unroll(self, rows: int, weights: Weights) -> int:
        """Steps per iteration: fewer for tall tiles, which have enough independent products in one."""
        steps = self.depth(weights) // (QUAD * weights.fields)
        return max(1, steps // (1 if rows <= 2 else 2 if rows <= 4 else 4))

    def multiply(self, tile: MicroCall, weights: Weights) -> None:
        for r, row in enumerate(self.accumulate(tile, weights)):
            for v, total in enumerate(row):
                e.store(total, e.at(tile.out, (r * self.vectors + v) * 4 * self.lanes))

    def accumulate(self, tile: MicroCall, weights: Weights) -> list[list[ir.Value]]:
        """See `IntegerMicro`."""
        width = 4 * self.lanes
        i32, i8 = e.integer(32), e.integer(8)
        words, codes = e.vector_of(self.lanes, i32), e.vector_of(width, i8)
        row_bytes = self.vectors * width
        unroll = self._unroll(tile.rows, weights)
        grid = [(r, v) for r in range(tile.rows) for v in range(self.vectors)]
        # A dot product takes four cycles, and two start in each: fewer than eight independent sums would stall.
        sets = max(1, min(8 // len(grid), unroll * weights.fields))
        in_place = weights.table is None and self.multiplies_in_place
        if in_place and sets < weights.fields and weights.fields * len(grid) <= _APART:
            sets = weights.fields
        # Fields with separate accumulators are multiplied at their position in the byte, and the sums shifted.
        separate = in_place and sets % weights.fields == 0
        largest = 255 if separate or weights.bits == 8 else max(weights.table or ((1 << weights.bits) - 1,))
        start = {(r, v): self._start(tile, r, v, words) for r, v in grid}
        begin = [start[rv] for rv in grid]
        if sets > 1:
            begin += [e.splat(0, self.lanes, i32)] * ((sets - 1) * len(grid))
        decode = _Decoder(weights, width)
        with e.loop(0, tile.steps, unroll, begin) as turn:
            acc = list(turn.values)
            lhs = e.at(tile.lhs, e.multiply(turn.index, QUAD * weights.fields))
            rhs = e.at(tile.rhs, e.multiply(turn.index, row_bytes))
            for u in range(unroll):
                stored = [e.load(codes, e.at(rhs, u * row_bytes + v * width)) for v in range(self.vectors)]
                if tile.rows <= _FEW_ROWS and weights.bits < 8:
                    for v in range(self.vectors):
                        e.prefetch(e.at(rhs, u * row_bytes + v * width + _AHEAD), 3)
                for f in range(weights.fields):
                    quad = u * weights.fields + f
                    unsigned = [decode.in_place(s, f) if separate else decode(s, f) for s in stored]
                    first = (quad % sets) * len(grid)
                    for r in range(tile.rows):
                        word = e.load(i32, e.at(lhs, r * tile.lhs_stride + QUAD * quad))
                        signed = e.as_bytes(e.broadcast(word, self.lanes))
                        for v in range(self.vectors):
                            i = first + r * self.vectors + v
                            acc[i] = self.dot(acc[i], unsigned[v], signed, largest)
            turn.next = acc
        sums = list(turn.results)
        if separate:
            for i in range(len(sums)):
                field = i // len(grid) % weights.fields
                if field:
                    sums[i] = arith.shrsi(sums[i], e.splat(weights.bits * field, self.lanes, i32))
        totals = [reduce(arith.addi, sums[i :: len(grid)]) for i in range(len(grid))]
        return [totals[r * self.vectors : (r + 1) * self.vectors] for r in range(tile.rows)]

    def unpack(self, stored: ir.Value, codes: int, weights: Weights, out: ir.Value, ahead: int) -> None:
        """See `IntegerMicro`."""
        raise AssertionError("codes are unpacked in registers")

    def _start(self, tile: MicroCall, r: int, v: int, words: ir.Type) -> ir.Value:
        total = None
        if tile.add:
            total = e.load(words, e.at(tile.out, (r * self.vectors + v) * 4 * self.lanes))
        if tile.sums is not None:
            bias = e.broadcast(e.load(e.integer(32), e.at(tile.sums, 4 * r)), self.lanes)
            total = bias if total is None else arith.addi(total, bias)
        return e.splat(0, self.lanes, e.integer(32)) if total is None else total


_WORD_PAIRS = {16: "llvm.x86.avx2.pmadd.wd", 8: "llvm.x86.sse2.pmadd.wd"}
_BYTE_PAIRS = {32: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.ssse3.pmadd.ub.sw.128"}


@dataclass(frozen=True)
class Avx2(Vnni):
    """As `Vnni`, without `vpdpbusd`. `vpmaddubsw` adds pairs of byte products in 16 bits and saturates, so it only
    multiplies short codes; for others the even and the odd bytes are extended to 16 bits each and multiplied by
    `vpmaddwd`, whose sums have 32 bits."""

    multiplies_in_place: bool = False

    def rows(self, weights: Weights) -> int:
        # 16 registers hold the accumulators, one product, an activation and its halves; and for the weights of one step
        # their halves, or the decoded bytes with their mask, the table and the ones of the second addition.
        short = 3 + self.vectors + (weights.table is not None)
        return (16 - 2 - (2 + 2 * self.vectors if weights.bits == 8 else short)) // self.vectors

    def dot(self, acc: ir.Value, unsigned: ir.Value, signed: ir.Value, largest: int = 255) -> ir.Value:
        """See `IntegerMicro`."""
        width = unsigned.type.shape[0]
        words = e.vector_of(width // 2, e.integer(16))

        def pairs(a: ir.Value, b: ir.Value) -> ir.Value:
            return e.intrinsic(_WORD_PAIRS[width // 2], [a, b], acc.type)

        if 2 * 128 * largest < 1 << 15:
            sums = e.intrinsic(_BYTE_PAIRS[width], [unsigned, signed], words)
            return arith.addi(acc, pairs(sums, e.splat(1, width // 2, e.integer(16))))
        u, s = (vector.bitcast(words, value) for value in (unsigned, signed))
        eight, low = (e.splat(value, width // 2, e.integer(16)) for value in (8, 0xFF))
        even = pairs(arith.andi(u, low), arith.shrsi(arith.shli(s, eight), eight))
        odd = pairs(arith.shrui(u, eight), arith.shrsi(s, eight))
        return arith.addi(acc, arith.addi(even, odd))


class _Decoder:
    """Extracts the codes of one field from stored bytes, as unsigned bytes."""

    def __init__(self, weights: Weights, width: int) -> None:
        self.weights, self.width = weights, width
        if weights.bits < 8:
            self.mask = e.splat((1 << weights.bits) - 1, width, e.integer(8))
            table = weights.table or ()
            # A byte shuffle looks up within each 16 bytes.
            line = [*table, *[0] * (16 - len(table))]
            self.table = e.bytes_constant(line * (width // 16)) if table else None

    def in_place(self, stored: ir.Value, field: int) -> ir.Value:
        """The codes of a field, without a table, at their position in the byte: times `2**(bits * field)`."""
        bits = self.weights.bits
        if bits == 8:
            return stored
        mask = ((1 << bits) - 1) << (bits * field)
        return arith.andi(stored, e.splat(mask - 256 if mask > 127 else mask, self.width, e.integer(8)))

    def __call__(self, stored: ir.Value, field: int) -> ir.Value:
        bits = self.weights.bits
        if bits == 8:
            return stored
        code = stored
        if field:
            shift = e.splat(bits * field, self.width // 4, e.integer(32))
            code = e.as_bytes(arith.shrui(e.as_words(stored), shift))
        code = arith.andi(code, self.mask)
        if self.table is None:
            return code
        return e.intrinsic(_SHUFFLE[self.width], [self.table, code], code.type)


class Amx:
    """Tiles of 16 rows by 64 bytes: 32 rows by 32 columns are four accumulators, with two tiles of each operand."""

    name = "amx-int8"
    features = (frozenset({"amx-tile", "amx-int8", "avx512vnni", "avx512bw", "avx512vl"}),)
    lanes = 16
    panel = 32
    bits = (8, 4)
    offset = 0
    lhs_bytes = 1
    reads_rows = True
    in_registers = False
    signed_short = True
    _depth = 64

    def dot(self, acc: ir.Value, unsigned: ir.Value, signed: ir.Value, largest: int = 255) -> ir.Value:
        """See `IntegerMicro`."""
        return dot(acc, unsigned, signed)

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        return panels(n, k, k_last, self.panel, self.depth(weights), weights)

    def rows(self, weights: Weights) -> int:
        return tiles.ROWS

    def depth(self, weights: Weights) -> int:
        return self._depth

    def together(self, rows: int) -> int:
        """See `Micro`."""
        return 1

    def permit(self) -> None:
        tiles.permit()

    def begin(self, rows: int) -> None:
        self._area = tiles.begin(rows)
        self._decoded = e.pointer(e.scratch([2 * 2048], e.integer(8)))

    def end(self) -> None:
        tiles.end()

    def accumulate(self, tile: MicroCall, weights: Weights) -> list[list[ir.Value]]:
        """See `IntegerMicro`."""
        raise AssertionError("tiles have to be stored before anything else reads them")

    def multiply(self, tile: MicroCall, weights: Weights) -> None:
        if tile.present is None:
            self._multiply(tile, weights)
            return
        with tiles.with_rows(self._area, tile.present, tile.rows):
            self._multiply(tile, weights)

    def _multiply(self, tile: MicroCall, weights: Weights) -> None:
        if tile.sums is not None:
            self._start_from_sums(tile)
        # One iteration is a tile deep: 16 rows of quads, of which `fields` share a stored row.
        rows = 16 // weights.fields
        decode = _Decoder(weights, 64)

        def turns(turn: Callable[[ir.Value, int, ir.Value], None]) -> None:
            with e.loop(0, tile.steps, rows) as each:
                rhs = e.at(tile.rhs, e.multiply(each.index, tiles.ROW_BYTES))
                if tile.ahead is not None:
                    distance, lines = tile.ahead
                    for line in range(lines):
                        e.prefetch(e.at(rhs, e.add(distance, line * e.LINE)), 2)
                if weights.bits < 8:
                    self._decode(rhs, rows, weights, decode, self._decoded)
                    rhs = self._decoded
                k = e.multiply(each.index, QUAD * weights.fields)
                turn(e.at(tile.lhs, e.multiply(k, tile.line_stride)), tile.lhs_stride, rhs)

        start = tile.out if tile.add or tile.sums is not None else None
        # Signed bytes by signed bytes.
        tiles.multiply("llvm.x86.tdpbssd", tile.rows, turns, start, tile.out, tile.present)

    def _start_from_sums(self, tile: MicroCall) -> None:
        words = e.vector_of(16, e.integer(32))
        assert tile.sums is not None
        with e.loop(0, tile.rows) as row:
            value = e.broadcast(e.load(e.integer(32), e.at(tile.sums, e.multiply(row.index, 4))), 16)
            for v in range(2):
                place = e.at(tile.out, e.add(e.multiply(row.index, 4 * self.panel), 64 * v))
                e.store(arith.addi(value, e.load(words, place)) if tile.add else value, place)

    def unpack(self, stored: ir.Value, codes: int, weights: Weights, out: ir.Value, ahead: int) -> None:
        """See `IntegerMicro`."""
        decode = _Decoder(weights, 64)
        with e.loop(0, codes // QUAD // weights.fields) as row:
            rhs = e.at(stored, e.multiply(row.index, tiles.ROW_BYTES))
            for v in range(2):
                e.prefetch(e.at(rhs, ahead + e.LINE * v), 2)
            self._decode(rhs, 1, weights, decode, e.at(out, e.multiply(row.index, weights.fields * tiles.ROW_BYTES)))

    def _decode(self, rhs: ir.Value, rows: int, weights: Weights, decode: _Decoder, out: ir.Value) -> None:
        """Decode stored rows to bytes."""
        codes = e.vector_of(64, e.integer(8))
        for row in range(rows):
            for v in range(2):
                stored = e.load(codes, e.at(rhs, row * 128 + v * 64))
                for f in range(weights.fields):
                    e.store(decode(stored, f), e.at(out, (row * weights.fields + f) * 128 + v * 64))


AVX512_VNNI = Vnni("avx512-vnni", (frozenset({"avx512vnni", "avx512bw", "avx512vl"}),), lanes=16)
AVX_VNNI = Vnni(
    "avx-vnni", (frozenset({"avxvnni", "avx2"}), frozenset({"avx512vnni", "avx512vl", "avx512bw"})), lanes=8
)
AVX2 = Avx2("avx2-int8", (frozenset({"avx2"}),), lanes=8)

# Best first; if there are few rows the next may be faster than AMX (strategy.py).
INTEGER_KERNELS: tuple[IntegerMicro, ...] = (Amx(), AVX512_VNNI, AVX_VNNI, AVX2)
