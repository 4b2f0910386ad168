"""int8 depthwise convolutions by dot products of four bytes, `vpdpbusd` or `sdot`: a lane is a channel, and the four
bytes that it multiplies are four rows of the filter's column.

For each column of the image, the vectors of bytes of up to four rows, 64 or 16 channels each, are interleaved byte by
byte. This takes two rounds of unpacking, which permute the 64 channels. Each result takes one dot product for each
column of its filter. Along a line the interleaved columns stay in registers for the results that share them. The
epilogue works in the order of the accumulators; its operands are permuted to that order once per block, and packing its
results to bytes restores the order of the channels. `vpdpbusd` takes the activations as its unsigned operand (the code
plus 128). This adds 128 times the sum of a channel's weights, a per-channel constant that the accumulators' initial
values compensate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import arith, vector
from ....dialect.dtypes import Array
from ....kernels.description import Kernel
from ....kernels.weights import constant_bytes, known
from . import emit as e
from .arm_micro import SDOT
from .depthwise import ChannelRows, Depthwise
from .integer_micro import AVX512_VNNI
from .narrow import saturating_pack, words_of

if TYPE_CHECKING:
    from ....core.mlir import ir

_QUAD = 4
_MOST_KEPT = 4  # columns, a quad of rows each, that stay in registers from one result to the next, at most


@dataclass(frozen=True)
class ByteVectors:
    """Vectors that hold a byte of each channel of a block.

    Attributes:
        quarters: the number of quarters of 16 bytes, four or one.
        signed: whether activations are multiplied as signed bytes.
        dot: as `IntegerMicro.dot`.
    """

    name: str
    features: tuple[frozenset[str], ...]
    quarters: int
    signed: bool
    dot: Callable[[ir.Value, ir.Value, ir.Value], ir.Value]

    elements = "i8", "i32"

    @property
    def channels(self) -> int:
        """The number of channels of a block."""
        return 16 * self.quarters

    def known(self, kernel: Kernel) -> bool:
        return known(kernel.rhs.value) is not None

    def weight(self, kernel: Kernel) -> ir.Value:
        codes = known(kernel.rhs.value)
        assert codes is not None
        return constant_bytes(packed(kernel, codes.reshape(kernel.k, kernel.n), self))

    def rows(self, plan: Depthwise, buffers: list[e.Buffer]) -> ChannelRows:
        return IntegerRows(plan, buffers, self)

    @property
    def lanes(self) -> int:
        return 4 * self.quarters

    @property
    def order(self) -> list[list[int]]:
        """The channels of each of four accumulators. Unpacking works on the 16 bytes of each quarter of a vector; after
        two rounds vector `q` holds, in lane `4 * quarter + i`, channel `16 * quarter + 4 * q + i`."""
        return [[16 * quarter + 4 * q + i for quarter in range(self.quarters) for i in range(4)] for q in range(4)]


def packed(kernel: Kernel, codes: Array, vectors: ByteVectors) -> Array:
    """The bytes of the weight `[K, C]` (K is rows times columns of the filter). For each block of channels: the four
    vectors of `ByteVectors.order` for each quad of the filter's rows and each of its columns, then the four initial
    values of the accumulators."""
    window = kernel.lhs.window
    assert window is not None
    height, width = window.kernel
    channels, block = kernel.n, vectors.channels
    blocks, quads = -(-channels // block), -(-height // _QUAD)
    taps = np.zeros((quads * _QUAD, width, blocks * block), np.int8)
    taps[:height, :, :channels] = codes.reshape(height, width, channels)
    start = (0 if vectors.signed else -128) * taps.sum((0, 1), dtype=np.int32)
    order = np.array(vectors.order)
    # [quad, row, column, block, channel] -> [block, quad, column, vector, lane, row]
    t = taps.reshape(quads, _QUAD, width, blocks, block)[..., order].transpose(3, 0, 2, 4, 5, 1)
    s = start.reshape(blocks, block)[:, order]
    parts = [np.ascontiguousarray(x).reshape(blocks, -1).view(np.int8) for x in (t, s)]
    return np.concatenate(parts, axis=1)


class IntegerRows(ChannelRows):
    """Emits a chunk of an int8 convolution."""

    parts = 4
    together = 3  # after which the columns of a filter of width 3 are in the same registers again

    def __init__(self, plan: Depthwise, buffers: list[e.Buffer], vectors: ByteVectors) -> None:
        super().__init__(plan, buffers)
        self.vectors, self.lanes, self.element = vectors, vectors.lanes, e.integer(8)
        self.quads = -(-self.window.kernel[0] // _QUAD)
        self.block_bytes = (self.quads * self.window.kernel[1] + 1) * 4 * self.block_channels
        # Columns that the next result reads too stay in registers.
        shared = max(0, self.span - self.stride)
        self.kept = shared if shared * self.quads <= _MOST_KEPT else 0
        self.bytes = e.vector_of(self.block_channels, e.integer(8))

    def _padding(self) -> ir.Value:
        code = self.window.padding ^ (0x80 if self.kernel.lhs.flipped else 0)
        return e.splat((code + 128) % 256 - 128, self.block_channels, e.integer(8))

    def _take_filter(self, block: e.Index) -> None:
        self.filter = e.at(e.pointer(self.weights), e.multiply(block, self.block_bytes))

    def _column(self, x: e.Index, edge: bool) -> list[ir.Value]:
        """Load a column of pixels with its rows interleaved: four vectors for each quad of rows."""
        inside = self._inside(x, edge)
        if inside is False:
            padding = self.window.padding
            code = (padding + 128) % 256 - 128 if self.vectors.signed else padding % 256 - 128
            return [e.splat(code, self.block_channels, e.integer(8))] * (4 * self.quads)
        found = []
        for first in range(0, self.window.kernel[0], _QUAD):
            found += _interleaved([self._codes(line, x, inside) for line in self.lines[first : first + _QUAD]])
        return found

    def _codes(self, line: tuple[ir.Value, ir.Value], x: e.Index, inside: ir.Value | bool) -> ir.Value:
        """Load the block's channels of a pixel, as the bytes that are multiplied."""
        codes = self._pixel(line, x, inside)
        if self.kernel.lhs.flipped != self.vectors.signed:
            return codes
        return arith.xori(codes, e.splat(-128, self.block_channels, e.integer(8)))

    def _start(self) -> list[ir.Value]:
        start = e.at(self.filter, self.quads * self.window.kernel[1] * 4 * self.block_channels)
        words = e.vector_of(self.lanes, e.integer(32))
        return [e.load(words, e.at(start, self.block_channels * q)) for q in range(4)]

    def _multiplied(self, acc: list[ir.Value], column: list[ir.Value], j: int) -> list[ir.Value]:
        for quad in range(self.quads):
            taps = e.at(self.filter, (quad * self.window.kernel[1] + j) * 4 * self.block_channels)
            acc = [
                self.vectors.dot(acc[q], column[4 * quad + q], e.load(self.bytes, e.at(taps, self.block_channels * q)))
                for q in range(4)
            ]
        return acc

    def _store(self, made: list[ir.Value], row: e.Index) -> None:
        if self.out.element == e.integer(8):
            e.store_vector(_bytes_in_order(made), self.out, [row, self.channel], self.mask)
            return
        for v, value in enumerate(_transposed(made)):
            first, mask = self._part(v)
            e.store_vector(value, self.out, [row, first], mask)

    def _arranged(self, parts: list[ir.Value]) -> list[ir.Value]:
        return _transposed(parts)


def _interleaved(codes: Sequence[ir.Value]) -> list[ir.Value]:
    """Interleave up to four rows to four vectors, each lane of which is a channel's bytes in these rows. Missing rows
    repeat the last one; their weights are zero."""
    a, b, c, d = (codes[min(i, len(codes) - 1)] for i in range(4))
    pairs = [_unpacked(x, y, high, 8) for x, y in ((a, b), (c, d)) for high in (False, True)]
    return [_unpacked(pairs[half], pairs[2 + half], high, 16) for half in (False, True) for high in (False, True)]


def _unpacked(a: ir.Value, b: ir.Value, high: bool, width: int) -> ir.Value:
    """Interleave the elements of `width` bits of the low or high half of each 16 bytes of two vectors."""
    quarters = (a.type.shape[0] * a.type.element_type.width) // 128
    count, each = 128 * quarters // width, 128 // width
    t = e.vector_of(count, e.integer(width))
    x, y = (v if v.type == t else vector.bitcast(t, v) for v in (a, b))
    order = []
    for quarter in range(quarters):
        for i in range(each // 2):
            at = quarter * each + i + (each // 2 if high else 0)
            order += [at, count + at]
    mixed = vector.shuffle(x, y, order)
    return vector.bitcast(e.vector_of(16 * quarters, e.integer(8)), mixed)


def _transposed(vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Swap quarter `i` of vector `q` and quarter `q` of vector `i`: permutes accumulators to the order of channels, and
    four vectors of channels to the order of accumulators."""

    def quarters(a: ir.Value, b: ir.Value, sources: Sequence[int]) -> ir.Value:
        return vector.shuffle(a, b, [16 * (i >= 2) + 4 * q + lane for i, q in enumerate(sources) for lane in range(4)])

    if vectors[0].type.shape[0] == 4:  # one quarter
        return list(vectors)
    a, b, c, d = vectors
    even, odd = [0, 2, 0, 2], [1, 3, 1, 3]
    u, v = ([quarters(x, y, even), quarters(x, y, odd)] for x, y in ((a, b), (c, d)))
    return [quarters(u[i % 2], v[i % 2], even if i < 2 else odd) for i in range(4)]


def _bytes_in_order(vectors: Sequence[ir.Value]) -> ir.Value:
    """Pack four vectors in the order of accumulators to bytes in the order of channels: a pack joins the words of two
    vectors within each quarter, and two rounds of it restore the order of channels."""
    if vectors[0].type.shape[0] == 4:
        a, b = (vector.shuffle(x, y, list(range(8))) for x, y in (vectors[:2], vectors[2:]))
        return vector.shuffle(a, b, list(range(16)))
    saturated = saturating_pack(vectors)
    if saturated is not None:
        return saturated
    a, b, c, d = (e.as_bytes(words_of(v)) for v in vectors)
    low = [16 * quarter + 64 * (i // 4 % 2) + 4 * (i % 4) for quarter in range(4) for i in range(16)]
    left, right = (
        vector.bitcast(e.vector_of(8, e.integer(64)), vector.shuffle(x, y, low)) for x, y in ((a, b), (c, d))
    )
    mixed = vector.shuffle(left, right, [2 * quarter + 8 * i for quarter in range(4) for i in range(2)])
    return vector.bitcast(e.vector_of(64, e.integer(8)), mixed)


AVX512 = ByteVectors("avx512-vnni-depthwise", AVX512_VNNI.features, 4, False, AVX512_VNNI.dot)
NEON = ByteVectors("sdot-depthwise", SDOT.features, 1, True, SDOT.dot)
