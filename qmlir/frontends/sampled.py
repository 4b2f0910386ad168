"""Sample an image at fractional coordinates: grid_sample of torch, GridSample of ONNX.

Sources: ATen/native/GridSampler.h, which ONNX's operator (onnx/reference/ops/op_grid_sample.py) follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

from ..core.mlir import arith, ir, math, tensor
from ..ir import build
from ..ir.scalars import const, cubic_weight, f32
from ..spec import TensorSpec
from .raising import Tensor
from .tensors import cast_real, real

MODES, PADDINGS = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
_SHARPNESS = -0.75  # the coefficient of torch's and ONNX's cubic convolution
_CmpF = arith.CmpFPredicate
# An element along an axis: its index; whether it is inside the image (None: always); its weight (None: 1).
_Tap: TypeAlias = "tuple[ir.Value, ir.Value | None, ir.Value | None]"


def grid_sampled(image: Tensor, grid: Tensor, mode: str, padding: str, align_corners: bool) -> Tensor:
    """`[N, C, O..]` in the dtype of the image: the image `[N, C, I..]` sampled at each point of `grid [N, O.., axes]`.

    Args:
        grid: coordinates from -1 to 1; the coordinate along the last axis of the image comes first.
        mode: one of MODES.
        padding: one of PADDINGS: the values outside the image.
        align_corners: whether -1 and 1 are the centres of the first and last element, instead of their outer edges.
    """
    pixels, places = real(image), real(grid)
    axes = len(image.shape) - 2
    sizes = build.dims(pixels.value)[2:]
    result = [*build.dims(pixels.value)[:2], *build.dims(places.value)[1:-1]]

    def body() -> ir.Value:
        n, c, *out = (build.loop_index(i) for i in range(axes + 2))
        taps: list[Sequence[_Tap]] = []
        for axis in range(axes):
            at = tensor.extract(places.value, [n, *out, build.index(axes - 1 - axis)])
            taps.append(_taps(at, _Axis(sizes[axis], align_corners), mode, padding))
        parts = []
        for chosen in itertools.product(*taps):
            value = tensor.extract(pixels.value, [n, c, *(index for index, _, _ in chosen)])
            there = [inside for _, inside, _ in chosen if inside is not None]
            if there:
                value = arith.select(reduce(arith.andi, there), value, const(0.0))
            weights = [weight for _, _, weight in chosen if weight is not None]
            parts.append(reduce(arith.mulf, weights, value))
        return reduce(arith.addf, parts)

    made = build.elementwise([], result, f32(), body)
    shape = (*image.shape[:2], *grid.shape[1:-1])
    return cast_real(Tensor(TensorSpec(shape, "f32"), made), image.dtype)


class _Axis:
    """An axis of the image: its size and its last index, as floats."""

    def __init__(self, size: build.Extent, align_corners: bool) -> None:
        self.aligned = align_corners
        if isinstance(size, int):
            self.size = const(float(size))
        else:
            self.size = arith.sitofp(f32(), arith.index_cast(build.element("i64"), size))
        self.last = arith.subf(self.size, const(1.0))

    def place(self, at: ir.Value) -> ir.Value:
        """Convert a coordinate from -1 to 1 to one in elements."""
        if self.aligned:
            return arith.mulf(arith.divf(arith.addf(at, const(1.0)), const(2.0)), self.last)
        wide = arith.mulf(arith.addf(at, const(1.0)), self.size)
        return arith.divf(arith.subf(wide, const(1.0)), const(2.0))

    def clipped(self, at: ir.Value) -> ir.Value:
        return _within(at, const(0.0), self.last)

    def reflected(self, at: ir.Value) -> ir.Value:
        """Reflect a coordinate at the ends as often as needed: at the outer elements' centres if aligned, or edges."""
        first = 0.0 if self.aligned else -0.5
        span = self.last if self.aligned else self.size
        away = math.absf(arith.subf(at, const(first)))
        turns = math.floor(arith.divf(away, span))
        rest = arith.subf(away, arith.mulf(turns, span))
        half = arith.divf(turns, const(2.0))
        even = arith.cmpf(_CmpF.OEQ, math.floor(half), half)
        found = arith.addf(arith.select(even, rest, arith.subf(span, rest)), const(first))
        single = arith.cmpf(_CmpF.OEQ, span, const(0.0))  # a single element, which every coordinate reads
        return self.clipped(arith.select(single, const(0.0), found))

    def brought(self, at: ir.Value, padding: str) -> ir.Value:
        """Map a coordinate outside the image to one inside; 'zeros' padding leaves it unchanged."""
        bring: dict[str, Callable[[ir.Value], ir.Value]] = {"border": self.clipped, "reflection": self.reflected}
        return bring[padding](at) if padding in bring else at

    def read(self, at: ir.Value, padding: str) -> tuple[ir.Value, ir.Value | None]:
        """The index of an integral coordinate and, for 'zeros' padding, whether it is inside the image."""
        inside = None
        if padding == "zeros":
            inside = arith.andi(arith.cmpf(_CmpF.OGE, at, const(0.0)), arith.cmpf(_CmpF.OLE, at, self.last))
        return arith.index_cast(ir.IndexType.get(), arith.fptosi(build.element("i64"), self.clipped(at))), inside


def _within(x: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """`x` clamped to [low, high]. NaN becomes `low`, because the result becomes an index."""
    x = arith.select(arith.cmpf(_CmpF.OGE, x, low), x, low)
    return arith.select(arith.cmpf(_CmpF.OLE, x, high), x, high)


def _taps(at: ir.Value, axis: _Axis, mode: str, padding: str) -> Sequence[_Tap]:
    """The elements along an axis that contribute to the sample at a coordinate."""
    place = axis.place(at)
    if mode == "cubic":  # each element is mapped into the image on its own
        start = math.floor(place)
        part = arith.subf(place, start)
        return [
            (*axis.read(axis.brought(arith.addf(start, const(float(i))), padding), padding),
             cubic_weight(math.absf(arith.subf(part, const(float(i)))), _SHARPNESS))
            for i in range(-1, 3)
        ]  # fmt: skip
    place = axis.brought(place, padding)
    if mode == "nearest":
        return [(*axis.read(math.roundeven(place), padding), None)]
    start = math.floor(place)
    part = arith.subf(place, start)
    return [
        (*axis.read(start, padding), arith.subf(const(1.0), part)),
        (*axis.read(arith.addf(start, const(1.0)), padding), part),
    ]
