"""qmlir-own-destinations: sorts, scans and scatters overwrite memory of their own, and read what is in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.barriers import Reason, fusion_barrier, opaque
from ....ir.build import mapped
from ....ir.walk import BARRIERS, collect, made_by, producer
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
        "IREE allocates sorted keys that nobody reads inside the dispatch, and compiles no more than a few dozen for "
        "CUDA (`failed to bufferize op`).",
        canary="unread_keys",
    ),
)


# The same memory by another shape.
_VIEWS = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast", "tensor.extract_slice", "tensor.reshape",
          "flow.tensor.reshape", *BARRIERS)  # fmt: skip


@dataclass(frozen=True)
class OwnDestinationsPass(Pass):
    """Sorts, scans and scatters get a copy of a destination that has other readers, and read no fill that is fused.

    IREE 3.13 runs these operations of `iree_linalg_ext` in place without the copy that a second reader needs: two sorts
    that start from the same indices both give wrong results, as in a model with two layers of routed experts.

    What such an operation reads, IREE makes in the same dispatch where that is a fill. If a size is dynamic, this is
    an allocation without bound inside the dispatch, which it refuses: positions that a model counts from ones, for
    example.

    What a sort makes is stored also where nobody reads it, as of keys whose order is asked for (`argsort`): inside the
    dispatch IREE has memory for few of them only.
    """

    name: ClassVar[str] = "qmlir-own-destinations"
    summary: ClassVar[str] = "copy destinations of sorts, scans and scatters that have other readers"

    def run(self, module: ir.Module, state: State) -> None:
        in_place = collect(module, where=lambda op: op.name.startswith("iree_linalg_ext.") and len(op.results))
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
    """Whether something else reads the memory behind a tensor, or may once IREE has made one of equal computations:
    those of nothing but sizes."""
    op = producer(value)
    if op is not None and op.name == "tensor.empty":
        return False  # each operation gets its own
    if len([use for use in value.uses if use.owner.operation.name != "tensor.dim"]) > 1:
        return True
    if op is None:
        return False
    return _has_other_readers(op.operands[0]) if op.name in _VIEWS else len(op.operands) == len(op.results)


def _copy(value: ir.Value) -> ir.Value:
    """The elements plus a zero that IREE does not see, in memory of their own; a copy alone would be folded."""
    t = value.type.element_type
    integer = t if isinstance(t, ir.IntegerType) else ir.IntegerType.get_signless(t.width)
    zero = opaque(arith.constant(integer, 0))
    if t == integer:
        return mapped(value, t, lambda x: arith.addi(x, zero))
    return mapped(value, t, lambda x: arith.bitcast(t, arith.addi(arith.bitcast(integer, x), zero)))
