"""Depthwise convolutions: each channel of an image has its own filter; a vector of channels is computed at a time.

The image is not padded in memory: lines outside it are read from one pixel of padding on the stack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ....core.mlir import arith
from ....kernels.bodies import BodyCloner
from ....kernels.description import Kernel, Literal, Operand, Previous, Window
from ....kernels.ranges import Ranges
from ..threads.cost import nanoseconds
from ..threads.program import has_helpers
from . import emit as e
from .chunks import Chunked, executable
from .rules import RULES

if TYPE_CHECKING:
    from ....core.mlir import ir

_CHUNKS = 16


class ChannelVectors(Protocol):
    """The vectors of a CPU that hold the channels of a block."""

    @property
    def name(self) -> str: ...

    @property
    def features(self) -> tuple[frozenset[str], ...]:
        """Sets of CPU features, one of which must be there."""

    @property
    def elements(self) -> tuple[str, str]:
        """The types of the operands and of the accumulator."""

    @property
    def channels(self) -> int:
        """The number of channels of a block."""

    def known(self, kernel: Kernel) -> bool:
        """Whether the filter is the same in every call."""

    def weight(self, kernel: Kernel) -> ir.Value:
        """Emit the filter in the kernel's layout, at the insertion point."""

    def rows(self, plan: Depthwise, buffers: list[e.Buffer]) -> ChannelRows:
        """The emitter of a chunk."""


@dataclass(frozen=True)
class Depthwise:
    """A kernel and its division into chunks, each several rows of results of one image, of all channels."""

    kernel: Kernel
    vectors: ChannelVectors

    @property
    def window(self) -> Window:
        assert self.kernel.lhs.window is not None
        return self.kernel.lhs.window

    @cached_property
    def rows(self) -> int:
        """Rows of results per chunk."""
        lines = self.window.result[0]
        return max(1, min(lines, (self.window.image[0] or 1) * lines // _CHUNKS))

    @cached_property
    def row_chunks(self) -> int:
        """Chunks per image."""
        return -(-self.window.result[0] // self.rows)

    def emit(self, name: str, inputs: Sequence[ir.Type], out: ir.Type) -> str:
        pixels = self.window.result[0] * self.window.result[1]
        each = 8 * self.kernel.n * self.kernel.k
        work = Chunked(
            lambda rows: e.multiply(e.divide(rows, pixels), self.row_chunks),
            lambda number, _, buffers: self.vectors.rows(self, buffers).emit(number),
            lambda rows: e.multiply(rows, nanoseconds(each, 0)), shared=has_helpers(self.vectors.features),
        )  # fmt: skip
        return executable(name, [self.kernel.m], [*inputs, out], work)


class ChannelRows(ABC):
    """Emits one chunk. The methods run in the order of the file.

    Pixels are counted from the start of the margin: result `x` multiplies column `j` of the filter with column
    `x * stride + j * dilation` of the image with its margin.

    Attributes:
        element: the element type of the image.
        lanes: the lanes of a vector of results.
        parts: vectors of results per block of channels.
        together: results per iteration of the main loop.
        kept: columns that stay in registers from one iteration to the next, which reads them too.
    """

    element: ir.Type
    lanes: int
    parts: int
    together: int
    kept: int = 0

    def __init__(self, plan: Depthwise, buffers: list[e.Buffer]) -> None:
        self.plan, self.kernel, self.window = plan, plan.kernel, plan.window
        self.image, self.weights, *operands, self.out = buffers
        self.operands = dict(zip(self.kernel.operands, operands, strict=True))
        self.block_channels = plan.vectors.channels
        self.stride = self.window.strides[1]
        self.span = (self.window.kernel[1] - 1) * self.window.dilations[1] + 1

    def emit(self, number: ir.Value) -> None:
        height, channels = self.window.result[0], self.window.image[3]
        self.cloner = BodyCloner(self.lanes, RULES, Ranges(self.kernel).bound)
        self.number = e.divide(number, self.plan.row_chunks)
        first = e.multiply(e.remainder(number, self.plan.row_chunks), self.plan.rows)
        last = e.minimum(e.add(first, self.plan.rows), height)
        self.outside = e.pointer(e.scratch([self.block_channels], self.element))
        e.store(self._padding(), self.outside)
        whole, rest = divmod(channels, self.block_channels)
        if whole:
            with e.loop(0, whole) as block:
                self._block(block.index, self.block_channels, first, last)
        if rest:
            self._block(whole, rest, first, last)

    @abstractmethod
    def _padding(self) -> ir.Value:
        """A pixel of padding, as the image would store it."""

    def _block(self, number: e.Index, channels: int, first: e.Index, last: e.Index) -> None:
        """Compute rows `first` to `last` of the results of a block, which may have fewer channels than the vectors."""
        self.channel, self.channels = e.multiply(number, self.block_channels), channels
        self.mask = e.first_lanes(channels, self.block_channels) if channels < self.block_channels else None
        self._take_filter(number)
        self.held = {o: self._fetch(o, None) for o in self.kernel.operands if "m" not in o.axes}
        with e.loop(first, last) as line:
            self._line(line.index)

    @abstractmethod
    def _take_filter(self, block: e.Index) -> None:
        """Set the filter to that of a block."""

    def _line(self, y: e.Index) -> None:
        """Compute a row of results: those that read no column outside the image in groups, others one by one."""
        w, count = self.window, min(self.together, self.window.result[1])
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
        """The address of a line of the image, at the first column of its margin, and its stride between columns in
        bytes. A line outside the image is one pixel of padding with stride 0."""
        w = self.window
        _, height, width, channels = w.image
        at = e.subtract(line, w.margin[0])
        unit = int(self.element.width) // 8
        place = e.add(e.multiply(e.subtract(e.multiply(at, width), w.margin[1]), channels), self.channel)
        address = e.at(e.at(self.image.address, self.image.offset([self.number, 0])), e.multiply(place, unit))
        last = (w.result[0] - 1) * w.strides[0] + (w.kernel[0] - 1) * w.dilations[0]
        if w.margin[0] == 0 and last < self._extent(0):
            return address, e.index(channels * unit)
        inside = arith.cmpi(arith.CmpIPredicate.ult, e.index(at), e.index(height))
        return arith.select(inside, address, self.outside), arith.select(inside, e.index(channels * unit), e.index(0))

    def _extent(self, axis: int) -> int:
        """Height or width of the images."""
        size = self.window.image[1 + axis]
        assert size is not None
        return size

    def _results(self, row: e.Index, x: e.Index, count: int, kept: Sequence[ir.Value], edge: bool) -> list[ir.Value]:
        """Compute `count` neighbouring results; return the columns that the next results read too."""
        w = self.window
        size = len(kept) // self.kept if self.kept else 0
        columns = {c: list(kept[c * size : (c + 1) * size]) for c in range(self.kept)}
        left = e.multiply(x, self.stride)

        def column(c: int) -> list[ir.Value]:
            if c not in columns:
                columns[c] = self._column(e.add(left, c), edge)
            return columns[c]

        for p in range(count):
            acc = self._start()
            for j in range(w.kernel[1]):
                acc = self._multiplied(acc, column(p * self.stride + j * w.dilations[1]), j)
            self._epilogue(acc, e.add(row, e.add(x, p)))
        return [v for c in range(self.kept) for v in column(count * self.stride + c)]

    def _inside(self, x: e.Index, edge: bool) -> ir.Value | bool:
        """Whether a column is inside the image; always, unless at an `edge`."""
        if isinstance(x, int):
            return self.window.margin[1] <= x < self.window.margin[1] + self._extent(1)
        if not edge:
            return True
        at = e.subtract(x, self.window.margin[1])
        return arith.cmpi(arith.CmpIPredicate.ult, e.index(at), e.index(self._extent(1)))

    def _pixel(self, line: tuple[ir.Value, ir.Value], x: e.Index, inside: ir.Value | bool) -> ir.Value:
        """Load the block's channels of a pixel, with zeros in the lanes behind them."""
        start, step = line
        address = e.at(start, e.multiply(x, step))
        if not isinstance(inside, bool):
            address = arith.select(inside, address, self.outside)
        return e.load_lanes(e.vector_of(self.block_channels, self.element), address, self.mask)

    @abstractmethod
    def _column(self, x: e.Index, edge: bool) -> list[ir.Value]:
        """Load a column of pixels, in the form in which it is multiplied."""

    @abstractmethod
    def _start(self) -> list[ir.Value]:
        """The initial values of a result's accumulators."""

    @abstractmethod
    def _multiplied(self, acc: list[ir.Value], column: list[ir.Value], j: int) -> list[ir.Value]:
        """Add the products of a column of pixels and column `j` of the filter to the accumulators."""

    def _epilogue(self, acc: list[ir.Value], row: e.Index) -> None:
        """Apply the stages to a result's channels, in the order of the accumulators, and store them."""
        operands = {o: self._fetch(o, row) for o in self.kernel.operands if "m" in o.axes} | self.held
        made = []
        for q in range(self.parts):
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
        self._store(made, row)

    @abstractmethod
    def _store(self, made: list[ir.Value], row: e.Index) -> None:
        """Store a result's vectors, which are in the order of the accumulators."""

    def _part(self, v: int) -> tuple[e.Index, ir.Value | None]:
        """The first channel of vector `v` of the block, and the mask of its channels if there are fewer than lanes."""
        left = max(0, self.channels - self.lanes * v)
        return e.add(self.channel, self.lanes * v), e.first_lanes(left, self.lanes) if left < self.lanes else None

    def _fetch(self, operand: Operand, row: e.Index | None) -> list[ir.Value]:
        """Load an operand's elements for each vector of accumulators."""
        buffer, rows = self.operands[operand], {} if row is None else {"m": row}
        if "n" not in operand.axes:
            where = list(rows.values()) if operand.axes else []
            return [e.broadcast(e.load_element(buffer, where), self.lanes)] * self.parts
        found = []
        for v in range(self.parts):
            first, mask = self._part(v)
            found.append(e.load_vector(buffer, [{**rows, "n": first}[axis] for axis in operand.axes], self.lanes, mask))
        return self._arranged(found)

    def _arranged(self, parts: list[ir.Value]) -> list[ir.Value]:
        """Permute vectors of channels to the order of the accumulators."""
        return parts
