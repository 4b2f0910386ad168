"""Tiled products as functions of an executable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...core.mlir import ir
from ...dialect.dtypes import Array
from ...kernels.description import Kernel
from ..base import Target
from ..cost import Figures, Work
from ..strategy import Facts
from . import emit as e
from .batch import Products
from .epilogue import Epilogue
from .executable import KernelFunction, Launch, View
from .loop import TileLoop, Workgroup
from .machine import Machine
from .raster import Raster
from .stream_k import Sharing, shared_body, split_inputs, with_scratch

if TYPE_CHECKING:
    from collections.abc import Hashable

    from typing_extensions import Self

AS_IT_IS = "an argument"  # the packing of a weight that is read in the program's layout
LOAD = 8  # instruction slots of a thread that one load takes
TYPICAL_ROWS = 128  # assumed for a dynamic number of rows when kernels are compared


@dataclass(frozen=True)
class TiledKernel(ABC):
    """A kernel with its tiling: it emits the kernel and describes its cost."""

    kernel: Kernel
    machine: Machine

    @property
    @abstractmethod
    def name(self) -> str:
        """A name that distinguishes it from other kernels of a product."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of a workgroup."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a workgroup."""

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a workgroup."""
        return 0

    @property
    @abstractmethod
    def packing(self) -> Hashable:
        """The packing of its weight in memory: kernels with the same packing can read the same weight."""

    @property
    def most_rows(self) -> int | None:
        """The most rows that it computes, None: any number."""
        return None

    @property
    def sharing(self) -> Sharing | None:
        """How workgroups share K, if they do."""
        return None

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """Facts for the manifest."""

    @abstractmethod
    def work(self, target: Target, f: Figures) -> Work:
        """The kernel's work, for the cost model."""

    @property
    def padded_k(self) -> int:
        """The length of its packed weight along K, in codes."""
        return self.kernel.k

    @abstractmethod
    def weight(self, codes: Array | None, padded_k: int) -> ir.Value:
        """The weight in the layout that the kernel reads, at the insertion point. `codes`: the codes `[N, K]` of a
        constant weight; `padded_k`: the largest of all kernels that read it."""

    @abstractmethod
    def program(self, inputs: Sequence[ir.Type]) -> TileProgram:
        """The program of its tiles, for tensors of these types."""

    def function(self, inputs: Sequence[ir.Type]) -> KernelFunction:
        """The kernel as a function of an executable, for tensors of these types."""
        own, scratch = split_inputs(self.kernel, inputs)
        return with_scratch(self.program(own).function(self), scratch, self.sharing is not None)

    def of(self, kernel: Kernel) -> Self:
        """This tiling for `kernel`, which has another number of rows: dynamic, or not above `most_rows`."""
        return replace(self, kernel=kernel)


@dataclass(frozen=True)
class TileProgram:
    """The program that all tiles of a kernel run.

    Attributes:
        raster: the assignment of workgroups to tiles.
        loop: makes the loop of a thread for a tile.
        epilogue: the ops on the sums.
        lhs, rhs: the views of both operands.
        attributes: attributes of the device function.
    """

    raster: Raster
    loop: Callable[[Workgroup], TileLoop]
    epilogue: Epilogue
    lhs: View
    rhs: View
    attributes: Mapping[str, int] = field(default_factory=dict)

    def function(self, made: TiledKernel) -> KernelFunction:
        """The program as a function of an executable."""
        raster, sharing, products = self.raster, made.sharing, Products(made.kernel)
        views = [self.lhs, self.rhs, *products.views, *self.epilogue.views]
        launch = Launch(made.threads, made.machine, raster.grid, self.attributes)
        if sharing is not None:
            body = shared_body(sharing, raster.tiles, self._tile)
            launch = replace(launch, grid=lambda size: (sharing.launched(raster.tiles(size)), 1, 1))
        else:
            body = self._body
        return KernelFunction(products.size, views, launch, body, products.tokens)

    def _tile(self, size: e.Index, memory: Sequence[ir.Value], number: e.Index | None = None) -> TileLoop:
        lhs, rhs, *others = memory
        indices = len(Products(self.raster.kernel).views)
        place, tile = self.raster.found(size, others[:indices], number)
        self.epilogue.bind(others[indices:], place)
        return self.loop(Workgroup(place, tile, lhs, rhs, self.epilogue))

    def _body(self, size: e.Index, memory: list[ir.Value]) -> None:
        loop = self._tile(size, memory)
        with e.when(loop.place.used):
            loop.run()


def matrices(kernel: Kernel) -> tuple[int, ...]:
    """The size of the matrix axis of a packed weight, if it has one."""
    return () if kernel.batch is None else (kernel.batch.matrices,)
