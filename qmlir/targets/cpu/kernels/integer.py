"""Integer products: activations are copied with their sums, and a register tile multiplies them.

With groups along K each group's part goes through the kernel's `combine` into a running total.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, reduce
from math import gcd
from typing import TYPE_CHECKING

from ....core.mlir import arith, vector
from ....kernels.description import Window
from . import emit as e
from .gemm import Chunk, PanelColumns, are_short
from .micro import QUAD, IntegerMicro, MicroCall

if TYPE_CHECKING:
    from ....core.mlir import ir

_SUMS = 4  # of activations that are copied, side by side
_CARRIED = 8  # vectors of totals that stay in registers while a group is multiplied


class IntegerChunk(Chunk):
    """A chunk of a product of codes by codes."""

    micro: IntegerMicro

    # ---- activations

    def _copy_row(self, row: list[e.Index], first_k: e.Index, target: ir.Value, left: e.Index, r: e.Index) -> None:
        """With the row's sums times the offset of the weights."""
        if self.kernel.lhs.window is not None:
            self._copy_window(row[0], target, r)
        elif self.kernel.group is None:
            self._copy_run(row, first_k, target, left, r, 0)
        else:
            self._copy_groups(row, first_k, target, left, r)

    def _copy_groups(self, row: list[e.Index], first_k: e.Index, target: ir.Value, left: e.Index, r: e.Index) -> None:
        """A row of whole groups; the last block may have fewer."""
        with e.loop(0, e.divide(left, self.group_codes)) as group:
            start = e.multiply(group.index, self.group_codes)
            self._copy_run(row, e.add(first_k, start), e.at(target, start), self.group_codes, r, group.index)

    def _copy_window(self, row: e.Index, target: ir.Value, r: e.Index) -> None:
        """A row of a convolution: its runs, gathered from the image."""
        window = self.kernel.lhs.window
        assert window is not None
        height, width = window.result
        image = e.divide(row, height * width)
        y = e.multiply(e.remainder(e.divide(row, width), height), window.strides[0])
        x = e.multiply(e.remainder(row, width), window.strides[1])
        inside = _inside(window, y, x)
        if inside is True:
            self._store_sum(self._copy_inside(image, y, x, target), 0, r)
        else:
            assert not isinstance(inside, bool)
            e.either(
                inside,
                lambda: self._store_sum(self._copy_inside(image, y, x, target), 0, r),
                lambda: self._store_sum(self._copy_edge(image, y, x, target), 0, r),
            )

    def _copy_inside(self, image: e.Index, y: e.Index, x: e.Index, target: ir.Value) -> ir.Value:
        """The runs of a row whose corner is at `(y, x)`, counted from the margin; returns the sum of its codes."""
        window = self.kernel.lhs.window
        assert window is not None
        _, _, image_width, channels = window.image
        top, left = (e.subtract(at, by) for at, by in zip((y, x), window.margin, strict=True))
        corner = e.multiply(e.add(e.multiply(top, image_width), left), channels)
        lanes = self._width
        ones, total = e.splat(1, lanes, e.integer(8)), e.splat(0, lanes // 4, e.integer(32))
        # A last vector that is not full writes zeros where the next run follows, and behind the last run.
        for number, start in enumerate(window.runs):
            for at in range(0, window.run, lanes):
                rest = window.run - at
                mask = e.first_lanes(rest, lanes) if rest < lanes else None
                codes = e.load_vector(self.lhs_buffer, [image, e.add(corner, start + at)], lanes, mask)
                codes = self._unflipped(codes, mask)
                e.store(codes, e.at(target, number * window.run + at))
                total = self.micro.dot(total, ones, codes, 1) if self.weights.short else total
        return self._sum_of(total)

    def _copy_edge(self, image: e.Index, y: e.Index, x: e.Index, target: ir.Value) -> ir.Value:
        """The same where part of it lies outside the image: of each run, the pixels `[first, last)` are inside."""
        window = self.kernel.lhs.window
        assert window is not None
        _, image_height, image_width, channels = window.image
        lanes, i8 = self._width, e.integer(8)
        ones = e.splat(1, lanes, i8)
        padding = e.splat((window.padding + 128) % 256 - 128, lanes, i8)
        pixels = window.run // channels  # of a run
        across = window.kernel[1] // pixels  # runs of a row of the filter
        with e.loop(0, len(window.runs), 1, [e.splat(0, lanes // 4, e.integer(32))]) as run:
            line = e.add(y, e.multiply(e.divide(run.index, across), window.dilations[0]))
            column = e.add(x, e.multiply(e.remainder(run.index, across), window.dilations[1]))
            top, left = (e.subtract(at, by) for at, by in zip((line, column), window.margin, strict=True))
            there = e.between(window.margin[0], line, window.margin[0] + image_height - 1)
            first, last = (
                e.multiply(e.minimum(e.subtract(limit, e.minimum(limit, column)), pixels), channels)
                for limit in (window.margin[1], window.margin[1] + image_width)
            )
            last = arith.select(there, e.index(last), e.index(0))
            start = e.multiply(e.add(e.multiply(top, image_width), left), channels)
            place = e.at(target, e.multiply(run.index, window.run))
            with e.loop(0, window.run, lanes, run.values) as part:
                at = part.index
                low, high = (e.subtract(end, e.minimum(end, at)) for end in (first, last))
                mask = e.lanes_between(low, high, lanes)
                codes = self._unflipped(e.load_vector(self.lhs_buffer, [image, e.add(start, at)], lanes, mask), mask)
                if window.padding:
                    # Behind the run there are zeros.
                    outside = e.lanes_between(high, e.subtract(window.run, at), lanes)
                    before = e.lanes_between(0, low, lanes)
                    codes = arith.select(arith.ori(before, outside), padding, codes)
                e.store(codes, e.at(place, at))
                part.next = [self.micro.dot(part.values[0], ones, codes, 1) if self.weights.short else part.values[0]]
            run.next = part.results
        return self._sum_of(run.results[0])

    def _sum_of(self, total: ir.Value) -> ir.Value:
        return vector.reduction(e.integer(32), vector.CombiningKind.ADD, total)

    def _store_sum(self, total: ir.Value, group: e.Index, r: e.Index) -> None:
        if self.weights.short:
            total = arith.muli(total, arith.constant(e.integer(32), self.weights.short))
            where = e.multiply(e.add(e.multiply(group, self.size.rows), r), 4)
            e.store(total, e.at(self.sums, where))

    @cached_property
    def _width(self) -> int:
        """Bytes that are copied at a time."""
        most = 4 * self.micro.lanes
        return most if self.kernel.group is None else max(16, gcd(most, self.kernel.group))

    def _copy_run(
        self, row: list[e.Index], first: e.Index, target: ir.Value, count: e.Index, r: e.Index, group: e.Index
    ) -> None:
        """`count` codes of a row from `first` on."""
        width, i8, i32 = self._width, e.integer(8), e.integer(32)
        ones = e.splat(1, width, i8)
        zero = e.splat(0, width // 4, i32)
        ragged = self.kernel.group is None and self.kernel.k % width != 0

        def step(at: e.Index, total: ir.Value, mask: ir.Value | None = None) -> ir.Value:
            codes = e.load_vector(self.lhs_buffer, [*row, e.add(first, at)], width, mask)
            codes = self._unflipped(codes, mask)
            e.store(codes, e.at(target, at))
            return self.micro.dot(total, ones, codes, 1) if self.weights.short else total

        whole = e.multiply(e.divide(count, width), width)
        # A sum that waits for the one before it takes four cycles: several at a time.
        several = width * _SUMS
        long = e.multiply(e.divide(count, several), several)
        with e.loop(0, long, several, [zero] * _SUMS) as turn:
            turn.next = [step(e.add(turn.index, i * width), total) for i, total in enumerate(turn.values)]
        total = reduce(arith.addi, turn.results)
        with e.loop(long, whole, width, [total]) as turn:
            turn.next = [step(turn.index, turn.values[0])]
        total = turn.results[0]
        if ragged and self.micro.lanes == 16:
            total = step(whole, total, e.first_lanes(e.subtract(count, whole), width))
        if self.weights.short:
            total = vector.reduction(i32, vector.CombiningKind.ADD, total)
        if ragged and self.micro.lanes != 16:
            total = self._copy_tail(row, first, target, whole, count, total)
        self._store_sum(total, group, r)

    def _unflipped(self, codes: ir.Value, mask: ir.Value | None = None) -> ir.Value:
        if not self.kernel.lhs.flipped:
            return codes
        width = codes.type.shape[0]
        flipped = arith.xori(codes, e.splat(-128, width, e.integer(8)))
        return flipped if mask is None else arith.select(mask, flipped, e.splat(0, width, e.integer(8)))

    def _copy_tail(
        self, row: list[e.Index], first: e.Index, target: ir.Value, start: e.Index, count: e.Index, total: ir.Value
    ) -> ir.Value:
        """The last bytes of a row one by one: without AVX-512 a masked load of bytes is a branch a byte."""
        i8, i32 = e.integer(8), e.integer(32)
        e.store(e.splat(0, self._width, i8), e.at(target, start))
        carried = [total] if self.weights.short else []
        with e.loop(start, count, 1, carried) as byte:
            code = e.load_element(self.lhs_buffer, [*row, e.add(first, byte.index)])
            if self.kernel.lhs.flipped:
                code = arith.xori(code, arith.constant(i8, -128))
            e.store(code, e.at(target, byte.index))
            if carried:
                byte.next = [arith.addi(byte.values[0], arith.extsi(i32, code))]
        return byte.results[0] if carried else total

    # ---- the product

    def _product(
        self,
        tile: e.Index,
        panel: e.Index,
        first_k: e.Index,
        depth: e.Index,
        rhs: ir.Value,
        total: ir.Value,
        fresh: bool,
    ) -> None:
        """One tile and panel over one block of K, onto `total`; `fresh`: it holds nothing yet."""
        if self.kernel.combine is None:
            self._multiply(rhs, self.lhs, depth, self.sums, total, not fresh)
            return
        in_registers = self.micro.in_registers and are_short([self.kernel.combine])
        if in_registers and self.size.rows * self.vectors <= _CARRIED:
            self._groups_in_registers(tile, panel, first_k, depth, rhs, total, fresh)
            return
        if fresh:
            self._clear(total)
        self._groups(tile, panel, first_k, depth, rhs, total, in_registers)

    def _in_registers(self) -> bool:
        return self.micro.in_registers and self.kernel.combine is None

    def _accumulators(self, depth: e.Index, rhs: ir.Value) -> list[list[ir.Value]]:
        return self.micro.accumulate(self._tile(rhs, self.lhs, depth, self.sums, self.totals, False), self.weights)

    def _multiply(self, rhs: ir.Value, lhs: ir.Value, depth: e.Index, sums: ir.Value, out: ir.Value, add: bool) -> None:
        self.micro.multiply(self._tile(rhs, lhs, depth, sums, out, add), self.weights)

    def _tile(
        self, rhs: ir.Value, lhs: ir.Value, depth: e.Index, sums: ir.Value, out: ir.Value, add: bool
    ) -> MicroCall:
        steps = e.divide(depth, QUAD * self.weights.fields)
        start = sums if self.weights.short else None
        return MicroCall(self.size.rows, lhs, self.lhs_stride, rhs, steps, start, out, add, self.present, self.ahead)

    def _groups_in_registers(
        self,
        tile: e.Index,
        panel: e.Index,
        first_k: e.Index,
        depth: e.Index,
        rhs: ir.Value,
        total: ir.Value,
        fresh: bool,
    ) -> None:
        """Each group's part through `combine` into totals that stay in registers."""
        assert self.kernel.total_type is not None
        wide = self.cloner.widen(self.kernel.total_type)
        places = [
            (r, v, e.at(total, self._vector_at(r, v))) for r in range(self.size.rows) for v in range(self.vectors)
        ]
        zero = vector.bitcast(wide, e.splat(0, self.micro.lanes, e.integer(32)))
        start = [zero if fresh else e.load(wide, place) for _, _, place in places]
        with e.loop(0, e.divide(depth, self.group_codes), 1, start) as each:
            parts = self.micro.accumulate(self._part(each.index, rhs), self.weights)
            combined = self._combined(tile, panel, first_k, each.index)
            each.next = [
                combined(r, v, parts[r][v], running) for (r, v, _), running in zip(places, each.values, strict=True)
            ]
        for (_, _, place), value in zip(places, each.results, strict=True):
            e.store(value, place)

    def _groups(
        self,
        tile: e.Index,
        panel: e.Index,
        first_k: e.Index,
        depth: e.Index,
        rhs: ir.Value,
        total: ir.Value,
        in_registers: bool,
    ) -> None:
        """Each group's part through `combine` into the tile of totals, in ascending order."""
        assert self.kernel.total_type is not None
        wide = self.cloner.widen(self.kernel.total_type)
        with e.loop(0, e.divide(depth, self.group_codes)) as each:
            part = self._part(each.index, rhs)
            if in_registers:
                parts = self.micro.accumulate(part, self.weights)
                combined = self._combined(tile, panel, first_k, each.index)
                for r, vectors in enumerate(parts):
                    for v, value in enumerate(vectors):
                        place = e.at(total, self._vector_at(r, v))
                        e.store(combined(r, v, value, e.load(wide, place)), place)
            else:
                self.micro.multiply(part, self.weights)
                combined = self._combined(tile, panel, first_k, each.index)
                with e.loop(0, self.size.rows) as row:
                    for v in range(self.vectors):
                        where = self._vector_at(row.index, v)
                        assert self.part is not None
                        value = e.load(self.cloner.widen(self.kernel.acc_type), e.at(self.part, where))
                        place = e.at(total, where)
                        e.store(combined(row.index, v, value, e.load(wide, place)), place)

    def _part(self, group: e.Index, rhs: ir.Value) -> MicroCall:
        """The product of one group of the block."""
        start = e.multiply(group, self.group_codes)
        sums = e.at(self.sums, e.multiply(group, 4 * self.size.rows))
        lhs = e.at(self.lhs, start)
        assert self.part is not None
        return self._tile(e.at(rhs, self._panel_at(start)), lhs, self.group_codes, sums, self.part, False)

    def _combined(
        self, tile: e.Index, panel: e.Index, first_k: e.Index, group: e.Index
    ) -> Callable[[e.Index, int, ir.Value, ir.Value], ir.Value]:
        """From a row, the number of a vector, its part and its running total to the new one."""
        combine = self.kernel.combine
        assert combine is not None
        number = e.add(e.divide(first_k, self.group_codes), group)
        columns = [PanelColumns(self.gemm, panel, v) for v in range(self.vectors)]
        held = self._held(combine.operands, columns, number)

        def combined(row: e.Index, v: int, part: ir.Value, running: ir.Value) -> ir.Value:
            m = self._row(tile, row)
            arguments = [self._read(s, [[part]], held, m, columns[v], v, number) for s in combine.sources]
            return self.cloner.clone(combine.body, [*arguments, running])

        return combined


def _inside(window: Window, y: e.Index, x: e.Index) -> ir.Value | bool:
    """Whether all that a result reads is in the image; its corner `(y, x)` counts from the margin."""
    conditions = []
    for axis, at in enumerate((y, x)):
        extent, margin = int(window.image[1 + axis] or 0), window.margin[axis]
        reach = (window.kernel[axis] - 1) * window.dilations[axis]
        last = (window.result[axis] - 1) * window.strides[axis] + reach
        if margin == 0 and last < extent:
            continue
        if extent + margin - 1 - reach < margin:
            return arith.constant(e.integer(1), 0)
        conditions.append(e.between(margin, at, extent + margin - 1 - reach))
    return e.all_of(conditions) if conditions else True
