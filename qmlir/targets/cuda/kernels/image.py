"""Where the codes of a convolution's activation are: its rows overlap in the image, and are never written down."""

from __future__ import annotations

from dataclasses import dataclass

from ....kernels import emit as e
from ....kernels.description import Window


@dataclass(frozen=True)
class Image:
    """An image `[N, H * W * C]` as rows of `KH * KW * C` codes: implicit GEMM."""

    window: Window

    @property
    def channels(self) -> int:
        return self.window.image[3]

    def row(self, m: e.Index) -> tuple[e.Index, e.Index]:
        """The number of the image of row m, and where in it the row's first code is."""
        height, width = self.window.result
        n, place = e.divide(m, height * width), e.remainder(m, height * width)
        y = e.multiply(e.divide(place, width), self.window.strides[0] * self.window.image[2])
        x = e.multiply(e.remainder(place, width), self.window.strides[1])
        return n, e.multiply(e.add(y, x), self.channels)

    def address(self, row: tuple[e.Index, e.Index], k: e.Index) -> list[e.Index]:
        """The place of code k of a row."""
        columns, (down, across) = self.window.kernel[1], self.window.dilations
        tap, channel = e.divide(k, self.channels), e.remainder(k, self.channels)
        y = e.multiply(e.divide(tap, columns), down * self.window.image[2])
        x = e.multiply(e.remainder(tap, columns), across)
        return [row[0], e.add(row[1], e.add(e.multiply(e.add(y, x), self.channels), channel))]
