"""qmlir-store-pooled: compute the operand of a pooling in a separate dispatch where its elements are all equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.barriers import Reason, fusion_barrier
from ....ir.walk import VIEWS, collect, producer
from ...base import Pass, State
from .store_broadcasts import is_broadcast

FAULTS = (
    Fault(
        "IREE fuses an operand whose elements are all equal into the sum of a pooling, which then reads nothing of the "
        "window's size, and adds the number once instead of once per element of the window: on CPUs, CUDA and ROCm.",
        canary="pooled_broadcast",
    ),
)


@dataclass(frozen=True)
class StorePooledPass(Pass):
    """Puts a fusion barrier behind the operand of a pooling whose elements are all equal, by which average pools count
    what is inside their windows. Fused, IREE 3.13 leaves a sum that reads none of its operands, and its code
    generators for vectors add the number once, whatever the size of the window is.
    """

    name: ClassVar[str] = "qmlir-store-pooled"
    summary: ClassVar[str] = "compute the operand of a pooling in a separate dispatch where its elements are all equal"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, where=lambda op: op.name.startswith("linalg.pooling")):
            if _is_one_number(op.operands[0]):
                with op.location, ir.InsertionPoint(op):
                    op.operands[0] = fusion_barrier(op.operands[0], Reason.POOLED_NUMBER)


def _is_one_number(value: ir.Value) -> bool:
    """Whether IREE may find that all elements are equal."""
    op = producer(value)
    if op is not None and op.name in VIEWS:
        return _is_one_number(op.operands[0])
    if op is not None and op.name == "arith.constant":
        return bool(ir.DenseElementsAttr(op.attributes["value"]).is_splat)
    if op is not None and op.name == "linalg.fill":
        return True
    return all(is_broadcast(value, axis) for axis in range(value.type.rank))
