"""Decides when the row kernel takes a group. All refusals are here; an accepted group can be emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....core.mlir import ir
from ....kernels.outline_rows import outline_rows
from ....kernels.rows import RowGroup
from ...base import Target
from ...strategy import Accept, Decline, Estimate, Facts
from ..description import lacks
from ..threads.program import team_of, threads_of
from .rows import CpuRowsKernel, Lanes, stack_fits

if TYPE_CHECKING:
    from ....core.mlir import OpLike


@dataclass(frozen=True)
class CpuRowsPlan:
    """Replaces the group by a dispatch of the kernel at the place of its last op."""

    rows: RowGroup
    lanes: Lanes

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`; `op` is the group's last."""

        def given(known: Mapping[int, ir.Value]) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value]]:
            sizes = [known[axis] for axis in sorted(known)]
            return sizes, [team_of(op, self.lanes.features), *sizes], [v for v, _ in self.rows.inputs]

        outline_rows(op, self.rows, CpuRowsKernel(self.rows, self.lanes).emit, given)

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return {"route": "kernel", "lanes": self.lanes.lanes, **threads_of(self.lanes.features)}


@dataclass(frozen=True)
class CpuRowsStrategy:
    """Row groups on the vectors of one kind of CPU."""

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
            return Decline("the values kept between passes exceed a thread's stack", "shorter rows")
        return Accept(CpuRowsPlan(rows, self.lanes), Estimate(None))
