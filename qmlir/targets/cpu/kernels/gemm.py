"""The sizes of a product's chunks.

A chunk is a block of rows times a block of panels. For each block of K and each tile of rows, the activations are
copied to the stack, rows a little apart (at a stride of a power of two they would share a few sets of the cache), their
sums taken on the way; then every panel of the chunk is multiplied with them. A tile whose K fits one block goes
straight to its epilogue; else the results of all tiles of the chunk wait on the stack.

A micro-kernel that reads activations where they lie (AMX) goes over all of K at once. The rows of its chunks stay in
the second-level cache while weights stream past them: each panel is multiplied with all of them before the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import overload

from ....kernels.description import Kernel
from . import emit as e
from .lines import may_start_anywhere
from .micro import Micro, Weights

_LHS_BYTES = 48 << 10  # of a tile's activations: a first-level cache; weights stream past them
_LHS_MOST = 48 << 10  # where one group needs more: what the stack holds beside the rest
_LHS_OF_TILES = 96 << 10  # the same where no results of several blocks wait: AMX's tiles read the second-level cache
_TOTAL_BYTES = 48 << 10  # of a chunk's results that wait: a worker's stack holds 128 KiB in all
_ROWS = 96  # of a chunk
_CHUNKS = 16  # as many at least where the columns give them, for threads to share
_FEWEST_PANELS = 4  # of a chunk: copying a tile's activations costs an eighth of a panel's product or more
_CACHED_ROWS, _CACHED = 256, 1 << 20  # rows of a chunk that are read where they lie, and their bytes, at most
_FEWEST_COPIED = 64  # rows that are brought into lines first
_UNPACKED = 16 << 10  # bytes of a group's codes that are unpacked once for all tiles
_STREAMED = 4 << 20  # bytes of a result that go past the caches
# Heights of tiles that a kernel for any number of rows holds beside the largest, each for the numbers that it suits.
HEIGHTS = {1: ((1, 1),), 4: ((2, 4),), 8: ((5, 8), (13, 16))}


def round_up(value: int, unit: int) -> int:
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


def block_unit(kernel: Kernel, depth: int, lhs_bytes: int) -> int:
    """Codes along K that a block is a multiple of: whole groups, whole steps, whole lines. The rows of an image are
    copied whole where they hold codes, else element by element of the filter."""
    window = kernel.lhs.window
    if window is not None:
        return round_up(kernel.k, lcm(64, depth)) if lhs_bytes == 1 else lcm(window.channels, depth)
    return lcm(64, depth, kernel.group or 1)


def fits_stack(kernel: Kernel, depth: int, lhs_bytes: int) -> bool:
    """Whether a row's activations of the shortest block fit."""
    return lhs_bytes * min(block_unit(kernel, depth, lhs_bytes), round_up(kernel.k, depth)) <= _LHS_MOST


def blocking(kernel: Kernel, depth: int, lhs_bytes: int, rows: int, tile_bytes: int = _LHS_BYTES) -> Blocking:
    """Blocks of K, multiples of the groups and of `depth`, for tiles of `rows` rows."""
    padded_k = round_up(kernel.k, depth)
    unit = min(block_unit(kernel, depth, lhs_bytes), padded_k)
    most = max(unit, tile_bytes // lhs_bytes // rows // unit * unit)
    count = -(-padded_k // most)
    block_k = padded_k if count == 1 else round_up(-(-padded_k // count), unit)
    return Blocking(rows, min(block_k, padded_k), padded_k, lhs_bytes)


@dataclass(frozen=True)
class ChunkSizes:
    """What `qmlir tune` may choose of a chunk, at most: rows, panels of columns, bytes of a tile's activations."""

    chunk_rows: int | None = None
    chunk_panels: int = 8
    lhs_bytes: int = _LHS_BYTES


class Gemm:
    """One kernel for one micro-kernel: the sizes of chunks, and what is common to the tile heights it holds."""

    def __init__(self, kernel: Kernel, micro: Micro, weights: Weights, chosen: ChunkSizes = ChunkSizes()) -> None:
        self.kernel, self.micro, self.weights = kernel, micro, weights
        self.depth = micro.depth(weights)
        self.lhs_bytes = micro.lhs_bytes
        self.in_place = self._reads_in_place()
        self.copies = self._copies()
        self.streams = self._streams()
        # Whether the codes of a group are unpacked once for all tiles of a chunk, whose totals wait on the stack.
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
            # Tiles of one height, so that the last one wastes little.
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
        # Lines from one of a row's to the next, where activations were brought into lines tile by tile. The runs of a
        # convolution would be written to few sets of the cache.
        together = self.copies and kernel.m is not None and kernel.lhs.window is None
        self.line_stride = heights[-1] if together else 1
        self.tiles_of_chunk = -(-self.chunk_rows // heights[-1])
        # A panel of a gated kernel is a vector of the first half of the columns and one of the second.
        assert kernel.gate is None or micro.panel == 2 * micro.lanes
        columns = kernel.n if kernel.side_by_side else kernel.columns
        self.panels = -(-columns // (micro.panel if kernel.gate is None else micro.lanes))
        waiting = max(self.waiting(size) for size in self.sizes)
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

    def waiting(self, size: Blocking) -> int:
        """Bytes of one panel's results on the stack."""
        return 4 * self.micro.panel * (size.rows if size.blocks == 1 else self.chunk_rows)

    @overload
    def row_chunks(self, rows: int) -> int: ...
    @overload
    def row_chunks(self, rows: e.Index) -> e.Index: ...
    def row_chunks(self, rows: e.Index) -> e.Index:
        return e.divide_up(rows, self.chunk_rows)
