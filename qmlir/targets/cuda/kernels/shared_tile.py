"""A ring of tiles of one operand in shared memory: which thread copies what, and where a fragment is read.

Rows are stored in chunks of 16 bytes, the unit of `ldmatrix`. Chunk c of row r is stored at `c ^ (r / lines & mask)` in
its row (an XOR swizzle over lines of 128 bytes, the width of all banks). The same chunk of eight rows then touches each
bank once, both when it is copied and when `ldmatrix` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Generic, TypeVar

from ....core.mlir import arith, ir, memref, vector
from ...gpu_kernels import emit as e
from ...gpu_kernels.weights import CHUNK
from . import instructions as gpu

_LINE = 128  # bytes of one word in each of the 32 banks
_ALIGNMENT = 1024  # bytes, of a ring: the swizzle of `wgmma` repeats after eight lines


def copy_size(row_bytes: int) -> int:
    """Bytes that one asynchronous copy of a row of `row_bytes` can move, 0 if its alignment allows none."""
    return next((size for size in gpu.COPY_SIZES if row_bytes % size == 0), 0)


@dataclass(frozen=True)
class RingShape:
    """The shape of a ring: `stages` tiles of `rows` rows. A row has `width` bytes, a power of two of chunks."""

    rows: int
    width: int
    stages: int

    @property
    def bytes(self) -> int:
        return self.rows * self.width * self.stages

    @property
    def chunks(self) -> int:
        return self.width // CHUNK

    def place(self, row: e.Index, chunk: e.Index) -> e.Index:
        """The swizzled position of a chunk in its row, in chunks."""
        lines = max(1, _LINE // self.width)
        turn = e.bit_and(e.divide(row, lines), min(self.chunks, _LINE // CHUNK) - 1)
        return e.exclusive_or(chunk, turn)


_Row = TypeVar("_Row")  # identifies a row of the source


def _everywhere(row: object, k: e.Index) -> bool:
    """The default of `SharedTile.there`: no element is missing."""
    return True


@dataclass
class SharedTile(Generic[_Row]):
    """The ring in a kernel of `threads` threads.

    Attributes:
        source: the operand in memory, rows of `length` elements.
        global_row: maps a row of the tile to the row of `source` that it holds, which exists. `address` takes the
            result.
        address: maps a row and a position along K to the position in `source`.
        aligned: how many elements along K are contiguous in `source`, from every multiple of that number on.
        rows: how many rows of a tile are needed, if that is known and fewer than all; the others are zeros.
        there: maps a row and a position along K to whether `source` has the element; missing ones are `padding`.
    """

    shape: RingShape
    source: ir.Value
    length: int
    thread: ir.Value
    threads: int
    global_row: Callable[[e.Index], _Row]
    address: Callable[[_Row, e.Index], Sequence[e.Index]]
    rows: int | None = None
    aligned: int | None = None
    there: Callable[[_Row, e.Index], e.Condition] = _everywhere
    padding: int = 0
    memory: ir.Value = field(init=False)

    def __post_init__(self) -> None:
        shape = self.shape
        self._element = ir.MemRefType(self.source.type).element_type
        self._unit = e.bits(self._element) // 8
        self._per_chunk = CHUNK // self._unit
        self.memory = e.shared([shape.rows * shape.stages, shape.width // self._unit], self._element, _ALIGNMENT)
        self._row, self._chunk = e.divide(self.thread, shape.chunks), e.remainder(self.thread, shape.chunks)
        step = self.threads // shape.chunks
        self._places: list[tuple[int, e.Condition, _Row]] = []
        for down in range(0, shape.rows, step):
            row = e.add(self._row, down)
            there = True if down + step <= shape.rows else e.less(row, shape.rows)
            safe = row if there is True else e.minimum(row, shape.rows - 1)
            self._places.append((down, there, self.global_row(safe)))

    def copy(self, k_tile: e.Index, stage: e.Index, wanted: e.Condition) -> None:
        """Copy tile `k_tile` to `stage`, or fill that with zeros if the tile is not `wanted`."""
        size = copy_size(gcd(self.length, self.aligned or self.length) * self._unit) // self._unit
        width = self.shape.width // self._unit
        first = e.add(e.multiply(k_tile, width), e.multiply(self._chunk, self._per_chunk))
        top = e.add(e.multiply(stage, self.shape.rows), self._row)
        for down, there, source_row in self._places:
            row, target = e.add(self._row, down), e.add(top, down)
            needed = wanted if self.rows is None else e.both(wanted, e.less(row, self.rows))
            column = e.multiply(self.shape.place(row, self._chunk), self._per_chunk)
            with e.when(there):
                if size:
                    self._async(target, column, source_row, first, size, needed)
                else:
                    self._elements(target, column, source_row, first, needed)

    def _ragged(self, first: e.Index, wanted: e.Condition) -> e.Condition:
        if self.length * self._unit % self.shape.width == 0:
            return wanted
        return e.both(wanted, e.less(first, self.length))

    def _async(
        self, row: e.Index, column: e.Index, source_row: _Row, first: e.Index, size: int, wanted: e.Condition
    ) -> None:
        for part in range(0, self._per_chunk, size):
            to = [row, e.add(column, part)]
            place = self.address(source_row, e.add(first, part))
            test, there = self._ragged(e.add(first, part), wanted), self.there(source_row, e.add(first, part))
            if self.padding == 0 or there is True:
                gpu.async_copy(self.memory, to, self.source, place, size, self._unit, e.both(test, there))
                continue
            with e.when(there):
                gpu.async_copy(self.memory, to, self.source, place, size, self._unit, test)
            with e.when(arith.xori(e.condition(there), e.constant(1, e.integer(1)))):
                padding, zero = (e.splat(value, size, self._element) for value in (self.padding, 0))
                code = padding if test is True else arith.select(e.condition(test), padding, zero)
                vector.StoreOp(code, self.memory, [e.index(i) for i in to], alignment=size * self._unit)

    def _elements(self, row: e.Index, column: e.Index, source_row: _Row, first: e.Index, wanted: e.Condition) -> None:
        """Copy a chunk element by element through registers, if rows are not aligned for an asynchronous copy."""
        parts = []
        for part in range(self._per_chunk):
            test, there = self._ragged(e.add(first, part), wanted), self.there(source_row, e.add(first, part))
            *outer, last = self.address(source_row, e.choose(test, e.add(first, part), 0))
            loaded = memref.load(self.source, [e.index(i) for i in (*outer, e.choose(e.both(test, there), last, 0))])
            value = loaded
            if there is not True:
                value = arith.select(e.condition(there), loaded, e.constant(self.padding, self._element))
            zero = e.constant(0, self._element)
            parts.append(value if test is True else arith.select(e.condition(test), value, zero))
        vector.StoreOp(e.gathered(parts), self.memory, [e.index(row), e.index(column)], alignment=CHUNK)

    def words(self, stage: e.Index, row: e.Index, turn_row: e.Index, chunk: e.Index, count: int) -> list[ir.Value]:
        """`ldmatrix`, with a row and a chunk from each lane. `turn_row`, for the swizzle, is the row modulo 8 or `row`
        less any multiple of 8."""
        first = e.add(e.multiply(stage, self.shape.rows), row)
        return gpu.ldmatrix(self.memory, first, e.multiply(self.shape.place(turn_row, chunk), self._per_chunk), count)
