"""The assignment of workgroups to tiles of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.mlir import hal, ir
from ...kernels.description import Kernel
from . import emit as e
from .batch import Place, Products

# Rows of tiles in a band: workgroups that run at the same time then read about as many different rows as columns.
_BAND = 8


@dataclass(frozen=True)
class Raster:
    """A grid of workgroups along columns, rows and products, one for each tile of `height` rows by `width` columns."""

    kernel: Kernel
    height: int
    width: int

    @property
    def across(self) -> int:
        """Tiles along N."""
        return -(-self.kernel.n // self.width)

    def tiles(self, rows: e.Index) -> e.Index:
        """Tiles of one product of `rows` rows."""
        return e.multiply(e.divide_up(rows, self.height), self.across)

    def grid(self, size: e.Index) -> tuple[e.Index, e.Index, e.Index]:
        """The numbers of workgroups for `size` rows, or for a batch of `size` products."""
        batch, rows = self.kernel.batch, self.kernel.m
        if batch is None:
            return self.across, e.divide_up(size, self.height), 1
        if batch.side_by_side:
            assert batch.size is not None
            return self.across, e.divide_up(size, self.height), batch.size
        assert rows is not None
        return self.across, e.divide_up(rows, self.height), size

    def found(
        self, size: e.Index, indices: Sequence[ir.Value], number: e.Index | None
    ) -> tuple[Place, tuple[e.Index, e.Index]]:
        """The product of tile `number`, by default of this workgroup's tile, and the tile's row and column among the
        product's tiles. `indices`: the memrefs of `Products.views`."""
        row: e.Index = e.block(1) if number is None else e.divide(number, self.across)
        column: e.Index = e.block(0) if number is None else e.remainder(number, self.across)
        return Products(self.kernel).place(size, indices, first_row=e.multiply(row, self.height)), (row, column)


@dataclass(frozen=True)
class InBands(Raster):
    """A one-dimensional grid whose workgroups go down a band of rows of tiles, then to the next column, so that those
    that run at the same time share operands in the L2 cache. `flat`: there is one row of tiles."""

    flat: bool = False

    def grid(self, size: e.Index) -> tuple[e.Index, e.Index, e.Index]:
        if self.kernel.batch is None:
            return self.tiles(size), 1, 1
        assert self.kernel.m is not None
        return e.multiply(self.tiles(self.kernel.m), size), 1, 1

    def found(
        self, size: e.Index, indices: Sequence[ir.Value], number: e.Index | None
    ) -> tuple[Place, tuple[e.Index, e.Index]]:
        products = Products(self.kernel)
        if number is None:  # IREE bounds it, unlike `gpu.block_id`, so that addresses are computed in 32 bits
            number = hal.InterfaceWorkgroupIDOp(0).result
        product: e.Index = 0
        if self.kernel.batch is not None:
            assert self.kernel.m is not None
            each = self.tiles(self.kernel.m)
            product, number = e.divide(number, each), e.remainder(number, each)
        place, tokens = products.place(size, indices, product), products.activation_rows
        if place.gathered is not None and isinstance(tokens, int):  # without counts, unused rows are read too
            place = replace(place, last_token=tokens - 1)
        return place, self._tile(place.rows, number)

    def _tile(self, rows: e.Index, number: e.Index) -> tuple[e.Index, e.Index]:
        down, across = 1 if self.flat else e.divide_up(rows, self.height), self.across
        if across == 1 and not self.flat:
            return number, 0
        if isinstance(down, int) and down <= _BAND:
            return e.remainder(number, down), e.divide(number, down)
        band, inside = e.divide(number, _BAND * across), e.remainder(number, _BAND * across)
        first = e.multiply(band, _BAND)
        height = e.minimum(e.subtract(down, first), _BAND)
        return e.add(first, e.remainder(inside, height)), e.divide(inside, height)
