"""Where the codes of a convolution's activation are: its rows overlap in the image, and are never written down."""

from __future__ import annotations

from dataclasses import dataclass

from ....core.mlir import arith, ir
from ....kernels import emit as e
from ....kernels.description import Window

# Rows and columns of a filter up to which each has a bit in a word that says which of them a window has in its image;
# of larger filters each place is compared with the image's size.
_MOST_BITS = 32


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
        height, width = window.result
        n, place = e.divide(m, height * width), e.remainder(m, height * width)
        y = e.multiply(e.divide(place, width), window.strides[0])
        x = e.multiply(e.remainder(place, width), window.strides[1])
        if window.overhangs:
            y, x = e.subtract(y, window.margin[0]), e.subtract(x, window.margin[1])
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
        i, j, channel = self._tap(k)
        y, x = e.multiply(i, down * self.window.image[2]), e.multiply(j, across)
        return [row.image, e.add(row.first, e.add(e.multiply(e.add(y, x), self.window.image[3]), channel))]

    def there(self, row: ImagePlace, k: e.Index) -> e.Condition:
        """Whether code k of a row is in the image."""
        window, i32 = self.window, e.integer(32)
        if not window.overhangs:
            return True
        height, width = window.kernel
        i, j, _ = self._tap(k)
        if row.inside is None:
            # Above and left of the image these are, as unsigned numbers, past its end too.
            y, x = (e.add(s, e.multiply(t, d)) for s, t, d in zip(row.start, (i, j), window.dilations, strict=True))
            return e.both(e.less(y, window.image[1]), e.less(x, window.image[2]))
        # Past the end of the row, where nobody asks, the shift would be longer than the word.
        shifts = [e.minimum(i, height - 1), e.add(j, height) if width > 1 else height]
        rows, columns = (arith.shrui(row.inside, arith.index_castui(i32, e.index(s))) for s in shifts)
        return arith.trunci(e.integer(1), arith.andi(rows, columns))

    def _tap(self, k: e.Index) -> tuple[e.Index, e.Index, e.Index]:
        """Row and column of the filter, and the channel, of code k of a row."""
        columns, channels = self.window.kernel[1], self.window.channels
        tap, channel = e.divide(k, channels), e.remainder(k, channels)
        return e.divide(tap, columns), e.remainder(tap, columns), channel
