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


@dataclass(frozen=True)
class MmaGemm(TiledProduct):
    """A kernel by `mma.sync`; `block` is what a workgroup does."""

    block: ClassVar[type[Block]] = Block

    @property
    def attributes(self) -> Mapping[str, int]:
        """Of the device function."""
        # Where K is shared, one block or two are on a multiprocessor. ptxas spills what decodes a weight to
        # get more there, unless it is told that one will do.
        return {"nvvm.minctasm": 1} if self.workgroups and self.decodes and self.tile.is_small else {}

    def program(self, inputs: Sequence[ir.Type]) -> TileProgram:
        lhs, rhs = map(View.of, inputs[:2])
        raster, epilogue = InBands(self.kernel, *self.shape), Epilogue(self.kernel, self.machine, self.lanes)
        return TileProgram(raster, partial(self.block, self), epilogue, lhs, rhs, self.attributes)
