"""Products on tensor cores, as programs of tiles: see `mma_loop.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ....core.mlir import ir
from ...gpu_kernels.epilogue import Epilogue
from ...gpu_kernels.executable import View
from ...gpu_kernels.raster import InBands
from ...gpu_kernels.tiled import TileProgram
from .mma_loop import Block
from .product import TiledProduct

_MANY_SUMS = 16  # registers of a lane, where as many are beside them


@dataclass(frozen=True)
class MmaGemm(TiledProduct):
    """A kernel by `mma.sync`; `block` is what a workgroup does."""

    block: ClassVar[type[Block]] = Block

    @property
    def attributes(self) -> Mapping[str, int]:
        """Of the device function."""
        # ptxas spills to get another block onto a multiprocessor, unless one is said to do: what decodes a
        # weight, where K is shared, and the sums of a group beside those of all.
        decodes = self.workgroups and self.decodes and self.tile.is_small
        combines = self.kernel.combine is not None and not self.hands_over and self.tile.accumulators >= _MANY_SUMS
        return {"nvvm.minctasm": 1} if decodes or combines else {}

    def program(self, inputs: Sequence[ir.Type]) -> TileProgram:
        lhs, rhs = map(View.of, inputs[:2])
        raster, epilogue = InBands(self.kernel, *self.shape), Epilogue(self.kernel, self.machine, self.lanes)
        return TileProgram(raster, partial(self.block, self), epilogue, lhs, rhs, self.attributes)
