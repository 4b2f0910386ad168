"""What is torch's dialect after raising, by torch-mlir's passes to linalg on tensors."""

from __future__ import annotations

from typing import Any

from ..._mlir import ir
from ..._spelling import location_text
from ...errors import Diagnostic
from ..torch_mlir import to_linalg, without_ir

_HEAD = ("func.func(torch-reduce-op-variants,canonicalize,torch-recompose-complex-ops,torch-scalarize-shapes)",)


def lower_torch(module: Any, name: str) -> None:
    """Lower every torch op of `module`. Raises FrontEndError, which names the place, for one that is not converted."""

    def blame(told: list[Diagnostic]) -> Diagnostic | None:
        if not told:
            return None
        return _left_over(module, name) or Diagnostic(without_ir(told[0].message), told[0].location)

    to_linalg(module, _HEAD, name, blame)


def _left_over(module: Any, name: str) -> Diagnostic | None:
    """The first operator that is still torch's: what the conversion stopped at is often a constant that it reads."""
    found: list[Diagnostic] = []

    def visit(op: Any) -> Any:
        if not op.name.startswith("torch.") or op.name.startswith(("torch.constant", "torch.prim", "torch.debug")):
            return ir.WalkResult.ADVANCE
        operator = op.attributes["name"].value if op.name == "torch.operator" else op.name
        found.append(Diagnostic(
            f"the operator {operator}, as it is used here, is not converted by torch-mlir; register a raising pattern "
            "for it, or leave it out of the compiled part", location_text(op.location) or name))  # fmt: skip
        return ir.WalkResult.INTERRUPT

    module.operation.walk(visit)
    return found[0] if found else None
