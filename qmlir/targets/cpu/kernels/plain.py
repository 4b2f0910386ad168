"""Floats by a constant weight of floats: the weight lies in panels, its rows of a panel one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.mlir import arith, ir, llvm
from ....kernels.layouts import WeightLayout
from . import emit as e
from .float_micro import AVX2_FMA, AVX512_FMA, Chains, FloatTile, Fma
from .micro import Weights
from .weight_only import FloatChunk

_BYTES = 4  # of a weight
_STEP = 4  # rows of a panel that a turn multiplies


@dataclass(frozen=True)
class PlainFma(Fma):
    """Multiply-adds of f32 by weights that need no decoding."""

    bits: tuple[int, ...] = (8 * _BYTES,)

    def rows(self, weights: Weights) -> int:
        # Beside the accumulators: a weight of each vector, an activation.
        return min(12, (self.registers - 1) // self.vectors - 1)

    def depth(self, weights: Weights) -> int:
        return _STEP

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        """`[N/p, K, p]`."""
        assert k_last
        np_, kp = -(-n // self.panel) * self.panel, -(-k // _STEP) * _STEP
        return WeightLayout((np_, kp), ((np_ // self.panel, self.panel), (kp,)), (0, 2, 1))

    def accumulate(self, tile: FloatTile, weights: Weights) -> list[ir.Value]:
        chains = Chains(tile.rows, self.vectors, self.lanes, _STEP)
        wide = e.vector_of(self.lanes, self.lhs_type)
        with e.loop(0, tile.codes, _STEP, chains.start) as turn:
            acc = list(turn.values)
            lhs = e.at(tile.lhs, e.multiply(turn.index, _BYTES))
            rhs = e.at(tile.rhs, e.multiply(turn.index, _BYTES * self.panel))
            for k in range(_STEP):
                row = e.at(rhs, _BYTES * self.panel * k)
                values = [e.load(wide, e.at(row, _BYTES * self.lanes * v)) for v in range(self.vectors)]
                for r in range(tile.rows):
                    address = e.at(lhs, r * tile.lhs_stride + _BYTES * k)
                    one = e.broadcast(e.load(self.lhs_type, address), self.lanes)
                    for v, value in enumerate(values):
                        i = chains.place(k, r, v)
                        acc[i] = llvm.FMAOp(one, value, acc[i]).result
            turn.next = acc
        return chains.sums(turn.results)


class PlainChunk(FloatChunk):
    """A chunk of a product by a weight of floats."""

    def _product(
        self, tile: e.Index, panel: e.Index, first_k: e.Index, depth: e.Index, rhs: ir.Value, total: ir.Value,
        fresh: bool,
    ) -> None:  # fmt: skip
        sums = self.micro.accumulate(FloatTile(self.size.rows, self.lhs, self.lhs_stride, rhs, depth), self.weights)
        for i, part in enumerate(sums):
            place = e.at(total, self._vector_at(*divmod(i, self.vectors)))
            e.store(part if fresh else arith.addf(part, e.load(part.type, place)), place)


def plain_kernels(neon: bool) -> Sequence[PlainFma]:
    """Best first."""
    if neon:
        return (PlainFma("neon-f32", (frozenset({"neon"}),), lanes=4, registers=32),)
    return tuple(
        PlainFma(name, of.features, of.lanes, of.registers)
        for name, of in (("avx512-f32", AVX512_FMA), ("avx2-f32", AVX2_FMA))
    )
