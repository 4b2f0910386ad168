"""Which tile of the result a workgroup takes, so that those that run together share operands in the L2 cache."""

from __future__ import annotations

from ....kernels import emit as e
from ....kernels.description import Kernel
from .tile import Tile

# Rows of tiles that are walked together: workgroups of one wave then read about as many different rows as columns.
_BAND = 8


def products(kernel: Kernel) -> int:
    """How many products of a batch there are; its size is static."""
    return 1 if kernel.batch is None else kernel.batch.size or 0


def blocks(kernel: Kernel, tile: Tile, rows: e.Index) -> e.Index:
    """How many workgroups there are."""
    return e.multiply(e.multiply(e.divide_up(rows, tile.m), -(-kernel.n // tile.n)), products(kernel))


def batch_of(kernel: Kernel, tile: Tile, rows: e.Index, number: e.Index) -> tuple[e.Index, e.Index]:
    """Which product of a batch workgroup `number` has a tile of, and the number of the workgroup in it."""
    if kernel.batch is None:
        return 0, number
    each = e.multiply(e.divide_up(rows, tile.m), -(-kernel.n // tile.n))
    return e.divide(number, each), e.remainder(number, each)


def place(kernel: Kernel, tile: Tile, rows: e.Index, number: e.Index) -> tuple[e.Index, e.Index]:
    """The tile's row and column of workgroup `number`: down a band of rows, then to the next column."""
    down, across = e.divide_up(rows, tile.m), -(-kernel.n // tile.n)
    if across == 1:
        return number, 0
    if isinstance(down, int) and down <= _BAND:
        return e.remainder(number, down), e.divide(number, down)
    band, inside = e.divide(number, _BAND * across), e.remainder(number, _BAND * across)
    first = e.multiply(band, _BAND)
    height = e.minimum(e.subtract(down, first), _BAND)
    return e.add(first, e.remainder(inside, height)), e.divide(inside, height)
