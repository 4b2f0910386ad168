"""Products of floats by weights of codes.

If a weight is a table entry times a scale (`kernels/scaled.py`), the entries are multiplied and each group's sum is
scaled. Otherwise every code is decoded in registers by the program's own ops and multiplied as f32. Such weights are
stored as in integer products, four codes of a column in the 32 bits of a lane (8 or 16 short ones), in two's complement
or unsigned, so that one or two shifts extract a code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from ....core.mlir import arith, ir, llvm
from ....kernels.description import Literal, Operand, Previous, Stage
from ....kernels.scaled import scaled
from . import emit as e
from .chunk import Chunk
from .epilogue import PanelColumns
from .float_micro import FloatMicro, FloatTile
from .float_windows import FloatWindow
from .micro import QUAD


class FloatChunk(Chunk):
    """The base of both chunks: copies activations in the type that the micro-kernel multiplies."""

    micro: FloatMicro

    @cached_property
    def _f32(self) -> ir.Type:
        return ir.F32Type.get()

    @property
    def _decode(self) -> Stage:
        decode = self.kernel.rhs.decode
        assert decode is not None
        return decode

    @property
    def _in_place(self) -> bool:
        """Whether the tile is one row that is multiplied in place; a row of a convolution is gathered."""
        alike = self.lhs_buffer.element == self.micro.lhs_type and self.kernel.lhs.window is None
        return alike and self.size.rows == 1 and self.size.padded_k == self.kernel.k

    def _copy(self, tile: e.Index, first_k: e.Index) -> None:
        if self._in_place:
            self.lhs = e.at(
                self.lhs_buffer.address, self.lhs_buffer.offset([*self._place_of(self._row(tile, 0)), first_k])
            )
        else:
            super()._copy(tile, first_k)

    def _copy_row(self, row: list[e.Index], first_k: e.Index, target: ir.Value, left: e.Index, r: e.Index) -> None:
        """See `Chunk`; stores zeros behind the activations."""
        window = self.kernel.lhs.window
        if window is not None:
            all_of_k = self.size.blocks == 1
            rows = FloatWindow(window, self.micro.lanes, self.lhs_buffer, all_of_k, self.product)
            rows.copy(row[0], first_k, target, left)
            if self.size.padded_k > self.kernel.k:
                zeros = e.splat(0.0, self.micro.lanes, self.micro.lhs_type)
                e.store(zeros, e.at(target, e.multiply(left, self.micro.lhs_bytes)))
            return
        lanes, bytes_ = self.micro.lanes, self.micro.lhs_bytes
        wide = e.vector_of(lanes, self.micro.lhs_type)
        ragged = self.kernel.k % lanes != 0

        def step(at: e.Index, mask: ir.Value | None = None) -> None:
            values = e.load_vector(self.lhs_buffer, [*row, e.add(first_k, at)], lanes, mask)
            if values.type != wide:
                values = arith.extf(wide, values)
            e.store(values, e.at(target, e.multiply(at, bytes_)))

        whole = e.multiply(e.divide(left, lanes), lanes)
        with e.loop(0, whole, lanes) as turn:
            step(turn.index)
        end = whole
        if ragged:
            step(whole, e.first_lanes(e.subtract(left, whole), lanes))
            end = e.add(whole, lanes)
        # Zeros up to the end of the last step: a padding weight times old contents of the stack might be NaN.
        for at in range(-(-self.kernel.k // lanes) * lanes, self.size.padded_k, lanes):
            behind = e.add(end, at - -(-self.kernel.k // lanes) * lanes)
            e.store(e.splat(0.0, lanes, self.micro.lhs_type), e.at(target, e.multiply(behind, bytes_)))


class ScaledChunk(FloatChunk):
    """A chunk of a product by table entries; the sum of each group is scaled."""

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
        columns = [PanelColumns(self.gemm, panel, v) for v in range(self.vectors)]
        if self.kernel.group is None:
            self._group(None, columns, self.lhs, rhs, depth, total, fresh)
            return
        if fresh:
            self._clear(total)
        with e.loop(0, e.divide(depth, self.group_codes)) as each:
            start = e.multiply(each.index, self.group_codes)
            number = e.add(e.divide(first_k, self.group_codes), each.index)
            lhs = e.at(self.lhs, e.multiply(start, self.micro.lhs_bytes))
            self._group(number, columns, lhs, e.at(rhs, self._panel_at(start)), self.group_codes, total, False)

    def _group(
        self, number: e.Index | None, columns: list[PanelColumns], lhs: ir.Value, rhs: ir.Value, codes: e.Index,
        total: ir.Value, fresh: bool,
    ) -> None:  # fmt: skip
        """Add the scaled sums of one group to `total`, or store them there if `fresh`."""
        form = scaled(self._decode)
        assert form is not None
        held = self._held(self._decode.operands, columns, number)
        scales, zeros = [], []
        for v in range(self.vectors):
            known = self._arguments(held, v)
            if form.scale is not None:
                scales.append(self.cloner.value(form.scale, known))
            if form.zero is not None:
                zeros.append(self.cloner.value(form.zero, known))
        tile = FloatTile(self.size.rows, lhs, self.lhs_stride, rhs, codes, zeros)
        for i, part in enumerate(self.micro.accumulate(tile, self.weights)):
            r, v = divmod(i, self.vectors)
            place = e.at(total, self._vector_at(r, v))
            if not fresh:
                before = e.load(part.type, place)
                part = llvm.FMAOp(part, scales[v], before).result if scales else arith.addf(part, before)
            elif scales:
                part = arith.mulf(part, scales[v])
            e.store(part, place)

    def _arguments(self, held: dict[tuple[Operand, int], ir.Value], v: int) -> dict[ir.Value, ir.Value]:
        """The values of the arguments of the decode's body, except the code."""
        known = {}
        for argument, source in zip(self._decode.body.arguments, self._decode.sources, strict=False):
            if isinstance(source, Operand):
                known[argument] = held[source, v]
            elif isinstance(source, Literal):
                known[argument] = self.cloner.splat(source.value)
        return known


class DecodingChunk(FloatChunk):
    """A chunk of a product by codes that are decoded one by one."""

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
        columns = [PanelColumns(self.gemm, panel, v) for v in range(self.vectors)]
        if self.kernel.group is None:
            held = self._held(self._decode.operands, columns, None)
            self._run(self.lhs, rhs, depth, total, not fresh, held)
            return
        if fresh:
            self._clear(total)
        group = self.group_codes
        with e.loop(0, e.divide(depth, group)) as each:
            start = e.multiply(each.index, group)
            held = self._held(self._decode.operands, columns, e.add(e.divide(first_k, group), each.index))
            lhs = e.at(self.lhs, e.multiply(start, 4))
            self._run(lhs, e.at(rhs, self._panel_at(start)), group, total, True, held)

    def _run(
        self,
        lhs: ir.Value,
        rhs: ir.Value,
        depth: e.Index,
        total: ir.Value,
        add: bool,
        held: dict[tuple[Operand, int], ir.Value],
    ) -> None:
        """Emit the product over `depth` codes with the same scales; `add`: whether to add to `total`."""
        lanes, fields, rows = self.micro.lanes, self.weights.fields, self.size.rows
        words, values = e.vector_of(lanes, e.integer(32)), e.vector_of(lanes, self._f32)
        row_bytes = 4 * self.micro.panel
        grid = [(r, v) for r in range(rows) for v in range(self.vectors)]
        # A multiply-add takes four cycles, and two start in each.
        sets = max(1, min(8 // len(grid), QUAD))
        zero = e.splat(0.0, lanes, self._f32)
        place = {(r, v): e.at(total, self._vector_at(r, v)) for r, v in grid}
        begin = [e.load(values, place[rv]) if add and s == 0 else zero for s in range(sets) for rv in grid]
        with e.loop(0, e.divide(depth, QUAD * fields), 1, begin) as turn:
            acc = list(turn.values)
            a = e.at(lhs, e.multiply(turn.index, 4 * QUAD * fields))
            b = e.at(rhs, e.multiply(turn.index, row_bytes))
            stored = [e.load(words, e.at(b, 4 * lanes * v)) for v in range(self.vectors)]
            for k in range(QUAD * fields):
                weights = [self._decoded(s, k, held, v) for v, s in enumerate(stored)]
                for r in range(rows):
                    one = e.broadcast(e.load(self._f32, e.at(a, r * self.lhs_stride + 4 * k)), lanes)
                    for v in range(self.vectors):
                        i = (k % sets) * len(grid) + r * self.vectors + v
                        acc[i] = llvm.FMAOp(one, weights[v], acc[i]).result
            turn.next = acc
        for i, rv in enumerate(grid):
            sum_ = turn.results[i]
            for s in range(1, sets):
                sum_ = arith.addf(sum_, turn.results[s * len(grid) + i])
            e.store(sum_, place[rv])

    def _decoded(self, stored: ir.Value, k: int, held: dict[tuple[Operand, int], ir.Value], v: int) -> ir.Value:
        """Code `k` of each lane as the f32 that is multiplied."""
        field, byte = divmod(k, QUAD)
        bits, lanes = self.weights.bits, self.micro.lanes
        low = 8 * byte + bits * field

        def shift(op: Callable[[ir.Value, ir.Value], ir.Value], value: ir.Value, count: int) -> ir.Value:
            return op(value, e.splat(count, lanes, e.integer(32))) if count else value

        if self.weights.signed:
            code = shift(arith.shrsi, shift(arith.shli, stored, 32 - bits - low), 32 - bits)
        else:
            code = arith.andi(shift(arith.shrui, stored, low), e.splat((1 << bits) - 1, lanes, e.integer(32)))
        code = arith.trunci(e.vector_of(lanes, e.integer(8)), code)
        arguments = []
        for source in self._decode.sources:
            if isinstance(source, Previous):
                arguments.append(code)
            elif isinstance(source, Operand):
                arguments.append(held[source, v])
            else:
                assert isinstance(source, Literal)
                arguments.append(self.cloner.splat(source.value))
        value = self.cloner.clone(self._decode.body, arguments)
        wide = e.vector_of(lanes, self._f32)
        return value if value.type == wide else arith.extf(wide, value)
