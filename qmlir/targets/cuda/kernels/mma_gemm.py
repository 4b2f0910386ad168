"""Products on tensor cores, as functions of an executable: see `mma_loop.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....core.mlir import ir
from ....kernels.description import Kernel
from ....kernels.outline import Scratch, has_tokens
from ....kernels.row_sums import uses_row_sums
from ...gpu_kernels.executable import KernelBody, KernelFunction, Launch, executable
from ...gpu_kernels.stream_k import Sharing, shared_body, split_inputs, with_scratch
from .executable import function_of, in_a_row
from .machine import Nvidia
from .mma_loop import Block
from .product import TiledProduct
from .raster import blocks
from .tile import Tile


@dataclass(frozen=True)
class MmaGemm(TiledProduct):
    """A kernel by `mma.sync`."""

    @property
    def variant(self) -> Tile:
        """What makes it another than other kernels of a product."""
        return self.tile

    def of(self, kernel: Kernel) -> MmaGemm:
        """The same for another number of rows."""
        return replace(self, kernel=kernel)

    @property
    def launch(self) -> Launch:
        if (sharing := self.sharing) is not None:
            return in_a_row(self.tile.threads, lambda rows: sharing.launched(blocks(self.kernel, self.tile, rows)))
        return in_a_row(self.tile.threads, lambda rows: blocks(self.kernel, self.tile, rows))

    @property
    def sharing(self) -> Sharing | None:
        """How workgroups share K, if they do: of all warps the first ones along K hold sums."""
        if not self.workgroups:
            return None
        sums = self.tile.warp[0] // 16 if uses_row_sums(self.kernel) and self.kernel.combine is None else 0
        holders = self.tile.threads // self.tile.warps[2]
        return Sharing(self.workgroups, self.k_steps, holders, self.tile.accumulators + 4 * sums, Nvidia())

    @property
    def sharable(self) -> bool:
        """Whether the tile can be made in parts."""
        kernel, group = self.kernel, self.kernel.group
        # A last tile of K with fewer groups than others is multiplied by other code than they are.
        whole = kernel.combine is None or group is None or group >= self.tile.k or kernel.k % self.tile.k == 0
        return kernel.batch is None and whole

    @property
    def scratch(self) -> Scratch | None:
        """What the kernel needs beside its operands."""
        return None if self.sharing is None else self.sharing.scratch(self.kernel)

    def emit(self, name: str, inputs: Sequence[ir.Type], result: ir.Type) -> str:
        """An executable at the insertion point; returns its entry point."""
        return executable(name, self.function(inputs, result))

    def function(self, inputs: Sequence[ir.Type], result: ir.Type) -> KernelFunction:
        """The kernel as a function of an executable, of tensors of these types."""
        size, work = self._work()
        own, _ = split_inputs(self.kernel, inputs)
        made = function_of(size, [*own, result], self.launch, work, tokens=has_tokens(self.kernel))
        return with_scratch(made, self.kernel, inputs, bool(self.workgroups))

    @property
    def block(self) -> type[Block]:
        return Block

    def _work(self) -> tuple[int | None, KernelBody]:
        """The number that a launch depends on, of rows or of a batch's products, and what each workgroup does."""
        kernel = self.kernel
        if (sharing := self.sharing) is not None:
            return kernel.m, shared_body(
                sharing, lambda rows: blocks(kernel, self.tile, rows),
                lambda rows, tensors, number: self.block(self, rows, tensors, number),
            )  # fmt: skip
        if kernel.batch is None:
            return kernel.m, lambda rows, buffers: self.block(self, rows, buffers).run()
        rows = kernel.m
        assert rows is not None
        return kernel.batch.size, lambda _, buffers: self.block(self, rows, buffers).run()
