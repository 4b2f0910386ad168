"""Products on Hopper's tensor cores, by `wgmma`: four warps multiply 64 rows, straight from shared memory.

The swizzle of `shared_tile.py` at rows of 128 bytes is the hardware's own. A lane's accumulators are those of
`mma.sync` on 16 rows by all columns, so the epilogue is that of `mma_gemm.py`.

While one tile of K is multiplied, the products of the tile before it may still be under way. So a tile's place is free
again two tiles later: after the barrier of tile i every warp has waited for the products of tile i - 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.mlir import ir
from ....kernels import emit as e
from ...strategy import Facts
from . import instructions as gpu
from .mma_gemm import MmaGemm
from .mma_loop import Block
from .product import TiledProduct

_ROW_BYTES = 128  # of a tile, the width of the swizzle
ROWS = 64  # of a warpgroup
WIDEST = 256  # columns of one instruction
DEPTH = 32  # codes along K of one instruction


@dataclass(frozen=True)
class WgmmaGemm(MmaGemm):
    """An integer kernel on one tile; warps lie along M, 16 rows each, and every one has all columns."""

    @property
    def asynchronous(self) -> bool:
        return True

    @property
    def facts(self) -> Facts:
        return {**super().facts, "mma": f"wgmma.m64n{self.tile.n}k32.s8"}

    @property
    def block(self) -> type[Block]:
        return WgmmaBlock

    @property
    def shared_reads(self) -> float:
        return self.tile.m // ROWS * (ROWS + min(self.tile.n, WIDEST))


class WgmmaBlock(Block):
    def __init__(
        self, gemm: TiledProduct, rows: e.Index, buffers: list[ir.Value], number: e.Index | None = None
    ) -> None:
        super().__init__(gemm, rows, buffers, number)
        self._lhs_place, self._rhs_place = gpu.address(self.lhs.memory), gpu.address(self.rhs.memory)
        self._group = e.divide(self.warp_row, ROWS)  # of warps

    @property
    def ahead(self) -> int:
        return self.tile.stages - 2

    def zeros(self) -> list[ir.Value]:
        return [gpu.wgmma_zero(self.tile.n)]

    def step(
        self, step: e.Index, totals: list[ir.Value], held: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        self.wait()
        acc = gpu.wgmma_fence(totals[0], self.tile.n)
        acc = self.multiply(acc, held[0], range(0, self.tile.k, DEPTH))
        gpu.wgmma_commit()
        self._copies(e.add(step, self.ahead), held[1])
        gpu.wgmma_wait(1)
        return [acc], self._moved(held)

    def wait(self) -> None:
        """For the tile that is multiplied, and for all that multiplied the one whose place is free then."""
        gpu.wait(self.ahead - 1)
        gpu.fence_shared()
        gpu.barrier()

    def added(self, totals: list[ir.Value]) -> list[ir.Value]:
        return gpu.wgmma_results(gpu.wgmma_done(totals[0], self.tile.n), self.tile.n)

    def multiply(
        self, acc: ir.Value, stage: e.Index, steps: Sequence[int], column: int = 0, columns: int = 0,
        kinds: tuple[str, str] = ("s8", "s8"), adds: bool = True,
    ) -> ir.Value:  # fmt: skip
        """Products of this warpgroup's rows and `columns` columns (by default all of the tile) at places `steps` along
        K; unless it `adds`, the first one forgets what the accumulators held."""
        row = e.add(e.multiply(stage, self.tile.m), e.multiply(self._group, ROWS))
        lhs, rhs = e.multiply(row, _ROW_BYTES), e.multiply(e.add(e.multiply(stage, self.tile.n), column), _ROW_BYTES)
        for k in steps:
            left, right = gpu.descriptor(self._lhs_place, e.add(lhs, k)), gpu.descriptor(self._rhs_place, e.add(rhs, k))
            acc = gpu.wgmma(acc, left, right, columns or self.tile.n, kinds, adds or k != steps[0])
        return acc
