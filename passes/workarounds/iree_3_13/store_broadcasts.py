"""qmlir-store-broadcasts: compute an operand in a separate dispatch if an axis of the result is in no operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....dialect.constants import constant_array
from ....ir.affine import indexing_maps, loops_of
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import Arg, dims, elementwise
from ....ir.walk import VIEWS, collect, defining_op, outside_kernels, producer
from ....targets.tensors import rewritten
from ...base import Pass, State
from ...core.contractions import is_product

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE fuses a broadcast into a product, whose result then has an axis that no operand has, and ends the "
        "process when it packs that product for a CPU (`PackOp::getResultShape`).",
        canary="broadcast_operand",
    ),
)


@dataclass(frozen=True)
class StoreBroadcastsPass(Pass):
    """Put a fusion barrier behind the operands of a product whose elements are equal along an axis of the result, if
    the other operand does not have this axis or is equal along it too: a left operand of equal rows, or a right one of
    equal columns. Rows that are gathered from a single row are equal too. If neither operand of a `linalg.generic` has
    the axis, the left operand gets it.

    IREE 3.13 makes the broadcast part of the product, whose result then has an axis that is in no operand. Data tiling
    for CPUs ends the process with a segmentation fault in many such products.
    """

    name: ClassVar[str] = "qmlir-store-broadcasts"
    summary: ClassVar[str] = "compute an operand in a separate dispatch where an axis of the result is in no operand"

    def run(self, module: ir.Module, state: State) -> None:
        for op in outside_kernels(module, where=is_product):
            if not all(m.is_projected_permutation for m in indexing_maps(op)):  # windows
                continue
            lhs, rhs, out = ([loops_of(e)[0] for e in m.results] for m in indexing_maps(op))
            for loop, size in zip(out, op.results[0].type.shape, strict=True):
                holders = [(i, axes.index(loop)) for i, axes in enumerate((lhs, rhs)) if loop in axes]
                if size == 1 or not all(is_broadcast(op.operands[i], axis) for i, axis in holders):
                    continue
                with op.location, ir.InsertionPoint(op):
                    for i, _ in holders:
                        op.operands[i] = fusion_barrier(op.operands[i], Reason.STORED_BROADCAST)
                    if not holders:
                        op = _with_axis(op, out.index(loop))


def _with_axis(op: OpLike, axis: int) -> OpLike:
    """Replace a product by one whose left operand gets an axis of the result, in front, with equal elements."""
    value, rhs, out = op.operands
    maps = indexing_maps(op)
    sizes = [dims(out)[axis], *dims(value)]
    wide = elementwise([Arg(value, tuple(range(1, len(sizes))))], sizes, value.type.element_type, lambda x: x)
    maps[0] = ir.AffineMap.get(maps[0].n_dims, 0, [maps[-1].results[axis], *maps[0].results])
    stored = fusion_barrier(wide, Reason.STORED_BROADCAST)
    product: OpLike = defining_op(rewritten(op, [stored, rhs, out], maps))
    return product


def _loop(e: ir.AffineExpr) -> int | None:
    """The first loop in the expression of an axis; None for a constant."""
    return next(iter(loops_of(e)), None)


def is_broadcast(value: ir.Value, axis: int) -> bool:
    """Whether IREE may find that the elements along an axis are equal."""
    op = producer(value)
    if op is None:
        return False
    if op.name in VIEWS:
        return any(is_broadcast(op.operands[0], i) for i in range(op.operands[0].type.rank))
    if op.name not in ("linalg.generic", "linalg.broadcast", "linalg.transpose"):
        return False
    maps = indexing_maps(op)
    inputs = list(op.operands)[: len(op.operands) - len(op.results)]
    loop = _loop(maps[len(inputs) + ir.OpResult(value).result_number].results[axis])
    followed = [
        (operand, i)
        for operand, m in zip(inputs, maps, strict=False)
        for i, e in enumerate(m.results)
        if loop in loops_of(e)
    ]
    body = collect(op, "tensor.extract", "linalg.index")
    if any(x.name == "tensor.extract" and _reads_single_element(x) for x in body):
        return True
    counted = any(x.name == "linalg.index" and ir.IntegerAttr(x.attributes["dim"]).value == loop for x in body)
    return not counted and all(is_broadcast(operand, i) for operand, i in followed)


def _reads_single_element(extract: OpLike) -> bool:
    """Whether an element is read by a computed index into an axis of one element; IREE takes that index to be 0."""
    tensor, *indices = extract.operands
    return any(size == 1 and constant_array(i) is None for size, i in zip(tensor.type.shape, indices, strict=True))
