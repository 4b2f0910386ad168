"""What the bodies of a kernel read, as the kernel is given it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...._mlir import memref, vector
from ....kernels import emit as e
from ....kernels.description import COLUMN, ROW, SLOT, TOKEN, Operand
from ....kernels.outline import aligned, merged
from ....kernels.weights import known


def follows_rows(operand: Operand) -> bool:
    """Whether it differs from row to row of a product."""
    return any(axis in operand.axes for axis in (ROW, SLOT, TOKEN))


def letters(operand: Operand) -> str:
    """The axes of the tensor that the kernel is given: as they stand in the program where columns are last or absent,
    which spares a dispatch that would transpose a scale of rows and groups."""
    own = "".join(x for i, x in enumerate(operand.source_axes) if i == 0 or operand.source_axes[i - 1] != x)
    plain = len(set(own)) == len(own) and (COLUMN not in own or own[-1] == COLUMN)
    return own if plain and known(operand.value) is None else operand.axes


def arranged(operand: Operand) -> Any:
    """The tensor with its axes in the order of `letters`, at the insertion point."""
    return aligned(operand) if letters(operand) == operand.axes else merged(operand)


def fetch(operand: Operand, buffer: Any, places: Mapping[str, e.Index], lanes: int) -> Any:
    """An operand at `lanes` neighbouring columns, from the place on each of its axes."""
    where = [e.index(places[axis]) for axis in letters(operand)]
    if COLUMN not in operand.axes:
        return e.broadcast(memref.load(buffer, where), lanes)
    size = lanes * e.bits(operand.element_type) // 8
    return vector.LoadOp(e.vector_of(lanes, operand.element_type), buffer, where, alignment=size).result
