"""The epilogue of a tile of sums: the stages of the kernel on each of its vectors, and the stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ....core.mlir import ir
from ....kernels.bodies import BodyCloner
from ....kernels.description import Kernel, Literal, Operand, Previous, Stage, StageSource
from . import emit as e
from .gemm import Blocking, Gemm
from .micro import Micro
from .narrow import rows_of_pack, saturating_pack

_SHORT = 32  # ops of an epilogue that is unrolled for each vector of a tile, at most

# Emits the stores of a row's values, given these, the row, and the columns of each vector.
Put: TypeAlias = "Callable[[Sequence[ir.Value], e.Index, list[PanelColumns]], None]"


class TileEpilogue:
    """The part of a chunk behind its products; `Chunk` (chunk.py) sets its attributes."""

    gemm: Gemm
    kernel: Kernel
    micro: Micro
    size: Blocking
    rows: e.Index
    product: e.Index
    first_row: e.Index
    vectors: int
    totals: ir.Value
    cloner: BodyCloner
    buffers: dict[Operand, e.Buffer]
    out: e.Buffer

    def _vector_at(self, row: e.Index, v: int) -> e.Index:
        return e.add(e.multiply(row, 4 * self.micro.panel), 4 * self.micro.lanes * v)

    def _epilogue(self, total: ir.Value, tile: e.Index, panel: e.Index, put: Put | None = None) -> None:
        """Apply the stages to each vector of a tile, and store the values by `put`, by default `_put`."""
        kernel = self.kernel
        row0 = e.add(self.first_row, e.multiply(tile, self.size.rows))
        columns = [PanelColumns(self.gemm, panel, v) for v in range(self.vectors)]
        held = self._held([o for stage in kernel.stages for o in stage.operands], columns, None)
        count = e.minimum(self.size.rows, e.subtract(self.rows, row0))

        def finished(row: e.Index) -> list[ir.Value]:
            acc = self.cloner.widen(kernel.value_type)
            values = [e.load(acc, e.at(total, self._vector_at(row, v))) for v in range(self.vectors)]
            return self._finished(values, e.add(row0, row), columns, held)

        pairs: e.Index = 0
        if self._narrows(columns):
            pairs = e.multiply(e.divide(count, 2), 2)
            with e.loop(0, pairs, 2) as row:
                rows = [e.add(row.index, r) for r in range(2)]
                self._put_pair([finished(r) for r in rows], e.add(row0, row.index), columns)
        with e.loop(pairs, count) as row:
            (put or self._put)(finished(row.index), e.add(row0, row.index), columns)

    def _is_short(self) -> bool:
        """Whether the stages are short enough to be unrolled for each vector of a tile."""
        return self.kernel.gate is None and are_short(self.kernel.stages)

    def _epilogue_in_registers(self, tile_of: list[list[ir.Value]], tile: e.Index, number: e.Index) -> None:
        """As `_epilogue`, for a tile that is still in registers; a tile with missing rows goes through memory."""
        row0 = e.add(self.first_row, e.multiply(tile, self.size.rows))

        def at_once() -> None:
            columns = [PanelColumns(self.gemm, number, v) for v in range(self.vectors)]
            held = self._held([o for stage in self.kernel.stages for o in stage.operands], columns, None)
            each = 2 if self._narrows(columns) else 1
            for r in range(0, len(tile_of), each):
                m = e.add(row0, r)
                made = [self._finished(row, e.add(m, i), columns, held) for i, row in enumerate(tile_of[r : r + each])]
                if len(made) == 2:
                    self._put_pair(made, m, columns)
                else:
                    self._put(made[0], m, columns)

        def through_memory() -> None:
            for r, row in enumerate(tile_of):
                for v, value in enumerate(row):
                    e.store(value, e.at(self.totals, self._vector_at(r, v)))
            self._epilogue(self.totals, tile, number)

        rows = self.rows if isinstance(self.rows, int) else self.kernel.m
        if rows is not None and rows % self.size.rows == 0 and self.gemm.chunk_rows % self.size.rows == 0:
            at_once()
        else:
            e.either(e.at_most(self.size.rows, e.subtract(self.rows, row0)), at_once, through_memory)

    def _narrows(self, columns: list[PanelColumns]) -> bool:
        """Whether two rows of a panel are packed to one vector of bytes."""
        bytes_ = self.out.element == e.integer(8) and self.kernel.gate is None
        return bytes_ and self.micro.panel == 32 and self.micro.lanes == 16 and all(c.mask is None for c in columns)

    def _finished(
        self, values: list[ir.Value], m: e.Index, columns: list[PanelColumns], held: dict[tuple[Operand, int], ir.Value]
    ) -> list[ir.Value]:
        """Apply all stages to the sums of row `m`; return the results of each vector."""
        kernel = self.kernel
        before = kernel.stages if kernel.gate is None else kernel.stages[: kernel.gate.stages]
        made = [
            self._staged(before, [[x]], held, m, c, v) for v, (x, c) in enumerate(zip(values, columns, strict=True))
        ]
        if kernel.gate is not None:
            made = [self._staged(kernel.stages[len(before) :], made, held, m, columns[0], 0)]
        return [found[-1] for found in made]

    def _put_pair(self, rows: list[list[ir.Value]], m: e.Index, columns: list[PanelColumns]) -> None:
        """Store rows `m` and `m + 1`, packed together if their values saturate to bytes."""
        packed = saturating_pack([*rows[0], *rows[1]])
        if packed is not None:
            rows = [[codes] for codes in rows_of_pack(packed)]
        for r, values in enumerate(rows):
            self._put(values, e.add(m, r), columns)

    def _put(self, values: Sequence[ir.Value], m: e.Index, columns: list[PanelColumns]) -> None:
        for value, column in zip(values, columns, strict=False):
            e.store_vector(value, self.out, self._place_in_result(m, column), column.mask)

    def _stream(self, values: Sequence[ir.Value], m: e.Index, columns: list[PanelColumns]) -> None:
        """As `_put`, by non-temporal stores."""
        for value, column in zip(values, columns, strict=True):
            e.stream(value, e.at(self.out.address, self.out.offset(self._place_in_result(m, column))))

    def _place_in_result(self, m: e.Index, column: PanelColumns) -> list[e.Index]:
        product = [] if self.kernel.batch is None or self.kernel.side_by_side else [self.product]
        return [*product, m, self._column(column)]

    def _column(self, column: PanelColumns) -> e.Index:
        """The first column of a vector in the result, in which products may be side by side."""
        return (
            e.add(column.first, e.multiply(self.product, self.kernel.n)) if self.kernel.side_by_side else column.first
        )

    def _staged(
        self,
        stages: Sequence[Stage],
        values: list[list[ir.Value]],
        held: dict[tuple[Operand, int], ir.Value],
        m: e.Index,
        column: PanelColumns,
        v: int,
    ) -> list[ir.Value]:
        """Apply stages; return `values[0]` and their values. `values`: the earlier values of one vector, or those of
        both halves of a gate."""
        found = list(values[0])
        for stage in stages:
            known = [found, *values[1:]]
            arguments = [self._read(s, known, held, m, column, v, None) for s in stage.sources]
            found.append(self.cloner.clone(stage.body, arguments))
        return found

    def _held(
        self, operands: Sequence[Operand], columns: list[PanelColumns], group: e.Index | None
    ) -> dict[tuple[Operand, int], ir.Value]:
        """Load the operands that are the same in all rows, once."""
        return {
            (operand, v): self._fetch(operand, None, column, group)
            for operand in dict.fromkeys(operands)
            if "m" not in operand.axes
            for v, column in enumerate(columns)
        }

    def _read(
        self, source: StageSource, values: list[list[ir.Value]], held: dict[tuple[Operand, int], ir.Value], m: e.Index,
        column: PanelColumns, v: int, group: e.Index | None,
    ) -> ir.Value:  # fmt: skip
        if isinstance(source, Previous):
            return values[source.half][source.index]
        if isinstance(source, Literal):
            return self.cloner.splat(source.value)
        assert isinstance(source, Operand)
        found = held.get((source, v))
        return found if found is not None else self._fetch(source, m, column, group)

    def _fetch(self, operand: Operand, m: e.Index | None, column: PanelColumns, group: e.Index | None) -> ir.Value:
        """Load an operand's elements for a vector, or broadcast its element if it does not follow columns."""
        known = {"b": self.product, "g": group, "m": m, "n": self._column(column)}
        places = {axis: at for axis, at in known.items() if at is not None}
        where = [places[axis] for axis in operand.axes]
        buffer = self.buffers[operand]
        if "n" not in operand.axes:
            return e.broadcast(e.load_element(buffer, where), self.micro.lanes)
        return e.load_vector(buffer, where, self.micro.lanes, column.mask)


def are_short(stages: Sequence[Stage]) -> bool:
    ops = [op.operation.name for stage in stages for op in stage.body.operations]
    long = any(name.startswith("math.") and name != "math.roundeven" for name in ops)
    return not long and len(ops) <= _SHORT


class PanelColumns:
    """Vector `v` of a panel: its first column, and the mask of its lanes if the last panel is partial."""

    def __init__(self, gemm: Gemm, panel: e.Index, v: int) -> None:
        kernel, lanes, width = gemm.kernel, gemm.micro.lanes, gemm.micro.panel
        columns = kernel.n if kernel.side_by_side else kernel.columns
        if kernel.gate is None:
            self.first, n = e.add(e.multiply(panel, width), v * lanes), kernel.n
        else:
            self.first, n, width = e.add(e.multiply(panel, lanes), v * kernel.columns), (v + 1) * kernel.columns, lanes
        self.mask = None
        if columns % width:
            self.mask = e.first_lanes(e.subtract(n, e.minimum(self.first, n)), lanes)
