"""When the row kernel takes a group. Every refusal is here; what is accepted can be emitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from ...core.mlir import OpLike, arith, flow, ir, tensor
from ...ir.attributes import entry_points
from ...kernels.outline import function_of, once, unused_name
from ...kernels.rows import NARROW, WIDE, RowGroup
from ..strategy import Accept, Decline, Estimate, Facts
from .machine import Machine
from .rows import GpuRowsKernel, placed

_STORED = ("i8", "i32", "f16", "bf16", "f32")
_COMPUTED = ("i1", "i8", "i16", "i32", "f16", "bf16", "f32")
_REDUCED = ("i32", "f32")  # what shuffles move


@dataclass(frozen=True)
class GpuRowsPlan:
    """The kernel in the place of the group, where its last op is."""

    rows: RowGroup
    machine: Machine

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`; `op` is the group's last."""
        rows, index = self.rows, ir.IndexType.get()
        kernel = GpuRowsKernel(rows, self.machine)
        function = function_of(op)
        with op.location, ir.InsertionPoint(function):
            name = unused_name(function, "rows")
            entry = kernel.emit(name)
        entry = once(function.parent, name, entry)
        with op.location, ir.InsertionPoint(op):
            known: dict[int, ir.Value] = {}  # the sizes of the dynamic axes, which all count rows
            for value, how in rows.inputs:
                for axis in _dynamic_axes(value) if how in (WIDE, NARROW) else ():
                    if axis not in known:
                        known[axis] = tensor.dim(value, arith.constant(index, axis))

            def dynamic(value: ir.Value) -> list[ir.Value]:
                return [known[axis] for axis in _dynamic_axes(value)]

            def own(value: ir.Value) -> list[ir.Value]:
                return [tensor.dim(value, arith.constant(index, axis)) for axis in _dynamic_axes(value)]

            count, sizes = [], []
            if kernel.count is None:
                factors = (
                    known[axis] if size is None else arith.constant(index, size)
                    for axis, size in enumerate(rows.space.rows)
                )
                total = reduce(arith.muli, factors)
                count, sizes = [total], [arith.index_cast(ir.IntegerType.get_signless(32), total)]
            read = [placed(v, rows.space.width).tensor if how == WIDE else v for v, how in rows.inputs]
            given = [v for v, _ in rows.inputs]
            read_sizes = [s for v, g in zip(read, given, strict=True) for s in (dynamic(v) if v == g else own(v))]
            outputs = [v for v, _ in rows.outputs]
            call = flow.DispatchOp(
                [v.type for v in outputs], count, entry_points(entry),
                [*sizes, *read],
                read_sizes, [size for v in outputs for size in dynamic(v)],
            )  # fmt: skip
        for value, result in zip(outputs, call.results, strict=True):
            value.replace_all_uses_with(result)
        for inside in reversed(rows.operations):
            inside.erase()

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return {"route": "kernel"}


def _dynamic_axes(value: ir.Value) -> list[int]:
    kind = ir.RankedTensorType(value.type)
    return [d for d in range(kind.rank) if kind.is_dynamic_dim(d)]


@dataclass(frozen=True)
class GpuRowsStrategy:
    """Rows by the threads of a workgroup. `sums`: whether it takes groups with sums, such as norms; without, only those
    whose reductions find a largest or smallest element, as dynamic quantisation does."""

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
    """The element types of what is read and written."""
    for value, _ in (*rows.inputs, *rows.outputs):
        yield value.type.element_type
