"""The sizes of a product's chunks.

A chunk is a block of rows times a block of panels. For each block of K and each tile of rows, the activations are
copied to the stack and their sums computed during the copy; gaps separate the rows, which at a power-of-two stride
would share a few cache sets. Then every panel of the chunk is multiplied with them. If K fits one block, the epilogue
follows each tile; else the results of all tiles of the chunk are kept on the stack.

A micro-kernel that reads activations in place (AMX) covers all of K at once. The rows of its chunks stay in the
second-level cache while weights stream past them: each panel is multiplied with all rows before the next panel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import overload

from ....kernels.description import Kernel
from . import emit as e
from .lines import may_start_anywhere
from .micro import Micro, Weights

_LHS_BYTES = 48 << 10  # of a tile's activations, which stay in a first-level cache while weights stream past them
_LHS_MOST = 48 << 10  # the limit if one group needs more: what fits the stack with the other buffers
_LHS_OF_TILES = 96 << 10  # the same for AMX, which reads the second-level cache and keeps no results of several blocks
_TOTAL_BYTES = 48 << 10  # of a chunk's results kept on the stack: a worker's stack holds 128 KiB in all
_ROWS = 96  # per chunk
_CHUNKS = 16  # at least, if there are enough columns, for threads to share
_FEWEST_PANELS = 4  # per chunk: copying a tile's activations costs an eighth of a panel's product or more
_CACHED_ROWS, _CACHED = 256, 1 << 20  # rows of a chunk that are read in place, and their bytes, at most
_FEWEST_COPIED = 64  # rows that are worth copying into lines first
_UNPACKED = 16 << 10  # bytes of a group's codes that are unpacked once for all tiles, at most
_STREAMED = 4 << 20  # bytes of a result that is stored non-temporally, at least
# Tile heights of a kernel for any number of rows, besides the largest, each with the numbers of rows that it suits.
HEIGHTS = {1: ((1, 1),), 4: ((2, 4),), 8: ((5, 8), (13, 16))}


def round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True)
class Blocking:
    """How K is divided into blocks for tiles of `rows` rows."""

    rows: int
    block_k: int
    padded_k: int
    lhs_bytes: int = 1  # of one activation

    @property
    def blocks(self) -> int:
        return -(-self.padded_k // self.block_k)


def block_unit(kernel: Kernel, depth: int, lhs_bytes: int) -> int:
    """The unit of a block's size along K: whole groups, whole steps, whole lines. Rows of an image are copied whole if
    they hold codes, else by elements of the filter."""
    window = kernel.lhs.window
    if window is not None:
        return round_up(kernel.k, lcm(64, depth)) if lhs_bytes == 1 else lcm(window.channels, depth)
    return lcm(64, depth, kernel.group or 1)


def fits_stack(kernel: Kernel, depth: int, lhs_bytes: int) -> bool:
    """Whether a row's activations of the shortest block fit the stack."""
    return lhs_bytes * min(block_unit(kernel, depth, lhs_bytes), round_up(kernel.k, depth)) <= _LHS_MOST


def blocking(kernel: Kernel, depth: int, lhs_bytes: int, rows: int, tile_bytes: int = _LHS_BYTES) -> Blocking:
    """Divide K into blocks, multiples of the groups and of `depth`, for tiles of `rows` rows."""
    padded_k = round_up(kernel.k, depth)
    unit = min(block_unit(kernel, depth, lhs_bytes), padded_k)
    most = max(unit, tile_bytes // lhs_bytes // rows // unit * unit)
    count = -(-padded_k // most)
    block_k = padded_k if count == 1 else round_up(-(-padded_k // count), unit)
    return Blocking(rows, min(block_k, padded_k), padded_k, lhs_bytes)


@dataclass(frozen=True)
class ChunkSizes:
    """The limits that `qmlir tune` may choose for a chunk: rows, panels of columns, bytes of a tile's activations."""

    chunk_rows: int | None = None
    chunk_panels: int = 8
    lhs_bytes: int = _LHS_BYTES


class Gemm:
    """One kernel for one micro-kernel: the sizes of chunks, and the properties common to its tile heights."""

    def __init__(self, kernel: Kernel, micro: Micro, weights: Weights, chosen: ChunkSizes = ChunkSizes()) -> None:
        self.kernel, self.micro, self.weights = kernel, micro, weights
        self.depth = micro.depth(weights)
        self.lhs_bytes = micro.lhs_bytes
        self.in_place = self._reads_in_place()
        self.copies = self._copies()
        self.streams = self._streams()
        # Whether the codes of a group are unpacked once for all tiles of a chunk, whose totals are kept on the stack.
        unpacked = (kernel.group or 0) * micro.panel
        self.unpacks = self.in_place and kernel.combine is not None and weights.bits < 8 and unpacked <= _UNPACKED
        shortest = min(block_unit(kernel, self.depth, self.lhs_bytes), round_up(kernel.k, self.depth))
        most = micro.rows(weights)
        if not self.in_place:
            whole_rows = micro.reads_rows and kernel.lhs.window is not None
            limit = _LHS_OF_TILES if whole_rows else _LHS_MOST
            most = min(most, max(1, limit // shortest // self.lhs_bytes))
        counted = kernel.batch is not None and kernel.batch.counts is not None
        if kernel.m is not None and not counted:
            # Tiles of one height that divides the rows almost evenly, so that the last one wastes little.
            height = -(-kernel.m // -(-kernel.m // most))
            heights = [round_up(height, micro.together(height))]
        else:
            most = min(most, kernel.m or most)
            heights = [most] if self.in_place else [*(h for h in HEIGHTS if h < most), most]
        if self.in_place:
            whole = round_up(kernel.k, self.depth)
            self.sizes = [Blocking(rows, whole, whole, self.lhs_bytes) for rows in heights]
            rows = chosen.chunk_rows or min(_CACHED_ROWS, _CACHED // (whole * self.lhs_bytes))
        else:
            self.sizes = [blocking(kernel, self.depth, self.lhs_bytes, rows, chosen.lhs_bytes) for rows in heights]
            rows = chosen.chunk_rows or _ROWS
        few = kernel.m is not None and kernel.m <= most
        self.chunk_rows = heights[-1] if few else round_up(rows, lcm(*heights))
        # Distance between consecutive lines of a row, in lines: more than 1 if activations were copied into lines tile
        # by tile. Not for convolutions, whose runs would be written to few cache sets.
        together = self.copies and kernel.m is not None and kernel.lhs.window is None
        self.line_stride = heights[-1] if together else 1
        self.tiles_of_chunk = -(-self.chunk_rows // heights[-1])
        # A panel of a gated kernel is a vector of the first half of the columns and one of the second.
        assert kernel.gate is None or micro.panel == 2 * micro.lanes
        columns = kernel.n if kernel.side_by_side else kernel.columns
        self.panels = -(-columns // (micro.panel if kernel.gate is None else micro.lanes))
        waiting = max(self.waiting(size) for size in self.sizes)
        # Columns are divided among chunks if the rows alone give too few.
        of_rows = 1 if kernel.m is None else self.row_chunks(kernel.m)
        if kernel.batch is not None:
            of_rows *= kernel.batch.size or 1
        shared = max(1, -(-_CHUNKS // of_rows))
        wanted = max(_FEWEST_PANELS, self.panels // shared)
        self.chunk_panels = max(1, min(chosen.chunk_panels, _TOTAL_BYTES // waiting, wanted, self.panels))
        self.column_chunks = -(-self.panels // self.chunk_panels)
        self.panel_bytes = self.sizes[0].padded_k * micro.panel * weights.bits // 8

    def _reads_in_place(self) -> bool:
        """Whether the activations are multiplied in place, in the program's tensor or in one copy for all columns. Rows
        have to be consecutive, and their sums unused."""
        batch = self.kernel.batch
        if not self.micro.reads_rows or self.weights.short or (batch is not None and batch.rows is not None):
            return False
        return self._gathered() if self.kernel.lhs.window is not None else batch is None or not self._unlike_lines()

    def _gathered(self) -> bool:
        """Whether the rows of a convolution are gathered once for all columns, because too few of them fit the stack.
        Runs that are not whole lines would be copied past the end of their row."""
        window = self.kernel.lhs.window
        assert window is not None
        long = self.kernel.k * self.lhs_bytes * self.micro.rows(self.weights) > _LHS_OF_TILES
        return long and window.run % e.LINE == 0 and self.kernel.m is not None

    def _unlike_lines(self) -> bool:
        """Whether a row of activations is not, as stored, whole lines of the codes that are multiplied."""
        lhs = self.kernel.lhs
        return lhs.window is not None or lhs.flipped or self.kernel.k % self.depth != 0

    def _copies(self) -> bool:
        """Whether activations that are read in place are copied into lines first. Few rows stay in the first-level
        cache, even if they are unaligned."""
        if not self.in_place or self.kernel.batch is not None:
            return False
        many = self.kernel.m is None or self.kernel.m >= _FEWEST_COPIED
        return self._unlike_lines() or (many and may_start_anywhere(self.kernel.lhs.value))

    def _streams(self) -> bool:
        """Whether results are stored non-temporally: whole lines of a matrix that does not fit a core's caches, from
        which it would evict the activations."""
        kernel, bytes_ = self.kernel, self.kernel.result_type.width // 8
        if not self.in_place or kernel.m is None or kernel.gate is not None:
            return False
        whole = kernel.columns % self.micro.panel == 0 and self.micro.lanes * bytes_ == e.LINE
        return whole and kernel.m * kernel.columns * bytes_ >= _STREAMED

    def waiting(self, size: Blocking) -> int:
        """Bytes of one panel's results on the stack."""
        return 4 * self.micro.panel * (size.rows if size.blocks == 1 else self.chunk_rows)

    @overload
    def row_chunks(self, rows: int) -> int: ...
    @overload
    def row_chunks(self, rows: e.Index) -> e.Index: ...
    def row_chunks(self, rows: e.Index) -> e.Index:
        return e.divide_up(rows, self.chunk_rows)
