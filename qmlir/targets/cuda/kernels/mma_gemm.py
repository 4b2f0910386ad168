"""Products on tensor cores, as tile programs around the loop of `mma_loop.py`."""

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

_MANY_SUMS = 16  # registers of a lane, with as many again for the totals


@dataclass(frozen=True)
class MmaGemm(TiledProduct):
    """A kernel on `mma.sync`; `block` is the class of its loop."""

    block: ClassVar[type[Block]] = Block

    @property
    def attributes(self) -> Mapping[str, int]:
        """Attributes of the device function."""
        # ptxas spills to fit another block onto a multiprocessor, unless it is told how many are enough. It does so for
        # kernels that decode a weight and share K, for those that hold a group's sums in addition to the totals, and
        # where shared memory, of which it does not know, leaves room for two blocks at most.
        decodes = self.workgroups and self.decodes and self.tile.is_small
        combines = self.kernel.combine is not None and not self.hands_over and self.tile.accumulators >= _MANY_SUMS
        if decodes or combines:
            return {"nvvm.minctasm": 1}
        full = 3 * self.shared_bytes > self.machine.shared_memory
        return {"nvvm.minctasm": self.resident} if full else {}

    def program(self, inputs: Sequence[ir.Type]) -> TileProgram:
        lhs, rhs = map(View.of, inputs[:2])
        raster, epilogue = InBands(self.kernel, *self.shape), Epilogue(self.kernel, self.machine, self.lanes)
        return TileProgram(raster, partial(self.block, self), epilogue, lhs, rhs, self.attributes)
