"""A product in tiles as a function of an executable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...core.mlir import ir
from ...kernels.description import Kernel
from . import emit as e
from .batch import Products
from .epilogue import Epilogue
from .executable import KernelFunction, Launch, View, executable
from .loop import Source, TileLoop, Workgroup
from .machine import Machine

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

    def emit(self, name: str, inputs: Sequence[ir.Type], result: ir.Type) -> str:
        """The executable; see `outline`."""
        return executable(name, self.function)

    def made(
        self, epilogue: Epilogue, activations: Source, weight: View, loop: Callable[[Self, Workgroup], TileLoop]
    ) -> KernelFunction:
        """The function, from how its sides lie in memory and what threads do."""
        kernel, (height, width) = self.kernel, self.tile
        columns, products = -(-kernel.n // width), Products(kernel)
        picks = products.views
        launch = Launch(self.threads, self.machine.subgroup, lambda size: products.grid(size, columns, height))

        def body(size: e.Index, memory: Sequence[ir.Value]) -> None:
            lhs, rhs, *operands = memory
            place = products.place(size, operands[: len(picks)], first_row=e.multiply(e.block(1), height))
            epilogue.bind(operands[len(picks) :], place)
            threads = loop(self, Workgroup(place, activations, lhs, rhs, epilogue))
            with e.when(place.used):
                threads.run()

        views = [activations.view, weight, *picks, *epilogue.views]
        return KernelFunction(products.size, views, launch, body, products.tokens)


def matrices(kernel: Kernel) -> tuple[int, ...]:
    """The axis of a packed weight that numbers its matrices, where there is one."""
    return () if kernel.batch is None else (kernel.batch.matrices,)


def packed_view(shape: tuple[int, ...], words: int) -> View:
    """A packed weight whose loads are of so many words."""
    i32 = e.integer(32)
    return View(shape, i32 if words == 1 else e.vector_of(words, i32))
