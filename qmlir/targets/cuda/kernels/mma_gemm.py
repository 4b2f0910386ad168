"""Products on tensor cores, as functions of an executable: see `mma_loop.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.mlir import ir
from ....kernels import emit as e
from ....kernels.outline import has_tokens
from ...gpu_kernels.executable import KernelFunction, Launch, View
from ...gpu_kernels.stream_k import shared_body
from .mma_loop import Block
from .product import TiledProduct
from .raster import blocks


@dataclass(frozen=True)
class MmaGemm(TiledProduct):
    """A kernel by `mma.sync`."""

    @property
    def block(self) -> type[Block]:
        """What a workgroup does."""
        return Block

    @property
    def attributes(self) -> dict[str, int]:
        """Of the device function."""
        return {}

    def alone(self, inputs: Sequence[ir.Type], result: ir.Type) -> KernelFunction:
        kernel, sharing, rows = self.kernel, self.sharing, self.kernel.m

        def tiles(size: e.Index) -> e.Index:
            return blocks(kernel, self.tile, size)

        def body(size: e.Index, buffers: list[ir.Value]) -> None:
            """Of so many rows, or of a batch of so many products."""
            known = size if kernel.batch is None or rows is None else rows
            if sharing is None:
                self.block(self, known, buffers).run()
            else:
                shared_body(sharing, tiles, lambda *of: self.block(self, *of))(size, buffers)

        def grid(size: e.Index) -> e.Index:
            return tiles(size) if sharing is None else sharing.launched(tiles(size))

        size = rows if kernel.batch is None else kernel.batch.size
        launch = Launch(self.threads, self.machine, lambda size: (grid(size), 1, 1), self.attributes)
        views = [View.of(tensor) for tensor in (*inputs, result)]
        return KernelFunction(size, views, launch, body, has_tokens(kernel))
