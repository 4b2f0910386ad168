"""The loops of one chunk around a register tile (gemm.py defines chunks)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from ....core.mlir import arith, ir
from ....kernels.bodies import BodyCloner
from ....kernels.outline import gather_indices
from ....kernels.ranges import Ranges
from . import emit as e
from .emit import Buffer
from .epilogue import TileEpilogue
from .gemm import Blocking, Gemm, round_up
from .rules import RULES

_SPACING = 64


class Stack:
    """The stack buffers of a chunk, large enough for every tile height."""

    def __init__(self, gemm: Gemm) -> None:
        kernel, micro, i8 = gemm.kernel, gemm.micro, e.integer(8)
        copied = (
            64 if gemm.in_place else max(round_up(s.rows, micro.together(s.rows)) * lhs_stride(s) for s in gemm.sizes)
        )
        self.lhs = e.pointer(e.scratch([copied], i8))
        behind = 2 if micro.reads_rows else 1  # result tiles: 2 if the epilogue is one tile behind the product
        most = max(gemm.waiting(s) * (behind if s.blocks == 1 else gemm.chunk_panels) for s in gemm.sizes)
        if gemm.unpacks:
            most = gemm.waiting(gemm.sizes[0]) * gemm.tiles_of_chunk
        self.codes = e.pointer(e.scratch([(kernel.group or 0) * micro.panel], i8)) if gemm.unpacks else None
        self.totals = e.pointer(e.scratch([most], i8))
        tile = max(s.rows for s in gemm.sizes) * micro.panel * 4 * (2 if gemm.unpacks else 1)
        self.part = e.pointer(e.scratch([tile], i8)) if kernel.combine else None
        # Sums of activations for each group of the block, `[groups][rows]`.
        sums = max(-(-s.block_k // (kernel.group or s.block_k)) * s.rows for s in gemm.sizes)
        self.sums = e.pointer(e.scratch([sums], e.integer(32)))


def lhs_stride(size: Blocking) -> int:
    """Bytes from one row of the copied activations to the next."""
    return round_up(size.block_k * size.lhs_bytes, 64) + _SPACING


class Chunk(TileEpilogue, ABC):
    """Emits a chunk in tiles of one height. The methods run in the order of the file."""

    def __init__(
        self, gemm: Gemm, size: Blocking, stack: Stack, rows: e.Index, buffers: list[Buffer], product: e.Index = 0,
        matrix: e.Index = 0,
    ) -> None:  # fmt: skip
        self.gemm, self.size, self.rows, self.product = gemm, size, rows, product
        self.kernel, self.micro, self.weights = gemm.kernel, gemm.micro, gemm.weights
        self.lhs, self.totals, self.part, self.sums = stack.lhs, stack.totals, stack.part, stack.sums
        self.codes = stack.codes
        self.lhs_stride = size.padded_k * gemm.lhs_bytes if gemm.in_place else lhs_stride(size)
        if gemm.line_stride > 1:
            self.lhs_stride = e.LINE
        self.present: e.Index | None = None  # rows of a tile that is read in place
        # If rows are read in place: the weights to prefetch, see `MicroCall.ahead`.
        self.ahead: tuple[e.Index, int] | None = None
        self.lhs_buffer, self.out = buffers[0], buffers[-1]
        self.rhs = e.at(e.pointer(buffers[1]), e.multiply(matrix, gemm.panels * gemm.panel_bytes))
        self.gather_indices = buffers[2 : 2 + len(gather_indices(self.kernel))]
        self.buffers = dict(zip(self.kernel.operands, buffers[2 + len(self.gather_indices) : -1], strict=True))
        self.cloner = BodyCloner(self.micro.lanes, RULES, Ranges(self.kernel).bound)
        self.vectors = self.micro.panel // self.micro.lanes
        self.panel_bytes = gemm.panel_bytes
        self.group_codes = self.kernel.group or size.block_k

    def emit(self, number: e.Index) -> None:
        """Emit chunk `number`. Consecutive chunks share their weights, or their rows if these are read in place."""
        size, gemm = self.size, self.gemm
        rows = self.rows if self.kernel.batch is None or self.kernel.side_by_side else self.kernel.m
        assert rows is not None
        row_blocks = gemm.row_chunks(rows)
        if gemm.in_place:
            row_block, column_block = e.divide(number, gemm.column_chunks), e.remainder(number, gemm.column_chunks)
        else:
            row_block, column_block = e.remainder(number, row_blocks), e.divide(number, row_blocks)
        self.first_row = e.multiply(row_block, gemm.chunk_rows)
        first_panel = e.multiply(column_block, gemm.chunk_panels)
        tiles = e.divide_up(e.minimum(e.subtract(self.rows, self.first_row), gemm.chunk_rows), size.rows)
        panels = e.minimum(e.subtract(gemm.panels, first_panel), gemm.chunk_panels)
        self.micro.begin(size.rows)
        if gemm.in_place:
            self._panels_of_rows(tiles, first_panel, panels)
            self.micro.end()
            return
        block = self._block_of_tiles(tiles, first_panel, panels)
        if size.blocks == 1:
            block(0, True)
        else:
            self._all_blocks(block, tiles, first_panel, panels)
        self.micro.end()

    def _panels_of_rows(self, tiles: e.Index, first_panel: e.Index, panels: e.Index) -> None:
        """Multiply each panel with all tiles of rows, which are read in place."""
        with e.loop(0, panels) as panel:
            number = e.add(first_panel, panel.index)
            self._panel_of_rows(tiles, number, e.at(self.rhs, e.multiply(number, self.panel_bytes)))
        if self.gemm.streams:
            e.intrinsic("llvm.x86.sse.sfence", [])

    def _panel_of_rows(self, tiles: e.Index, panel: e.Index, rhs: ir.Value) -> None:
        step_lines = self.gemm.depth * self.micro.panel * self.weights.bits // 8 // e.LINE
        lines = max(1, step_lines // self.gemm.tiles_of_chunk)

        def product(tile: e.Index, total: ir.Value) -> None:
            self._read_tile(tile)
            # While one panel is multiplied with all tiles, each of them prefetches its share of the next panel.
            self.ahead = e.add(self.panel_bytes, e.multiply(tile, lines * e.LINE)), lines
            self._product(tile, panel, 0, self.size.padded_k, rhs, total, True)

        self._one_behind(tiles, self.totals, product, lambda tile, total: self._finish(total, tile, panel))

    def _one_behind(
        self, count: e.Index, places: ir.Value, product: Callable[[e.Index, ir.Value], None],
        finish: Callable[[e.Index, ir.Value], None],
    ) -> None:  # fmt: skip
        """Emit `product` for each of `count`, and `finish` one step later, behind the next product, which AMX's tile
        unit executes meanwhile. Results alternate between two tiles at `places`."""

        def place(each: e.Index) -> ir.Value:
            return e.at(places, e.multiply(e.remainder(each, 2), self.tile_bytes))

        with e.loop(0, e.add(count, 1)) as each:
            with e.when(arith.cmpi(arith.CmpIPredicate.ult, each.index, e.index(count))):
                product(each.index, place(each.index))
            with e.when(e.at_most(1, each.index)):
                before = e.subtract(each.index, 1)
                finish(before, place(before))

    def _read_tile(self, tile: e.Index) -> None:
        """Set the activations to those of a tile, read in place."""
        row0 = e.add(self.first_row, e.multiply(tile, self.size.rows))
        whole = isinstance(self.rows, int) and self.rows % self.size.rows == 0
        if not whole and self.gemm.line_stride == 1:  # tiles in lines are whole; surplus rows hold anything
            self.present = e.minimum(self.size.rows, e.subtract(self.rows, row0))
        self.lhs = e.at(self.lhs_buffer.address, self.lhs_buffer.offset([*self._place_of(row0), 0]))

    def _finish(self, total: ir.Value, tile: e.Index, panel: e.Index) -> None:
        """Emit the epilogue, with non-temporal stores if `gemm.streams` and the result is aligned to lines."""
        if self.gemm.streams:
            e.either(
                e.starts_line(self.out.address),
                lambda: self._epilogue(total, tile, panel, self._stream),
                lambda: self._epilogue(total, tile, panel),
            )
        else:
            self._epilogue(total, tile, panel)

    def _all_blocks(
        self, block: Callable[[e.Index, bool], None], tiles: e.Index, first_panel: e.Index, panels: e.Index
    ) -> None:
        """Multiply all blocks of K, adding to totals on the stack, then run the epilogues."""
        size = self.size
        with e.loop(0, e.multiply(tiles, panels)) as each:
            self._clear(e.at(self.totals, e.multiply(each.index, self.tile_bytes)))
        with e.loop(0, size.blocks) as k:
            block(k.index, False)
        with e.loop(0, tiles) as tile, e.loop(0, panels) as panel:
            total = e.at(self.totals, self._place(tile.index, panel.index, panels))
            self._epilogue(total, tile.index, e.add(first_panel, panel.index))

    @property
    def tile_bytes(self) -> int:
        return self.size.rows * self.micro.panel * 4

    def _place(self, tile: e.Index, panel: e.Index, panels: e.Index) -> e.Index:
        return e.multiply(e.add(e.multiply(tile, panels), panel), self.tile_bytes)

    def _block_of_tiles(self, tiles: e.Index, first_panel: e.Index, panels: e.Index) -> Callable[[e.Index, bool], None]:
        """Return the emitter of the loops over tiles and panels for one block of K; with `last` the epilogue follows
        each tile."""

        def one_panel(tile: e.Index, panel: e.Index, first_k: e.Index, depth: e.Index, last: bool) -> None:
            number = e.add(first_panel, panel)
            rhs = e.at(self.rhs, e.add(e.multiply(number, self.panel_bytes), self._panel_at(first_k)))
            if last and self._in_registers() and self._is_short():
                self._epilogue_in_registers(self._accumulators(depth, rhs), tile, number)
            elif last:
                self._product(tile, number, first_k, depth, rhs, self.totals, True)
                self._epilogue(self.totals, tile, number)
            else:
                total = e.at(self.totals, self._place(tile, panel, panels))
                self._product(tile, number, first_k, depth, rhs, total, False)

        def emit(block: e.Index, last: bool) -> None:
            first_k = e.multiply(block, self.size.block_k)
            depth = e.minimum(self.size.block_k, e.subtract(self.size.padded_k, first_k))
            with e.loop(0, tiles) as tile:
                self._copy(tile.index, first_k)
                if last and self.micro.reads_rows:
                    self._panels_one_behind(tile.index, first_panel, panels, depth)
                else:
                    with e.loop(0, panels) as panel:
                        one_panel(tile.index, panel.index, first_k, depth, last)

        return emit

    def _panels_one_behind(self, tile: e.Index, first_panel: e.Index, panels: e.Index, depth: e.Index) -> None:
        """Multiply all panels with a tile of rows that is on the stack, by `_one_behind`."""

        def product(panel: e.Index, total: ir.Value) -> None:
            number = e.add(first_panel, panel)
            self._product(tile, number, 0, depth, e.at(self.rhs, e.multiply(number, self.panel_bytes)), total, True)

        def finish(panel: e.Index, total: ir.Value) -> None:
            self._epilogue(total, tile, e.add(first_panel, panel))

        self._one_behind(panels, self.totals, product, finish)

    def _panel_at(self, k: e.Index) -> e.Index:
        """The offset in bytes in a panel of the codes from `k` on; `k` is a multiple of the depth of a step."""
        return e.divide(e.multiply(k, self.micro.panel * self.weights.bits), 8)

    # ---- activations

    def _row(self, tile: e.Index, r: e.Index) -> e.Index:
        """The program's row at row `r` of a tile; rows past the last one repeat it."""
        row = e.add(self.first_row, e.add(e.multiply(tile, self.size.rows), r))
        return e.minimum(row, e.subtract(self.rows, 1))

    def _copy(self, tile: e.Index, first_k: e.Index) -> None:
        """Copy a tile's activations of one block of K, with zeros behind K."""
        left = e.minimum(e.subtract(self.kernel.k, first_k), self.size.block_k)
        with e.loop(0, self.size.rows) as row:
            target = e.at(self.lhs, self._copied_at(row.index))
            self._copy_row(self._place_of(self._row(tile, row.index)), first_k, target, left, row.index)

    def _copied_at(self, r: e.Index) -> e.Index:
        """The offset in bytes of row `r` of a tile in the copy."""
        return e.multiply(r, self.lhs_stride)

    def _place_of(self, row: e.Index) -> list[e.Index]:
        """The indices of a row in the activation tensor."""
        batch = self.kernel.batch
        if batch is None or batch.side_by_side:
            return [row]
        if batch.rows is None:
            return [self.product, row]
        gathered = arith.index_cast(ir.IndexType.get(), e.load_element(self.gather_indices[-1], [self.product, row]))
        return [e.divide(gathered, batch.repeats)]

    @abstractmethod
    def _copy_row(self, row: list[e.Index], first_k: e.Index, target: ir.Value, left: e.Index, r: e.Index) -> None:
        """Copy `left` activations of the row at `row` from `first_k` on to `target`, for row `r` of the tile."""

    # ---- the product

    @abstractmethod
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

    def _in_registers(self) -> bool:
        """Whether `_accumulators` is implemented."""
        return False

    def _accumulators(self, depth: e.Index, rhs: ir.Value) -> list[list[ir.Value]]:
        """The product of one tile and panel over all of K: the vectors of each row."""
        raise NotImplementedError

    def _clear(self, out: ir.Value) -> None:
        """Store zeros in a tile; those of i32 and f32 have the same bits."""
        lanes = self.micro.lanes
        zero = e.splat(0, lanes, e.integer(32))
        with e.loop(0, self.tile_bytes, 4 * lanes) as part:
            e.store(zero, e.at(out, part.index))
