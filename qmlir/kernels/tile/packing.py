"""The order in which a weight is stored, from the layout of the instruction that multiplies it."""

from __future__ import annotations

from collections.abc import Sequence

from ..layouts import WeightLayout
from .layout import Bit

_AXES = ("column", "k")


def packed(
    digits: Sequence[Bit], shape: tuple[int, int], outer: Sequence[str], bits: int = 8, offset: int = 0
) -> WeightLayout:
    """The layout of codes of `shape`, `[column, k]`, that are stored tile by tile.

    Args:
        digits: for each bit of the place in a tile, highest first, the bit of the column or of k that it is. For codes
            shorter than a byte, the lowest two bits select one of four adjacent bytes, the bits above them the field.
        shape: the sizes, which the layout pads to whole tiles.
        outer: the order of tiles, outermost axis first.
        bits, offset: see `WeightLayout`.
    """
    fields = (8 // bits).bit_length() - 1
    cuts = {len(digits) - 2 - fields, len(digits) - 2} if fields else set()
    runs: list[list[Bit]] = []
    for i, (axis, bit) in enumerate(digits):
        if runs and i not in cuts and runs[-1][-1] == (axis, bit + 1):
            runs[-1].append((axis, bit))
        else:
            runs.append([(axis, bit)])
    factors: list[tuple[int, ...]] = []
    padded: list[int] = []
    number: dict[str | Bit, int] = {}
    for axis, size in zip(_AXES, shape, strict=True):
        mine = sorted((run for run in runs if run[0][0] == axis), key=lambda run: -run[0][1])
        tile = 1 << sum(map(len, mine))
        tiles = -(-size // tile)
        keys: list[str | Bit] = [axis, *(run[0] for run in mine)]
        for key in keys:
            number[key] = len(number)
        factors.append((tiles, *(1 << len(run) for run in mine)))
        padded.append(tiles * tile)
    order = [number[axis] for axis in outer] + [number[run[0]] for run in runs]
    field = next((i for i, run in enumerate(runs, len(outer)) if fields and run[-1] == digits[-3]), None)
    return WeightLayout(tuple(padded), tuple(factors), tuple(order), bits, field, offset)
