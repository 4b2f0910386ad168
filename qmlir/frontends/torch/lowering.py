"""What is torch's dialect after raising, by torch-mlir's passes to linalg on tensors."""

from __future__ import annotations

from typing import Any

from ..._mlir import PassManager, ir
from ..._spelling import location_text
from ...errors import Diagnostic, FrontEndError

# IREE's `torch-to-iree` without its last steps (its calling convention, and the check that nothing but torch's types is
# left, which a program with our operations does not pass).
_PASSES = """
func.func(torch-reduce-op-variants,canonicalize,torch-recompose-complex-ops,torch-scalarize-shapes)
torch-shape-refinement-pipeline
func.func(canonicalize,cse,torch-decompose-complex-ops,torch-scalarize-shapes)
torch-shape-refinement-pipeline
func.func(torch-fuse-quantized-ops,torch-scalarize-shapes,canonicalize)
func.func(torch-iree-torch-unstructured-to-linalg-ext)
func.func(convert-torch-to-tmtensor,torch-iree-tm-tensor-to-linalg-ext)
func.func(convert-torch-to-tensor,convert-torch-to-linalg,canonicalize)
func.func(convert-torch-to-scf,convert-torch-to-arith)
torch-func-backend-type-conversion
func.func(canonicalize)
resolve-shaped-type-result-dims
func.func(cse,torch-finalizing-backend-type-conversion,canonicalize,cse)
""".strip().splitlines()
PIPELINE = f"builtin.module({','.join(_PASSES)})"


def lower_torch(module: Any, name: str) -> None:
    """Lower every torch op of `module`. Raises FrontEndError, which names the place, for one that is not converted."""
    try:
        PassManager.parse(PIPELINE).run(module.operation)
    except ir.MLIRError as e:
        told = [Diagnostic(d.message.splitlines()[0].split(": %")[0][:300], location_text(d.location) or name)
                for d in e.error_diagnostics]  # fmt: skip
        found = _left_over(module, name) or told[0] if told else Diagnostic(str(e).splitlines()[0], name)
        raise FrontEndError([found]) from None


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
