"""Decides when the kernel for recurrent layers takes one. All refusals are here; an accepted layer can be emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import flow, ir
from ....dialect.constants import constant_array
from ....ir.attributes import entry_points
from ....ir.build import Extent, collapse, crop, dense, dims, expand, pad, scalar, tensor_type, transpose
from ....kernels.outline import function_of, once, unused_name
from ...base import Target
from ...strategy import Accept, Decline, Estimate
from ..description import lacks
from ..threads.program import team_of, threads_of
from .recurrence import RecurrenceKernel, RecurrenceRegisters, UnitBlocks

if TYPE_CHECKING:
    from ....core.mlir import OpLike
    from ....kernels.recurrence import Recurrence, RecurrenceCall


@dataclass(frozen=True)
class RecurrencePlan:
    """Replaces the call by a dispatch of the kernel."""

    layer: Recurrence
    kernel: RecurrenceKernel

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`."""
        layer, kernel = self.layer, self.kernel
        function = function_of(op)
        with op.location, ir.InsertionPoint(op):
            named = dict(zip(layer.operands, op.operands, strict=True))
            steps, batch, _ = dims(named["inputs"])
            first, *others = op.operands[0], *op.operands[2:]
            packed = [_packed(named["weights"], layer.directions, blocks) for blocks in kernel.blocks]
            inputs = [first, *packed, *others]
            work: list[Extent] = [kernel.workspace, layer.directions, batch, layer.hidden]
            results = [*(r.type for r in op.results), tensor_type(work, ir.F32Type.get())]
        # The size of each dynamic axis: axis 0 of `inputs` and of the first result is the steps, others are the batch.
        kinds = [ir.RankedTensorType(t) for t in (*(v.type for v in inputs), *results)]
        by_steps = (0, len(inputs))
        axes = [
            [0 if d == 0 and i in by_steps else 1 for d in range(kind.rank) if kind.is_dynamic_dim(d)]
            for i, kind in enumerate(kinds)
        ]
        with op.location, ir.InsertionPoint(function):
            name = unused_name(function, "recurrence")
            entry = kernel.emit(name, kinds, axes)
        entry = once(function.parent, name, entry)
        with op.location, ir.InsertionPoint(op):
            sizes: list[Extent] = [steps, batch]
            known = [s for s in sizes if not isinstance(s, int)]
            of = [[sizes[a] for a in one] for one in axes]
            call = flow.DispatchOp(
                results, known, entry_points(entry),
                [team_of(op, kernel.registers.features), *known, *inputs],
                [s for one in of[: len(inputs)] for s in one], [s for one in of[len(inputs) :] for s in one],
            )  # fmt: skip
        for old, new in zip(op.results, list(call.results), strict=False):
            old.replace_all_uses_with(new)
        op.erase()

    def describe(self) -> Mapping[str, int | str]:
        """See `strategy.Plan`."""
        registers = self.kernel.registers
        return {"route": "kernel", "lanes": registers.lanes, **threads_of(registers.features)}


@dataclass(frozen=True)
class RecurrenceStrategy:
    """f32 recurrent layers on the vectors of one kind of CPU."""

    target: Target
    registers: RecurrenceRegisters

    @property
    def name(self) -> str:
        return self.registers.name

    def consider(self, call: RecurrenceCall) -> Accept | Decline:
        """See `strategy.GroupStrategy`."""
        if declined := lacks(self.target, *self.registers.features):
            return declined
        kernel = RecurrenceKernel(call.layer, call.steps, call.batch, self.registers)
        return Accept(RecurrencePlan(call.layer, kernel), Estimate(None))


def _packed(weights: ir.Value, directions: int, blocks: UnitBlocks) -> ir.Value:
    """Pack `[D, G * H, H]` in the order in which the kernel reads a phase's gates: `[D, blocks, H, gates * width]`."""
    h, first, count = blocks.hidden, blocks.gates[0], len(blocks.gates)
    gates = weights.type.shape[1] // h
    more = blocks.count * blocks.width - h
    known = constant_array(weights)
    if known is not None:
        array = known.reshape(directions, gates, h, h)[:, first : first + count]
        array = np.pad(array, ((0, 0), (0, 0), (0, more), (0, 0)))
        array = array.reshape(directions, count, blocks.count, blocks.width, h).transpose(0, 2, 4, 1, 3)
        return dense(np.ascontiguousarray(array).reshape(directions, blocks.count, h, count * blocks.width))
    split = expand(weights, [[directions], [gates, h], [h]])
    if count < gates:
        split = crop(split, [0, first, 0, 0], [directions, count, h, h])
    wide = pad(split, [0] * 4, [0, 0, more, 0], scalar(0.0, weights.type.element_type))
    split = expand(wide, [[directions], [count], [blocks.count, blocks.width], [h]])
    return collapse(transpose(split, (0, 2, 4, 1, 3)), [[0], [1], [2], [3, 4]])
