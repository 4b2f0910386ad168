"""qmlir-store-shared: compute a tensor in a separate dispatch if one reader reads a part and another all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir, linalg
from ....ir.affine import axis_loops, indexing_maps, loops_of
from ....ir.barriers import Reason, fusion_barrier
from ....ir.walk import VIEWS, outside_kernels, producer
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE fuses an elementwise op into one that reads its result with strides, and writes the result for its other "
        "readers in the same loop: elements that the strides skip are never written.",
        canary="shared_with_strides",
    ),
)


@dataclass(frozen=True)
class StoreSharedPass(Pass):
    """Put a fusion barrier in front of an operand that an elementwise op reads with strides or in windows, if another
    op also reads a tensor that the operand is computed from: in both branches of a residual block whose convolutions
    have a stride, for instance. That tensor is in memory in any case.
    """

    name: ClassVar[str] = "qmlir-store-shared"
    summary: ClassVar[str] = "compute a tensor in a separate dispatch where one reader reads a part and another one all"

    def run(self, module: ir.Module, state: State) -> None:
        for op in outside_kernels(module, where=_is_elementwise):
            for i, m in enumerate(indexing_maps(op)[: len(op.operands) - len(op.results)]):
                if not m.is_projected_permutation and _is_shared(op.operands[i]):
                    with op.location, ir.InsertionPoint(op):
                        op.operands[i] = fusion_barrier(op.operands[i], Reason.STORED_SHARED)


def _is_elementwise(op: OpLike) -> bool:
    """Whether an op is a linalg op without a reduction, except over loops of one step, which IREE removes."""
    if not op.name.startswith("linalg.") or not op.results or linalg.get_indexing_maps(op) is None:
        return False
    maps = indexing_maps(op)
    if not maps[-1].is_projected_permutation:
        return False
    single = {loop for value, m in zip(op.operands, maps, strict=False) if isinstance(value.type, ir.ShapedType)
              for size, e in zip(value.type.shape, m.results, strict=True)
              for loop in loops_of(e) if size == 1 and isinstance(e, ir.AffineDimExpr)}  # fmt: skip
    return single | set(axis_loops(maps[-1])) == set(range(maps[-1].n_dims))


def _is_shared(value: ir.Value) -> bool:
    """Whether IREE may fuse a tensor that has several readers into the reader of `value`."""
    op = producer(value)
    if op is None or not (op.name in VIEWS or _is_elementwise(op)):
        return False
    if op.name not in VIEWS and len(list(value.uses)) > 1:
        return True
    inputs = op.operands[:1] if op.name in VIEWS else list(op.operands)[: len(op.operands) - len(op.results)]
    return any(map(_is_shared, inputs))
