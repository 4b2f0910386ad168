"""Depthwise convolutions of int8 by `vpdpbusd`: a lane is a channel, and the four bytes that it multiplies are four
rows of the filter's column.

For each column of the image, 64 channels of up to four rows are interleaved byte by byte (two rounds of unpacking,
which leave the channels in an order of their own); each result takes one dot product for each of its filter's columns,
and neighbouring results share what they read. The activations are the unsigned operand (the code plus 128), so what
that adds, 128 times the sum of a channel's weights, is a constant a channel, which the accumulators start from.

Padding is not copied: near the edge of the image rows outside are read from a line that holds the padding's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...._mlir import arith, llvm, vector
from ....dialect.dtypes import Array
from ....kernels.bodies import BodyCloner
from ....kernels.description import Kernel, Literal, Operand, Previous, Window
from ..threads.cost import nanoseconds
from . import emit as e
from .chunks import Chunked, executable
from .micro import dot
from .rules import RULES

CHANNELS = 64  # of a block: the bytes of a vector
_LANES, _QUAD = 16, 4
_CHUNKS = 16
_RESULTS = 3  # neighbours that share what they read: three have 12 accumulators, and the weights of 3x3 take 12 more

# Unpacking works on the 16 bytes of each quarter of a vector; after two rounds vector `q` holds, in lane `4 * quarter +
# i`, channel `16 * quarter + 4 * q + i`.
_ORDER = [[16 * quarter + 4 * q + i for quarter in range(4) for i in range(4)] for q in range(4)]


def packed(kernel: Kernel, codes: Array) -> Array:
    """The weight `[K, C]` (K is rows times columns of the filter) as bytes: for each block of channels, for each quad
    of the filter's rows and each of its columns the four vectors of `_ORDER`, then the four vectors that accumulators
    start from."""
    height, width = _window(kernel).kernel
    channels = kernel.n
    blocks, quads = -(-channels // CHANNELS), -(-height // _QUAD)
    taps = np.zeros((quads * _QUAD, width, blocks * CHANNELS), np.int8)
    taps[:height, :, :channels] = codes.reshape(height, width, channels)
    start = -128 * taps.sum((0, 1), dtype=np.int32)
    order = np.array(_ORDER)
    # [quad, row, column, block, channel] -> [block, quad, column, vector, lane, row]
    t = taps.reshape(quads, _QUAD, width, blocks, CHANNELS)[..., order].transpose(3, 0, 2, 4, 5, 1)
    s = start.reshape(blocks, CHANNELS)[:, order]
    parts = [np.ascontiguousarray(x).reshape(blocks, -1).view(np.int8) for x in (t, s)]
    return np.concatenate(parts, axis=1)


def _window(kernel: Kernel) -> Window:
    assert kernel.lhs.window is not None
    return kernel.lhs.window


@dataclass(frozen=True)
class Depthwise:
    """A kernel and how it is cut into chunks: some rows of results of one image, all channels."""

    kernel: Kernel

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

    def emit(self, name: str, inputs: Sequence[Any], out: Any) -> str:
        count = self.images * self.row_chunks
        cost = nanoseconds(8 * (self.kernel.m or 1) * self.kernel.n * self.kernel.k, 0)
        work = Chunked(lambda _: count, self._chunk, lambda _: cost)
        return executable(name, self.kernel.m, [*inputs, out], work)

    def _chunk(self, number: Any, _: e.Index, buffers: list[e.Buffer]) -> None:
        _Rows(self, buffers).emit(number)


class _Rows:
    """Emits one chunk. The methods run in the order of the file."""

    def __init__(self, plan: Depthwise, buffers: list[e.Buffer]) -> None:
        self.plan, self.kernel, self.window = plan, plan.kernel, _window(plan.kernel)
        self.image, self.weights, *operands, self.out = buffers
        self.operands = dict(zip(self.kernel.operands, operands, strict=True))
        self.cloner = BodyCloner(_LANES, RULES)
        self.quads = -(-self.window.kernel[0] // _QUAD)
        self.block_bytes = (self.quads * self.window.kernel[1] + 1) * 4 * CHANNELS
        self.results = min(_RESULTS, self.window.result[1])
        self.bytes = e.vector_of(CHANNELS, e.integer(8))

    def emit(self, number: Any) -> None:
        height, channels = self.window.result[0], self.window.image[3]
        self.number = e.divide(number, self.plan.row_chunks)
        first = e.multiply(e.remainder(number, self.plan.row_chunks), self.plan.rows)
        last = e.minimum(e.add(first, self.plan.rows), height)
        self.outside = e.pointer(e.scratch([CHANNELS], e.integer(8)))
        padding = self.window.padding ^ (0x80 if self.kernel.lhs.flipped else 0)
        e.store(e.splat((padding + 128) % 256 - 128, CHANNELS, e.integer(8)), self.outside)
        with e.loop(0, -(-channels // CHANNELS)) as block:
            self.channel = e.multiply(block.index, CHANNELS)
            self.mask = None
            if channels % CHANNELS:
                self.mask = e.first_lanes(e.subtract(channels, self.channel), CHANNELS)
            self.filter = e.at(e.pointer(self.weights), e.multiply(block.index, self.block_bytes))
            with e.loop(first, last) as line:
                self._line(line.index)

    def _line(self, y: e.Index) -> None:
        """A row of results; the last ones of it are computed anew with those before where they would be fewer."""
        width, count = self.window.result[1], self.results
        with e.loop(0, -(-width // count)) as group:
            x = e.minimum(e.multiply(group.index, count), width - count)
            inside = self._inside(y, x)
            if inside is True:
                self._results(y, x, False)
            else:
                e.either(inside, lambda: self._results(y, x, False), lambda: self._results(y, x, True))

    def _inside(self, y: e.Index, x: e.Index) -> Any:
        """Whether all that a group of results reads is in the image."""
        w = self.window
        ends = ((0, w.result[0] - 1, 1), (1, w.result[1] - self.results, self.results))
        if w.margin == (0, 0) and all(self._fits(*end) for end in ends):
            return True
        conditions = []
        for axis, at, count in ((0, y, 1), (1, x, self.results)):
            stride, reach = w.strides[axis], self._reach(axis, count)
            low, high = w.margin[axis], self._extent(axis) - 1 - reach + w.margin[axis]
            if high < low:
                return arith.constant(e.integer(1), 0)
            conditions.append(e.between(low, e.multiply(at, stride), high))
        return arith.andi(*conditions)

    def _extent(self, axis: int) -> int:
        """Height or width of the images."""
        size = self.window.image[1 + axis]
        assert size is not None
        return size

    def _reach(self, axis: int, count: int) -> int:
        w = self.window
        return int((count - 1) * w.strides[axis] + (w.kernel[axis] - 1) * w.dilations[axis])

    def _fits(self, axis: int, at: int, count: int) -> bool:
        return bool(at * self.window.strides[axis] + self._reach(axis, count) < self._extent(axis))

    def _results(self, y: e.Index, x: e.Index, edge: bool) -> None:
        """`self.results` neighbours: column by column of what they read."""
        w = self.window
        columns: dict[int, list[tuple[int, int]]] = {}
        for p in range(self.results):
            for j in range(w.kernel[1]):
                columns.setdefault(p * w.strides[1] + j * w.dilations[1], []).append((p, j))
        start = e.at(self.filter, self.quads * w.kernel[1] * 4 * CHANNELS)
        words = e.vector_of(_LANES, e.integer(32))
        acc = [[e.load(words, e.at(start, CHANNELS * q)) for q in range(4)] for _ in range(self.results)]
        top = e.multiply(y, w.strides[0])
        left = e.multiply(x, w.strides[1])
        for column, users in sorted(columns.items()):
            for quad in range(self.quads):
                lines = range(quad * _QUAD, min(w.kernel[0], (quad + 1) * _QUAD))
                codes = [self._codes(e.add(top, i * w.dilations[0]), e.add(left, column), edge) for i in lines]
                mixed = _interleaved(codes)
                for p, j in users:
                    taps = e.at(self.filter, (quad * w.kernel[1] + j) * 4 * CHANNELS)
                    for q in range(4):
                        acc[p][q] = dot(acc[p][q], mixed[q], e.load(self.bytes, e.at(taps, CHANNELS * q)))
        row = e.add(e.multiply(e.add(e.multiply(self.number, w.result[0]), y), w.result[1]), x)
        for p in range(self.results):
            for v, value in enumerate(_in_order(acc[p])):
                self._epilogue(value, e.add(row, p), v)

    def _codes(self, y: e.Index, x: e.Index, edge: bool) -> Any:
        """64 channels of a pixel, as unsigned bytes; `y` and `x` count from the margin."""
        w = self.window
        _, height, width, channels = w.image
        line, column = (e.subtract(at, by) for at, by in zip((y, x), w.margin, strict=True))
        place = e.add(e.multiply(e.add(e.multiply(line, width), column), channels), self.channel)
        base = e.at(self.image.address, self.image.offset([self.number, 0]))
        address = e.at(base, place)
        if edge:
            within = arith.andi(
                arith.cmpi(arith.CmpIPredicate.ult, e.index(line), e.index(height)),
                arith.cmpi(arith.CmpIPredicate.ult, e.index(column), e.index(width)),
            )
            address = arith.select(within, address, self.outside)
        if self.mask is None:
            codes = e.load(self.bytes, address)
        else:
            none = e.splat(0, CHANNELS, e.integer(8))
            codes = llvm.MaskedLoadOp(self.bytes, address, self.mask, pass_thru=none, alignment=1).result
        return codes if self.kernel.lhs.flipped else arith.xori(codes, e.splat(-128, CHANNELS, e.integer(8)))

    def _epilogue(self, value: Any, row: e.Index, v: int) -> None:
        """The stages on 16 channels of a result."""
        first = e.add(self.channel, _LANES * v)
        channels = self.kernel.n
        mask = None
        if channels % CHANNELS:
            mask = e.first_lanes(e.subtract(channels, e.minimum(first, channels)), _LANES)
        values = [value]
        for stage in self.kernel.stages:
            arguments = []
            for source in stage.sources:
                if isinstance(source, Previous):
                    arguments.append(values[source.index])
                elif isinstance(source, Operand):
                    arguments.append(self._fetch(source, row, first, mask))
                else:
                    assert isinstance(source, Literal)
                    arguments.append(self.cloner.splat(source.value))
            values.append(self.cloner.clone(stage.body, arguments))
        e.store_vector(values[-1], self.out, [row, first], mask)

    def _fetch(self, operand: Operand, row: e.Index, first: e.Index, mask: Any) -> Any:
        buffer, places = self.operands[operand], {"m": row, "n": first}
        where = [places[axis] for axis in operand.axes]
        if "n" in operand.axes:
            return e.load_vector(buffer, where, _LANES, mask)
        return e.broadcast(e.load_element(buffer, where), _LANES)


def _interleaved(codes: Sequence[Any]) -> list[Any]:
    """Four vectors of 16 lanes, each of a channel's bytes in up to four rows; what stands for rows that there are not
    is multiplied by zero."""
    a, b, c, d = (codes[min(i, len(codes) - 1)] for i in range(4))
    pairs = [_unpacked(x, y, high, 8) for x, y in ((a, b), (c, d)) for high in (False, True)]
    return [_unpacked(pairs[half], pairs[2 + half], high, 16) for half in (False, True) for high in (False, True)]


def _unpacked(a: Any, b: Any, high: bool, width: int) -> Any:
    """Elements of `width` bits of the low or high half of each 16 bytes of two vectors, by turns."""
    count, each = 512 // width, 128 // width
    t = e.vector_of(count, e.integer(width))
    x, y = (v if v.type == t else vector.bitcast(t, v) for v in (a, b))
    order = []
    for quarter in range(4):
        for i in range(each // 2):
            at = quarter * each + i + (each // 2 if high else 0)
            order += [at, count + at]
    mixed = vector.shuffle(x, y, order)
    return vector.bitcast(e.vector_of(64, e.integer(8)), mixed)


def _in_order(acc: Sequence[Any]) -> list[Any]:
    """The accumulators of a block, channels in ascending order: quarters of vectors change places."""

    def quarters(a: Any, b: Any, picked: Sequence[int]) -> Any:
        return vector.shuffle(a, b, [16 * (i >= 2) + 4 * q + lane for i, q in enumerate(picked) for lane in range(4)])

    even, odd = [0, 2, 0, 2], [1, 3, 1, 3]
    u, v = (([quarters(a, b, even), quarters(a, b, odd)]) for a, b in ((acc[0], acc[1]), (acc[2], acc[3])))
    return [quarters(u[i % 2], v[i % 2], even if i < 2 else odd) for i in range(4)]
