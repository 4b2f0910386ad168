"""Rows of a float convolution, gathered from its image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....kernels.description import Window
from . import emit as e
from .windows import corner_of, element_at, is_inside, is_pixel, pixel_at

if TYPE_CHECKING:
    from ....core.mlir import ir


@dataclass(frozen=True)
class FloatWindow:
    """Gathers rows of a convolution from its images `[images, H * W * C]`, with zeros around each image.

    Attributes:
        whole: whether a copy covers all of K; else it covers whole elements of the filter.
        group: the group of channels that is copied.
    """

    window: Window
    lanes: int
    source: e.Buffer
    whole: bool
    group: e.Index

    def copy(self, row: e.Index, first_k: e.Index, target: ir.Value, left: e.Index) -> None:
        """Emit the copy of `left` values of a row from `first_k` on to the address `target`. Behind each contiguous
        run up to a vector of zeros is written, which the next run overwrites."""
        window = self.window
        image, y, x = corner_of(window, row)
        inside = is_inside(window, y, x)

        def elements() -> None:
            self._elements(image, y, x, e.divide(first_k, window.channels), target, e.divide(left, window.channels))

        if not self.whole or window.dilations[1] > 1 or window.groups > 1:
            elements()
        elif inside is True:
            self._lines(image, y, x, target)
        else:
            assert not isinstance(inside, bool)
            e.either(inside, lambda: self._lines(image, y, x, target), elements)

    def _lines(self, image: e.Index, y: e.Index, x: e.Index, target: ir.Value) -> None:
        """Copy a row that is inside the image, by lines of the filter, whose pixels are contiguous."""
        corner, count = self._pixel(y, x), self.window.kernel[1] * self.window.channels
        down = self.window.dilations[0] * self.window.image[2] * self.window.channels
        with e.loop(0, self.window.kernel[0]) as line:
            start = e.add(corner, e.multiply(line.index, down))
            self._run(image, start, e.at(target, e.multiply(line.index, self._bytes(count))), count)

    def _elements(
        self, image: e.Index, y: e.Index, x: e.Index, first: e.Index, target: ir.Value, count: e.Index
    ) -> None:
        """Copy the pixels of `count` elements of the filter from `first` on, or zeros for those outside the image."""
        window, channels = self.window, self.window.channels
        zero = e.splat(0.0, self.lanes, self.source.element)
        with e.loop(0, count) as number:
            element = e.add(first, number.index)
            place = e.at(target, e.multiply(number.index, self._bytes(channels)))
            line, column = element_at(window, y, x, element)

            def copy(line: e.Index = line, column: e.Index = column, place: ir.Value = place) -> None:
                self._run(image, self._pixel(line, column), place, channels)

            def clear(place: ir.Value = place) -> None:
                with e.loop(0, channels, self.lanes) as part:
                    e.store(zero, e.at(place, e.multiply(part.index, self._bytes(1))))

            e.either(is_pixel(window, line, column), copy, clear)

    def _run(self, image: e.Index, start: e.Index, target: ir.Value, count: int) -> None:
        """Copy `count` contiguous values."""
        rest = count % self.lanes

        def vector(at: e.Index, mask: ir.Value | None = None) -> None:
            values = e.load_vector(self.source, [image, e.add(start, at)], self.lanes, mask)
            e.store(values, e.at(target, e.multiply(at, self._bytes(1))))

        with e.loop(0, count - rest, self.lanes) as part:
            vector(part.index)
        if rest:
            vector(count - rest, e.first_lanes(rest, self.lanes))

    def _pixel(self, y: e.Index, x: e.Index) -> e.Index:
        """The index in an image of the first of a pixel's channels that belong to the group."""
        pixel = pixel_at(self.window, y, x)
        return pixel if self.window.groups == 1 else e.add(pixel, e.multiply(self.group, self.window.channels))

    def _bytes(self, count: int) -> int:
        return count * int(self.source.element.width) // 8
