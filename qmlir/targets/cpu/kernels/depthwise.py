"""Depthwise convolutions of int8 by dot products of four bytes, `vpdpbusd` or `sdot`: a lane is a channel, and the four
bytes that it multiplies are four rows of the filter's column.

For each column of the image, the channels of a vector of bytes, 64 or 16, of up to four rows are interleaved byte by
byte (two rounds of unpacking, which leave 64 channels in an order of their own); each result takes one dot product for
each of its filter's columns. Along a line the interleaved columns stay in registers for the results that share them.
The epilogue works in the order of the accumulators, with its operands brought to that order once a block; packing its
results to bytes restores the order of the channels. `vpdpbusd` has the activations as its unsigned operand (the code
plus 128), so what that adds, 128 times the sum of a channel's weights, is a constant a channel, which the accumulators
start from.

Padding is not copied: lines outside the image are read from a pixel that holds the padding's code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import arith, llvm, vector
from ....dialect.dtypes import Array
from ....kernels.bodies import BodyCloner
from ....kernels.description import Kernel, Literal, Operand, Previous, Window
from ....kernels.ranges import Ranges
from ..threads.cost import nanoseconds
from ..threads.program import has_helpers
from . import emit as e
from .arm_micro import SDOT
from .chunks import Chunked, executable
from .integer_micro import AVX512_VNNI
from .narrow import saturating_pack, words_of
from .rules import RULES

if TYPE_CHECKING:
    from ....core.mlir import ir

_QUAD = 4
_CHUNKS = 16
_RESULTS = 3  # of one turn of the main loop: so columns of a filter of 3 come round to the registers they were in
_MOST_KEPT = 4  # columns, a quad of rows each, that stay in registers from one result to the next


@dataclass(frozen=True)
class ChannelVectors:
    """The vectors of a CPU, which hold a byte of each channel of a block.

    Attributes:
        quarters: of 16 bytes, four or one.
        signed: whether activations are multiplied as signed bytes.
        dot: as `IntegerMicro.dot`.
    """

    name: str
    features: tuple[frozenset[str], ...]
    quarters: int
    signed: bool
    dot: Callable[[ir.Value, ir.Value, ir.Value], ir.Value]

    @property
    def channels(self) -> int:
        """Of a block."""
        return 16 * self.quarters

    @property
    def lanes(self) -> int:
        return 4 * self.quarters

    @property
    def order(self) -> list[list[int]]:
        """The channels of each of four accumulators. Unpacking works on the 16 bytes of each quarter of a vector; after
        two rounds vector `q` holds, in lane `4 * quarter + i`, channel `16 * quarter + 4 * q + i`."""
        return [[16 * quarter + 4 * q + i for quarter in range(self.quarters) for i in range(4)] for q in range(4)]


AVX512 = ChannelVectors("avx512-vnni-depthwise", AVX512_VNNI.features, 4, False, AVX512_VNNI.dot)
NEON = ChannelVectors("sdot-depthwise", SDOT.features, 1, True, SDOT.dot)


def packed(kernel: Kernel, codes: Array, vectors: ChannelVectors) -> Array:
    """The weight `[K, C]` (K is rows times columns of the filter) as bytes: for each block of channels, for each quad
    of the filter's rows and each of its columns the four vectors of `ChannelVectors.order`, then the four vectors that
    accumulators start from."""
    height, width = _window(kernel).kernel
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


def _window(kernel: Kernel) -> Window:
    assert kernel.lhs.window is not None
    return kernel.lhs.window


@dataclass(frozen=True)
class Depthwise:
    """A kernel and how it is cut into chunks: some rows of results of one image, all channels."""

    kernel: Kernel
    vectors: ChannelVectors

    @cached_property
    def rows(self) -> int:
        lines = _window(self.kernel).result[0]
        return max(1, min(lines, self.images * lines // _CHUNKS))

    @property
    def images(self) -> int:
        count = _window(self.kernel).image[0]
        assert count is not None  # the strategy declines a dynamic number
        return count

    @cached_property
    def row_chunks(self) -> int:
        return -(-_window(self.kernel).result[0] // self.rows)

    def emit(self, name: str, inputs: Sequence[ir.Type], out: ir.Type) -> str:
        count = self.images * self.row_chunks
        cost = nanoseconds(8 * (self.kernel.m or 1) * self.kernel.n * self.kernel.k, 0)
        work = Chunked(lambda _: count, self._chunk, lambda _: cost, shared=has_helpers(self.vectors.features))
        return executable(name, [self.kernel.m], [*inputs, out], work)

    def _chunk(self, number: ir.Value, _: list[e.Index], buffers: list[e.Buffer]) -> None:
        _Rows(self, buffers).emit(number)


class _Rows:
    """Emits one chunk. The methods run in the order of the file.

    Pixels are counted from the margin: column `x * stride + j * dilation` of the image and its margin is what result
    `x` multiplies with column `j` of the filter.
    """

    def __init__(self, plan: Depthwise, buffers: list[e.Buffer]) -> None:
        self.plan, self.kernel, self.window = plan, plan.kernel, _window(plan.kernel)
        self.image, self.weights, *operands, self.out = buffers
        self.operands = dict(zip(self.kernel.operands, operands, strict=True))
        self.vectors, self.lanes, self.block_channels = plan.vectors, plan.vectors.lanes, plan.vectors.channels
        self.cloner = BodyCloner(self.lanes, RULES, Ranges(self.kernel).bound)
        w = self.window
        self.quads = -(-w.kernel[0] // _QUAD)
        self.block_bytes = (self.quads * w.kernel[1] + 1) * 4 * self.block_channels
        self.stride, self.span = w.strides[1], (w.kernel[1] - 1) * w.dilations[1] + 1
        # Columns that the next result reads too stay in registers.
        shared = max(0, self.span - self.stride)
        self.kept = shared if shared * self.quads <= _MOST_KEPT else 0
        self.bytes = e.vector_of(self.block_channels, e.integer(8))

    def emit(self, number: ir.Value) -> None:
        height, channels = self.window.result[0], self.window.image[3]
        self.number = e.divide(number, self.plan.row_chunks)
        first = e.multiply(e.remainder(number, self.plan.row_chunks), self.plan.rows)
        last = e.minimum(e.add(first, self.plan.rows), height)
        self.outside = e.pointer(e.scratch([self.block_channels], e.integer(8)))
        padding = self.window.padding ^ (0x80 if self.kernel.lhs.flipped else 0)
        e.store(e.splat((padding + 128) % 256 - 128, self.block_channels, e.integer(8)), self.outside)
        whole, rest = divmod(channels, self.block_channels)
        if whole:
            with e.loop(0, whole) as block:
                self._block(block.index, self.block_channels, first, last)
        if rest:
            self._block(whole, rest, first, last)

    def _block(self, number: e.Index, channels: int, first: e.Index, last: e.Index) -> None:
        """Lines of results of a block, of which there may be less than the vectors hold."""
        self.channel, self.channels = e.multiply(number, self.block_channels), channels
        self.mask = e.first_lanes(channels, self.block_channels) if channels < self.block_channels else None
        self.filter = e.at(e.pointer(self.weights), e.multiply(number, self.block_bytes))
        self.held = {o: self._fetch(o, None) for o in self.kernel.operands if "m" not in o.axes}
        with e.loop(first, last) as line:
            self._line(line.index)

    def _line(self, y: e.Index) -> None:
        """A row of results: as many as read no column outside the image in groups, those before and behind one by
        one."""
        w, count = self.window, min(_RESULTS, self.window.result[1])
        self.lines = [
            self._start_of(e.add(e.multiply(y, w.strides[0]), i * w.dilations[0])) for i in range(w.kernel[0])
        ]
        row = e.multiply(e.add(e.multiply(self.number, w.result[0]), y), w.result[1])
        width, margin, extent = w.result[1], w.margin[1], self._extent(1)
        first = min(width, max(0, -(-(margin - self.kept) // self.stride)))
        last = min((margin + extent - self.span) // self.stride, width - 1) - (count - 1)
        end = first + (max(0, last - first) // count + 1) * count if last >= first else first
        columns = [v for x in range(self.kept) for v in self._column(x, True)]
        for start, stop, each in ((0, first, 1), (first, end, count), (end, width, 1)):
            if start < stop:
                with e.loop(start, stop, each, columns) as group:
                    group.next = self._results(row, group.index, each, group.values, (start, stop) != (first, end))
                columns = group.results

    def _start_of(self, line: e.Index) -> tuple[ir.Value, ir.Value]:
        """Where a line of the image begins, at the first column of its margin, and how far columns are apart: a line
        outside is one pixel of padding, again and again."""
        w = self.window
        _, height, width, channels = w.image
        at = e.subtract(line, w.margin[0])
        place = e.add(e.multiply(e.subtract(e.multiply(at, width), w.margin[1]), channels), self.channel)
        address = e.at(e.at(self.image.address, self.image.offset([self.number, 0])), place)
        last = (w.result[0] - 1) * w.strides[0] + (w.kernel[0] - 1) * w.dilations[0]
        if w.margin[0] == 0 and last < self._extent(0):
            return address, e.index(channels)
        inside = arith.cmpi(arith.CmpIPredicate.ult, e.index(at), e.index(height))
        return arith.select(inside, address, self.outside), arith.select(inside, e.index(channels), e.index(0))

    def _extent(self, axis: int) -> int:
        """Height or width of the images."""
        size = self.window.image[1 + axis]
        assert size is not None
        return size

    def _results(self, row: e.Index, x: e.Index, count: int, kept: Sequence[ir.Value], edge: bool) -> list[ir.Value]:
        """`count` neighbours; returns the columns that the next ones share with them."""
        w = self.window
        size = 4 * self.quads
        columns = {c: list(kept[c * size : (c + 1) * size]) for c in range(self.kept)}
        left = e.multiply(x, self.stride)

        def column(c: int) -> list[ir.Value]:
            if c not in columns:
                columns[c] = self._column(e.add(left, c), edge)
            return columns[c]

        start = e.at(self.filter, self.quads * w.kernel[1] * 4 * self.block_channels)
        words = e.vector_of(self.lanes, e.integer(32))
        for p in range(count):
            acc = [e.load(words, e.at(start, self.block_channels * q)) for q in range(4)]
            for j in range(w.kernel[1]):
                mixed = column(p * self.stride + j * w.dilations[1])
                for quad in range(self.quads):
                    taps = e.at(self.filter, (quad * w.kernel[1] + j) * 4 * self.block_channels)
                    for q in range(4):
                        acc[q] = self.vectors.dot(
                            acc[q], mixed[4 * quad + q], e.load(self.bytes, e.at(taps, self.block_channels * q))
                        )
            self._epilogue(acc, e.add(row, e.add(x, p)))
        return [v for c in range(self.kept) for v in column(count * self.stride + c)]

    def _column(self, x: e.Index, edge: bool) -> list[ir.Value]:
        """A column of pixels, its rows interleaved: four vectors for each quad of rows."""
        w = self.window
        if isinstance(x, int) and not w.margin[1] <= x < w.margin[1] + self._extent(1):
            code = (w.padding + 128) % 256 - 128 if self.vectors.signed else w.padding % 256 - 128
            return [e.splat(code, self.block_channels, e.integer(8))] * (4 * self.quads)
        inside = None
        if edge and not isinstance(x, int):
            at = e.subtract(x, w.margin[1])
            inside = arith.cmpi(arith.CmpIPredicate.ult, e.index(at), e.index(self._extent(1)))
        found = []
        for first in range(0, w.kernel[0], _QUAD):
            found += _interleaved([self._codes(line, x, inside) for line in self.lines[first : first + _QUAD]])
        return found

    def _codes(self, line: tuple[ir.Value, ir.Value], x: e.Index, inside: ir.Value | None) -> ir.Value:
        """The channels of a block of a pixel, as they are multiplied."""
        start, step = line
        address = e.at(start, e.multiply(x, step))
        if inside is not None:
            address = arith.select(inside, address, self.outside)
        if self.mask is None:
            codes = e.load(self.bytes, address)
        else:
            none = e.splat(0, self.block_channels, e.integer(8))
            codes = llvm.MaskedLoadOp(self.bytes, address, self.mask, pass_thru=none, alignment=1).result
        if self.kernel.lhs.flipped != self.vectors.signed:
            return codes
        return arith.xori(codes, e.splat(-128, self.block_channels, e.integer(8)))

    def _epilogue(self, acc: list[ir.Value], row: e.Index) -> None:
        """The stages on a result's channels, in the order of the accumulators, and the store."""
        operands = {o: self._fetch(o, row) for o in self.kernel.operands if "m" in o.axes} | self.held
        made = []
        for q in range(4):
            values = [acc[q]]
            for stage in self.kernel.stages:
                arguments = []
                for source in stage.sources:
                    if isinstance(source, Previous):
                        arguments.append(values[source.index])
                    elif isinstance(source, Operand):
                        arguments.append(operands[source][q])
                    else:
                        assert isinstance(source, Literal)
                        arguments.append(self.cloner.splat(source.value))
                values.append(self.cloner.clone(stage.body, arguments))
            made.append(values[-1])
        if self.out.element == e.integer(8):
            e.store_vector(_bytes_in_order(made), self.out, [row, self.channel], self.mask)
            return
        for v, value in enumerate(_transposed(made)):
            first, mask = self._part(v)
            e.store_vector(value, self.out, [row, first], mask)

    def _part(self, v: int) -> tuple[e.Index, ir.Value | None]:
        """The first of the `v`-th quarter of the channels of the block, and which of them there are."""
        left = max(0, self.channels - self.lanes * v)
        return e.add(self.channel, self.lanes * v), e.first_lanes(left, self.lanes) if left < self.lanes else None

    def _fetch(self, operand: Operand, row: e.Index | None) -> list[ir.Value]:
        """What the four vectors of accumulators meet of an operand."""
        buffer, rows = self.operands[operand], {} if row is None else {"m": row}
        if "n" not in operand.axes:
            return [e.broadcast(e.load_element(buffer, list(rows.values()) if operand.axes else []), self.lanes)] * 4
        found = []
        for v in range(4):
            first, mask = self._part(v)
            where = [{**rows, "n": first}[axis] for axis in operand.axes]
            found.append(e.load_vector(buffer, where, self.lanes, mask))
        return _transposed(found)


def _interleaved(codes: Sequence[ir.Value]) -> list[ir.Value]:
    """Four vectors of 16 lanes, each of a channel's bytes in up to four rows; what stands for rows that there are not
    is multiplied by zero."""
    a, b, c, d = (codes[min(i, len(codes) - 1)] for i in range(4))
    pairs = [_unpacked(x, y, high, 8) for x, y in ((a, b), (c, d)) for high in (False, True)]
    return [_unpacked(pairs[half], pairs[2 + half], high, 16) for half in (False, True) for high in (False, True)]


def _unpacked(a: ir.Value, b: ir.Value, high: bool, width: int) -> ir.Value:
    """Elements of `width` bits of the low or high half of each 16 bytes of two vectors, by turns."""
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
    """Quarter `i` of vector `q` and quarter `q` of vector `i` change places: accumulators in the order of channels, or
    four vectors of channels in the order of accumulators."""

    def quarters(a: ir.Value, b: ir.Value, picked: Sequence[int]) -> ir.Value:
        return vector.shuffle(a, b, [16 * (i >= 2) + 4 * q + lane for i, q in enumerate(picked) for lane in range(4)])

    if vectors[0].type.shape[0] == 4:  # one quarter
        return list(vectors)
    a, b, c, d = vectors
    even, odd = [0, 2, 0, 2], [1, 3, 1, 3]
    u, v = ([quarters(x, y, even), quarters(x, y, odd)] for x, y in ((a, b), (c, d)))
    return [quarters(u[i % 2], v[i % 2], even if i < 2 else odd) for i in range(4)]


def _bytes_in_order(vectors: Sequence[ir.Value]) -> ir.Value:
    """The bytes of four vectors in the order of accumulators, as channels: packing brings words of two vectors
    together within each quarter, which twice is the order of channels again."""
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
