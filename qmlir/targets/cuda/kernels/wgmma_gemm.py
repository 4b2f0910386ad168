"""Products on Hopper's tensor cores, by `wgmma`: four warps multiply 64 rows, straight from shared memory.

For rows of 128 bytes the swizzle of `shared_tile.py` is the hardware's own. A lane's accumulators are those of
`mma.sync` on 16 rows by all columns, so the epilogue is that of `mma_gemm.py`.

While one tile of K is multiplied, the products of the previous tile may still be in flight. So a tile's ring position
is free two tiles later: after the barrier of tile i every warp has waited for the products of tile i - 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.mlir import ir
from ...gpu_kernels import emit as e
from ...gpu_kernels.loop import Workgroup
from ...strategy import Facts
from . import instructions as gpu
from .mma_gemm import MmaGemm
from .mma_loop import Block

_ROW_BYTES = 128  # of a row of a tile: the width of the swizzle
ROWS = 64  # of a warpgroup
DEPTH = 32  # codes along K of one instruction


class WgmmaBlock(Block):
    gemm: WgmmaGemm

    def __init__(self, gemm: WgmmaGemm, workgroup: Workgroup) -> None:
        super().__init__(gemm, workgroup)
        self.wgmma = gemm.wgmma
        self._lhs_place, self._rhs_place = gpu.address(self.lhs.memory), gpu.address(self.rhs.memory)
        self._group = e.divide(self.warp_row, ROWS)  # the warpgroup of this warp

    @property
    def ahead(self) -> int:
        return self.tile.stages - 2

    def zeros(self) -> list[ir.Value]:
        return [self.wgmma.zero()]

    def step(
        self, step: e.Index, totals: list[ir.Value], held: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        self.wait()
        acc = self.multiply(totals[0], held[0], range(0, self.tile.k, DEPTH))
        self._copies(e.add(step, self.ahead), held[1])
        gpu.wgmma_wait(1)
        return [acc], self.moved(held)

    def wait(self) -> None:
        """Wait for the tile to multiply, and until all warps have multiplied the tile that is overwritten next."""
        gpu.wait(self.ahead - 1)
        gpu.fence_shared()
        e.barrier()

    def added(self, totals: list[ir.Value]) -> list[ir.Value]:
        return self.wgmma.results(self.wgmma.done(totals[0]))

    def multiply(
        self, acc: ir.Value, stage: e.Index, steps: Sequence[int], column: int = 0, adds: bool = True
    ) -> ir.Value:
        """Issue one group of products: this warpgroup's rows by the instruction's columns from `column` on, at places
        `steps` along K. Unless it `adds`, the first product overwrites the accumulators."""
        acc = self.wgmma.fence(acc)
        row = e.add(e.multiply(stage, self.tile.m), e.multiply(self._group, ROWS))
        lhs, rhs = e.multiply(row, _ROW_BYTES), e.multiply(e.add(e.multiply(stage, self.tile.n), column), _ROW_BYTES)
        for k in steps:
            left, right = gpu.descriptor(self._lhs_place, e.add(lhs, k)), gpu.descriptor(self._rhs_place, e.add(rhs, k))
            acc = self.wgmma.multiply(acc, left, right, adds or k != steps[0])
        gpu.wgmma_commit()
        return acc


@dataclass(frozen=True)
class WgmmaGemm(MmaGemm):
    """An integer kernel on one tile. All warps are along M, each with 16 rows and all columns."""

    block = WgmmaBlock
    asynchronous = True

    @property
    def wgmma(self) -> gpu.Wgmma:
        """The instruction."""
        return gpu.Wgmma(self.tile.n)

    @property
    def facts(self) -> Facts:
        return {**super().facts, "mma": self.wgmma.name}

    @property
    def shared_reads(self) -> float:
        columns = self.wgmma.columns
        return self.tile.m // ROWS * self.tile.n // columns * (ROWS + columns)
