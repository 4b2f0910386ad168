"""One-byte floats by one-byte floats on Hopper's `wgmma`, straight from shared memory.

The tensor core keeps about 14 bits of its sums (DeepSeek-V3 technical report, section 3.3, which promotes them to f32
every 128 codes). So a sum of one tile of K, 128 codes, or of a group of fewer, is made by itself; then it is added to
totals in f32, or combined with the group's scales. Both sums and totals are in registers: a warpgroup multiplies at
most 128 columns at a time and adds them up while another one multiplies.
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
from .mma_loop import Block
from .tile import Tile
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
    def mma(self) -> gpu.Multiply:
        left, right = (KINDS[str(side.value.type.element_type)] for side in (self.kernel.lhs, self.kernel.rhs))
        return gpu.Mma(left, right, gpu.FRAGMENTS[32, 8])

    @property
    def facts(self) -> Facts:
        left, right = self.mma.lhs_kind, self.mma.rhs_kind
        apart = min(self.tile.k, self.kernel.group or self.tile.k)
        return {
            **super().facts,
            "mma": f"wgmma.m64n{self.columns}k32.f32.{left}.{right}",
            "codes": f"{left} x {right}, sums of {apart} apart",
        }

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

    @property
    def ahead(self) -> int:
        return self.tile.stages - 1

    @property
    def shares_tiles(self) -> bool:
        return True

    def zeros(self) -> list[ir.Value]:
        return [e.zero(self.kernel.acc_type)] * (4 * self.m_fragments * self.n_fragments)

    def step(
        self, step: e.Index, totals: list[ir.Value], held: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Totals with the sums of one tile."""
        self.wait()  # all have waited for the products of the tile before: its place is free
        made: list[ir.Value] = []
        for column in range(0, self.tile.n, self.gemm.columns):
            part = self._part(held[0], column, range(0, self.tile.k, DEPTH))
            if column == 0:
                self._copies(e.add(step, self.ahead), held[1])
            made += [arith.addf(totals[len(made) + i], value) for i, value in enumerate(self._made(part))]
        return made, self._moved(held)

    def added(self, totals: list[ir.Value]) -> list[ir.Value]:
        return totals

    def _part(self, stage: e.Index, column: int, steps: Sequence[int]) -> ir.Value:
        """Sums of some columns over some places of a tile, on their way."""
        columns, mma = self.gemm.columns, self.gemm.mma
        kinds = (mma.lhs_kind, mma.rhs_kind)
        acc = gpu.wgmma_fence(gpu.wgmma_new(columns, mma.lhs_kind), columns, mma.lhs_kind)
        acc = self.multiply(acc, stage, steps, column, columns, kinds, adds=False)
        gpu.wgmma_commit()
        return acc

    def _made(self, part: ir.Value) -> list[ir.Value]:
        """The sums, once they are there."""
        return gpu.wgmma_results(part, self.gemm.columns, self.gemm.mma.lhs_kind)

    def _groups(self, ring: list[ir.Value], totals: list[ir.Value], k_tile: e.Index, count: int) -> list[ir.Value]:
        """Totals with the groups of one tile, each in its scales; these are on their way while it is multiplied."""
        assert self.kernel.combine is not None
        self.wait()
        group, operands = self.kernel.group or self.tile.k, self.kernel.combine.operands
        per, rows = self.per_row * self.gemm.columns // self.tile.n, 2 * self.m_fragments
        made = list(totals)
        with self.epilogue.scope():
            for g in range(count):
                number = e.add(e.multiply(k_tile, count), g)
                for i, column in enumerate(range(0, self.tile.n, self.gemm.columns)):
                    part = self._part(ring[0], column, range(g * group, (g + 1) * group, DEPTH))
                    if g == i == 0:
                        self._copies(e.add(k_tile, self.ahead), ring[1])
                    columns = range(i * per, (i + 1) * per)
                    for r in range(rows):
                        self.epilogue.hold_row(operands, number, self.where(r * self.per_row).safe_row)
                    self.epilogue.hold(operands, number, self._columns(columns))
                    places = [r * self.per_row + v for r in range(rows) for v in columns]
                    runs = self.runs(self._made(part))
                    found = self._in_rows([made[at] for at in places], runs, number, columns)
                    for at, value in zip(places, found, strict=True):
                        made[at] = value
        return made


def fit(kernel: Kernel, tile: Tile, storage: CodeFormat) -> Tile | None:
    """A tile whose totals fit the registers, of groups with their sums and the scales that are read for them."""
    if kernel.combine is None:
        return tile
    most = 64 if (kernel.group or 0) >= 64 else 32
    return tile if tile.accumulators <= most and tile.threads <= 256 else None
