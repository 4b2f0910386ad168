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
        found = [_diagnostic(d, name) for d in e.error_diagnostics]
        raise FrontEndError(found[:1] or [Diagnostic(str(e).splitlines()[0], name)]) from None


def _diagnostic(d: Any, name: str) -> Diagnostic:
    """What torch-mlir says, without its dump of IR."""
    text = d.message.splitlines()[0]
    message = text.split(": %")[0]
    if '"torch.operator"' in text or "torch.operator" in text:
        op = text.partition('torch.operator "')[2].partition('"')[0] or "an operator"
        message = f"the operator {op} is not converted by torch-mlir; register a raising pattern for it"
    return Diagnostic(message[:300], location_text(d.location) or name)
