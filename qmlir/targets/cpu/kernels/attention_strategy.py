"""Decides when the attention kernel takes an attention op. All refusals are here; an accepted op can be emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ....core.mlir import flow, ir
from ....ir.attributes import entry_points
from ....kernels.attention import Attention, scale_of
from ....kernels.outline import function_of, once, unused_name
from ...base import Target
from ...strategy import Accept, Decline, Estimate
from ..description import lacks
from ..threads.program import team_of, threads_of
from .attention import AttentionKernel, Registers, stack_fits

if TYPE_CHECKING:
    from ....core.mlir import OpLike


@dataclass(frozen=True)
class AttentionPlan:
    """Replaces the op by a dispatch of the kernel."""

    attention: Attention
    scale: float
    registers: Registers

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`."""
        attention = self.attention
        function = function_of(op)
        with op.location, ir.InsertionPoint(function):
            name = unused_name(function, "attention")
            entry = AttentionKernel(attention, self.scale, self.registers).emit(name)
        entry = once(function.parent, name, entry)
        with op.location, ir.InsertionPoint(op):
            values = attention.size_values()
            sizes = [value for value, size in zip(values, attention.sizes, strict=True) if size is None]

            def dynamic(axes: tuple[int, ...], kind: ir.Type) -> list[ir.Value | int]:
                kind = ir.RankedTensorType(kind)
                return [values[a] for i, a in enumerate(axes) if kind.is_dynamic_dim(i)]

            out = attention.out
            inputs = [replace(t, value=t.stored) for t in attention.tensors[:-1]]
            call = flow.DispatchOp(
                [out.value.type], sizes, entry_points(entry),
                [team_of(op, self.registers.features), *sizes, *(t.value for t in inputs)],
                [size for t in inputs for size in dynamic(t.axes, t.value.type)],
                dynamic(out.axes, out.value.type),
            )  # fmt: skip
        op.results[0].replace_all_uses_with(call.results[0])
        op.erase()

    def describe(self) -> Mapping[str, int | str]:
        """See `strategy.Plan`."""
        return {"route": "kernel", "lanes": self.registers.lanes, **threads_of(self.registers.features)}


@dataclass(frozen=True)
class AttentionStrategy:
    """f32 attention with the vectors of one kind of CPU."""

    target: Target
    registers: Registers

    @property
    def name(self) -> str:
        return self.registers.name

    def consider(self, attention: Attention) -> Accept | Decline:
        """See `strategy.GroupStrategy`."""
        if declined := lacks(self.target, *self.registers.features):
            return declined
        kinds = {str(ir.RankedTensorType(t.value.type).element_type) for t in attention.tensors}
        if kinds != {"f32"}:
            return Decline(f"it is of {', '.join(sorted(kinds))}", "queries, keys, values and mask of f32")
        groups = (attention.rows, attention.keys, attention.inner, attention.columns)
        if any(len(group) != 1 for group in groups):
            return Decline(
                "rows, keys, inner or columns are not exactly one axis",
                "exactly one axis of each besides the batch axes",
            )
        (m,), (k2,), (k1,), (n,) = groups
        d, columns = attention.sizes[k1], attention.sizes[n]
        if d is None or columns is None:
            return Decline("the width of a head is dynamic", "a static width")
        if not stack_fits(d, columns):
            return Decline(f"heads of {d} and {columns} exceed a thread's stack", "512 together at most")
        last = {"queries": (attention.q, k1), "keys": (attention.k, k1), "values": (attention.v, n),
                "the result": (attention.out, n), "the mask": (attention.mask, k2)}  # fmt: skip
        for what, (t, loop) in last.items():
            if t is not None and t.axes[-1:] != (loop,):
                return Decline(f"rows of {what} are not contiguous", "make the reduced or written axis the last one")
        if attention.mask is not None and not {*attention.mask.axes} <= {*attention.batch, m, k2}:
            return Decline("the mask has an axis of the head's elements", "a mask over batch, queries and keys only")
        scale = scale_of(attention.scale)
        if scale is None:
            return Decline("the scale is not known", "a constant scale")
        return Accept(AttentionPlan(attention, scale, self.registers), Estimate(None))
