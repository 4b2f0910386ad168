"""What the bodies of a kernel read, as the kernel is given it."""

from __future__ import annotations

from collections.abc import Mapping

from ....core.mlir import ir, memref, vector
from ....kernels import emit as e
from ....kernels.description import COLUMN, ROW, SLOT, TOKEN, Operand
from ....kernels.order import letters


def follows_rows(operand: Operand) -> bool:
    """Whether it differs from row to row of a product."""
    return any(axis in operand.axes for axis in (ROW, SLOT, TOKEN))


def fetch(operand: Operand, buffer: ir.Value, places: Mapping[str, e.Index], lanes: int) -> ir.Value:
    """An operand at `lanes` neighbouring columns, from the place on each of its axes."""
    where = [e.index(places[axis]) for axis in letters(operand)]
    if COLUMN not in operand.axes:
        return e.broadcast(memref.load(buffer, where), lanes)
    size = lanes * e.bits(operand.element_type) // 8
    return vector.LoadOp(e.vector_of(lanes, operand.element_type), buffer, where, alignment=size).result
