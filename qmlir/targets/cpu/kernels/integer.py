"""Integer products: activations are copied and summed, and a register tile multiplies them.

With groups along K the kernel's `combine` adds each group's partial sum to a running total.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from ....core.mlir import arith, vector
from . import emit as e
from .activations import CopiedRows
from .chunk import Chunk
from .epilogue import PanelColumns, are_short
from .micro import PIECE, QUAD, IntegerMicro, MicroCall, Weights

if TYPE_CHECKING:
    from ....core.mlir import ir

_CARRIED = 8  # vectors of totals that stay in registers while a group is multiplied, at most


class IntegerChunk(Chunk):
    """A chunk of a product of codes by codes."""

    micro: IntegerMicro

    # ---- activations

    def _copy_row(self, row: list[e.Index], first_k: e.Index, target: ir.Value, left: e.Index, r: e.Index) -> None:
        """Copy a row, and store its sums times the offset of the weights."""

        def store(total: ir.Value, group: e.Index) -> None:
            if self.weights.short:
                total = arith.muli(total, arith.constant(e.integer(32), self.weights.short))
                e.store(total, e.at(self.sums, e.multiply(e.add(e.multiply(group, self.size.rows), r), 4)))

        self._activations.copy(row, first_k, target, left, store)

    @cached_property
    def _activations(self) -> CopiedRows:
        dot = self.micro.dot if self.weights.short else None
        together = self.micro.together(self.size.rows)
        piece = e.LINE if together == 1 else PIECE
        return CopiedRows(self.kernel, self.micro.lanes, self.lhs_buffer, dot, self.group_codes, together, piece)

    def _copied_at(self, r: e.Index) -> e.Index:
        together = self.micro.together(self.size.rows)
        if together == 1:
            return super()._copied_at(r)
        first = e.multiply(e.divide(r, together), together * self.lhs_stride)
        return e.add(first, e.multiply(e.remainder(r, together), PIECE))

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
        """Add the product of one tile and panel over one block of K to `total`, or store it there if `fresh`."""
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
        return MicroCall(
            self.size.rows,
            lhs,
            self.lhs_stride,
            rhs,
            steps,
            start,
            out,
            add,
            self.present,
            self.ahead,
            self.gemm.line_stride,
        )

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
        """Combine each group's partial sums into totals that stay in registers."""
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
        """Combine each group's partial sums into the tile of totals, in ascending order."""
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
                assert self.part is not None
                self._add_part(tile, panel, first_k, each.index, self.part, total)

    def _add_part(
        self, tile: e.Index, panel: e.Index, first_k: e.Index, group: e.Index, part: ir.Value, total: ir.Value
    ) -> None:
        """Combine one group's partial sums, which are in memory, into the tile of totals."""
        assert self.kernel.total_type is not None
        wide = self.cloner.widen(self.kernel.total_type)
        combined = self._combined(tile, panel, first_k, group)
        with e.loop(0, self.size.rows) as row:
            for v in range(self.vectors):
                where = self._vector_at(row.index, v)
                value = e.load(self.cloner.widen(self.kernel.acc_type), e.at(part, where))
                place = e.at(total, where)
                e.store(combined(row.index, v, value, e.load(wide, place)), place)

    def _panel_of_rows(self, tiles: e.Index, panel: e.Index, rhs: ir.Value) -> None:
        """Unpack the codes of each group once for all tiles, whose totals are kept on the stack."""
        if self.codes is None:
            super()._panel_of_rows(tiles, panel, rhs)
            return
        assert self.part is not None
        with e.loop(0, tiles) as tile:
            self._clear(self._total(tile.index))
        with e.loop(0, self.kernel.groups) as group:
            start = e.multiply(group.index, self.group_codes)
            stored = e.at(rhs, self._panel_at(start))
            self.micro.unpack(stored, self.group_codes, self.weights, self.codes, self.panel_bytes)

            def product(tile: e.Index, part: ir.Value, start: e.Index = start) -> None:
                assert self.codes is not None
                self._read_tile(tile)
                lhs, steps = e.at(self.lhs, e.multiply(start, self.gemm.line_stride)), self.group_codes // QUAD
                call = MicroCall(
                    self.size.rows,
                    lhs,
                    self.lhs_stride,
                    self.codes,
                    steps,
                    None,
                    part,
                    False,
                    self.present,
                    line_stride=self.gemm.line_stride,
                )
                self.micro.multiply(call, Weights(8, 0))

            def add(tile: e.Index, part: ir.Value, group: e.Index = group.index) -> None:
                self._add_part(tile, panel, 0, group, part, self._total(tile))

            self._one_behind(tiles, self.part, product, add)
        with e.loop(0, tiles) as tile:
            self._finish(self._total(tile.index), tile.index, panel)

    def _total(self, tile: e.Index) -> ir.Value:
        return e.at(self.totals, e.multiply(tile, self.tile_bytes))

    def _part(self, group: e.Index, rhs: ir.Value) -> MicroCall:
        """The micro-kernel's call for one group of the block."""
        start = e.multiply(group, self.group_codes)
        sums = e.at(self.sums, e.multiply(group, 4 * self.size.rows))
        lhs = e.at(self.lhs, e.multiply(start, self.gemm.line_stride * self.micro.together(self.size.rows)))
        assert self.part is not None
        return self._tile(e.at(rhs, self._panel_at(start)), lhs, self.group_codes, sums, self.part, False)

    def _combined(
        self, tile: e.Index, panel: e.Index, first_k: e.Index, group: e.Index
    ) -> Callable[[e.Index, int, ir.Value, ir.Value], ir.Value]:
        """Return the emitter of a running total, given the row, the vector, its partial sum and the previous total."""
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
