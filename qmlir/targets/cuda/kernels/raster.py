"""Which tile of the result a workgroup takes, so that those that run together share operands in the L2 cache."""

from __future__ import annotations

from ....kernels import emit as e
from ....kernels.description import Kernel
from .tile import Tile

# Rows of tiles that are walked together: workgroups of one wave then read about as many different rows as columns.
_BAND = 8


def blocks(kernel: Kernel, tile: Tile, size: e.Index) -> e.Index:
    """How many workgroups there are for `size` rows, or for a batch of `size` products."""
    return each(kernel, tile, size) if kernel.batch is None else e.multiply(_of_one(kernel, tile), size)


def each(kernel: Kernel, tile: Tile, rows: e.Index) -> e.Index:
    """How many workgroups one product has."""
    return e.multiply(e.divide_up(rows, tile.m), -(-kernel.n // tile.n))


def _of_one(kernel: Kernel, tile: Tile) -> e.Index:
    """How many workgroups each product of a batch has."""
    assert kernel.m is not None
    return each(kernel, tile, kernel.m)


def batch_of(kernel: Kernel, tile: Tile, number: e.Index) -> tuple[e.Index, e.Index]:
    """Which product of a batch workgroup `number` has a tile of, and the number of the workgroup in it."""
    if kernel.batch is None:
        return 0, number
    count = _of_one(kernel, tile)
    return e.divide(number, count), e.remainder(number, count)


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
