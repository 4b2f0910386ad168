"""Register tiles of floats by weights of short codes: the value of a code is looked up in a register, and the sums of a
group are multiplied by its scale.

A lookup in a table of 16 floats is one shuffle (`vpermps`), which reads the low four bits of its indices and therefore
needs no mask. For bf16, one shuffle of 32 words (`vpermw`) looks up two weights per lane, and one dot product
(`vdpbf16ps`) multiplies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ....core.mlir import arith, ir, llvm, vector
from ....dialect.dtypes import DTYPES, Array
from ....kernels.layouts import WeightLayout
from . import emit as e, tiles
from .micro import QUAD, Micro, Weights, panels
from .pack import consecutive


@dataclass(frozen=True)
class FloatTile:
    """One call of a micro-kernel: addresses, and sizes in elements.

    Attributes:
        lhs: `[rows][lhs_stride bytes]` of activations.
        rhs: the panel from the first step on.
        codes: the number of codes along K, a multiple of the micro-kernel's depth.
        zeros: for each vector of the panel the zero points of its columns, i32; empty if there are none.
    """

    rows: int
    lhs: ir.Value
    lhs_stride: int
    rhs: ir.Value
    codes: e.Index
    zeros: Sequence[ir.Value] = ()


class FloatMicro(Micro, Protocol):
    """A register tile of floats."""

    @property
    def lhs_type(self) -> ir.Type:
        """The element type of the activations that `accumulate` reads."""

    def accumulate(self, tile: FloatTile, weights: Weights) -> list[ir.Value]:
        """Emit the product of one tile; return its sums as f32 vectors, row by row."""


class Chains:
    """The accumulators of a tile, in enough sets to keep the multipliers busy: a multiply-add takes about four cycles,
    and two start in each."""

    def __init__(self, rows: int, vectors: int, lanes: int, products: int) -> None:
        self.grid = [(r, v) for r in range(rows) for v in range(vectors)]
        self.sets = max(1, min(8 // len(self.grid), products))
        self.start = [e.splat(0.0, lanes, ir.F32Type.get())] * (self.sets * len(self.grid))

    def place(self, product: int, r: int, v: int) -> int:
        return (product % self.sets) * len(self.grid) + self.grid.index((r, v))

    def sums(self, results: Sequence[ir.Value]) -> list[ir.Value]:
        found = list(results[: len(self.grid)])
        for i in range(len(self.grid), len(results)):
            found[i % len(self.grid)] = arith.addf(found[i % len(self.grid)], results[i])
        return found


@dataclass(frozen=True)
class Fma:
    """Multiply-adds of f32 on vectors of `lanes`."""

    name: str
    features: tuple[frozenset[str], ...]
    lanes: int
    registers: int
    vectors: int = 2
    bits: tuple[int, ...] = (8, 4, 2)
    offset: int = 0
    lhs_bytes: int = 4
    reads_rows: bool = False

    @property
    def panel(self) -> int:
        return self.vectors * self.lanes

    @property
    def lhs_type(self) -> ir.Type:
        return ir.F32Type.get()

    def rows(self, weights: Weights) -> int:
        # Registers besides the accumulators: stored and decoded weights, a scale and a zero point of each vector, an
        # activation.
        return min(12, (self.registers - 1) // self.vectors - 4)

    def depth(self, weights: Weights) -> int:
        return QUAD * max(4, weights.fields)

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        if weights.values is None or weights.bits < 8:
            return panels(n, k, k_last, self.panel, self.depth(weights), weights)
        # [N/p, K, p]: the load of a byte of each column widens it to a vector.
        np_, kp = -(-n // self.panel) * self.panel, -(-k // self.depth(weights)) * self.depth(weights)
        return WeightLayout((np_, kp), ((np_ // self.panel, self.panel), (kp,)), (0, 2, 1))

    def together(self, rows: int) -> int:
        """See `Micro`."""
        return 1

    def permit(self) -> None:
        """Nothing to ask for."""

    def begin(self, rows: int) -> None:
        """Nothing to set up."""

    def end(self) -> None:
        """Nothing to release."""

    def accumulate(self, tile: FloatTile, weights: Weights) -> list[ir.Value]:
        step = 4 if weights.bits == 8 else QUAD * weights.fields  # codes along K per iteration
        chains = Chains(tile.rows, self.vectors, self.lanes, step)
        decode = _Values(self, weights)
        with e.loop(0, tile.codes, step, chains.start) as turn:
            acc = list(turn.values)
            lhs = e.at(tile.lhs, e.multiply(turn.index, 4))
            rhs = e.at(tile.rhs, e.divide(e.multiply(turn.index, self.panel * weights.bits), 8))
            stored = [decode.load(rhs, v) for v in range(self.vectors)] if weights.bits < 8 else []
            for k in range(step):
                values = [
                    decode.wide(rhs, k, v) if weights.bits == 8 else decode.short(stored[v], k)
                    for v in range(self.vectors)
                ]
                if tile.zeros:
                    values = [arith.subf(value, zero) for value, zero in zip(values, decode.zeros(tile), strict=True)]
                for r in range(tile.rows):
                    address = e.at(lhs, r * tile.lhs_stride + 4 * k)
                    one = e.broadcast(e.load(self.lhs_type, address), self.lanes)
                    for v in range(self.vectors):
                        i = chains.place(k, r, v)
                        acc[i] = llvm.FMAOp(one, values[v], acc[i]).result
            turn.next = acc
        return chains.sums(turn.results)


class _Values:
    """Decodes stored weights to f32."""

    def __init__(self, micro: Fma, weights: Weights) -> None:
        assert weights.values is not None
        self.micro, self.weights = micro, weights
        self.words = e.vector_of(micro.lanes, e.integer(32))
        self.floats = e.vector_of(micro.lanes, ir.F32Type.get())
        self.first = weights.values[0]
        self.linear = consecutive(weights.values)
        if weights.bits < 8:
            repeated = np.resize(np.array(weights.values, np.float32), 16)
            self.tables = [self._constant(repeated[at : at + micro.lanes]) for at in range(0, 16, micro.lanes)]

    def _constant(self, values: Array) -> ir.Value:
        return arith.constant(self.floats, ir.DenseElementsAttr.get(values, type=self.floats))

    def zeros(self, tile: FloatTile) -> list[ir.Value]:
        return [arith.sitofp(self.floats, zero) for zero in tile.zeros]

    def load(self, rhs: ir.Value, v: int) -> ir.Value:
        return e.load(self.words, e.at(rhs, 4 * self.micro.lanes * v))

    def wide(self, rhs: ir.Value, k: int, v: int) -> ir.Value:
        """Decode 8-bit codes; those of one K are contiguous."""
        lanes = self.micro.lanes
        codes = e.load(e.vector_of(lanes, e.integer(8)), e.at(rhs, k * self.micro.panel + lanes * v))
        value = arith.sitofp(self.floats, arith.extsi(self.words, codes))
        first = self.first + 128  # the value of code 0
        return value if first == 0 else arith.addf(value, e.splat(first, lanes, ir.F32Type.get()))

    def short(self, stored: ir.Value, k: int) -> ir.Value:
        """Decode code `k` of each lane, which holds four bytes of fields."""
        field, byte = divmod(k, QUAD)
        low = 8 * byte + self.weights.bits * field
        lanes, i32 = self.micro.lanes, e.integer(32)
        index = arith.shrui(stored, e.splat(low, lanes, i32)) if low else stored
        if lanes == 16:
            return e.intrinsic("llvm.x86.avx512.permvar.sf.512", [self.tables[0], index], self.floats)
        if self.linear:
            code = arith.andi(index, e.splat((1 << self.weights.bits) - 1, lanes, i32))
            value = arith.sitofp(self.floats, code)
            return value if self.first == 0 else arith.addf(value, e.splat(self.first, lanes, ir.F32Type.get()))
        halves = [e.intrinsic("llvm.x86.avx2.permps", [table, index], self.floats) for table in self.tables]
        upper = arith.cmpi(arith.CmpIPredicate.slt, arith.shli(index, e.splat(28, lanes, i32)), e.splat(0, lanes, i32))
        return arith.select(upper, halves[1], halves[0])


@dataclass(frozen=True)
class Half:
    """Products of 16-bit floats, two along K per lane: bf16 by `vdpbf16ps`."""

    name: str = "avx512-bf16"
    features: tuple[frozenset[str], ...] = (frozenset({"avx512bf16", "avx512bw", "avx512vl"}),)
    lanes: int = 16
    vectors: int = 2
    bits: tuple[int, ...] = (4, 2)
    offset: int = 0
    lhs_bytes: int = 2
    reads_rows: bool = False
    element: str = "bf16"  # the type of the operands

    @property
    def panel(self) -> int:
        return self.vectors * self.lanes

    @property
    def lhs_type(self) -> ir.Type:
        return ir.Type.parse(self.element)

    def rows(self, weights: Weights) -> int:
        return 12  # 24 accumulators; the stored and decoded weights, the table, zero points

    def depth(self, weights: Weights) -> int:
        return 16

    def _fields(self, weights: Weights) -> int:
        """The number of codes of a word of 16 bits."""
        return 16 // weights.bits

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        """`[N/p, K/2f, p]` lanes of two words of `f` codes: a lane's words hold the codes of even and of odd K, so that
        one shift brings a pair of codes to the bits that a shuffle reads as indices."""
        assert k_last
        np_, kp = -(-n // self.panel) * self.panel, -(-k // self.depth(weights)) * self.depth(weights)
        pair = (kp // (2 * self._fields(weights)), 2, 8 // weights.bits, 2)  # .., byte of a word, field, word
        return WeightLayout(
            (np_, kp), ((np_ // self.panel, self.panel), pair), (0, 2, 4, 1, 5, 3), bits=weights.bits, field=2,
            offset=weights.offset,
        )  # fmt: skip

    def together(self, rows: int) -> int:
        """See `Micro`."""
        return 1

    def permit(self) -> None:
        """Nothing to ask for."""

    def begin(self, rows: int) -> None:
        """Nothing to set up."""

    def end(self) -> None:
        """Nothing to release."""

    def accumulate(self, tile: FloatTile, weights: Weights) -> list[ir.Value]:
        fields = self._fields(weights)
        i32 = e.integer(32)
        chains = Chains(tile.rows, self.vectors, self.lanes, fields)
        decode = _Pairs(self, weights, tile.zeros)
        floats = e.vector_of(16, ir.F32Type.get())
        with e.loop(0, e.divide(tile.codes, 2 * fields), 1, chains.start) as turn:
            acc = list(turn.values)
            lhs = e.at(tile.lhs, e.multiply(turn.index, 4 * fields))
            decode.load(e.at(tile.rhs, e.multiply(turn.index, 4 * self.panel)))
            for f in range(fields):
                values = [decode(f, v) for v in range(self.vectors)]
                for r in range(tile.rows):
                    word = e.load(i32, e.at(lhs, r * tile.lhs_stride + 4 * f))
                    two = vector.bitcast(decode.pairs, e.broadcast(word, 16))
                    for v in range(self.vectors):
                        i = chains.place(f, r, v)
                        acc[i] = e.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", [acc[i], two, values[v]], floats)
            turn.next = acc
        return chains.sums(turn.results)


class _Pairs:
    """Decodes stored weights to vectors of 16 columns, two 16-bit floats along K of each."""

    def __init__(self, micro: Half, weights: Weights, zeros: Sequence[ir.Value]) -> None:
        self.micro, self.weights = micro, weights
        self.halves = e.vector_of(32, e.integer(16))
        self.pairs = e.vector_of(32, micro.lhs_type)
        self.table = self._table(bool(zeros))
        self.offsets = [self._offset(zero) for zero in zeros]

    def load(self, rhs: ir.Value) -> None:
        """Load the words of all columns of a panel."""
        words = e.vector_of(16, e.integer(32))
        self.stored = [vector.bitcast(self.halves, e.load(words, e.at(rhs, 64 * v))) for v in range(self.micro.vectors)]

    def __call__(self, field: int, v: int) -> ir.Value:
        """Decode one pair of codes of each column's loaded words."""
        bits, index = self.weights.bits, self.stored[v]
        if field:
            index = arith.shrui(index, e.splat(bits * field, 32, e.integer(16)))
        if self.offsets:
            index = arith.andi(index, e.splat((1 << bits) - 1, 32, e.integer(16)))
            index = arith.addi(index, self.offsets[v])
        return vector.bitcast(
            self.pairs, e.intrinsic("llvm.x86.avx512.permvar.hi.512", [self.table, index], self.halves)
        )

    def _table(self, zeros: bool) -> ir.Value:
        """The bits of 32 values. The shuffle reads five bits of an index; codes have fewer, and the table repeats, so
        that the bits above a code do not matter. With zero points the index is `u + largest_zero - zero`."""
        assert self.weights.values is not None
        if zeros:
            values = self.weights.values[0] - self.weights.largest_zero + np.arange(32)
        else:
            values = np.resize(np.array(self.weights.values), 32)
        bits = values.astype(DTYPES[self.micro.element].numpy).view(np.int16)
        return arith.constant(self.halves, ir.DenseElementsAttr.get(bits, type=self.halves))

    def _offset(self, zero: ir.Value) -> ir.Value:
        i32 = e.integer(32)
        offset = arith.subi(e.splat(self.weights.largest_zero, 16, i32), zero)
        return vector.bitcast(self.halves, arith.muli(offset, e.splat(0x10001, 16, i32)))


@dataclass(frozen=True)
class AmxHalf(Half):
    """As `Half`, in AMX tiles, by `tdpbf16ps` or `tdpfp16ps`: 32 codes along K of 32 columns are decoded to the stack,
    and multiplied with up to 32 rows."""

    name: str = "amx-bf16"
    instruction: str = "llvm.x86.tdpbf16ps"
    features: tuple[frozenset[str], ...] = (frozenset({"amx-tile", "amx-bf16", "avx512bw", "avx512vl"}),)

    def rows(self, weights: Weights) -> int:
        return tiles.ROWS

    def depth(self, weights: Weights) -> int:
        return 32

    def permit(self) -> None:
        tiles.permit()

    def begin(self, rows: int) -> None:
        tiles.begin(rows)

    def end(self) -> None:
        tiles.end()

    def accumulate(self, tile: FloatTile, weights: Weights) -> list[ir.Value]:
        fields = self._fields(weights)
        decoded = e.pointer(e.scratch([16 * tiles.ROW_BYTES], e.integer(8)))
        decode = _Pairs(self, weights, tile.zeros)

        def turns(turn: Callable[[ir.Value, int, ir.Value], None]) -> None:
            with e.loop(0, e.divide(tile.codes, 32)) as each:
                for part in range(16 // fields):
                    words = e.add(e.multiply(each.index, 16 // fields), part)
                    decode.load(e.at(tile.rhs, e.multiply(words, 4 * self.panel)))
                    for f in range(fields):
                        for v in range(self.vectors):
                            row = (part * fields + f) * tiles.ROW_BYTES
                            e.store(decode(f, v), e.at(decoded, row + 64 * v))
                turn(e.at(tile.lhs, e.multiply(each.index, 64)), tile.lhs_stride, decoded)

        return self.in_tiles(tile, turns)

    def in_tiles(
        self, tile: FloatTile, turns: Callable[[Callable[[ir.Value, int, ir.Value], None]], None]
    ) -> list[ir.Value]:
        """The sums of a tile, see `tiles.multiply`."""
        out = e.pointer(e.scratch([tiles.ROWS * tiles.ROW_BYTES], e.integer(8)))
        tiles.multiply(self.instruction, tile.rows, turns, None, out)
        floats = e.vector_of(16, ir.F32Type.get())
        return [
            e.load(floats, e.at(out, r * tiles.ROW_BYTES + 64 * v))
            for r in range(tile.rows)
            for v in range(self.vectors)
        ]


AVX512_BF16 = Half()
AMX_BF16 = AmxHalf()
AMX_FP16 = AmxHalf(
    name="amx-fp16", features=(frozenset({"amx-tile", "amx-fp16", "avx512bw", "avx512vl"}),), element="f16",
    instruction="llvm.x86.tdpfp16ps",
)  # fmt: skip
AVX512_FMA = Fma("avx512-fma", (frozenset({"avx512f", "avx512bw", "avx512vl"}),), lanes=16, registers=32)
AVX2_FMA = Fma("avx2-fma", (frozenset({"avx2", "fma"}),), lanes=8, registers=16)
# Best first; if there are few rows the next may be faster than AMX (strategy.py).
FLOAT_KERNELS: tuple[FloatMicro, ...] = (AMX_BF16, AMX_FP16, AVX512_BF16, AVX512_FMA, AVX2_FMA)
