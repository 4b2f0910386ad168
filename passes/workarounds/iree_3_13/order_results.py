"""qmlir-order-results: order the operands of float products like the axes of their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.affine import in_order
from ....ir.walk import collect
from ....targets.tensors import rewritten, type_of
from ...base import Pass, State
from ...core.contractions import ProductAxes, is_product

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "Half of the result of NVIDIA's f16 instruction is stored in wrong places where the columns come before the "
        "rows.",
        canary="columns_first",
    ),
)


_SHORT = ("f16", "bf16")


@dataclass(frozen=True)
class OrderResultsPass(Pass):
    """Order the operands of f16 and bf16 products like the axes of their results. Runs on the executables that IREE
    forms (`Target.source_passes`).

    If a result has the axes of the right operand first, IREE 3.13 exchanges the operands of the matrix instruction.
    NVIDIA's instruction is 16 x 8, so that half of the result is misplaced. This pass exchanges the operands of the
    product instead. For a convolution, IREE decides by the order of the loops, channels or rows first; the pass puts
    the loops in the order of the result's axes.
    """

    name: ClassVar[str] = "qmlir-order-results"
    summary: ClassVar[str] = "order the operands of f16 and bf16 products like their results (CUDA)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, where=is_product):
            if str(type_of(op.operands[0]).element_type) not in _SHORT:
                continue
            axes = ProductAxes(op)
            with op.location, ir.InsertionPoint(op):
                if axes.is_convolution:
                    _order_loops(op, axes)
                elif axes.columns_lead:
                    lhs, rhs, init = op.operands
                    rewritten(op, [rhs, lhs, init], [axes.maps[1], axes.maps[0], axes.maps[2]])


def _order_loops(op: OpLike, axes: ProductAxes) -> None:
    kept = [x for loops in axes.result for x in loops]
    if kept == sorted(kept):
        return
    loops = [*kept, *(x for x in range(axes.maps[0].n_dims) if x not in kept)]
    rewritten(op, list(op.operands), [in_order(m, loops) for m in axes.maps])
