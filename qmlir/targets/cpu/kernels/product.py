"""The executable of a product: its chunks, and the rows, the matrix and the tile height of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ....core.mlir import arith, ir
from ....kernels.outline import gather_indices
from ..threads.cost import nanoseconds
from ..threads.program import has_helpers
from . import emit as e
from .chunk import Chunk, Stack
from .chunks import Chunked, executable
from .emit import Buffer
from .gemm import HEIGHTS, Blocking, Gemm


@dataclass(frozen=True)
class Product:
    """A kernel's executable. `chunk_class` emits a chunk."""

    gemm: Gemm
    chunk_class: Callable[..., Chunk]

    def emit(self, name: str, inputs: Sequence[ir.Type], out: ir.Type) -> str:
        kernel = self.gemm.kernel
        size = kernel.m if kernel.batch is None or kernel.side_by_side else kernel.batch.size
        return executable(
            name,
            [size],
            [*inputs, out],
            Chunked(self.chunks, self.chunk, self.cost, self.gemm.micro.permit, has_helpers(self.gemm.micro.features)),
        )

    def cost(self, size: e.Index) -> e.Index:
        """About how many nanoseconds a call takes on one thread. `size`: its rows, or the products of a batch."""
        kernel = self.gemm.kernel
        weights = (kernel.columns if kernel.side_by_side else kernel.n) * kernel.k
        if kernel.batch is not None and not kernel.side_by_side:
            return e.multiply(size, nanoseconds(0, weights) + (kernel.m or 1) * nanoseconds(2 * weights, 0))
        return e.add(nanoseconds(0, weights), e.multiply(size, nanoseconds(2 * weights, 0)))

    def chunks(self, size: e.Index) -> e.Index:
        kernel = self.gemm.kernel
        if kernel.batch is None:
            return self._chunks_of(size)
        if kernel.side_by_side:
            return e.multiply(self._chunks_of(size), kernel.batch.matrices)
        assert kernel.m is not None
        return e.multiply(size, self._chunks_of(kernel.m))

    def _chunks_of(self, rows: e.Index) -> e.Index:
        """The number of chunks of one product."""
        return e.multiply(self.gemm.row_chunks(rows), self.gemm.column_chunks)

    def chunk(self, number: ir.Value, sizes: list[e.Index], buffers: list[Buffer]) -> None:
        """Emit one chunk, in tiles of the height that suits the number of rows."""
        (count,) = sizes
        stack = Stack(self.gemm)
        if self.gemm.kernel.batch is None:
            self._in_tiles(count, lambda size: self.chunk_class(self.gemm, size, stack, count, buffers).emit(number))
            return
        if self.gemm.kernel.side_by_side:
            each = self._chunks_of(count)
            group, part = e.divide(number, each), e.remainder(number, each)
            self._in_tiles(
                count, lambda size: self.chunk_class(self.gemm, size, stack, count, buffers, group, group).emit(part)
            )
            return
        # Products by the same matrix are consecutive, and so are their chunks that read the same part of it.
        product, part = e.remainder(number, count), e.divide(number, count)
        indices = buffers[2 : 2 + len(gather_indices(self.gemm.kernel))]
        with self._matrix(product, indices) as matrix:
            rows = self._rows(product, matrix, indices)
            self._in_tiles(
                rows, lambda size: self.chunk_class(self.gemm, size, stack, rows, buffers, product, matrix).emit(part)
            )

    @contextmanager
    def _matrix(self, product: e.Index, indices: list[e.Buffer]) -> Iterator[e.Index]:
        """The matrix of a product of the batch. The body is skipped at run time if the product's index is not that of a
        matrix: its result is not needed then."""
        batch = self.gemm.kernel.batch
        assert batch is not None
        if batch.index is None:
            yield product
            return
        index = e.load_element(indices[0], [product])
        inside = arith.cmpi(arith.CmpIPredicate.ult, index, arith.constant(index.type, batch.matrices))
        with e.when(inside):
            yield arith.index_castui(ir.IndexType.get(), index)

    def _rows(self, product: e.Index, matrix: e.Index, indices: list[e.Buffer]) -> e.Index:
        """The number of rows of a product of the batch."""
        batch, rows = self.gemm.kernel.batch, self.gemm.kernel.m
        assert batch is not None
        assert rows is not None
        if batch.counts is None:
            return rows
        start, size = (arith.index_castui(ir.IndexType.get(), e.load_element(p, [matrix])) for p in indices[1:3])
        return e.minimum(rows, e.subtract(size, e.multiply(e.subtract(product, start), rows)))

    def _in_tiles(self, rows: e.Index, emit: Callable[[Blocking], None]) -> None:
        for size in self.gemm.sizes:
            if len(self.gemm.sizes) == 1:
                emit(size)
            else:
                with e.when(self._suits(size.rows, rows)):
                    emit(size)

    def _suits(self, height: int, rows: e.Index) -> ir.Value:
        if height in HEIGHTS and height != self.gemm.sizes[-1].rows:
            return e.any_of([e.between(low, rows, high) for low, high in HEIGHTS[height]])
        taken = [self._suits(size.rows, rows) for size in self.gemm.sizes[:-1]]
        return e.none_of(taken)
