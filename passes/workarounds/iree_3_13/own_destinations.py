"""qmlir-own-destinations: give sorts, scans and scatters destinations that no other op reads, and inputs in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.barriers import Reason, fusion_barrier, opaque
from ....ir.build import mapped
from ....ir.walk import BARRIERS, made_by, outside_kernels, producer
from ...base import Pass, State

FAULTS = (
    Fault(
        "IREE sorts a tensor in place although it has other readers.",
        canary="two_sorts",
        upstream="https://github.com/iree-org/iree/issues/24665",
    ),
    Fault(
        "IREE fuses a filled tensor of dynamic sizes into the scan that reads it, and allocates it inside that "
        "dispatch.",
        canary="filled_scan",
        upstream="https://github.com/iree-org/iree/issues/19481",
    ),
    Fault(
        "IREE allocates sorted keys without a reader inside the dispatch, and compiles no more than a few dozen for "
        "CUDA (`failed to bufferize op`).",
        canary="unread_keys",
    ),
)


# Ops whose result is the memory of their operand, or a part of it, with another type.
_VIEWS = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast", "tensor.extract_slice", "tensor.reshape",
          "flow.tensor.reshape", *BARRIERS)  # fmt: skip


@dataclass(frozen=True)
class OwnDestinationsPass(Pass):
    """Copy a destination of a sort, scan or scatter that has other readers, and put a fusion barrier behind a fill that
    one of them reads.

    IREE 3.13 runs these operations of `iree_linalg_ext` in place without the copy that a second reader needs: two sorts
    that start from the same indices both give wrong results, as in a model with two layers of routed experts.

    IREE fuses a fill into the dispatch of the operation that reads it. If a size is dynamic, this is an allocation
    without bound inside the dispatch, which IREE refuses: positions that a model counts from ones, for example.

    A sort also stores results that nobody reads, such as the keys of an `argsort`. IREE allocates them inside the
    dispatch, where it has memory for few of them only. A fusion barrier is their reader.
    """

    name: ClassVar[str] = "qmlir-own-destinations"
    summary: ClassVar[str] = "copy destinations of sorts, scans and scatters that have other readers"

    def run(self, module: ir.Module, state: State) -> None:
        in_place = outside_kernels(module, where=lambda op: op.name.startswith("iree_linalg_ext.") and len(op.results))
        for op in in_place:
            for result in op.results:
                if op.name == "iree_linalg_ext.sort" and not list(result.uses):
                    with ir.InsertionPoint.after(op), op.location:
                        fusion_barrier(result, Reason.SORTED)
            for i, value in enumerate(list(op.operands)):
                is_read_only = i < len(op.operands) - len(op.results)
                with ir.InsertionPoint(op), op.location:
                    if is_read_only and made_by(value, "linalg.fill"):
                        op.operands[i] = fusion_barrier(value, Reason.FILLED)
                    elif not is_read_only and _has_other_readers(value):
                        op.operands[i] = _copy(value)


def _has_other_readers(value: ir.Value) -> bool:
    """Whether another op reads the memory of a tensor, or may do so once IREE has merged equal computations: those
    without inputs other than sizes."""
    op = producer(value)
    if op is not None and op.name == "tensor.empty":
        return False  # each use gets memory of its own
    if len([use for use in value.uses if use.owner.operation.name != "tensor.dim"]) > 1:
        return True
    if op is None:
        return False
    return _has_other_readers(op.operands[0]) if op.name in _VIEWS else len(op.operands) == len(op.results)


def _copy(value: ir.Value) -> ir.Value:
    """A copy of the tensor: its elements plus a zero that is hidden from IREE, because a plain copy would be folded."""
    t = value.type.element_type
    integer = t if isinstance(t, ir.IntegerType) else ir.IntegerType.get_signless(t.width)
    zero = opaque(arith.constant(integer, 0))
    if t == integer:
        return mapped(value, t, lambda x: arith.addi(x, zero))
    return mapped(value, t, lambda x: arith.bitcast(t, arith.addi(arith.bitcast(integer, x), zero)))
