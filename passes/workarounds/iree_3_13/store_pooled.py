"""qmlir-store-pooled: compute the operand of a pooling or sum in a separate dispatch if its elements are all equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.affine import indexing_maps
from ....ir.attributes import loop_kinds
from ....ir.barriers import Reason, fusion_barrier
from ....ir.walk import VIEWS, argument_number, collect, operations_of, outside_kernels, producer
from ...base import Pass, State
from .store_broadcasts import is_broadcast

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE fuses an operand whose elements are all equal into a sum, that of a pooling's window too, which then "
        "reads nothing of its size, and adds the number once instead of once per element: on CPUs, CUDA and ROCm.",
        canary="pooled_broadcast",
    ),
)


@dataclass(frozen=True)
class StorePooledPass(Pass):
    """Put a fusion barrier behind the operand of a pooling or another sum if the elements of the operand are all equal.
    Average pools count the elements inside their windows by such a sum, and models the rows that a comparison leaves.
    If IREE 3.13 fuses the operand, the sum reads none of its operands, and the vectorising code generators add the
    value once, whatever the size is.
    """

    name: ClassVar[str] = "qmlir-store-pooled"
    summary: ClassVar[str] = "compute what is pooled or summed in a separate dispatch where its elements are all equal"

    def run(self, module: ir.Module, state: State) -> None:
        for op in outside_kernels(module, where=_is_sum):
            inputs = list(op.operands)[: 1 if op.name != "linalg.generic" else len(op.operands) - len(op.results)]
            if inputs and all(map(_is_uniform, inputs)):
                with op.location, ir.InsertionPoint(op):
                    op.operands[0] = fusion_barrier(inputs[0], Reason.POOLED_NUMBER)


def _is_sum(op: OpLike) -> bool:
    """Whether an op is a pooling, or a generic with a reduction."""
    return op.name.startswith("linalg.pooling") or (op.name == "linalg.generic" and "reduction" in loop_kinds(op))


def _is_uniform(tensor: ir.Value) -> bool:
    """Whether IREE may find that all elements of a tensor are equal."""
    op = producer(tensor)
    if op is not None and op.name in VIEWS:
        return _is_uniform(op.operands[0])
    if op is not None and op.name == "arith.constant":
        value = op.attributes["value"]
        return isinstance(value, ir.DenseElementsAttr) and value.is_splat
    if op is not None and op.name == "linalg.fill":
        return True
    if op is not None and op.name == "linalg.generic" and _reads_only_uniform(op):
        return True
    return all(is_broadcast(tensor, axis) for axis in range(tensor.type.rank))


def _reads_only_uniform(op: OpLike) -> bool:
    """Whether an elementwise op computes its result from operands with equal elements only. An integer that is compared
    with itself, or subtracted from itself, may have any elements."""
    if "reduction" in loop_kinds(op) or collect(op, "linalg.index", "tensor.extract"):
        return False
    read = [argument_number(v, op) for inner in operations_of(op.regions[0].blocks[0]) if not _cancels(op, inner)
            for v in inner.operands]  # fmt: skip
    return all(n is None or _is_uniform(op.operands[n]) for n in read)


def _cancels(op: OpLike, inner: OpLike) -> bool:
    """Whether an op of a body compares an element with itself, or subtracts it from itself."""
    if inner.name not in ("arith.cmpi", "arith.subi", "arith.xori"):
        return False
    numbers = [argument_number(v, op) for v in inner.operands]
    maps = indexing_maps(op)
    read = [(op.operands[n], maps[n]) for n in numbers if n is not None]
    return len(read) == 2 and read[0] == read[1]
