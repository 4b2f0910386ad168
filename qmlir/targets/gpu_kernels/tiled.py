"""A product in tiles as a function of an executable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from .loop import Source, TileLoop, Workgroup
from .machine import Machine
from .stream_k import Sharing, shared_body, split_inputs, with_scratch

if TYPE_CHECKING:
    from collections.abc import Hashable

    from typing_extensions import Self

LOAD = 8  # slots for instructions that one load takes of a thread
TYPICAL_ROWS = 128  # what a dynamic number of rows is taken as where kernels are compared


@dataclass(frozen=True)
class TiledKernel(ABC):
    """A kernel and how it is tiled: what emits it, and what it takes."""

    kernel: Kernel
    machine: Machine

    @property
    @abstractmethod
    def name(self) -> str:
        """What makes it another than other kernels of a product."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Of a workgroup."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a workgroup."""

    @property
    def shared_bytes(self) -> int:
        """Of shared memory that a workgroup has."""
        return 0

    @property
    @abstractmethod
    def packing(self) -> Hashable:
        """How its weight lies in memory: kernels of one packing can read the same weight."""

    @property
    def most_rows(self) -> int | None:
        """How many rows it computes at most, None: any number."""
        return None

    @property
    def sharing(self) -> Sharing | None:
        """How workgroups share K, if they do."""
        return None

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """What the manifest says of it."""

    @abstractmethod
    def work(self, target: Target, f: Figures) -> Work:
        """What it keeps busy, and for how long."""

    @property
    def padded_k(self) -> int:
        """Codes along K that its packed weight has."""
        return self.kernel.k

    @abstractmethod
    def weight(self, codes: Array | None, padded_k: int) -> ir.Value:
        """The weight as the kernel reads it, at the insertion point. `codes`: of a constant one, `[N, K]`; `padded_k`:
        the most of all kernels that read it."""

    @abstractmethod
    def alone(self, inputs: Sequence[ir.Type], result: ir.Type) -> KernelFunction:
        """The kernel as a function of an executable without scratch."""

    def function(self, inputs: Sequence[ir.Type], result: ir.Type) -> KernelFunction:
        """The kernel as a function of an executable, of tensors of these types."""
        own, _ = split_inputs(self.kernel, inputs)
        return with_scratch(self.alone(own, result), self.kernel, inputs, self.sharing is not None)

    def of(self, kernel: Kernel) -> Self:
        """The same for another number of rows, which may be dynamic, but not above `most_rows`."""
        return replace(self, kernel=kernel)

    def made(
        self, epilogue: Epilogue, activations: Source, weight: View, loop: Callable[[Self, Workgroup], TileLoop]
    ) -> KernelFunction:
        """The function, from how its sides lie in memory and what threads do."""
        kernel, (height, width) = self.kernel, self.shape
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
        launch = Launch(self.threads, self.machine, lambda size: products.grid(size, columns, height))
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
