"""qmlir-guard: nothing is left that IREE does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...ir.walk import collect
from ..base import Diagnostic, Pass, State, error_at, fail

if TYPE_CHECKING:
    from ...core.mlir import ir


@dataclass(frozen=True)
class GuardPass(Pass):
    """An op that IREE has not registered makes its dispatch formation segfault (seen with 3.13): refuse it here."""

    name: ClassVar[str] = "qmlir-guard"
    summary: ClassVar[str] = "refuse ops that IREE has not registered, and drop our own attributes"

    def run(self, module: ir.Module, state: State) -> None:
        ctx = module.operation.context
        found: list[Diagnostic] = []
        for op in collect(module):
            if not ctx.is_registered_operation(op.name):
                found.append(error_at(op, f"'{op.name}' was not lowered and is unknown to IREE"))
            for name in [a if isinstance(a, str) else a.name for a in op.attributes]:
                if name.startswith("qmlir."):
                    del op.attributes[name]
        fail(self.name, found)
