"""Whether the row kernel accepts a group. Every refusal is here: an accepted group can be emitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from ...core.mlir import OpLike, arith, ir
from ...kernels.outline_rows import outline_rows
from ...kernels.rows import WIDE, RowGroup
from ..strategy import Accept, Decline, Estimate, Facts
from .machine import Machine
from .rows import GpuRowsKernel, placed

_STORED = ("i8", "i32", "f16", "bf16", "f32")
_COMPUTED = ("i1", "i8", "i16", "i32", "f16", "bf16", "f32")
_REDUCED = ("i32", "f32")  # the types that shuffles move


@dataclass(frozen=True)
class GpuRowsPlan:
    """Replace the group by the kernel, at the place of the group's last op."""

    rows: RowGroup
    machine: Machine

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`; `op` is the group's last."""
        rows, kernel = self.rows, GpuRowsKernel(self.rows, self.machine)

        def given(known: Mapping[int, ir.Value]) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value]]:
            count, sizes = [], []
            if kernel.count is None:
                factors = (
                    known[axis] if size is None else arith.constant(ir.IndexType.get(), size)
                    for axis, size in enumerate(rows.space.rows)
                )
                total = reduce(arith.muli, factors)
                count, sizes = [total], [arith.index_cast(ir.IntegerType.get_signless(32), total)]
            return count, sizes, [placed(v, rows.space.width).tensor if how == WIDE else v for v, how in rows.inputs]

        outline_rows(op, rows, kernel.emit, given)

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return {"route": "kernel"}


@dataclass(frozen=True)
class GpuRowsStrategy:
    """Rows by the threads of a workgroup. `sums`: whether groups with sums are accepted, such as norms; if not, all
    reductions must be maxima or minima, as in dynamic quantisation."""

    machine: Machine
    sums: bool
    name: str = "rows"

    def consider(self, rows: RowGroup) -> Accept | Decline:
        """See `strategy.GroupStrategy`."""
        for kind in _stored(rows):
            if str(kind) not in _STORED:
                return Decline(f"it reads or makes {kind}", f"one of {', '.join(_STORED)}")
        for step in rows.steps:
            for reduction in step.reductions:
                if not self.sums and reduction.combine.name.startswith("arith.add"):
                    return Decline("it sums", "IREE's own code does")
                if str(reduction.element.type) not in _REDUCED:
                    return Decline(f"it reduces {reduction.element.type}", f"one of {', '.join(_REDUCED)}")
            for op in step.body.operations:
                for result in op.operation.results:
                    if str(result.type) not in _COMPUTED:
                        return Decline(f"it computes with {result.type}", f"one of {', '.join(_COMPUTED)}")
        return Accept(GpuRowsPlan(rows, self.machine), Estimate(None))


def _stored(rows: RowGroup) -> Iterator[ir.Type]:
    """The element types of the tensors that are read and written."""
    for value, _ in (*rows.inputs, *rows.outputs):
        yield value.type.element_type
