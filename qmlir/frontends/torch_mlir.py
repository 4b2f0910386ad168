"""Lower ops of torch's dialect to linalg on tensors by torch-mlir's passes, for the torch and ONNX front ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..core.faults import Fault
from ..core.mlir import arith, ir, passmanager
from ..core.spelling import location_text
from ..dialect.constants import constant_array
from ..errors import Diagnostic, FrontEndError
from ..ir.walk import collect, defining_op, made_by

if TYPE_CHECKING:
    from ..core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE reads the wrong element when a size is read from a slice of a list of sizes: a tensor of that size is "
        "empty.",
        canary="part_of_a_list",
    ),
)

_P = arith.CmpFPredicate
_ABOVE, _BELOW = (_P.OGT, _P.OGE, _P.UGT, _P.UGE), (_P.OLT, _P.OLE, _P.ULT, _P.ULE)

# torch-mlir's own pipeline to linalg, without its checks that a function has only torch types: a program with qmlir
# operations would fail them.
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

    `blame` chooses the user's message from torch-mlir's diagnostics, given in order. Raises FrontEndError.
    """
    try:
        passmanager.PassManager.parse(f"builtin.module({','.join((*head, *_TO_LINALG))})").run(module.operation)
    except ir.MLIRError as e:
        diagnostics = [Diagnostic(d.message, location_text(d.location) or name) for d in e.error_diagnostics]
        raise FrontEndError([blame(diagnostics) or Diagnostic(str(e).splitlines()[0], name)]) from None
    for sort in collect(module, "iree_linalg_ext.sort"):
        _nan_is_largest(sort)
    for select in collect(module, "arith.select"):
        _nan_is_kept(select)
    for shortened in collect(module, "arith.truncf"):
        _round_now(shortened)
    for converted in collect(module, where=lambda op: op.name in ("arith.fptosi", "arith.fptoui")):
        _wrap(converted)
    if sum(map(_read_directly, collect(module, "tensor.extract"))):
        passmanager.PassManager.parse("builtin.module(func.func(canonicalize,cse))").run(module.operation)


def _nan_is_largest(sort: OpLike) -> None:
    """Make a sort treat NaN as larger than any number, as torch does. torch-mlir's comparisons with NaN are false,
    which is not a consistent order."""
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


def _nan_is_kept(select: OpLike) -> None:
    """Make a maximum or minimum NaN if an operand is NaN. torch-mlir lowers it to a comparison and a select in one
    body. The select of a program's own comparison is in another body and does not match."""
    compared = made_by(select.operands[0], "arith.cmpf")
    if compared is None:
        return
    predicate, taken = ir.IntegerAttr(compared.attributes["predicate"]).value, list(select.operands)[1:]
    if predicate not in (*_ABOVE, *_BELOW) or list(compared.operands) not in (taken, taken[::-1]):
        return
    larger = (predicate in _ABOVE) == (list(compared.operands) == taken)
    bound = next((v for v in taken if _is_a_number(v)), None)
    with ir.InsertionPoint(select), select.location:
        if bound is None:
            result = (arith.maximumf if larger else arith.minimumf)(*taken)
        else:  # a comparison with NaN is false, which selects `other`, the NaN
            other = taken[1] if taken[0] == bound else taken[0]
            beyond = arith.cmpf(_P.OGT if larger else _P.OLT, bound, other)
            result = arith.select(beyond, bound, other)
    select.results[0].replace_all_uses_with(result)
    select.erase()
    if not list(compared.results[0].uses):
        compared.erase()


def _round_now(shortened: OpLike) -> None:
    """Fold the truncf of a constant. MLIR folds it only if it is exact, and IREE's host code has no f64."""
    known = made_by(shortened.operands[0], "arith.constant")
    if known is None or not isinstance(known.attributes["value"], ir.FloatAttr):
        return
    with ir.InsertionPoint(shortened), shortened.location:
        t = shortened.results[0].type
        rounded = arith.constant(t, ir.FloatAttr.get(t, known.attributes["value"].value))
    shortened.results[0].replace_all_uses_with(rounded)
    shortened.erase()


def _wrap(converted: OpLike) -> None:
    """Convert floats to integers of 8 and 16 bits through i32, as on the CPUs that torch runs on: MLIR's conversion to
    i8 is undefined from 128 on, also for torch's uint8."""
    narrow = converted.results[0].type
    if not 1 < ir.IntegerType(narrow).width < 32:
        return
    with ir.InsertionPoint(converted), converted.location:
        wide = arith.fptosi(ir.IntegerType.get_signless(32), converted.operands[0])
        converted.results[0].replace_all_uses_with(arith.trunci(narrow, wide))
    converted.erase()


def _is_a_number(value: ir.Value) -> bool:
    """Whether a scalar of a body is a constant other than NaN, defined in the body or read from a constant operand."""
    if isinstance(value.owner, ir.Block):
        generic = value.owner.owner
        number = ir.BlockArgument(value).arg_number
        if number >= len(generic.operands):
            return False
        known = constant_array(generic.operands[number])
        return known is not None and known.size == 1 and not np.isnan(known).any()
    made = made_by(value, "arith.constant")
    return made is not None and not math.isnan(ir.FloatAttr(made.attributes["value"]).value)


def _read_directly(extract: OpLike) -> bool:
    """Replace an element that is extracted from a slice of a `tensor.from_elements` by that element, and return whether
    this was done. torch-mlir makes such tensors of sizes; MLIR does not look through the slice (`FAULTS`)."""
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
    """A message of torch-mlir without its dump of IR."""
    return message.splitlines()[0].split(": %")[0][:300]
