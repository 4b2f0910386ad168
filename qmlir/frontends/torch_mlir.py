"""Ops of torch's dialect to linalg on tensors, by torch-mlir's passes: what the torch and ONNX front ends share."""

from __future__ import annotations

from collections.abc import Callable

from ..core.mlir import ir, passmanager
from ..core.spelling import location_text
from ..errors import Diagnostic, FrontEndError

# torch-mlir's own pipeline to linalg without its checks that a function has torch types only, which a program with our
# operations in it has not.
_TO_LINALG = (
    "torch-shape-refinement-pipeline",
    "func.func(canonicalize,cse,torch-decompose-complex-ops,torch-scalarize-shapes)",
    "torch-shape-refinement-pipeline",
    "func.func(torch-fuse-quantized-ops,torch-scalarize-shapes,canonicalize)",
    "func.func(torch-iree-torch-unstructured-to-linalg-ext)",
    "func.func(convert-torch-to-tmtensor,torch-iree-tm-tensor-to-linalg-ext)",
    "func.func(convert-torch-to-tensor,convert-torch-to-linalg,canonicalize)",
    "func.func(convert-torch-to-scf,convert-torch-to-arith)",
    "torch-func-backend-type-conversion",
    "func.func(canonicalize)",
    "resolve-shaped-type-result-dims",
    "func.func(cse,torch-finalizing-backend-type-conversion,canonicalize,cse)",
)


def to_linalg(
    module: ir.Module, head: tuple[str, ...], name: str, blame: Callable[[list[Diagnostic]], Diagnostic | None]
) -> None:
    """Lower every torch op of `module`, after the passes `head` of one front end.

    `blame` chooses the user's message from torch-mlir's, whole messages in order. Raises FrontEndError.
    """
    try:
        passmanager.PassManager.parse(f"builtin.module({','.join((*head, *_TO_LINALG))})").run(module.operation)
    except ir.MLIRError as e:
        diagnostics = [Diagnostic(d.message, location_text(d.location) or name) for d in e.error_diagnostics]
        raise FrontEndError([blame(diagnostics) or Diagnostic(str(e).splitlines()[0], name)]) from None


def without_ir(message: str) -> str:
    """What torch-mlir says, without its dump of IR."""
    return message.splitlines()[0].split(": %")[0][:300]
