"""qmlir-guard: refuse or remove ops on which IREE ends the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....ir.walk import outside_kernels
from ...base import Pass, State, error_at, fail
from ...core.contractions import is_product

if TYPE_CHECKING:
    from ....core.mlir import ir

FAULTS = (
    Fault(
        "An op that IREE has not registered crashes its dispatch formation, and with it the process.",
        canary="unknown_op",
    ),
    Fault(
        "IREE divides by the size of a product's summed axis: an axis of size 0 ends the process (SIGFPE).",
        canary="empty_sum",
    ),
)


@dataclass(frozen=True)
class GuardPass(Pass):
    """Report ops that are not registered, because IREE 3.13's dispatch formation crashes on them. Replace a product
    that sums over an axis of size 0 by its initial value, because IREE divides by that size."""

    name: ClassVar[str] = "qmlir-guard"
    summary: ClassVar[str] = "refuse ops that IREE does not register, and compute no empty sums"

    def run(self, module: ir.Module, state: State) -> None:
        for op in outside_kernels(module, where=is_product):
            if 0 in op.operands[0].type.shape and 0 not in op.results[0].type.shape:
                op.results[0].replace_all_uses_with(op.operands[2])
                op.erase()
        ctx = module.operation.context
        unknown = outside_kernels(module, where=lambda op: not ctx.is_registered_operation(op.name))
        fail(self.name, [error_at(op, f"'{op.name}' was not lowered and is unknown to IREE") for op in unknown])
