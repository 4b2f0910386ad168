"""Copies of activation rows for integer products: contiguous signed codes with zeros behind K, summed during the copy.
The rows of a convolution are gathered from the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from math import gcd
from typing import TYPE_CHECKING, TypeAlias

from ....core.mlir import arith, vector
from ....kernels.description import Kernel
from . import emit as e
from .windows import corner_of, element_at, is_inside, is_pixel, pixel_at

if TYPE_CHECKING:
    from ....core.mlir import ir

# Emits a dot product of bytes (`IntegerMicro.dot`).
Dot: TypeAlias = "Callable[[ir.Value, ir.Value, ir.Value, int], ir.Value]"
# Emits the use of the sum (i32) of the codes of a row's group, given the sum and the group's number. Also called if no
# sums are computed; the value is meaningless then.
StoreSum: TypeAlias = "Callable[[ir.Value, e.Index], None]"
_SUMS = 4  # independent partial sums


@dataclass(frozen=True)
class CopiedRows:
    """Copies the rows of a kernel's activations.

    Attributes:
        lanes: i32 lanes of a vector.
        source: the activation, as passed to the executable.
        dot: the dot product that adds up codes; None if no sums are needed.
        group_codes: codes along K per sum, if the kernel has groups.
        line_stride: distance between consecutive pieces of a copied row, in pieces.
        piece: contiguous codes of a copied row.
    """

    kernel: Kernel
    lanes: int
    source: e.Buffer
    dot: Dot | None
    group_codes: int
    line_stride: int = 1
    piece: int = e.LINE

    def copy(self, row: list[e.Index], first_k: e.Index, target: ir.Value, left: e.Index, store: StoreSum) -> None:
        """Emit the copy of `left` codes of the row at `row` from `first_k` on to the address `target`."""
        if self.kernel.lhs.window is not None:
            self._window(row[0], target, store)
        elif self.kernel.group is None or self.dot is None:
            self._run(row, first_k, target, left, store, 0)
        else:
            self._groups(row, first_k, target, left, store)

    def _groups(self, row: list[e.Index], first_k: e.Index, target: ir.Value, left: e.Index, store: StoreSum) -> None:
        """Copy whole groups of a row; the last block of K may have fewer of them."""
        with e.loop(0, e.divide(left, self.group_codes)) as group:
            start = e.multiply(group.index, self.group_codes)
            self._run(row, e.add(first_k, start), self._at(target, start), self.group_codes, store, group.index)

    def _window(self, row: e.Index, target: ir.Value, store: StoreSum) -> None:
        """Copy a row of a convolution: its runs, gathered from the image."""
        window = self.kernel.lhs.window
        assert window is not None
        image, y, x = corner_of(window, row)
        inside = is_inside(window, y, x)
        if inside is True:
            store(self._inside(image, y, x, target), 0)
        else:
            assert not isinstance(inside, bool)
            edge = self._edge if window.image[3] % self._width else self._edge_of_vectors
            e.either(
                inside,
                lambda: store(self._inside(image, y, x, target), 0),
                lambda: store(edge(image, y, x, target), 0),
            )

    def _inside(self, image: e.Index, y: e.Index, x: e.Index, target: ir.Value) -> ir.Value:
        """Copy the runs of a row whose window is inside the image and starts at `(y, x)`, counted from the margin;
        return the sum of its codes."""
        window = self.kernel.lhs.window
        assert window is not None
        corner = pixel_at(window, y, x)
        lanes = self._width
        total = e.splat(0, lanes // 4, e.integer(32))
        # A partial last vector also writes zeros past its run: the next run overwrites them, and those behind the last
        # run pad the row.
        for number, start in enumerate(window.runs):
            for at in range(0, window.run, lanes):
                rest = window.run - at
                mask = e.first_lanes(rest, lanes) if rest < lanes else None
                codes = e.load_vector(self.source, [image, e.add(corner, start + at)], lanes, mask)
                codes = self._unflipped(codes, mask)
                self._store(codes, target, number * window.run + at)
                total = self._added(total, codes)
        return self._sum_of(total)

    def _edge(self, image: e.Index, y: e.Index, x: e.Index, target: ir.Value) -> ir.Value:
        """As `_inside`, for a window that is partly outside the image: codes `[first, last)` of each run are inside."""
        window = self.kernel.lhs.window
        assert window is not None
        _, image_height, image_width, channels = window.image
        lanes, i8 = self._width, e.integer(8)
        padding = e.splat((window.padding + 128) % 256 - 128, lanes, i8)
        pixels = window.run // channels  # of a run
        across = window.kernel[1] // pixels  # runs of a row of the filter
        with e.loop(0, len(window.runs), 1, [e.splat(0, lanes // 4, e.integer(32))]) as run:
            line = e.add(y, e.multiply(e.divide(run.index, across), window.dilations[0]))
            column = e.add(x, e.multiply(e.remainder(run.index, across), window.dilations[1]))
            top, left = (e.subtract(at, by) for at, by in zip((line, column), window.margin, strict=True))
            line_inside = e.between(window.margin[0], line, window.margin[0] + image_height - 1)
            first, last = (
                e.multiply(e.minimum(e.subtract(limit, e.minimum(limit, column)), pixels), channels)
                for limit in (window.margin[1], window.margin[1] + image_width)
            )
            last = arith.select(line_inside, e.index(last), e.index(0))
            start = e.multiply(e.add(e.multiply(top, image_width), left), channels)
            place = e.multiply(run.index, window.run)
            with e.loop(0, window.run, lanes, run.values) as part:
                at = part.index
                low, high = (e.subtract(end, e.minimum(end, at)) for end in (first, last))
                mask = e.lanes_between(low, high, lanes)
                codes = self._unflipped(e.load_vector(self.source, [image, e.add(start, at)], lanes, mask), mask)
                if window.padding:
                    # Lanes past the end of the run stay zero.
                    outside = e.lanes_between(high, e.subtract(window.run, at), lanes)
                    before = e.lanes_between(0, low, lanes)
                    codes = arith.select(arith.ori(before, outside), padding, codes)
                self._store(codes, target, e.add(place, at))
                part.next = [self._added(part.values[0], codes)]
            run.next = part.results
        return self._sum_of(run.results[0])

    def _edge_of_vectors(self, image: e.Index, y: e.Index, x: e.Index, target: ir.Value) -> ir.Value:
        """As `_edge`, if the channels of a pixel are whole vectors: each pixel is copied, or filled with padding."""
        window = self.kernel.lhs.window
        assert window is not None
        channels = window.image[3]
        lanes, i8 = self._width, e.integer(8)
        padding = e.splat((window.padding + 128) % 256 - 128, lanes, i8)
        with e.loop(0, window.kernel[0] * window.kernel[1]) as tap:
            line, column = element_at(window, y, x, tap.index)
            inside = is_pixel(window, line, column)
            pixel, place = pixel_at(window, line, column), e.multiply(tap.index, channels)

            def copy(pixel: e.Index = pixel, place: e.Index = place) -> None:
                with e.loop(0, channels, lanes) as part:
                    codes = e.load_vector(self.source, [image, e.add(pixel, part.index)], lanes)
                    self._store(self._unflipped(codes), target, e.add(place, part.index))

            def fill(place: e.Index = place) -> None:
                with e.loop(0, channels, lanes) as part:
                    self._store(padding, target, e.add(place, part.index))

            e.either(inside, copy, fill)
        zero = e.splat(0, lanes // 4, e.integer(32))
        if self.dot is None:
            return self._sum_of(zero)
        with e.loop(0, self.kernel.k, lanes, [zero]) as part:
            codes = self._stored(target, part.index)
            part.next = [self._added(part.values[0], codes)]
        return self._sum_of(part.results[0])

    def _at(self, target: ir.Value, code: e.Index) -> ir.Value:
        """The address in a copied row of `code`, the first of a piece."""
        return e.at(target, e.multiply(code, self.line_stride))

    def _byte_at(self, target: ir.Value, code: e.Index) -> ir.Value:
        """The address in a copied row of any code."""
        if self.line_stride == 1:
            return e.at(target, code)
        within = e.remainder(code, self.piece)
        return e.at(self._at(target, e.subtract(code, within)), within)

    def _store(self, codes: ir.Value, target: ir.Value, at: e.Index) -> None:
        """Store neighbouring codes of a copied row, from `at` on."""
        width, piece = codes.type.shape[0], self.piece
        if self.line_stride == 1 or width <= piece:
            e.store(codes, self._at(target, at))
            return
        for first in range(0, width, piece):
            part = vector.shuffle(codes, codes, list(range(first, first + piece)))
            e.store(part, self._at(target, e.add(at, first)))

    def _stored(self, target: ir.Value, at: e.Index) -> ir.Value:
        """Load a vector of codes of a copied row, from `at` on."""
        width, piece, i8 = self._width, self.piece, e.integer(8)
        if self.line_stride == 1 or width <= piece:
            return e.load(e.vector_of(width, i8), self._at(target, at))
        lanes = [
            at
            for first in range(0, width * self.line_stride, piece * self.line_stride)
            for at in range(first, first + piece)
        ]
        both = e.load(e.vector_of(width * self.line_stride, i8), self._at(target, at))
        return vector.shuffle(both, both, lanes)

    def _added(self, total: ir.Value, codes: ir.Value) -> ir.Value:
        """Each lane of `total` plus the sum of its four codes."""
        return total if self.dot is None else self.dot(total, e.splat(1, codes.type.shape[0], e.integer(8)), codes, 1)

    def _sum_of(self, total: ir.Value) -> ir.Value:
        return vector.reduction(e.integer(32), vector.CombiningKind.ADD, total)

    @cached_property
    def _width(self) -> int:
        """Bytes that are copied at a time."""
        most = 4 * self.lanes
        return most if self.kernel.group is None else max(16, gcd(most, self.kernel.group))

    def _run(
        self, row: list[e.Index], first: e.Index, target: ir.Value, count: e.Index, store: StoreSum, group: e.Index
    ) -> None:
        """Copy `count` codes of a row from `first` on."""
        width, i32 = self._width, e.integer(32)
        zero = e.splat(0, width // 4, i32)
        ragged = self.kernel.group is None and self.kernel.k % width != 0

        def step(at: e.Index, total: ir.Value, mask: ir.Value | None = None) -> ir.Value:
            codes = e.load_vector(self.source, [*row, e.add(first, at)], width, mask)
            codes = self._unflipped(codes, mask)
            self._store(codes, target, at)
            return self._added(total, codes)

        whole = e.multiply(e.divide(count, width), width)
        # A dot product takes four cycles: several independent sums hide its latency.
        several = width * _SUMS
        long = e.multiply(e.divide(count, several), several)
        with e.loop(0, long, several, [zero] * _SUMS) as turn:
            turn.next = [step(e.add(turn.index, i * width), total) for i, total in enumerate(turn.values)]
        total = reduce(arith.addi, turn.results)
        with e.loop(long, whole, width, [total]) as turn:
            turn.next = [step(turn.index, turn.values[0])]
        total = turn.results[0]
        if ragged and self.lanes == 16:
            total = step(whole, total, e.first_lanes(e.subtract(count, whole), width))
        if self.dot is not None:
            total = vector.reduction(i32, vector.CombiningKind.ADD, total)
        if ragged and self.lanes != 16:
            total = self._tail(row, first, target, whole, count, total)
        store(total, group)

    def _unflipped(self, codes: ir.Value, mask: ir.Value | None = None) -> ir.Value:
        if not self.kernel.lhs.flipped:
            return codes
        width = codes.type.shape[0]
        flipped = arith.xori(codes, e.splat(-128, width, e.integer(8)))
        return flipped if mask is None else arith.select(mask, flipped, e.splat(0, width, e.integer(8)))

    def _tail(
        self, row: list[e.Index], first: e.Index, target: ir.Value, start: e.Index, count: e.Index, total: ir.Value
    ) -> ir.Value:
        """Copy the last bytes of a row one by one: without AVX-512 a masked load of bytes is one branch per byte."""
        i8, i32 = e.integer(8), e.integer(32)
        self._store(e.splat(0, self._width, i8), target, start)
        carried = [total] if self.dot is not None else []
        with e.loop(start, count, 1, carried) as byte:
            code = e.load_element(self.source, [*row, e.add(first, byte.index)])
            if self.kernel.lhs.flipped:
                code = arith.xori(code, arith.constant(i8, -128))
            e.store(code, self._byte_at(target, byte.index))
            if carried:
                byte.next = [arith.addi(byte.values[0], arith.extsi(i32, code))]
        return byte.results[0] if carried else total
