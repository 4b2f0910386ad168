"""When the row kernel takes a group. Every refusal is here; what is accepted can be emitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....core.mlir import arith, flow, ir, tensor
from ....ir.attributes import entry_points
from ....kernels.outline import function_of, once, unused_name
from ....kernels.rows import NARROW, WIDE, RowGroup
from ...base import Target
from ...strategy import Accept, Decline, Estimate, Facts
from ..description import lacks
from ..threads.program import team_of, threads_of
from .rows import CpuRowsKernel, Lanes, dynamic_axes, stack_fits

if TYPE_CHECKING:
    from ....core.mlir import OpLike


@dataclass(frozen=True)
class CpuRowsPlan:
    """The kernel in the place of the group, where its last op is."""

    rows: RowGroup
    lanes: Lanes

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`; `op` is the group's last."""
        rows = self.rows
        function = function_of(op)
        with op.location, ir.InsertionPoint(function):
            name = unused_name(function, "rows")
            entry = CpuRowsKernel(rows, self.lanes).emit(name)
        entry = once(function.parent, name, entry)
        with op.location, ir.InsertionPoint(op):
            known: dict[int, ir.Value] = {}
            for value, how in rows.inputs:
                for axis in dynamic_axes(value) if how in (WIDE, NARROW) else ():
                    if axis not in known:
                        known[axis] = tensor.dim(value, arith.constant(ir.IndexType.get(), axis))
            sizes = [known[axis] for axis in sorted(known)]

            def dynamic(value: ir.Value) -> list[ir.Value]:
                return [known[axis] for axis in dynamic_axes(value)]

            outputs = [v for v, _ in rows.outputs]
            call = flow.DispatchOp(
                [v.type for v in outputs], sizes, entry_points(entry),
                [team_of(op, self.lanes.features), *sizes, *(v for v, _ in rows.inputs)],
                [size for v, _ in rows.inputs for size in dynamic(v)], [size for v in outputs for size in dynamic(v)],
            )  # fmt: skip
        for value, result in zip(outputs, call.results, strict=True):
            value.replace_all_uses_with(result)
        for inside in reversed(rows.operations):
            inside.erase()

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return {"route": "kernel", "lanes": self.lanes.lanes, **threads_of(self.lanes.features)}


@dataclass(frozen=True)
class CpuRowsStrategy:
    """Rows with the vectors of one kind of CPU."""

    target: Target
    lanes: Lanes

    @property
    def name(self) -> str:
        return self.lanes.name

    def consider(self, rows: RowGroup) -> Accept | Decline:
        """See `strategy.GroupStrategy`."""
        if declined := lacks(self.target, *self.lanes.features):
            return declined
        if rows.space.width < self.lanes.lanes:
            return Decline(f"rows of {rows.space.width}", f"rows of {self.lanes.lanes} elements")
        if not stack_fits(rows):
            return Decline("what waits between passes does not fit a thread's stack", "shorter rows")
        return Accept(CpuRowsPlan(rows, self.lanes), Estimate(None))
