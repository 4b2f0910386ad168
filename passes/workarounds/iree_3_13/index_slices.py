"""qmlir-index-slices: replace reads by index from a slice of a tensor by reads from the whole tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir, tensor
from ....ir.barriers import Reason, fusion_barrier_behind
from ....ir.build import index
from ....ir.walk import VIEWS, behind, collect, defining_op, made_by
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE reads a slice of a tensor by index on CUDA and ROCm as if it were contiguous: `x[:, 1:4][:, i]` "
        "is wrong from the second row on.",
        canary="indexed_part",
    ),
)

_SLICE = "tensor.extract_slice"


@dataclass(frozen=True)
class IndexSlicesPass(Pass):
    """Replace a `tensor.extract` from a slice by one from the whole tensor, at offset + stride * index.

    IREE 3.13 fuses a slice and the op that reads it by index (`tensor.extract`) into one dispatch. Its code for LLVM
    then computes addresses from the sizes of the slice instead of the strides of the tensor.

    If the slice is read through a reshape or a transpose, a fusion barrier behind the slice makes it a tensor of its
    own. Slices that are contiguous in memory are unchanged.
    """

    name: ClassVar[str] = "qmlir-index-slices"
    summary: ClassVar[str] = "read whole tensors by index, not parts of them (CUDA, ROCm)"

    def run(self, module: ir.Module, state: State) -> None:
        op: OpLike
        for op in collect(module, "tensor.extract"):
            while (part := made_by(op.operands[0], _SLICE)) is not None and _has_gaps(part):
                op = _read_whole(op, part)
            part = made_by(behind(op.operands[0], *VIEWS, "linalg.transpose"), _SLICE)
            if part is not None and _has_gaps(part):
                fusion_barrier_behind(part.results[0], Reason.INDEXED_PART)


def _has_gaps(part: OpLike) -> bool:
    """Whether a slice may not be contiguous in memory: a stride is not 1, or some axis after the first one of several
    elements is not whole."""
    shape, sizes = ir.RankedTensorType(part.operands[0].type).shape, list(part.attributes["static_sizes"])
    first = next((i for i, size in enumerate(sizes) if size != 1), len(sizes))
    rest = zip(sizes[first + 1 :], shape[first + 1 :], strict=True)
    return any(step != 1 for step in part.attributes["static_strides"]) or any(a < 0 or a != b for a, b in rest)


def _read_whole(op: OpLike, part: OpLike) -> OpLike:
    with ir.InsertionPoint(op), op.location:
        counts = list(part.attributes["operandSegmentSizes"])
        offsets = _mixed(part, "static_offsets", list(part.operands)[1 : 1 + counts[1]])
        steps = _mixed(part, "static_strides", list(part.operands)[1 + counts[1] + counts[2] :])
        given = iter(list(op.operands)[1:])
        at = [index(0) if dropped else next(given) for dropped in _dropped(part)]
        places = [arith.addi(offset, arith.muli(step, i)) for offset, step, i in zip(offsets, steps, at, strict=True)]
        made = tensor.extract(part.operands[0], places)
    op.results[0].replace_all_uses_with(made)
    op.erase()
    return defining_op(made)


def _mixed(part: OpLike, name: str, dynamic: Sequence[ir.Value]) -> list[ir.Value]:
    left = iter(dynamic)
    return [
        next(left) if n == ir.ShapedType.get_dynamic_stride_or_offset() else index(n) for n in part.attributes[name]
    ]


def _dropped(part: OpLike) -> Iterator[bool]:
    """For each axis of the whole tensor, whether the slice drops it: its size is 1, and the slice's next one is not."""
    kept = list(ir.RankedTensorType(part.results[0].type).shape)
    sizes = list(part.attributes["static_sizes"])
    extra = len(sizes) - len(kept)
    for size in sizes:
        dropped = size == 1 and extra > 0 and not (kept and kept[0] == 1)
        extra -= dropped
        if not dropped:
            kept.pop(0)
        yield dropped
