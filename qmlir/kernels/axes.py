"""Axes of a contraction: the role of each loop, and which loop each axis of an operand follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..core.mlir import ir
from ..ir.affine import indexing_maps
from .description import COLUMN, GROUP, ROW, Unfit

if TYPE_CHECKING:
    from ..core.mlir import OpLike


@dataclass(frozen=True)
class Axis:
    """An axis of the kernel as the program has it: several axes may have the letter of rows, as in a batched input."""

    letter: str
    number: int
    size: int | None


Axes: TypeAlias = "tuple[Axis, ...]"


def dims_of(affine_map: ir.AffineMap) -> list[int] | None:
    """The loop that each axis follows; None if an axis follows no loop, or two follow the same one (a diagonal)."""
    found: list[int] = []
    for result in affine_map.results:
        if not isinstance(result, ir.AffineDimExpr) or result.position in found:
            return None
        found.append(result.position)
    return found


def axes_of(affine_map: ir.AffineMap, axes: Sequence[Axis]) -> Axes | None:
    positions = dims_of(affine_map)
    return None if positions is None else tuple(axes[p] for p in positions)


def size_of(value: ir.Value, axis: int) -> int | None:
    kind = ir.RankedTensorType(value.type)
    return None if kind.is_dynamic_dim(axis) else int(kind.get_dim_size(axis))


def product_of(sizes: Sequence[int | None]) -> int | None:
    total = 1
    for size in sizes:
        if size is None:
            return None
        total *= size
    return total


def loops_of_contraction(op: OpLike) -> Axes:
    """The role of each loop: rows, columns, depth, or groups (which all three tensors have)."""
    maps = [dims_of(m) for m in indexing_maps(op)]
    if any(m is None for m in maps):
        raise Unfit("an operand's indexing map is not one loop per axis", "a product of plain matrices")
    lhs, rhs, out = (m for m in maps if m is not None)
    letters = {(1, 0, 1): ROW, (0, 1, 1): COLUMN, (1, 1, 0): "k", (1, 1, 1): GROUP}
    sizes: dict[int, int | None] = {}
    for positions, value in zip((lhs, rhs, out), op.operands, strict=True):
        for axis, position in enumerate(positions):
            sizes[position] = sizes.get(position) or size_of(value, axis)
    count = indexing_maps(op)[0].n_dims
    axes = []
    for d in range(count):
        letter = letters.get((int(d in lhs), int(d in rhs), int(d in out)))
        if letter is None:
            raise Unfit("a loop belongs to one operand alone", "a product of plain matrices")
        axes.append(Axis(letter, d, sizes[d]))
    return tuple(axes)
