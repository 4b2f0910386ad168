"""Products of floats by a constant float weight, stored in panels of columns whose rows follow each other along K."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ....core.mlir import arith, ir, llvm, vector
from ....kernels.layouts import WeightLayout
from . import emit as e, tiles
from .float_micro import AVX2_FMA, AVX512_FMA, AmxHalf, Chains, FloatMicro, FloatTile, Fma, Half
from .micro import Weights
from .weight_only import FloatChunk

_WORD = 4  # bytes: one float of 32 bits, or two of 16
_STEP = 4  # words along K per iteration


@dataclass(frozen=True)
class PlainFma(Fma):
    """f32 multiply-adds by weights that need no decoding."""

    bits: tuple[int, ...] = (8 * _WORD,)

    def rows(self, weights: Weights) -> int:
        # Registers besides the accumulators: a weight of each vector, an activation.
        return min(12, (self.registers - 1) // self.vectors - 1)

    def of(self, columns: int) -> PlainFma:
        """The same with panels of two or three vectors, whichever leaves fewer lanes without a column. One vector,
        which waits for activations longer than it multiplies, is used only if a second one would be empty."""
        if columns <= self.lanes:
            return replace(self, vectors=1)
        wasted = {vectors: -columns % (vectors * self.lanes) for vectors in (2, 3)}
        return replace(self, vectors=min(wasted, key=lambda vectors: wasted[vectors]))

    def depth(self, weights: Weights) -> int:
        return _STEP

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        """The layout `[N/p, K, p]`."""
        assert k_last
        np_, kp = -(-n // self.panel) * self.panel, -(-k // _STEP) * _STEP
        return WeightLayout((np_, kp), ((np_ // self.panel, self.panel), (kp,)), (0, 2, 1))

    def accumulate(self, tile: FloatTile, weights: Weights) -> list[ir.Value]:
        def one(address: ir.Value) -> ir.Value:
            return e.broadcast(e.load(self.lhs_type, address), self.lanes)

        def product(acc: ir.Value, x: ir.Value, w: ir.Value) -> ir.Value:
            made: ir.Value = llvm.FMAOp(x, w, acc).result
            return made

        return _sums(self, tile, tile.codes, e.vector_of(self.lanes, self.lhs_type), one, product)


def _sums(
    micro: Fma | Half, tile: FloatTile, words: e.Index, stored: ir.Type, spread: Callable[[ir.Value], ir.Value],
    product: Callable[[ir.Value, ir.Value, ir.Value], ir.Value],
) -> list[ir.Value]:  # fmt: skip
    """Emit the sums of a register tile whose rows have `words` words along K, 32 bits each: one float, or two.

    Args:
        stored: the type of a vector of weights, one word per lane.
        spread: loads the word of activations at an address and broadcasts it to all lanes.
        product: the accumulator plus activations times weights.
    """
    chains = Chains(tile.rows, micro.vectors, micro.lanes, _STEP)
    with e.loop(0, words, _STEP, chains.start) as turn:
        acc = list(turn.values)
        lhs = e.at(tile.lhs, e.multiply(turn.index, _WORD))
        rhs = e.at(tile.rhs, e.multiply(turn.index, _WORD * micro.panel))
        for k in range(_STEP):
            row = e.at(rhs, _WORD * micro.panel * k)
            weights = [e.load(stored, e.at(row, _WORD * micro.lanes * v)) for v in range(micro.vectors)]
            for r in range(tile.rows):
                activation = spread(e.at(lhs, r * tile.lhs_stride + _WORD * k))
                for v, weight in enumerate(weights):
                    i = chains.place(k, r, v)
                    acc[i] = product(acc[i], activation, weight)
        turn.next = acc
    return chains.sums(turn.results)


def _paired(micro: Half, n: int, k: int, weights: Weights) -> WeightLayout:
    """The layout `[N/p, K/2, p, 2]`: dot products of pairs take two consecutive elements along K of each column."""
    np_, kp = -(-n // micro.panel) * micro.panel, -(-k // micro.depth(weights)) * micro.depth(weights)
    return WeightLayout((np_, kp), ((np_ // micro.panel, micro.panel), (kp // 2, 2)), (0, 2, 1, 3))


@dataclass(frozen=True)
class PlainHalf(Half):
    """Dot products of bf16 pairs."""

    name: str = "avx512-bf16-plain"
    bits: tuple[int, ...] = (16,)

    def depth(self, weights: Weights) -> int:
        return 2 * _STEP

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        assert k_last
        return _paired(self, n, k, weights)

    def accumulate(self, tile: FloatTile, weights: Weights) -> list[ir.Value]:
        pairs, floats = e.vector_of(2 * self.lanes, self.lhs_type), e.vector_of(self.lanes, ir.F32Type.get())

        def two(address: ir.Value) -> ir.Value:
            return vector.bitcast(pairs, e.broadcast(e.load(e.integer(32), address), self.lanes))

        def product(acc: ir.Value, x: ir.Value, w: ir.Value) -> ir.Value:
            made: ir.Value = e.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", [acc, x, w], floats)
            return made

        return _sums(self, tile, e.divide(tile.codes, 2), pairs, two, product)


@dataclass(frozen=True)
class PlainTiles(AmxHalf):
    """Dot products of bf16 pairs in AMX tiles."""

    name: str = "amx-bf16-plain"
    bits: tuple[int, ...] = (16,)

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        assert k_last
        return _paired(self, n, k, weights)

    def accumulate(self, tile: FloatTile, weights: Weights) -> list[ir.Value]:
        def turns(turn: Callable[[ir.Value, int, ir.Value], None]) -> None:
            with e.loop(0, e.divide(tile.codes, 32)) as each:
                rhs = e.at(tile.rhs, e.multiply(each.index, 16 * tiles.ROW_BYTES))
                turn(e.at(tile.lhs, e.multiply(each.index, 64)), tile.lhs_stride, rhs)

        return self.in_tiles(tile, turns)


class PlainChunk(FloatChunk):
    """A chunk of a product by a float weight."""

    def _product(
        self, tile: e.Index, panel: e.Index, first_k: e.Index, depth: e.Index, rhs: ir.Value, total: ir.Value,
        fresh: bool,
    ) -> None:  # fmt: skip
        sums = self.micro.accumulate(FloatTile(self.size.rows, self.lhs, self.lhs_stride, rhs, depth), self.weights)
        for i, part in enumerate(sums):
            place = e.at(total, self._vector_at(*divmod(i, self.vectors)))
            e.store(part if fresh else arith.addf(part, e.load(part.type, place)), place)


PLAIN = (PlainFma, PlainHalf, PlainTiles)
NEON_F32 = PlainFma("neon-f32", (frozenset({"neon"}),), lanes=4, registers=32)
AMX_BF16_PLAIN = PlainTiles()
# Best first.
X86_KERNELS: tuple[FloatMicro, ...] = (
    AMX_BF16_PLAIN,
    PlainHalf(),
    PlainFma("avx512-f32", AVX512_FMA.features, AVX512_FMA.lanes, AVX512_FMA.registers),
    PlainFma("avx2-f32", AVX2_FMA.features, AVX2_FMA.lanes, AVX2_FMA.registers),
)
