"""qmlir-store-slices: copy slices that begin between two vectors in a separate dispatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.barriers import Reason, fusion_barrier, fusion_barrier_behind
from ....ir.walk import collect, producer
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE reads a part of a tensor's last axis for SPIR-V in vectors, from the last one that begins before the "
        "part, and writes what is padded so: `x[:, 1:5] + y` is that of `x[:, 0:4]`.",
        canary="part_between_vectors",
    ),
)

_VECTOR = 16  # bytes of the widest load


@dataclass(frozen=True)
class StoreSlicesPass(Pass):
    """Put a fusion barrier behind slices of the last axis whose offset is not a multiple of a vector of 16 bytes, and
    in front of the padding of a tensor by such an amount. If they are fused, IREE 3.13 reads the tensor in vectors for
    SPIR-V, and rounds the offset down to whole vectors. Axes of odd size are not read in vectors.
    """

    name: ClassVar[str] = "qmlir-store-slices"
    summary: ClassVar[str] = "copy parts of tensors that begin between two vectors"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, "tensor.extract_slice", "tensor.pad", where=_begins_between_vectors):
            if op.name == "tensor.extract_slice":
                fusion_barrier_behind(op.results[0], Reason.BETWEEN_VECTORS)
            # The op that computes the operand stays out of the copy too: IREE would compute it for the slice only.
            if op.name == "tensor.pad" or producer(op.operands[0]) is not None:
                with ir.InsertionPoint(op), op.location:
                    op.operands[0] = fusion_barrier(op.operands[0], Reason.BETWEEN_VECTORS)


def _begins_between_vectors(op: OpLike) -> bool:
    """Whether IREE may read the larger tensor's last axis in vectors, and the smaller one begins between two."""
    if op.name == "tensor.pad":
        whole, part = op.results[0].type, op.operands[0].type.shape
        offsets = list(op.attributes["static_low"])
    else:
        whole, part = op.operands[0].type, list(op.attributes["static_sizes"])
        offsets = list(op.attributes["static_offsets"])
    if not whole.rank or offsets[-1] == 0 or part[-1] == 1 or any(n > 0 and n % 2 for n in (part[-1], whole.shape[-1])):
        return False
    kind = whole.element_type
    bits = kind.width if isinstance(kind, (ir.IntegerType, ir.FloatType)) else 8 * _VECTOR
    return bool(offsets[-1] < 0 or offsets[-1] * bits % (8 * _VECTOR))
