"""qmlir-guard: refuse ops that IREE does not register."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....ir.walk import collect
from ...base import Pass, State, error_at, fail

if TYPE_CHECKING:
    from ....core.mlir import ir

FAULTS = (
    Fault(
        "An op that IREE has not registered crashes its dispatch formation, and with it the process.",
        canary="unknown_op",
    ),
)


@dataclass(frozen=True)
class GuardPass(Pass):
    """IREE 3.13's dispatch formation crashes on an op that is not registered, so this pass reports it first."""

    name: ClassVar[str] = "qmlir-guard"
    summary: ClassVar[str] = "refuse ops that IREE does not register"

    def run(self, module: ir.Module, state: State) -> None:
        ctx = module.operation.context
        unknown = collect(module, where=lambda op: not ctx.is_registered_operation(op.name))
        fail(self.name, [error_at(op, f"'{op.name}' was not lowered and is unknown to IREE") for op in unknown])
