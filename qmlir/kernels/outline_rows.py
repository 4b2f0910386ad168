"""Replaces a group of ops on rows (`rows.py`) by a dispatch of an executable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..core.mlir import arith, flow, ir, tensor
from ..ir.attributes import entry_points
from .outline import function_of, once, unused_name
from .rows import NARROW, WIDE, RowGroup

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# From the sizes of the dynamic axes, by axis, to the workload of a dispatch, its scalars, and the tensors it reads.
Given: TypeAlias = "Callable[[Mapping[int, ir.Value]], tuple[list[ir.Value], list[ir.Value], Sequence[ir.Value]]]"


def dynamic_axes(value: ir.Value) -> list[int]:
    """The axes of a tensor whose sizes are dynamic."""
    kind = ir.RankedTensorType(value.type)
    return [d for d in range(kind.rank) if kind.is_dynamic_dim(d)]


def outline_rows(op: OpLike, rows: RowGroup, emit: Callable[[str], str], given: Given) -> None:
    """Replace a group by a dispatch, at its last op `op`, of the executable that `emit` makes under a name. The
    dispatch's operands are scalars, followed by tensors."""
    function = function_of(op)
    with op.location, ir.InsertionPoint(function):
        name = unused_name(function, "rows")
        entry = emit(name)
    entry = once(function.parent, name, entry)
    with op.location, ir.InsertionPoint(op):
        known: dict[int, ir.Value] = {}  # the sizes of the dynamic axes, all of which are axes of rows

        def size(value: ir.Value, axis: int) -> ir.Value:
            return tensor.dim(value, arith.constant(ir.IndexType.get(), axis))

        for value, how in rows.inputs:
            for axis in dynamic_axes(value) if how in (WIDE, NARROW) else ():
                if axis not in known:
                    known[axis] = size(value, axis)
        outputs = [v for v, _ in rows.outputs]
        group_values = {*outputs, *(v for v, _ in rows.inputs)}
        workload, scalars, read = given(known)
        sizes = [known[a] if v in group_values else size(v, a) for v in read for a in dynamic_axes(v)]
        call = flow.DispatchOp(
            [v.type for v in outputs], workload, entry_points(entry), [*scalars, *read], sizes,
            [known[a] for v in outputs for a in dynamic_axes(v)],
        )  # fmt: skip
    for value, result in zip(outputs, call.results, strict=True):
        value.replace_all_uses_with(result)
    for inside in reversed(rows.operations):
        inside.erase()
