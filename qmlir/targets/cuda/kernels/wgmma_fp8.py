"""One-byte floats by one-byte floats on Hopper's `wgmma`, straight from shared memory.

The tensor core keeps about 14 bits of its sums (DeepSeek-V3 technical report, section 3.3, which promotes them to f32
every 128 codes). So a sum of one tile of K, 128 codes, or of a group of fewer, is made by itself; then it is added to
totals in f32, or combined with the group's scales. Both sums and totals are in registers: a warpgroup multiplies at
most 128 columns at a time and adds them up while another one multiplies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....core.mlir import arith, ir
from ....kernels import emit as e
from ....kernels.description import Kernel, Stage
from . import instructions as gpu
from .fp8 import KINDS, CodeMma
from .mma_gemm import Block
from .tile import Tile
from .weights import Storage
from .wgmma_gemm import DEPTH, ROWS, WgmmaBlock, WgmmaGemm

_COLUMNS = 128  # of one instruction, at most
_GROUPS = (32, 64, 128)  # whose sums a tile holds whole


def takes(kernel: Kernel) -> bool:
    """Whether each group along K is in one tile of 128 codes, and all tiles hold groups only."""
    return kernel.combine is None or (kernel.group in _GROUPS and kernel.k % 128 == 0)


@dataclass(frozen=True)
class WgmmaFp8Gemm(WgmmaGemm):
    """Products of one-byte floats on one tile."""

    @property
    def mma(self) -> CodeMma:
        kinds = [KINDS[str(side.value.type.element_type)] for side in (self.kernel.lhs, self.kernel.rhs)]
        return CodeMma(kinds[0], kinds[1])

    @property
    def rate(self) -> str:
        return "f8E4M3FN"

    @property
    def columns(self) -> int:
        """Of one instruction."""
        return next(n for n in range(min(self.tile.n, _COLUMNS), 0, -8) if self.tile.n % n == 0)

    @property
    def shared_reads(self) -> float:
        return self.tile.m // ROWS * self.tile.n // self.columns * (ROWS + self.columns)

    @property
    def promotions(self) -> float:
        """Operations of one lane that a code along K takes of a result."""
        return 1 / self.tile.k if self.kernel.combine is None else 3 / (self.kernel.group or self.tile.k)

    @property
    def block(self) -> type[Block]:
        return _Block


class _Block(WgmmaBlock):
    gemm: WgmmaFp8Gemm

    def accumulated(self, first: e.Index, last: e.Index) -> list[ir.Value]:
        combine, ahead = self.kernel.combine, self.tile.stages - 1
        self.end = last
        for stage in range(ahead):
            number = e.add(first, stage)
            self._copies(number, stage, e.less(number, last))
        self.places()
        ring = [e.index(0), e.index(ahead)]
        totals = self._zeros() if combine is None else self._zero_totals()
        with e.loop(first, last, 1, [*ring, *totals]) as k_tile:
            ring, totals = k_tile.values[:2], k_tile.values[2:]
            gpu.wait(ahead - 1)
            gpu.fence_shared()
            gpu.barrier()  # all have waited for the products of the tile before: its place is free
            number = e.add(k_tile.index, ahead)

            def refill(number: e.Index = number, place: ir.Value = ring[1]) -> None:
                self._copies(number, place, e.less(number, last))

            if combine is None:
                totals = self._promoted(ring[0], totals, refill)
            else:
                with self.epilogue.scope():
                    totals = self._rescaled(combine, k_tile.index, ring[0], totals, refill)
            k_tile.next = [*self._next(ring), *totals]
        return list(k_tile.results[2:])

    def _part(self, stage: e.Index, column: int, steps: Sequence[int], then: Callable[[], None]) -> list[ir.Value]:
        """Sums of some columns over some places of a tile; `then` is done while they are made."""
        columns, mma = self.gemm.columns, self.gemm.mma
        kinds = (mma.lhs_kind, mma.rhs_kind)
        acc = gpu.wgmma_fence(gpu.wgmma_new(columns, mma.lhs_kind), columns, mma.lhs_kind)
        acc = self.multiply(acc, stage, steps, column, columns, kinds, adds=False)
        gpu.wgmma_commit()
        then()
        return gpu.wgmma_results(acc, columns, mma.lhs_kind)

    def _promoted(self, stage: e.Index, totals: Sequence[ir.Value], refill: Callable[[], None]) -> list[ir.Value]:
        """Totals with the sums of one tile."""
        made: list[ir.Value] = []
        for column in range(0, self.tile.n, self.gemm.columns):
            then = refill if column == 0 else _nothing
            part = self._part(stage, column, range(0, self.tile.k, DEPTH), then)
            made += [arith.addf(totals[len(made) + i], value) for i, value in enumerate(part)]
        return made

    def _rescaled(
        self, combine: Stage, k_tile: e.Index, stage: e.Index, totals: Sequence[ir.Value], refill: Callable[[], None]
    ) -> list[ir.Value]:
        """Totals with the groups of one tile, each in its scales; these are on their way while it is multiplied."""
        group = self.kernel.group or self.tile.k
        inside, per = self.tile.k // group, self._runs * self.gemm.columns // self.tile.n
        rows = [list(row) for row in self._regrouped(totals)]
        for g in range(inside):
            number = e.add(e.multiply(k_tile, inside), g)
            for i, column in enumerate(range(0, self.tile.n, self.gemm.columns)):
                runs = range(i * per, (i + 1) * per)
                places: list[e.Index] = []

                def then(
                    g: int = g, i: int = i, number: e.Index = number, runs: range = runs,
                    places: list[e.Index] = places,
                ) -> None:  # fmt: skip
                    if g == i == 0:
                        refill()
                    places += [self._row(r)[0] for r in range(2)]
                    for m in places:
                        self.epilogue.hold_row(combine.operands, number, m)
                    self.epilogue.hold(combine.operands, number, runs)

                part = self._part(stage, column, range(g * group, (g + 1) * group, DEPTH), then)
                old = [row[v] for row in rows for v in runs]
                parts, sums = self._parts(part)
                new = self._added(combine, parts, sums, old, number, runs[0], places)
                for r, row in enumerate(rows):
                    row[runs[0] : runs[0] + per] = new[r * per : (r + 1) * per]
        return [value for row in rows for value in row]


def _nothing() -> None:
    """Nothing is done meanwhile."""


def fit(kernel: Kernel, tile: Tile, storage: Storage) -> Tile | None:
    """A tile whose totals fit the registers, of groups with their sums and the scales that are read for them."""
    if kernel.combine is None:
        return tile
    most = 64 if (kernel.group or 0) >= 64 else 32
    return tile if tile.accumulators <= most and tile.threads <= 256 else None
