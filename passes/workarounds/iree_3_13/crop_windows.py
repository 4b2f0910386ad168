"""qmlir-crop-windows: crop the operands of a convolution or pooling of a single window to what the window reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir, linalg
from ....dialect.ops.common import shape_of
from ....dialect.shapes import Shape
from ....ir.affine import downcast, indexing_maps, loops_of
from ....ir.build import crop, dims, pad
from ....ir.walk import collect, static_padding
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "For a single window, IREE drops the window's loop and takes the length of the axis to be that of the window, "
        "although the axis is longer: the convolution or pooling is wrong, or refused.",
        canary="single_window",
    ),
)


@dataclass(frozen=True)
class CropWindowsPass(Pass):
    """Crop an operand of a linalg op along each axis that has one window, or windows of one element, that do not read
    the end of the axis. Padding that no window reads is left out.

    IREE 3.13 drops loops of one step. The expression of the axis is then the other loop alone, and IREE takes the
    length of that loop from the operand, which is too long.
    """

    name: ClassVar[str] = "qmlir-crop-windows"
    summary: ClassVar[str] = "give a convolution or pooling of a single window only what the window reads"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, where=lambda op: linalg.get_indexing_maps(op) is not None):
            for i, (axes, value) in enumerate(zip(_single_windows(op), op.operands, strict=True)):
                if axes:
                    with op.location, ir.InsertionPoint(op):
                        op.operands[i] = _cropped(value, axes)


def _single_windows(op: OpLike) -> list[dict[int, int]]:
    """For each operand, the axes whose end is unread because of loops of one step, and how many elements are read."""
    maps = [list(m.results) for m in indexing_maps(op)]
    sizes: dict[int, int] = {}
    for value, axes in zip(op.operands, maps, strict=True):
        for size, e in zip(_shape(value), axes, strict=True):
            if isinstance(downcast(e), ir.AffineDimExpr) and size is not None:
                sizes[loops_of(e)[0]] = size
    return [
        {
            axis: read
            for axis, (e, size) in enumerate(zip(axes, _shape(value), strict=True))
            if not isinstance(downcast(e), (ir.AffineDimExpr, ir.AffineConstantExpr))
            and (read := _read(e, sizes)) is not None
            and read != size
        }
        for value, axes in zip(op.operands, maps, strict=True)
    ]


def _shape(value: ir.Value) -> Shape:
    """The shape of a tensor; () for a scalar."""
    return shape_of(value) if isinstance(value.type, ir.RankedTensorType) else ()


def _read(e: ir.AffineExpr, sizes: Mapping[int, int]) -> int | None:
    """The number of elements of an axis that are read, if its expression without loops of one step is a loop or 0."""
    loops = loops_of(e)
    if any(sizes.get(x, 0) < 1 for x in loops):
        return None
    long = [x for x in loops if sizes[x] > 1]
    if len(long) == len(loops) or len(long) > 1:
        return None
    if not long:
        return 1 if _value(e, {}) == 0 else None
    steps = [_value(e, {long[0]: i}) for i in (0, 1)]
    return sizes[long[0]] if steps == [0, 1] else None


def _value(e: ir.AffineExpr, at: Mapping[int, int]) -> int | None:
    """The value of an expression of sums and products if the loops have the values `at`, and 0 if not in `at`."""
    e = downcast(e)
    if isinstance(e, ir.AffineDimExpr):
        return at.get(e.position, 0)
    if isinstance(e, ir.AffineConstantExpr):
        return e.value
    if not isinstance(e, (ir.AffineAddExpr, ir.AffineMulExpr)):
        return None
    x, y = _value(e.lhs, at), _value(e.rhs, at)
    if x is None or y is None:
        return None
    return x + y if isinstance(e, ir.AffineAddExpr) else x * y


def _cropped(value: ir.Value, axes: Mapping[int, int]) -> ir.Value:
    """The first `axes[i]` elements of a tensor along each axis `i`. If the tensor ends in padding, the padding is
    shortened instead of sliced, because a kernel can pad its operand itself."""
    padding = static_padding(value)
    shape = _shape(value)
    if padding is not None and not isinstance(padding.fill.owner, ir.Block):
        unread = [0 if size is None else size - axes.get(i, size) for i, size in enumerate(shape)]
        high = [most - cut for most, cut in zip(padding.high, unread, strict=True)]
        if min(high) >= 0:
            return pad(padding.source, padding.low, high, padding.fill)
    return crop(value, [0] * len(shape), [axes.get(i, size) for i, size in enumerate(dims(value))])
