"""Addresses of a convolution's activation, whose rows overlap in the image and are never materialised."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.mlir import arith, ir
from ...kernels.description import Window
from . import emit as e

# The most rows plus columns of a filter for which a word has a bit for each, set if that row or column of a window is
# inside the image. For larger filters each position is compared with the image's size.
_MOST_BITS = 32


@dataclass(frozen=True)
class ImagePlace:
    """A row of the activation: the number of its image, the address in it of the window's first code, and that code's
    row and column. `inside` has a bit for each row (the lowest bits) and column (the next ones) of the window that is
    inside the image; None if bits are not used, for example because the filter is too large."""

    image: e.Index
    first: e.Index
    start: tuple[e.Index, e.Index]
    inside: ir.Value | None


@dataclass(frozen=True)
class Image:
    """An image `[N, H * W * C]`, or `[N, C * H * W]`, as rows of `KH * KW * C / G` codes: implicit GEMM.

    Attributes:
        first_channel: the first channel of the group.
        counted: whether bits tell which parts of a row's window are inside the image, for callers that do not read the
            others; else each position is compared with the image's size, and addresses are clamped to its edge.
    """

    window: Window
    first_channel: e.Index = 0
    counted: bool = True

    @property
    def steps(self) -> tuple[int, int]:
        """The strides from a pixel to the next, and from a channel to the next."""
        _, height, width, channels = self.window.image
        return (1, height * width) if self.window.planes else (channels, 1)

    def row(self, m: e.Index) -> ImagePlace:
        """Row m. Positions in the margin above and left of the image are negative, and are not read."""
        window, (pixel, channel) = self.window, self.steps
        height, width = window.result
        n, place = e.divide(m, height * width), e.remainder(m, height * width)
        y = e.multiply(e.divide(place, width), window.strides[0])
        x = e.multiply(e.remainder(place, width), window.strides[1])
        if window.overhangs:
            y, x = e.subtract(y, window.margin[0]), e.subtract(x, window.margin[1])
        first = e.multiply(e.add(e.multiply(y, window.image[2]), x), pixel)
        counted = self.counted and window.overhangs and sum(window.kernel) <= _MOST_BITS
        first = e.add(first, e.multiply(self.first_channel, channel))
        return ImagePlace(n, first, (y, x), self._inside(y, x) if counted else None)

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

    def _tap(self, k: e.Index) -> tuple[e.Index, e.Index, e.Index]:
        """Row and column of the filter, and the channel, of code k of a row."""
        number, columns = e.divide(k, self.window.channels), self.window.kernel[1]
        return e.divide(number, columns), e.remainder(number, columns), e.remainder(k, self.window.channels)

    def address(self, row: ImagePlace, k: e.Index, ahead: int = 0) -> list[e.Index]:
        """The indices of code k of a row, or of the code `ahead` channels after it."""
        (down, across), (pixel, step) = self.window.dilations, self.steps
        _, height, width, _ = self.window.image
        i, j, channel = self._tap(k)
        channel = e.add(channel, ahead)
        if not self.counted:
            y, x = self._beyond(row, i, j)
            if self.window.overhangs:
                y, x = e.minimum(y, height - 1), e.minimum(x, width - 1)
            place = e.multiply(e.add(e.multiply(y, width), x), pixel)
            return [row.image, e.add(place, e.multiply(e.add(self.first_channel, channel), step))]
        y, x = e.multiply(i, down * width), e.multiply(j, across)
        inside = e.add(e.multiply(e.add(y, x), pixel), e.multiply(channel, step))
        return [row.image, e.add(row.first, inside)]

    def _beyond(self, row: ImagePlace, i: e.Index, j: e.Index) -> tuple[e.Index, e.Index]:
        """Row and column in the image of tap (i, j)."""
        (down, across), (y, x) = self.window.dilations, row.start
        return e.add(y, e.multiply(i, down)), e.add(x, e.multiply(j, across))

    def there(self, row: ImagePlace, k: e.Index) -> e.Condition:
        """Whether code k of a row is inside the image."""
        window, i32 = self.window, e.integer(32)
        if not window.overhangs:
            return True
        height, width = window.kernel
        i, j, _ = self._tap(k)
        if row.inside is None:
            # Compared as unsigned numbers, positions above and left of the image are past its end too.
            y, x = self._beyond(row, i, j)
            return e.both(e.less(y, window.image[1]), e.less(x, window.image[2]))
        # Past the end of the row, where the result is not used, the shift could exceed the word.
        shifts = [e.minimum(i, height - 1), e.add(j, height) if width > 1 else height]
        rows, columns = (arith.shrui(row.inside, arith.index_castui(i32, e.index(s))) for s in shifts)
        return arith.trunci(e.integer(1), arith.andi(rows, columns))
