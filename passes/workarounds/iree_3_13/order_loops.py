"""qmlir-order-loops: give a reduction's loops the order of its result's axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....core.faults import Fault
from ....core.mlir import ir, linalg
from ....ir.affine import axis_loops, in_order, indexing_maps
from ....ir.walk import collect
from ....targets.tensors import rewritten
from ...base import Pass, State

FAULTS = (
    Fault(
        "For SPIR-V, IREE tiles a reduction by its loops, and the op that computes its initial value by the axes of "
        "the result, as if both had the same order: where they differ, elements are missing or wrong.",
        canary="transposed_sum",
    ),
)


@dataclass(frozen=True)
class OrderLoopsPass(Pass):
    """Replace a linalg op with a reduction by a `linalg.generic` with the same body whose parallel loops come first, in
    the order of the result's axes. Ops whose loops, except those of one step, have this order are unchanged.

    IREE 3.13's SPIR-V pipeline `BaseDistribute` takes the order of the loops for that of the axes. Channels-first
    depthwise convolutions, whose named op has the channels as its last parallel loop, and sums with a transposed result
    were wrong if the sizes differed.
    """

    name: ClassVar[str] = "qmlir-order-loops"
    summary: ClassVar[str] = "give a reduction's loops the order of its result's axes (Vulkan)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, where=lambda op: len(op.results) == 1 and linalg.get_indexing_maps(op) is not None):
            maps = indexing_maps(op)
            if not maps[-1].is_projected_permutation or "compilation_info" in op.attributes:
                continue
            kept = axis_loops(maps[-1])
            order = [*kept, *(i for i in range(maps[-1].n_dims) if i not in kept)]
            long = [i for i, size in zip(kept, op.results[0].type.shape, strict=True) if size != 1]
            if len(order) == len(kept) or long == sorted(long):
                continue
            with op.location, ir.InsertionPoint(op):
                rewritten(op, list(op.operands), [in_order(m, order) for m in maps])
