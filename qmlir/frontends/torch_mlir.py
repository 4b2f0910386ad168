"""Ops of torch's dialect to linalg on tensors, by torch-mlir's passes: what the torch and ONNX front ends share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core.faults import Fault
from ..core.mlir import arith, ir, passmanager
from ..core.spelling import location_text
from ..errors import Diagnostic, FrontEndError
from ..ir.walk import collect, defining_op, made_by

if TYPE_CHECKING:
    from ..core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE reads another number where a number is read out of a part of a list of sizes: a tensor of that size is "
        "empty.",
        canary="part_of_a_list",
    ),
)

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
    for sort in collect(module, "iree_linalg_ext.sort"):
        _nan_is_largest(sort)
    if sum(map(_read_directly, collect(module, "tensor.extract"))):
        passmanager.PassManager.parse("builtin.module(func.func(canonicalize,cse))").run(module.operation)


def _nan_is_largest(sort: OpLike) -> None:
    """NaN is larger than any number, as torch sorts. torch-mlir's comparisons with one are false, and what follows from
    that is no order."""
    for compared in tuple(sort.regions[0].blocks[0].operations):
        if compared.operation.name != "arith.cmpf":
            continue
        first, second = compared.operands
        predicate = ir.IntegerAttr(compared.attributes["predicate"]).value
        ascending = predicate in (arith.CmpFPredicate.OLT, arith.CmpFPredicate.OLE)
        with ir.InsertionPoint.after(compared), compared.location:
            larger = second if ascending else first
            unknown = arith.cmpf(arith.CmpFPredicate.UNO, larger, larger)
            result = arith.ori(compared.results[0], unknown)
        compared.results[0].replace_all_uses_except(result, defining_op(result))


def _read_directly(extract: OpLike) -> bool:
    """Replace a number that is read out of a part of a list by the number, where the list says which it is: sizes, of
    which torch-mlir makes a tensor. MLIR does not look through the part (`FAULTS`)."""
    source, *indices = extract.operands
    known = [made_by(i, "arith.constant") for i in indices]
    if len(known) != 1 or known[0] is None:
        return False
    place = ir.IntegerAttr(known[0].attributes["value"]).value
    while (part := made_by(source, "tensor.extract_slice")) is not None:
        offset, step = (ir.DenseI64ArrayAttr(part.attributes[f"static_{n}"]) for n in ("offsets", "strides"))
        if len(offset) != 1 or len(list(part.operands)) > 1:
            return False
        place = offset[0] + place * step[0]
        source = part.operands[0]
    listed = made_by(source, "tensor.from_elements")
    if listed is None:
        return False
    extract.results[0].replace_all_uses_with(listed.operands[place])
    return True


def without_ir(message: str) -> str:
    """What torch-mlir says, without its dump of IR."""
    return message.splitlines()[0].split(": %")[0][:300]
