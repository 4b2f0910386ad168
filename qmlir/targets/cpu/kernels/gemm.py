"""The loops around a register tile.

A chunk is a block of rows times a block of panels. For each block of K and each tile of rows, the activations are
copied to the stack, rows a little apart (at a stride of a power of two they would share a few sets of the cache), their
sums taken on the way; then every panel of the chunk is multiplied with them. A tile whose K fits one block goes
straight to its epilogue; else the results of all tiles of the chunk wait on the stack.

A micro-kernel that reads activations where they lie (AMX) goes over all of K at once. The rows of its chunks stay in
the second-level cache while weights stream past them: each panel is multiplied with all of them before the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import lcm
from typing import TypeAlias, overload

from ....core.mlir import arith, ir
from ....kernels.bodies import BodyCloner
from ....kernels.description import Kernel, Literal, Operand, Previous, Stage, StageSource
from ....kernels.outline import picks
from ....kernels.ranges import Ranges
from ..threads.cost import nanoseconds
from . import emit as e
from .chunks import Chunked, executable
from .emit import Buffer
from .lines import may_start_anywhere
from .micro import Micro, Weights
from .narrow import rows_of_pack, saturating_pack
from .rules import RULES

_LHS_BYTES = 48 << 10  # of a tile's activations: a first-level cache; weights stream past them
_LHS_MOST = 48 << 10  # where one group needs more: what the stack holds beside the rest
_LHS_OF_TILES = 96 << 10  # the same where no results of several blocks wait: AMX's tiles read the second-level cache
_TOTAL_BYTES = 48 << 10  # of a chunk's results that wait: a worker's stack holds 128 KiB in all
_ROWS = 96  # of a chunk
_CHUNKS = 16  # as many at least where the columns give them, for threads to share
_FEWEST_PANELS = 4  # of a chunk: copying a tile's activations costs an eighth of a panel's product or more
_SPACING = 64
_CACHED_ROWS, _CACHED = 256, 1 << 20  # rows of a chunk that are read where they lie, and their bytes, at most
_FEWEST_COPIED = 64  # rows that are brought into lines first
_UNPACKED = 16 << 10  # bytes of a group's codes that are unpacked once for all tiles
_STREAMED = 4 << 20  # bytes of a result that go past the caches
_SHORT = 32  # ops of an epilogue that is copied for each vector of a tile
# Heights of tiles that a kernel for any number of rows holds beside the largest, each for the numbers that it suits.
_HEIGHTS = {1: ((1, 1),), 4: ((2, 4),), 8: ((5, 8), (13, 16))}


# Emits the stores of a row's values: the row, and the columns of each vector.
_Put: TypeAlias = "Callable[[Sequence[ir.Value], e.Index, list[PanelColumns]], None]"


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True)
class Blocking:
    """How a tile height goes over K, and what of its results waits meanwhile."""

    rows: int
    block_k: int
    padded_k: int
    lhs_bytes: int = 1  # of one activation

    @property
    def blocks(self) -> int:
        return -(-self.padded_k // self.block_k)


def block_unit(kernel: Kernel, depth: int) -> int:
    """Codes along K that a block is a multiple of: whole groups, whole steps, whole lines. The rows of an image are
    copied whole."""
    if kernel.lhs.window is not None:
        return _round_up(kernel.k, lcm(64, depth))
    return lcm(64, depth, kernel.group or 1)


def fits_stack(kernel: Kernel, depth: int, lhs_bytes: int) -> bool:
    """Whether a row's activations of the shortest block fit."""
    return lhs_bytes * min(block_unit(kernel, depth), _round_up(kernel.k, depth)) <= _LHS_MOST


def blocking(kernel: Kernel, depth: int, lhs_bytes: int, rows: int, tile_bytes: int = _LHS_BYTES) -> Blocking:
    """Blocks of K, multiples of the groups and of `depth`, for tiles of `rows` rows."""
    padded_k = _round_up(kernel.k, depth)
    unit = min(block_unit(kernel, depth), padded_k)
    most = max(unit, tile_bytes // lhs_bytes // rows // unit * unit)
    count = -(-padded_k // most)
    block_k = padded_k if count == 1 else _round_up(-(-padded_k // count), unit)
    return Blocking(rows, min(block_k, padded_k), padded_k, lhs_bytes)


@dataclass(frozen=True)
class ChunkSizes:
    """What `qmlir tune` may choose of a chunk, at most: rows, panels of columns, bytes of a tile's activations."""

    chunk_rows: int | None = None
    chunk_panels: int = 8
    lhs_bytes: int = _LHS_BYTES


class Gemm:
    """One kernel for one micro-kernel: the sizes of chunks, and what is common to the tile heights it holds."""

    def __init__(
        self, kernel: Kernel, micro: Micro, weights: Weights, chunk_class: Callable[..., Chunk],
        chosen: ChunkSizes = ChunkSizes(),
    ) -> None:  # fmt: skip
        self.kernel, self.micro, self.weights = kernel, micro, weights
        self.depth = micro.depth(weights)
        self.lhs_bytes = micro.lhs_bytes
        self.chunk_class = chunk_class
        self.in_place = self._reads_in_place()
        self.copies = self._copies()
        self.streams = self._streams()
        # Whether the codes of a group are unpacked once for all tiles of a chunk, whose totals wait on the stack.
        unpacked = (kernel.group or 0) * micro.panel
        self.unpacks = self.in_place and kernel.combine is not None and weights.bits < 8 and unpacked <= _UNPACKED
        shortest = min(block_unit(kernel, self.depth), _round_up(kernel.k, self.depth))
        most = micro.rows(weights)
        if not self.in_place:
            whole_rows = micro.reads_rows and kernel.lhs.window is not None
            limit = _LHS_OF_TILES if whole_rows else _LHS_MOST
            most = min(most, max(1, limit // shortest // self.lhs_bytes))
        counted = kernel.batch is not None and kernel.batch.counts is not None
        if kernel.m is not None and not counted:
            # Tiles of one height, so that the last one wastes little.
            heights = [-(-kernel.m // -(-kernel.m // most))]
        else:
            most = min(most, kernel.m or most)
            heights = [most] if self.in_place else [*(h for h in _HEIGHTS if h < most), most]
        if self.in_place:
            whole = _round_up(kernel.k, self.depth)
            self.sizes = [Blocking(rows, whole, whole, self.lhs_bytes) for rows in heights]
            rows = chosen.chunk_rows or min(_CACHED_ROWS, _CACHED // (whole * self.lhs_bytes))
        else:
            self.sizes = [blocking(kernel, self.depth, self.lhs_bytes, rows, chosen.lhs_bytes) for rows in heights]
            rows = chosen.chunk_rows or _ROWS
        few = kernel.m is not None and kernel.m <= most
        self.chunk_rows = heights[-1] if few else _round_up(rows, lcm(*heights))
        # Lines from one of a row's to the next, where activations were brought into lines tile by tile. The runs of a
        # convolution would be written to few sets of the cache.
        together = self.copies and kernel.m is not None and kernel.lhs.window is None
        self.apart = heights[-1] if together else 1
        self.tiles_of_chunk = -(-self.chunk_rows // heights[-1])
        # A panel of a gated kernel is a vector of the first half of the columns and one of the second.
        assert kernel.gate is None or micro.panel == 2 * micro.lanes
        self.panels = -(-kernel.columns // (micro.panel if kernel.gate is None else micro.lanes))
        waiting = max(self._waiting(size) for size in self.sizes)
        # Columns are shared out where the rows alone give too few chunks.
        of_rows = 1 if kernel.m is None else self.row_chunks(kernel.m)
        if kernel.batch is not None:
            of_rows *= kernel.batch.size or 1
        shared = max(1, -(-_CHUNKS // of_rows))
        wanted = max(_FEWEST_PANELS, self.panels // shared)
        self.chunk_panels = max(1, min(chosen.chunk_panels, _TOTAL_BYTES // waiting, wanted, self.panels))
        self.column_chunks = -(-self.panels // self.chunk_panels)
        self.panel_bytes = self.sizes[0].padded_k * micro.panel * weights.bits // 8

    def _reads_in_place(self) -> bool:
        """Whether the activations are multiplied from where they lie, or where they are brought once for all columns:
        rows one behind the other, and without their sums."""
        batch = self.kernel.batch
        if not self.micro.reads_rows or self.weights.short or (batch is not None and batch.rows is not None):
            return False
        return self._gathered() if self.kernel.lhs.window is not None else batch is None or not self._unlike_lines()

    def _gathered(self) -> bool:
        """Whether the rows of a convolution are gathered once, because too few of them fit the stack. Runs that are
        not whole lines would be copied past the end of their row."""
        window = self.kernel.lhs.window
        assert window is not None
        long = self.kernel.k * self.lhs_bytes * self.micro.rows(self.weights) > _LHS_OF_TILES
        return long and window.run % e.LINE == 0 and self.kernel.m is not None

    def _unlike_lines(self) -> bool:
        """Whether a row of activations is something else than whole lines of what is multiplied."""
        lhs = self.kernel.lhs
        return lhs.window is not None or lhs.flipped or self.kernel.k % self.depth != 0

    def _copies(self) -> bool:
        """Whether activations that are read in place are brought into lines first. Few rows stay in the first-level
        cache, wherever they start."""
        if not self.in_place or self.kernel.batch is not None:
            return False
        many = self.kernel.m is None or self.kernel.m >= _FEWEST_COPIED
        return self._unlike_lines() or (many and may_start_anywhere(self.kernel.lhs.value))

    def _streams(self) -> bool:
        """Whether results go past the caches: whole lines, of a matrix that no cache of a core holds. Else they take
        the place of the activations."""
        kernel, bytes_ = self.kernel, self.kernel.result_type.width // 8
        if not self.in_place or kernel.m is None or kernel.gate is not None:
            return False
        whole = kernel.columns % self.micro.panel == 0 and self.micro.lanes * bytes_ == e.LINE
        return whole and kernel.m * kernel.columns * bytes_ >= _STREAMED

    def _waiting(self, size: Blocking) -> int:
        """Bytes of one panel's results on the stack."""
        return 4 * self.micro.panel * (size.rows if size.blocks == 1 else self.chunk_rows)

    # ---- the executable

    def emit(self, name: str, inputs: Sequence[ir.Type], out: ir.Type) -> str:
        batch = self.kernel.batch
        size = self.kernel.m if batch is None else batch.size
        return executable(name, [size], [*inputs, out], Chunked(self.chunks, self.chunk, self.cost, self.micro.permit))

    def cost(self, size: e.Index) -> e.Index:
        """Nanoseconds on one thread, about. `size` counts the rows, or the products of a batch."""
        weights = self.kernel.n * self.kernel.k
        if self.kernel.batch is not None:
            return e.multiply(size, nanoseconds(0, weights) + (self.kernel.m or 1) * nanoseconds(2 * weights, 0))
        return e.add(nanoseconds(0, weights), e.multiply(size, nanoseconds(2 * weights, 0)))

    def chunks(self, size: e.Index) -> e.Index:
        if self.kernel.batch is None:
            return e.multiply(self.row_chunks(size), self.column_chunks)
        assert self.kernel.m is not None
        return e.multiply(size, self.row_chunks(self.kernel.m) * self.column_chunks)

    @overload
    def row_chunks(self, rows: int) -> int: ...
    @overload
    def row_chunks(self, rows: e.Index) -> e.Index: ...
    def row_chunks(self, rows: e.Index) -> e.Index:
        return e.divide_up(rows, self.chunk_rows)

    def chunk(self, number: ir.Value, sizes: list[e.Index], buffers: list[Buffer]) -> None:
        """All of one chunk, in tiles of the height that suits the number of rows."""
        (count,) = sizes
        stack = Stack(self)
        if self.kernel.batch is None:
            self._in_tiles(count, lambda size: self.chunk_class(self, size, stack, count, buffers).emit(number))
            return
        # Products with the same matrix are neighbours, and share a chunk's part of it.
        product, part = e.remainder(number, count), e.divide(number, count)
        picked = buffers[2 : 2 + len(picks(self.kernel))]
        with self._matrix(product, picked) as matrix:
            rows = self._rows(product, matrix, picked)
            self._in_tiles(
                rows, lambda size: self.chunk_class(self, size, stack, rows, buffers, product, matrix).emit(part)
            )

    @contextmanager
    def _matrix(self, product: e.Index, picked: list[e.Buffer]) -> Iterator[e.Index]:
        """Which matrix a product of the batch has, if its result is asked for."""
        batch = self.kernel.batch
        assert batch is not None
        if batch.index is None:
            yield product
            return
        index = e.load_element(picked[0], [product])
        inside = arith.cmpi(arith.CmpIPredicate.ult, index, arith.constant(index.type, batch.matrices))
        with e.when(inside):
            yield arith.index_castui(ir.IndexType.get(), index)

    def _rows(self, product: e.Index, matrix: e.Index, picked: list[e.Buffer]) -> e.Index:
        """How many rows a product of the batch has."""
        batch, rows = self.kernel.batch, self.kernel.m
        assert batch is not None
        assert rows is not None
        if batch.counts is None:
            return rows
        start, size = (arith.index_castui(ir.IndexType.get(), e.load_element(p, [matrix])) for p in picked[1:3])
        return e.minimum(rows, e.subtract(size, e.multiply(e.subtract(product, start), rows)))

    def _in_tiles(self, rows: e.Index, emit: Callable[[Blocking], None]) -> None:
        for size in self.sizes:
            if len(self.sizes) == 1:
                emit(size)
            else:
                with e.when(self._suits(size.rows, rows)):
                    emit(size)

    def _suits(self, height: int, rows: e.Index) -> ir.Value:
        if height in _HEIGHTS and height != self.sizes[-1].rows:
            return e.any_of([e.between(low, rows, high) for low, high in _HEIGHTS[height]])
        taken = [self._suits(size.rows, rows) for size in self.sizes[:-1]]
        return e.none_of(taken)


class Stack:
    """The buffers of a chunk, large enough for every height."""

    def __init__(self, gemm: Gemm) -> None:
        kernel, micro, i8 = gemm.kernel, gemm.micro, e.integer(8)
        copied = 64 if gemm.in_place else max(s.rows * lhs_stride(s) for s in gemm.sizes)
        self.lhs = e.pointer(e.scratch([copied], i8))
        behind = 2 if micro.reads_rows else 1  # tiles of a result whose epilogue is one behind its product
        most = max(gemm._waiting(s) * (behind if s.blocks == 1 else gemm.chunk_panels) for s in gemm.sizes)
        if gemm.unpacks:
            most = gemm._waiting(gemm.sizes[0]) * gemm.tiles_of_chunk
        self.codes = e.pointer(e.scratch([(kernel.group or 0) * micro.panel], i8)) if gemm.unpacks else None
        self.totals = e.pointer(e.scratch([most], i8))
        tile = max(s.rows for s in gemm.sizes) * micro.panel * 4 * (2 if gemm.unpacks else 1)
        self.part = e.pointer(e.scratch([tile], i8)) if kernel.combine else None
        # Sums of each group of the block, `[groups][rows]`.
        sums = max(-(-s.block_k // (kernel.group or s.block_k)) * s.rows for s in gemm.sizes)
        self.sums = e.pointer(e.scratch([sums], e.integer(32)))


def lhs_stride(size: Blocking) -> int:
    """Bytes from one row of the copied activations to the next."""
    return _round_up(size.block_k * size.lhs_bytes, 64) + _SPACING


class Chunk(ABC):
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
        if gemm.apart > 1:
            self.lhs_stride = e.LINE
        self.present: e.Index | None = None  # rows of a tile that is read where it lies
        # Of a micro-kernel that reads in place: what to ask for ahead of the weights, see `MicroCall.ahead`.
        self.ahead: tuple[e.Index, int] | None = None
        self.lhs_buffer, self.out = buffers[0], buffers[-1]
        self.rhs = e.at(e.pointer(buffers[1]), e.multiply(matrix, gemm.panels * gemm.panel_bytes))
        self.picks = buffers[2 : 2 + len(picks(self.kernel))]
        self.buffers = dict(zip(self.kernel.operands, buffers[2 + len(self.picks) : -1], strict=True))
        self.cloner = BodyCloner(self.micro.lanes, RULES, Ranges(self.kernel).bound)
        self.vectors = self.micro.panel // self.micro.lanes
        self.panel_bytes = gemm.panel_bytes
        self.group_codes = self.kernel.group or size.block_k

    def emit(self, number: e.Index) -> None:
        """Chunks that are neighbours in number share their weights; where rows are read in place, their rows."""
        size, gemm = self.size, self.gemm
        rows = self.rows if self.kernel.batch is None else self.kernel.m
        assert rows is not None
        of_rows = gemm.row_chunks(rows)
        if gemm.in_place:
            of_these, of_those = e.divide(number, gemm.column_chunks), e.remainder(number, gemm.column_chunks)
        else:
            of_these, of_those = e.remainder(number, of_rows), e.divide(number, of_rows)
        self.first_row = e.multiply(of_these, gemm.chunk_rows)
        first_panel = e.multiply(of_those, gemm.chunk_panels)
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
        """Each panel with all tiles of rows, which are read where they lie."""
        with e.loop(0, panels) as panel:
            number = e.add(first_panel, panel.index)
            self._panel_of_rows(tiles, number, e.at(self.rhs, e.multiply(number, self.panel_bytes)))
        if self.gemm.streams:
            e.intrinsic("llvm.x86.sse.sfence", [])

    def _panel_of_rows(self, tiles: e.Index, panel: e.Index, rhs: ir.Value) -> None:
        of_step = self.gemm.depth * self.micro.panel * self.weights.bits // 8 // e.LINE
        lines = max(1, of_step // self.gemm.tiles_of_chunk)

        def product(tile: e.Index, total: ir.Value) -> None:
            self._read_tile(tile)
            # While one panel is multiplied with all tiles, each of them asks for its share of the next.
            self.ahead = e.add(self.panel_bytes, e.multiply(tile, lines * e.LINE)), lines
            self._product(tile, panel, 0, self.size.padded_k, rhs, total, True)

        self._one_behind(tiles, self.totals, product, lambda tile, total: self._finish(total, tile, panel))

    def _one_behind(
        self, count: e.Index, places: ir.Value, product: Callable[[e.Index, ir.Value], None],
        finish: Callable[[e.Index, ir.Value], None],
    ) -> None:  # fmt: skip
        """`product` of each of `count`, and `finish` when the next is on its way: tiles multiply by themselves what
        they have been given. Results alternate between two tiles at `places`."""

        def place(each: e.Index) -> ir.Value:
            return e.at(places, e.multiply(e.remainder(each, 2), self.tile_bytes))

        with e.loop(0, e.add(count, 1)) as each:
            with e.when(arith.cmpi(arith.CmpIPredicate.ult, each.index, e.index(count))):
                product(each.index, place(each.index))
            with e.when(e.at_most(1, each.index)):
                before = e.subtract(each.index, 1)
                finish(before, place(before))

    def _read_tile(self, tile: e.Index) -> None:
        """From here on the activations are those of a tile, where they lie."""
        row0 = e.add(self.first_row, e.multiply(tile, self.size.rows))
        whole = isinstance(self.rows, int) and self.rows % self.size.rows == 0
        if not whole and self.gemm.apart == 1:  # tiles in lines are whole, whatever their last rows hold
            self.present = e.minimum(self.size.rows, e.subtract(self.rows, row0))
        self.lhs = e.at(self.lhs_buffer.address, self.lhs_buffer.offset([*self._place_of(row0), 0]))

    def _finish(self, total: ir.Value, tile: e.Index, panel: e.Index) -> None:
        """The epilogue, with its stores past the caches where that is for the better."""
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
        """Results wait until the last block of K is through."""
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
        """Emits, for one block of K, the loops over tiles and panels; with `last` the epilogue follows each tile."""

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
        """All panels with a tile of rows that is on the stack."""

        def product(panel: e.Index, total: ir.Value) -> None:
            number = e.add(first_panel, panel)
            self._product(tile, number, 0, depth, e.at(self.rhs, e.multiply(number, self.panel_bytes)), total, True)

        def finish(panel: e.Index, total: ir.Value) -> None:
            self._epilogue(total, tile, e.add(first_panel, panel))

        self._one_behind(panels, self.totals, product, finish)

    def _panel_at(self, k: e.Index) -> e.Index:
        """Where in a panel the codes from `k` on are; `k` is a multiple of what one step takes."""
        return e.divide(e.multiply(k, self.micro.panel * self.weights.bits), 8)

    # ---- activations

    def _row(self, tile: e.Index, r: e.Index) -> e.Index:
        """The program's row at row `r` of a tile; below the last one, the last one again."""
        row = e.add(self.first_row, e.add(e.multiply(tile, self.size.rows), r))
        return e.minimum(row, e.subtract(self.rows, 1))

    def _copy(self, tile: e.Index, first_k: e.Index) -> None:
        """A tile's activations of one block, zeros behind K."""
        left = e.minimum(e.subtract(self.kernel.k, first_k), self.size.block_k)
        with e.loop(0, self.size.rows) as row:
            target = e.at(self.lhs, e.multiply(row.index, self.lhs_stride))
            self._copy_row(self._place_of(self._row(tile, row.index)), first_k, target, left, row.index)

    def _place_of(self, row: e.Index) -> list[e.Index]:
        """Where a row lies in the activation."""
        batch = self.kernel.batch
        if batch is None:
            return [row]
        if batch.rows is None:
            return [self.product, row]
        picked = arith.index_cast(ir.IndexType.get(), e.load_element(self.picks[-1], [self.product, row]))
        return [e.divide(picked, batch.repeats)]

    @abstractmethod
    def _copy_row(self, row: list[e.Index], first_k: e.Index, target: ir.Value, left: e.Index, r: e.Index) -> None:
        """`left` activations of the row at `row` from `first_k` on, to row `r` of the tile."""

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
        """One tile and panel over one block of K, onto `total`; `fresh`: it holds nothing yet."""

    def _in_registers(self) -> bool:
        """Whether `_accumulators` is there."""
        return False

    def _accumulators(self, depth: e.Index, rhs: ir.Value) -> list[list[ir.Value]]:
        """One tile and panel over all of K, each row's vectors."""
        raise NotImplementedError

    def _clear(self, out: ir.Value) -> None:
        """Zeros in a tile: of i32 and of f32 the same bits."""
        lanes = self.micro.lanes
        zero = e.splat(0, lanes, e.integer(32))
        with e.loop(0, self.tile_bytes, 4 * lanes) as part:
            e.store(zero, e.at(out, part.index))

    def _vector_at(self, row: e.Index, v: int) -> e.Index:
        return e.add(e.multiply(row, 4 * self.micro.panel), 4 * self.micro.lanes * v)

    # ---- bodies

    def _epilogue(self, total: ir.Value, tile: e.Index, panel: e.Index, put: _Put | None = None) -> None:
        """The stages on each vector of a tile, and the store, which `put` emits."""
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
        """Whether the stages are so short that a copy of them for each vector of a tile pays."""
        return self.kernel.gate is None and are_short(self.kernel.stages)

    def _epilogue_in_registers(self, tile_of: list[list[ir.Value]], tile: e.Index, number: e.Index) -> None:
        """The same for a tile that is still in registers; one that has not all its rows goes through memory."""
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
        """Whether two rows of a panel are one vector of bytes."""
        bytes_ = self.out.element == e.integer(8) and self.kernel.gate is None
        return bytes_ and self.micro.panel == 32 and self.micro.lanes == 16 and all(c.mask is None for c in columns)

    def _finished(
        self, values: list[ir.Value], m: e.Index, columns: list[PanelColumns], held: dict[tuple[Operand, int], ir.Value]
    ) -> list[ir.Value]:
        """The last values of row `m`, each vector's, from the products'."""
        kernel = self.kernel
        before = kernel.stages if kernel.gate is None else kernel.stages[: kernel.gate.stages]
        made = [
            self._staged(before, [[x]], held, m, c, v) for v, (x, c) in enumerate(zip(values, columns, strict=True))
        ]
        if kernel.gate is not None:
            made = [self._staged(kernel.stages[len(before) :], made, held, m, columns[0], 0)]
        return [found[-1] for found in made]

    def _put_pair(self, rows: list[list[ir.Value]], m: e.Index, columns: list[PanelColumns]) -> None:
        """Rows `m` and `m + 1`."""
        packed = saturating_pack([*rows[0], *rows[1]])
        if packed is not None:
            rows = [[codes] for codes in rows_of_pack(packed)]
        for r, values in enumerate(rows):
            self._put(values, e.add(m, r), columns)

    def _put(self, values: Sequence[ir.Value], m: e.Index, columns: list[PanelColumns]) -> None:
        product = [] if self.kernel.batch is None else [self.product]
        for value, column in zip(values, columns, strict=False):
            e.store_vector(value, self.out, [*product, m, column.first], column.mask)

    def _stream(self, values: Sequence[ir.Value], m: e.Index, columns: list[PanelColumns]) -> None:
        """The same past the caches."""
        product = [] if self.kernel.batch is None else [self.product]
        for value, column in zip(values, columns, strict=True):
            e.stream(value, e.at(self.out.address, self.out.offset([*product, m, column.first])))

    def _staged(
        self,
        stages: Sequence[Stage],
        values: list[list[ir.Value]],
        held: dict[tuple[Operand, int], ir.Value],
        m: e.Index,
        column: PanelColumns,
        v: int,
    ) -> list[ir.Value]:
        """The values of the stages behind those that there are, of one vector or of both halves of a gate."""
        found = list(values[0])
        for stage in stages:
            known = [found, *values[1:]]
            arguments = [self._read(s, known, held, m, column, v, None) for s in stage.sources]
            found.append(self.cloner.clone(stage.body, arguments))
        return found

    def _held(
        self, operands: Sequence[Operand], columns: list[PanelColumns], group: e.Index | None
    ) -> dict[tuple[Operand, int], ir.Value]:
        """What is the same in all rows, read once."""
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
        """An operand at a vector's place."""
        known = {"b": self.product, "g": group, "m": m, "n": column.first}
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
    """Vector `v` of a panel: its first column, and which lanes there are where the last panel is ragged."""

    def __init__(self, gemm: Gemm, panel: e.Index, v: int) -> None:
        kernel, lanes, width = gemm.kernel, gemm.micro.lanes, gemm.micro.panel
        if kernel.gate is None:
            self.first, n = e.add(e.multiply(panel, width), v * lanes), kernel.n
        else:
            self.first, n, width = e.add(e.multiply(panel, lanes), v * kernel.columns), (v + 1) * kernel.columns, lanes
        self.mask = None
        if kernel.columns % width:
            self.mask = e.first_lanes(e.subtract(n, e.minimum(self.first, n)), lanes)
