"""Positions of the rows of a convolution in its image `[images, H * W * C]`. Lines and columns are counted from the
start of the margin, the padding around each image, which is not in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.mlir import arith
from ....kernels.description import Window
from . import emit as e

if TYPE_CHECKING:
    from ....core.mlir import ir


def corner_of(window: Window, row: e.Index) -> tuple[e.Index, e.Index, e.Index]:
    """The image of a row, and the line and the column where its window starts."""
    height, width = window.result
    image = e.divide(row, height * width)
    y = e.multiply(e.remainder(e.divide(row, width), height), window.strides[0])
    return image, y, e.multiply(e.remainder(row, width), window.strides[1])


def is_inside(window: Window, y: e.Index, x: e.Index) -> ir.Value | bool:
    """Whether the window that starts at `(y, x)` is in the image, without the margin."""
    conditions = []
    for axis, at in enumerate((y, x)):
        extent, margin = int(window.image[1 + axis] or 0), window.margin[axis]
        reach = (window.kernel[axis] - 1) * window.dilations[axis]
        last = (window.result[axis] - 1) * window.strides[axis] + reach
        if margin == 0 and last < extent:
            continue
        if extent + margin - 1 - reach < margin:
            return arith.constant(e.integer(1), 0)
        conditions.append(e.between(margin, at, extent + margin - 1 - reach))
    return e.all_of(conditions) if conditions else True


def element_at(window: Window, y: e.Index, x: e.Index, number: e.Index) -> tuple[e.Index, e.Index]:
    """The line and the column that element `number` of the filter multiplies, in the window that starts at `(y, x)`."""
    across = window.kernel[1]
    line = e.add(y, e.multiply(e.divide(number, across), window.dilations[0]))
    return line, e.add(x, e.multiply(e.remainder(number, across), window.dilations[1]))


def is_pixel(window: Window, line: e.Index, column: e.Index) -> ir.Value:
    """Whether a pixel is in the image, not in the margin."""
    places = zip(window.margin, (line, column), window.image[1:3], strict=True)
    return e.all_of([e.between(margin, at, margin + extent - 1) for margin, at, extent in places])


def pixel_at(window: Window, line: e.Index, column: e.Index) -> e.Index:
    """The offset in elements of the channels of a pixel in its image."""
    top, left = (e.subtract(at, by) for at, by in zip((line, column), window.margin, strict=True))
    return e.multiply(e.add(e.multiply(top, window.image[2]), left), window.image[3])
