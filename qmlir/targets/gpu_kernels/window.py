"""Where the codes of a convolution's activation are: its rows overlap in the image, and are never written down."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.mlir import arith, ir
from ...kernels.description import Window
from . import emit as e

# Rows and columns of a filter up to which each has a bit in a word that says which of them a window has in its image;
# of larger filters each place is compared with the image's size.
_MOST_BITS = 32


def corner(window: Window, m: e.Index) -> tuple[e.Index, e.Index, e.Index]:
    """Of row m of a convolution the number of its image, and where in it its window starts: row and column. In the
    margin above and left of the image they are, as unsigned numbers, past its end."""
    height, width = window.result
    image, place = e.divide(m, height * width), e.remainder(m, height * width)
    y = e.multiply(e.divide(place, width), window.strides[0])
    x = e.multiply(e.remainder(place, width), window.strides[1])
    if window.overhangs:
        y, x = e.subtract(y, window.margin[0]), e.subtract(x, window.margin[1])
    return image, y, x


def tap(window: Window, k: e.Index, per: int) -> tuple[e.Index, e.Index, e.Index]:
    """Row and column of the filter, and which of its `per` codes, or pieces, of each pixel, of code or piece k of a
    row."""
    number, columns = e.divide(k, per), window.kernel[1]
    return e.divide(number, columns), e.remainder(number, columns), e.remainder(k, per)


def beyond(window: Window, start: tuple[e.Index, e.Index], i: e.Index, j: e.Index) -> tuple[e.Index, e.Index]:
    """Row and column of an image at tap (i, j) of a window that starts there."""
    down, across = window.dilations
    return e.add(start[0], e.multiply(i, down)), e.add(start[1], e.multiply(j, across))


def inside(window: Window, y: e.Index, x: e.Index) -> e.Condition:
    """Whether a pixel is in the image: above it and left of it numbers are, without a sign, past its end too."""
    return e.both(e.less(y, window.image[1]), e.less(x, window.image[2]))


@dataclass(frozen=True)
class ImagePlace:
    """A row: the number of its image, where in it the first code of its window is, at which row and column, and which
    rows (the lowest bits) and columns (the next ones) of the window are inside; None where the filter has too many."""

    image: e.Index
    first: e.Index
    start: tuple[e.Index, e.Index]
    inside: ir.Value | None


@dataclass(frozen=True)
class Image:
    """An image `[N, H * W * C]` as rows of `KH * KW * C / G` codes: implicit GEMM."""

    window: Window
    first_channel: e.Index = 0  # of a group

    def row(self, m: e.Index) -> ImagePlace:
        """Row m. In the margin above and left of the image places are negative, and not read."""
        window = self.window
        n, y, x = corner(window, m)
        first = e.multiply(e.add(e.multiply(y, window.image[2]), x), window.image[3])
        counted = window.overhangs and sum(window.kernel) <= _MOST_BITS
        return ImagePlace(n, e.add(first, self.first_channel), (y, x), self._inside(y, x) if counted else None)

    def _inside(self, y: e.Index, x: e.Index) -> ir.Value:
        """A bit for each row and column of the window at (y, x)."""
        window, i32 = self.window, e.integer(32)
        bits, number = e.constant(0, i32), 0
        for start, taps, step, size in zip((y, x), window.kernel, window.dilations, window.image[1:3], strict=True):
            for tap in range(taps):
                inside = e.condition(e.less(e.add(start, tap * step), size))
                bit = arith.shli(arith.extui(i32, inside), e.constant(number, i32))
                bits, number = arith.ori(bits, bit), number + 1
        return bits

    def address(self, row: ImagePlace, k: e.Index) -> list[e.Index]:
        """The place of code k of a row."""
        down, across = self.window.dilations
        i, j, channel = tap(self.window, k, self.window.channels)
        y, x = e.multiply(i, down * self.window.image[2]), e.multiply(j, across)
        return [row.image, e.add(row.first, e.add(e.multiply(e.add(y, x), self.window.image[3]), channel))]

    def there(self, row: ImagePlace, k: e.Index) -> e.Condition:
        """Whether code k of a row is in the image."""
        window, i32 = self.window, e.integer(32)
        if not window.overhangs:
            return True
        height, width = window.kernel
        i, j, _ = tap(window, k, window.channels)
        if row.inside is None:
            return inside(window, *beyond(window, row.start, i, j))
        # Past the end of the row, where nobody asks, the shift would be longer than the word.
        shifts = [e.minimum(i, height - 1), e.add(j, height) if width > 1 else height]
        rows, columns = (arith.shrui(row.inside, arith.index_castui(i32, e.index(s))) for s in shifts)
        return arith.trunci(e.integer(1), arith.andi(rows, columns))
