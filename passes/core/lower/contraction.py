"""The contraction of two sides, and sums of codes along K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....core.mlir import arith
from ....ir.build import Arg, Extent, filled, generic, scalar
from ....ir.facts import MAGNITUDES, PRESENT, ROW_SUMS
from ....ir.scalars import const, i32, to_f32, to_i32
from .values import Side

if TYPE_CHECKING:
    from ....core.mlir import ir


def _batch_axes(side: Side, batch: Sequence[Extent]) -> list[int | None]:
    """Loops of a side's batch axes, right-aligned with the result's; None for size one. If the result's axis has size
    one too, the lhs follows its loop, which would otherwise belong to neither side: it becomes a second row axis."""
    t = side.codes.type
    axes: list[int | None] = []
    for i, loop in enumerate(range(len(batch) - side.batch, len(batch))):
        repeated = not t.is_dynamic_dim(i) and t.get_dim_size(i) == 1
        axes.append(None if repeated and not (side.name == "lhs" and batch[loop] == 1) else loop)
    return axes


def side_axes(
    side: Side, batch: Sequence[Extent], row: int, k: int | None, group: int | None = None
) -> tuple[int | None, ...]:
    """Loops of the axes of a side's codes, the batch loops first; with `group`, K is split into (group, k)."""
    axes: list[int | None] = [*_batch_axes(side, batch)]
    for i in range(side.batch, side.batch + 2):
        if i == side.row:
            axes.append(row)
        elif group is not None:
            axes += [group, k]
        else:
            axes.append(k)
    return tuple(axes)


def parameter_axes(
    side: Side, value: ir.Value, batch: Sequence[Extent], row: int, group: int | None
) -> tuple[int | None, ...]:
    """Loops of the axes of a side's scale or zero point; None for axes of size one."""
    full = side_axes(side, batch, row, group)
    t = value.type
    return tuple(None if not t.is_dynamic_dim(i) and t.get_dim_size(i) == 1 else axis for i, axis in enumerate(full))


def _mul_add_int(x: ir.Value, y: ir.Value, acc: ir.Value) -> ir.Value:
    return arith.addi(acc, arith.muli(to_i32(x), to_i32(y)))


def _mul_add_float(x: ir.Value, y: ir.Value, acc: ir.Value) -> ir.Value:
    return arith.addf(acc, arith.mulf(to_f32(x), to_f32(y)))


def contract(
    a: ir.Value, a_axes: Sequence[int | None], b: ir.Value, b_axes: Sequence[int | None], sizes: list[Extent],
    loops: int, out_axes: Sequence[int], bounds: tuple[int, int] | None,
) -> ir.Value:  # fmt: skip
    """The multiply-add contraction; integer when `bounds` (largest |code| of each side) is given."""
    zero = scalar(0, i32()) if bounds else const(0.0)
    body = _mul_add_int if bounds else _mul_add_float
    facts = dict(zip(MAGNITUDES, bounds, strict=True)) if bounds else None
    return generic([Arg(a, tuple(a_axes)), Arg(b, tuple(b_axes))], filled(sizes, zero), out_axes, loops, body,
                   facts=facts)  # fmt: skip


def row_sums(codes: ir.Value, axes: Sequence[int | None], sizes: list[Extent], keep: Sequence[int]) -> ir.Value:
    """i32 sums of stored codes over K; the result follows those of the loops `keep` that the codes follow."""
    used = sorted({x for x in axes if x is not None})
    order = {loop: i for i, loop in enumerate(used)}
    kept = [x for x in keep if x in order]
    renamed = tuple(None if x is None else order[x] for x in axes)
    out = [sizes[keep.index(x)] for x in kept]
    init = filled(out, scalar(0, i32()))
    return generic([Arg(codes, renamed)], init, [order[x] for x in kept], len(used),
                   lambda x, acc: arith.addi(acc, to_i32(x)), facts={ROW_SUMS: PRESENT})  # fmt: skip
