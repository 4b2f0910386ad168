"""What poolings and convolutions leave unread at the end of their input is cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.faults import Fault
from ..core.mlir import arith, ir, tensor
from ..ir.affine import downcast, indexing_maps, loops_of
from ..ir.walk import collect

if TYPE_CHECKING:
    from ..core.mlir import OpLike


FAULTS = (
    Fault(
        "IREE drops the loop of a single window, and refuses a pooling or a convolution whose input is longer than "
        "that window.",
        canary="single_window",
    ),
)


def cut_unread(module: ir.Module) -> None:
    """Where a window moves by one step only, the input becomes what that window reads.

    IREE (3.13) folds a loop of extent 1 away and takes the input to be as long as the window. One that is longer,
    because the next window would not fit, is refused: "inferred input/output operand #1 has shape's dimension #0 to be
    3, but found 2".
    """
    found = collect(
        module, where=lambda op: op.name.startswith(("linalg.pooling_", "linalg.conv_", "linalg.depthwise_conv_"))
    )
    for op in found:
        _cut(op)


def _cut(op: OpLike) -> None:
    maps = indexing_maps(op)
    extents: dict[int, int | None] = {}
    for m, value in zip(maps, op.operands, strict=True):
        for e, size in zip(map(downcast, m.results), _sizes(value), strict=True):
            if isinstance(e, ir.AffineDimExpr):
                extents[e.position] = size
    sizes = _sizes(op.operands[0])
    read = list(sizes)
    for axis, e in enumerate(map(downcast, maps[0].results)):
        if isinstance(e, ir.AffineDimExpr) or 1 not in (extents[d] for d in loops_of(e)):
            continue
        last, size = _last(e, extents), sizes[axis]
        if last is not None and size is not None:
            read[axis] = min(last + 1, size)
    if read == sizes:
        return
    rank, dynamic = len(sizes), ir.ShapedType.get_dynamic_size()
    source = op.operands[0]
    t = ir.RankedTensorType(source.type)
    with ir.InsertionPoint(op), op.location:
        index = ir.IndexType.get()
        counts = [tensor.dim(source, arith.constant(index, i)) for i, s in enumerate(read) if s is None]
        shape = [dynamic if s is None else s for s in read]
        op.operands[0] = tensor.extract_slice(
            ir.RankedTensorType.get(shape, t.element_type), source, [], counts, [], [0] * rank, shape, [1] * rank
        )


def _sizes(value: ir.Value) -> list[int | None]:
    t = ir.RankedTensorType(value.type)
    return [None if t.is_dynamic_dim(i) else t.get_dim_size(i) for i in range(t.rank)]


def _last(e: ir.AffineExpr, extents: dict[int, int | None]) -> int | None:
    """The largest value of a sum of loops times positive strides, None where an extent is dynamic."""
    if isinstance(e, ir.AffineDimExpr):
        size = extents[e.position]
        return None if size is None else size - 1
    if isinstance(e, ir.AffineConstantExpr):
        return int(e.value)
    left, right = _last(downcast(e.lhs), extents), _last(downcast(e.rhs), extents)
    if left is None or right is None:
        return None
    return left + right if isinstance(e, ir.AffineAddExpr) else left * right
