"""qmlir-order-convolutions: keep the reduction axes of a convolution in the same order in both operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.affine import indexing_maps
from ....ir.barriers import Reason, fusion_barrier
from ....ir.walk import VIEWS, behind, collect, made_by, operations_of
from ....targets.tensors import permuted, rewritten
from ...base import Pass, State, error_at, fail
from ...core.contractions import ProductAxes, is_product

if TYPE_CHECKING:
    from ....core.mlir import OpLike


FAULTS = (
    Fault(
        "On GPUs, IREE confuses the reduction axes of a convolution whose operands have them in different orders.",
        canary="convolution_of_two_orders",
        upstream="https://github.com/iree-org/iree/issues/20473",
    ),
    Fault(
        "On GPUs, IREE confuses the reduction axes of a convolution where groups of channels lie between two of them "
        "in the input, as in NHWGC with a single window along the width.",
        canary="groups_between",
    ),
)


@dataclass(frozen=True)
class OrderConvolutionsPass(Pass):
    """Transpose the operands of convolutions whose reduction axes IREE would confuse.

    On GPUs IREE 3.13 converts a convolution to a product (implicit GEMM), and collapses its reduction axes, windows and
    channels, into one. The result is silently wrong if their order in the input differs from that in the filter (NCHW
    images by FHWC filters), or if they are not adjacent in the filter, or if only group axes are between two of them in
    the input, as between the channels and an axis with one window. IREE itself makes such convolutions, by fusing
    transposes into them, so this pass runs twice.

    In a program, it puts a fusion barrier behind a transpose that produces an operand of a convolution, and transposes
    the operands of such a convolution to channels last. On the executables that IREE forms (`Target.source_passes`), it
    refuses such a convolution.
    """

    name: ClassVar[str] = "qmlir-order-convolutions"
    summary: ClassVar[str] = "keep the reduction axes of a convolution in the same order in both operands (CUDA, ROCm)"

    def run(self, module: ir.Module, state: State) -> None:
        found = [(op, axes) for op in collect(module, where=is_product) if (axes := ProductAxes(op)).is_convolution]
        if any(op.name == "hal.executable" for op in operations_of(module.body)):
            text = ("IREE made a convolution of this whose operands have their axes in two orders, which it computes "
                    "wrong on GPUs; give both with their channels last (NHWC, FHWC)")  # fmt: skip
            fail(self.name, [error_at(op, text) for op, axes in found if _confused(axes)])
            return
        for op, axes in found:
            with op.location, ir.InsertionPoint(op):
                for i, value in enumerate(list(op.operands)[:2]):
                    if _transposed(value):
                        op.operands[i] = fusion_barrier(value, Reason.CONVOLUTION_ORDER)
                if _confused(axes):
                    _transpose_operands(op, axes)


def _confused(axes: ProductAxes) -> bool:
    """Whether IREE confuses the reduction axes of a convolution."""
    return not axes.in_order or axes.groups_between


def _transposed(value: ir.Value) -> bool:
    """Whether a tensor is computed by a transpose, alone or with other elementwise ops."""
    todo, seen = [value], set()
    while todo:
        op = made_by(behind(todo.pop(), *VIEWS), "linalg.transpose", "linalg.generic")
        if op is None or op in seen:
            continue
        seen.add(op)
        maps = indexing_maps(op)
        if maps[-1].n_dims > len(maps[-1].results):  # a reduction
            continue
        if any(m != maps[-1] and m.n_dims == len(m.results) for m in maps[:-1]):
            return True
        todo += op.operands
    return False


def _transpose_operands(op: OpLike, axes: ProductAxes) -> None:
    """Transpose the input to channels last, and the filter to summed axes last, in the order of the input."""
    last = axes.whole
    image = [*(i for i in range(len(axes.input)) if i not in last), *last]
    order = [loop for i in image for loop in axes.input[i]]
    summed = [i for i, loops in enumerate(axes.filter) if set(loops) & set(axes.summed_by_filter)]
    summed.sort(key=lambda i: order.index(axes.filter[i][0]))
    weights = [*(i for i in range(len(axes.filter)) if i not in summed), *summed]
    operands, maps = [], []
    for value, to, affine_map in zip(list(op.operands)[:2], (image, weights), axes.maps[:2], strict=True):
        operands.append(value if to == sorted(to) else fusion_barrier(permuted(value, to), Reason.CONVOLUTION_ORDER))
        maps.append(ir.AffineMap.get(affine_map.n_dims, 0, [affine_map.results[i] for i in to]))
    rewritten(op, [*operands, op.operands[2]], [*maps, axes.maps[2]])
