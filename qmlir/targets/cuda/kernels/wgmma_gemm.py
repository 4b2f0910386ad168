"""Products on Hopper's tensor cores, by `wgmma`: four warps multiply 64 rows, straight from shared memory.

The swizzle of `shared_tile.py` at rows of 128 bytes is the hardware's own. A lane's accumulators are those of
`mma.sync` on 16 rows by all columns, so the epilogue is that of `mma_gemm.py`.

While one tile of K is multiplied, the products of the tile before it may still be under way. So a tile's place is free
again two tiles later: after the barrier of tile i every warp has waited for the products of tile i - 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....kernels import emit as e
from . import instructions as gpu
from .mma_gemm import Block, MmaGemm

_ROW_BYTES = 128  # of a tile, the width of the swizzle
_ROWS = 64  # of a warpgroup
_DEPTH = 32  # codes along K of one instruction


@dataclass(frozen=True)
class WgmmaGemm(MmaGemm):
    """An integer kernel on one tile; warps lie along M, 16 rows each, and every one has all columns."""

    @property
    def block(self) -> type[Block]:
        return _Block


class _Block(Block):
    def _main_loop(self) -> tuple[list[list[Any]], list[list[Any]]]:
        tiles, ahead = self.gemm.k_tiles, self.tile.stages - 2
        for stage in range(ahead):
            self._copies(stage, stage, stage < tiles)
        lhs, rhs = gpu.address(self.lhs.memory), gpu.address(self.rhs.memory)
        group = e.divide(self.warp_row, _ROWS)  # of warps
        ring = [e.index(0), e.index(ahead)]
        with e.loop(0, tiles, 1, [*ring, gpu.wgmma_zero(self.tile.n)]) as k_tile:
            *ring, acc = k_tile.values
            gpu.wait(ahead - 1)
            gpu.fence_shared()
            gpu.barrier()
            acc = gpu.wgmma_fence(acc, self.tile.n)
            row = e.add(e.multiply(ring[0], self.tile.m), e.multiply(group, _ROWS))
            first, column = e.multiply(row, _ROW_BYTES), e.multiply(ring[0], self.tile.n * _ROW_BYTES)
            for k in range(0, self.tile.k, _DEPTH):
                lhs_part = gpu.descriptor(lhs, e.add(first, k))
                acc = gpu.wgmma(acc, lhs_part, gpu.descriptor(rhs, e.add(column, k)), self.tile.n)
            gpu.wgmma_commit()
            number = e.add(k_tile.index, ahead)
            self._copies(number, ring[1], e.less(number, tiles))
            gpu.wgmma_wait(1)
            k_tile.next = [*self._next(ring), acc]
        return self._parts(gpu.wgmma_results(k_tile.results[2], self.tile.n))
