"""One-byte floats by one-byte floats on Hopper's `wgmma`, straight from shared memory.

The tensor core keeps about 14 bits of its sums (DeepSeek-V3 technical report, section 3.3, which promotes them to f32
every 128 codes). So the sum of one tile of K (128 codes), or of a shorter group, is computed separately; then it is
added to f32 totals, or combined with the group's scales. Both sums and totals are in registers, so a warpgroup
multiplies at most 128 columns at a time. Meanwhile it adds up the sums of the previous columns, also across tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.mlir import arith, ir
from ....kernels.description import Kernel
from ...gpu_kernels import emit as e
from ...gpu_kernels.scaled import KINDS
from ...gpu_kernels.weights import CodeFormat
from ...strategy import Facts
from . import instructions as gpu
from .tile import Tile
from .wgmma_gemm import DEPTH, WgmmaBlock, WgmmaGemm

_COLUMNS = 128  # of one instruction, at most
_TILES_PER_BODY = 8, 4, 2  # tiles of K per loop body, whose products follow each other without a gap
_GROUP_SIZES = (32, 64, 128)  # codes of groups that are whole in a tile


def takes(kernel: Kernel) -> bool:
    """Whether each group along K is inside one tile of 128 codes, and all tiles consist of whole groups."""
    return kernel.combine is None or (kernel.group in _GROUP_SIZES and kernel.k % 128 == 0)


def _tiles_per_body(tiles: int) -> int:
    """How many of `tiles` tiles one loop body multiplies. The loop has at least two iterations: LLVM makes straight
    code of a single one, for which ptxas does not find enough registers."""
    return next((count for count in _TILES_PER_BODY if tiles >= 2 * count), 1)


class _Block(WgmmaBlock):
    @property
    def ahead(self) -> int:
        """Tiles of K in flight. Without groups, products of the previous tile may be in flight: see wgmma_gemm.py."""
        return self.tile.stages - (2 if self.kernel.combine is None else 1)

    @property
    def _shares_tiles(self) -> bool:
        return True

    def zeros(self) -> list[ir.Value]:
        return [e.zero(self.kernel.acc_type)] * (4 * self.m_fragments * self.n_fragments)

    def accumulated(self, first: e.Index, last: e.Index) -> list[ir.Value]:
        """The totals over the tiles from `first` to `last`. A loop body multiplies several tiles, with products in
        flight between these but not past its end, as nothing may read them there. The other tiles follow one by one."""
        if self.kernel.combine is not None:
            return super().accumulated(first, last)
        values = [*self.zeros(), *self.start(first, last)]
        count = e.subtract(last, first)
        together = _tiles_per_body(count) if isinstance(count, int) else _TILES_PER_BODY[1]
        behind = e.subtract(last, e.remainder(count, together))
        for start, end, tiles in ((first, behind, together), (behind, last, 1)):
            if isinstance(start, int) and start == end:
                continue
            with e.loop(start, end, tiles, values) as each:
                each.next = self._tiles(each.index, tiles, each.values)
            values = list(each.results)
        return values[:-2]

    def step(
        self, step: e.Index, totals: list[ir.Value], held: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        raise AssertionError("groups are combined by _groups, all else is summed by accumulated")

    def _tiles(self, first: e.Index, count: int, values: Sequence[ir.Value]) -> list[ir.Value]:
        """The totals and the ring positions after `count` tiles. The sums of some columns are added to the totals while
        those of the next columns are computed."""
        made, ring = list(values[:-2]), list(values[-2:])
        free = [self.wgmma.new() for _ in range(2)]  # accumulators not in use
        before: tuple[int, ir.Value] | None = None

        def add(pending: int) -> None:
            """Wait for all but `pending` groups of products, and add the sums `before` to the totals."""
            assert before is not None
            done = self.wgmma.done(before[1], pending)
            for i, value in enumerate(self.wgmma.results(done), before[0]):
                made[i] = arith.addf(made[i], value)
            free.append(done)  # the next products take the same registers

        for tile in range(count):
            self.wait()
            for column in range(0, self.tile.n, self.wgmma.columns):
                part = self.multiply(free.pop(0), ring[0], range(0, self.tile.k, DEPTH), column, adds=False)
                if column == 0:
                    self._copies(e.add(e.add(first, tile), self.ahead), ring[1])
                if before is not None:
                    add(1)
                before = column // 2, part
            ring = self.moved(ring)
        add(0)
        return [*made, *ring]

    def _groups(self, ring: list[ir.Value], totals: list[ir.Value], k_tile: e.Index, count: int) -> list[ir.Value]:
        """The totals with the groups of one tile combined. A group's scales are loaded while it is multiplied."""
        assert self.kernel.combine is not None
        self.wait()
        group, operands = self.kernel.group or self.tile.k, self.kernel.combine.operands
        per, rows = self.per_row * self.wgmma.columns // self.tile.n, 2 * self.m_fragments
        made = list(totals)
        with self.epilogue.scope():
            for g in range(count):
                number = e.add(e.multiply(k_tile, count), g)
                for i, column in enumerate(range(0, self.tile.n, self.wgmma.columns)):
                    steps = range(g * group, (g + 1) * group, DEPTH)
                    part = self.multiply(self.wgmma.new(), ring[0], steps, column, adds=False)
                    if g == i == 0:
                        self._copies(e.add(k_tile, self.ahead), ring[1])
                    columns = range(i * per, (i + 1) * per)
                    for r in range(rows):
                        self.epilogue.hold(operands, number, [self.where(r * self.per_row).safe_row], [])
                    self.epilogue.hold(operands, number, [], self._columns(columns))
                    places = [r * self.per_row + v for r in range(rows) for v in columns]
                    runs = self.runs(self.wgmma.results(self.wgmma.done(part)))
                    found = self._in_rows([made[at] for at in places], runs, number, columns)
                    for at, value in zip(places, found, strict=True):
                        made[at] = value
        return made


@dataclass(frozen=True)
class WgmmaFp8Gemm(WgmmaGemm):
    """Products of one-byte floats on one tile."""

    block = _Block

    @property
    def mma(self) -> gpu.Multiply:
        left, right = (KINDS[str(side.value.type.element_type)] for side in (self.kernel.lhs, self.kernel.rhs))
        return gpu.Mma(left, right, gpu.FRAGMENTS[32, 8])

    @property
    def facts(self) -> Facts:
        left, right = self.wgmma.kinds
        terms = min(self.tile.k, self.kernel.group or self.tile.k)
        return {**super().facts, "codes": f"{left} x {right}, separate sums of {terms}"}

    @property
    def wgmma(self) -> gpu.Wgmma:
        columns = next(n for n in range(min(self.tile.n, _COLUMNS), 0, -8) if self.tile.n % n == 0)
        return gpu.Wgmma(columns, (self.mma.lhs_kind, self.mma.rhs_kind))

    @property
    def promotions(self) -> float:
        """Operations of one lane per result and code along K."""
        return 1 / self.tile.k if self.kernel.combine is None else 3 / (self.kernel.group or self.tile.k)


def fit(kernel: Kernel, tile: Tile, storage: CodeFormat) -> Tile | None:
    """The tile, or None if registers do not suffice for the totals and, with groups, for their sums and scales."""
    if kernel.combine is None:
        return tile
    most = 64 if (kernel.group or 0) >= 64 else 32
    return tile if tile.accumulators <= most and tile.threads <= 256 else None
