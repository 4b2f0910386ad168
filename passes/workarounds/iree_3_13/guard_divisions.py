"""qmlir-guard-divisions: make the division of a size by zero an error, not the end of the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.build import scalar
from ....ir.checks import assert_that
from ....ir.walk import collect, made_by
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "A division by zero in IREE's virtual machine, which computes sizes, ends the process.",
        canary="division_by_zero",
    ),
)

_DIVISIONS = (
    "arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.floordivsi", "arith.ceildivsi", "arith.ceildivui"
)  # fmt: skip
_MESSAGE = "a size is divided by zero: if a tensor has no elements, the size to infer for -1 is undefined"


@dataclass(frozen=True)
class GuardDivisionsPass(Pass):
    """Assert that the divisor of a scalar division outside of tensors is not zero, and divide by 1 if it is. A model
    whose Reshape has a size of -1 divides by the product of the other sizes, which is 0 if a batch is empty.
    """

    name: ClassVar[str] = "qmlir-guard-divisions"
    summary: ClassVar[str] = "a size that is divided by zero is an error, not the end of the process"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, *_DIVISIONS, where=_may_trap):
            divisor = op.operands[1]
            with ir.InsertionPoint(op), op.location:
                known = arith.cmpi(arith.CmpIPredicate.ne, divisor, scalar(0, divisor.type))
                assert_that(known, _MESSAGE)
                op.operands[1] = arith.select(known, divisor, scalar(1, divisor.type))


def _may_trap(op: OpLike) -> bool:
    """Whether an op is directly in a function and its divisor is a scalar that is not a nonzero constant."""
    divisor = op.operands[1]
    if not isinstance(divisor.type, (ir.IntegerType, ir.IndexType)) or op.parent.operation.name != "func.func":
        return False
    known = made_by(divisor, "arith.constant")
    return known is None or ir.IntegerAttr(known.attributes["value"]).value == 0
