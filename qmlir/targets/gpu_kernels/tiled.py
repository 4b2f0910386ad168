"""A product in tiles as a function of an executable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.mlir import ir
from ...kernels.description import Kernel
from . import emit as e
from .batch import Products
from .epilogue import Epilogue
from .executable import KernelFunction, Launch, View
from .loop import Source, TileLoop, Workgroup
from .machine import Machine
from .stream_k import Sharing, shared_body

if TYPE_CHECKING:
    from typing_extensions import Self


class TiledKernel(ABC):
    """A kernel and how it is tiled."""

    kernel: Kernel
    machine: Machine

    @property
    @abstractmethod
    def threads(self) -> int:
        """Of a workgroup."""

    @property
    @abstractmethod
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a workgroup."""

    @property
    @abstractmethod
    def function(self) -> KernelFunction:
        """The kernel as a function of an executable."""

    @property
    def sharing(self) -> Sharing | None:
        """How workgroups share K, if they do."""
        return None

    def made(
        self, epilogue: Epilogue, activations: Source, weight: View, loop: Callable[[Self, Workgroup], TileLoop]
    ) -> KernelFunction:
        """The function, from how its sides lie in memory and what threads do."""
        kernel, (height, width) = self.kernel, self.tile
        columns, products, sharing = -(-kernel.n // width), Products(kernel), self.sharing
        picks = products.views

        def threads(size: e.Index, memory: Sequence[ir.Value], tile: tuple[e.Index, e.Index]) -> TileLoop:
            lhs, rhs, *operands = memory
            place = products.place(size, operands[: len(picks)], first_row=e.multiply(tile[0], height))
            epilogue.bind(operands[len(picks) :], place)
            return loop(self, Workgroup(place, tile, activations, lhs, rhs, epilogue))

        def body(size: e.Index, memory: Sequence[ir.Value]) -> None:
            made = threads(size, memory, (e.block(1), e.block(0)))
            with e.when(made.place.used):
                made.run()

        views = [activations.view, weight, *picks, *epilogue.views]
        launch = Launch(self.threads, self.machine.subgroup, lambda size: products.grid(size, columns, height))
        if sharing is None:
            return KernelFunction(products.size, views, launch, body, products.tokens)

        def tiles(size: e.Index) -> e.Index:
            return e.multiply(e.divide_up(size, height), columns)

        def shared_tile(size: e.Index, memory: list[ir.Value], number: e.Index) -> TileLoop:
            return threads(size, memory, (e.divide(number, columns), e.remainder(number, columns)))

        launch = replace(launch, grid=lambda size: (sharing.launched(tiles(size)), 1, 1))
        return KernelFunction(products.size, views, launch, shared_body(sharing, tiles, shared_tile))


def matrices(kernel: Kernel) -> tuple[int, ...]:
    """The axis of a packed weight that numbers its matrices, where there is one."""
    return () if kernel.batch is None else (kernel.batch.matrices,)


def packed_view(shape: tuple[int, ...], words: int) -> View:
    """A packed weight whose loads are of so many words."""
    i32 = e.integer(32)
    return View(shape, i32 if words == 1 else e.vector_of(words, i32))
