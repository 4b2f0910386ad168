"""Attention on CPUs: a chunk is one head and a block of query rows, and holds scores of one block of keys at a time.

Each lane of a vector is a query. The scores of a key therefore take d multiply-adds, each of a broadcast element of the
key and a vector of the queries' elements; their maximum and sum over keys need no reduction across lanes. Neither keys
nor values are copied: their elements are broadcast from the program's tensors. Only queries and results are transposed,
in registers.

Keys are processed in blocks. For each query the largest score so far, the sum of the exponentials and the weighted sum
of the values are kept, and rescaled when a block has a larger score (the online softmax of Milakov and Gimelshein,
2018).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import e as EULER, log2

from ....core.mlir import arith, ir, llvm
from ....kernels.attention import Attention, AttentionTensor
from ...cost import TYPICAL_CORE
from ..threads.cost import a_nanosecond
from ..threads.program import has_helpers
from . import emit as e
from .chunks import Chunked, executable
from .vectors import exp2, larger, transposed

_KEYS = 128  # per block: 16 KiB of scores
_VECTORS = 2  # of queries per chunk, at most
_MOST_COLUMNS = 512  # of queries and values together, on the stack: 64 KiB
_LOWEST = -3.4028234663852886e38
# The cost of a score in addition to a multiply-add for each element of a key and of a value, in operations.
_SCORE_OPERATIONS = 40


@dataclass(frozen=True)
class Registers:
    """The vectors of a CPU: f32 lanes, and how many keys and columns of values are processed at once."""

    name: str
    features: tuple[frozenset[str], ...]
    lanes: int
    keys: int
    columns: int


REGISTERS = (
    Registers("attention-avx512", (frozenset({"avx512f", "avx512bw", "avx512vl"}),), lanes=16, keys=8, columns=12),
    Registers("attention-avx2", (frozenset({"avx2", "fma"}),), lanes=8, keys=4, columns=4),
)
NEON = Registers("attention-neon", (frozenset({"neon"}),), lanes=4, keys=8, columns=12)


class AttentionOperand:
    """An f32 tensor in memory at one index of the batch. `strides`: along each loop, in bytes."""

    def __init__(self, buffer: e.Buffer, axes: Sequence[int], at: Mapping[int, e.Index]) -> None:
        self.strides: dict[int, e.Index] = {}
        step: e.Index = 4
        for axis, size in zip(reversed(axes), reversed(buffer.shape), strict=True):
            self.strides[axis] = step
            step = e.multiply(step, size)
        offset: e.Index = 0
        for axis, where in at.items():
            if axis in self.strides:
                offset = e.add(offset, e.multiply(where, self.strides[axis]))
        self.base = e.at(buffer.address, offset)

    def address(self, *where: tuple[int, e.Index]) -> ir.Value:
        """The address of an element, given its indices along loops other than those of the batch."""
        offset: e.Index = 0
        for axis, i in where:
            offset = e.add(offset, e.multiply(i, self.strides[axis]))
        return e.at(self.base, offset)


class AttentionKernel:
    """The executable of one attention op."""

    def __init__(self, attention: Attention, scale: float, registers: Registers) -> None:
        self.attention, self.registers = attention, registers
        (self.m,), (self.k2,), (self.k1,), (self.n,) = (
            attention.rows, attention.keys, attention.inner, attention.columns
        )  # fmt: skip
        d, columns = attention.sizes[self.k1], attention.sizes[self.n]
        assert d is not None
        assert columns is not None
        self.d, self.columns, self.scale = d, columns, scale
        self.queries = _VECTORS * registers.lanes
        self.dynamic = [i for i, size in enumerate(attention.sizes) if size is None]

    # ---- the executable

    def emit(self, name: str) -> str:
        tensors = [t.stored.type for t in self.attention.tensors]
        which = [[self.dynamic.index(a) for a in self._dynamic(t)] for t in self.attention.tensors]
        kernel = Chunked(self._count, self._chunk, self._cost, shared=has_helpers(self.registers.features))
        return executable(name, [None] * len(self.dynamic), tensors, kernel, which)

    def _dynamic(self, t: AttentionTensor) -> list[int]:
        """The loops of a tensor's dynamic axes."""
        kind = ir.RankedTensorType(t.stored.type)
        return [a for i, a in enumerate(t.axes) if kind.is_dynamic_dim(i)]

    def _sizes(self, dynamic: Sequence[e.Index]) -> list[e.Index]:
        given = dict(zip(self.dynamic, dynamic, strict=True))
        return [given[i] if size is None else size for i, size in enumerate(self.attention.sizes)]

    def _heads(self, sizes: Sequence[e.Index]) -> e.Index:
        total: e.Index = 1
        for b in self.attention.batch:
            total = e.multiply(total, sizes[b])
        return total

    def _count(self, *dynamic: e.Index) -> e.Index:
        sizes = self._sizes(dynamic)
        return e.multiply(self._heads(sizes), e.divide_up(sizes[self.m], self.queries))

    def _cost(self, *dynamic: e.Index) -> e.Index:
        """The approximate time on one thread, in nanoseconds."""
        sizes = self._sizes(dynamic)
        scores = e.multiply(e.multiply(self._heads(sizes), sizes[self.m]), sizes[self.k2])
        return e.divide(
            e.multiply(scores, 2 * (self.d + self.columns) + _SCORE_OPERATIONS), a_nanosecond(TYPICAL_CORE.floats)
        )

    def _chunk(self, number: ir.Value, dynamic: list[e.Index], buffers: list[e.Buffer]) -> None:
        """Emit chunk `number`. Consecutive chunks share their keys."""
        # Before the divisions: LLVM branches around long divisions, and an alloca behind a branch is not part of the
        # static frame.
        stack = AttentionStack(self)
        sizes = self._sizes(dynamic)
        blocks = e.divide_up(sizes[self.m], self.queries)
        first = e.multiply(e.remainder(number, blocks), self.queries)
        head, at = e.divide(number, blocks), {}
        for b in reversed(self.attention.batch):
            at[b] = e.remainder(head, sizes[b])
            head = e.divide(head, sizes[b])
        operands = [
            AttentionOperand(e.Buffer(b.address, b.element, tuple(sizes[a] for a in t.axes)), t.axes, at)
            for b, t in zip(buffers, self.attention.tensors, strict=True)
        ]
        left = e.subtract(sizes[self.m], first)
        lanes = self.registers.lanes
        few = arith.cmpi(arith.CmpIPredicate.ule, e.index(left), e.index(lanes))
        with e.when(few):
            AttentionChunk(self, 1, stack, operands, sizes, first).emit()
        with e.when(e.none_of([few])):
            AttentionChunk(self, _VECTORS, stack, operands, sizes, first).emit()


class AttentionStack:
    """The buffers of a chunk: queries `[d][queries]`, scores `[keys][queries]`, results `[columns][queries]`."""

    def __init__(self, kernel: AttentionKernel) -> None:
        lanes, f32 = kernel.registers.lanes, ir.F32Type.get()

        def rows(count: int) -> ir.Value:
            return e.pointer(e.scratch([-(-count // lanes) * lanes * kernel.queries], f32))

        self.queries, self.scores, self.results = rows(kernel.d), rows(_KEYS), rows(kernel.columns)
        self.factors = rows(1)


class AttentionChunk:
    """Emits a chunk of `vectors` vectors of queries. The methods run in the order of the file."""

    def __init__(
        self, kernel: AttentionKernel, vectors: int, stack: AttentionStack, operands: Sequence[AttentionOperand],
        sizes: Sequence[e.Index], first: e.Index,
    ) -> None:  # fmt: skip
        self.kernel, self.vectors, self.stack = kernel, vectors, stack
        self.q, self.k, self.v = operands[:3]
        self.mask = operands[3] if kernel.attention.mask is not None else None
        self.out = operands[-1]
        self.rows, self.keys, self.first = sizes[kernel.m], sizes[kernel.k2], first
        self.lanes = kernel.registers.lanes
        self.f32 = ir.F32Type.get()
        self.wide = e.vector_of(self.lanes, self.f32)
        self.row_bytes = 4 * self.lanes * vectors
        self.vector_bytes = 4 * self.lanes

    def emit(self) -> None:
        self._pack_queries()
        zero = self._splat(0.0)
        with e.loop(0, self.kernel.columns * self.vectors) as each:
            e.store(zero, e.at(self.stack.results, e.multiply(each.index, self.vector_bytes)))
        state = [self._splat(_LOWEST)] * self.vectors + [zero] * self.vectors
        with e.loop(0, self.keys, _KEYS, state) as block:
            block.next = self._block(block.index, block.values[: self.vectors], block.values[self.vectors :])
        self._unpack_results(block.results[self.vectors :])

    # ---- pieces

    def _splat(self, value: float) -> ir.Value:
        return e.splat(value, self.lanes, self.f32)

    def _place(self, base: ir.Value, row: e.Index, v: e.Index = 0) -> ir.Value:
        """The address of vector `v` of a row of a buffer on the stack."""
        return e.at(base, e.add(e.multiply(row, self.row_bytes), e.multiply(v, self.vector_bytes)))

    def _broadcast(self, address: ir.Value) -> ir.Value:
        return e.broadcast(e.load(self.f32, address), self.lanes)

    def _query(self, v: e.Index, lane: int) -> e.Index:
        """The query row of a lane; lanes past the last row repeat it."""
        row = e.add(self.first, e.add(e.multiply(v, self.lanes), lane))
        return e.minimum(row, e.subtract(self.rows, 1))

    def _squares(self, count: e.Index, emit: Callable[[e.Index, ir.Value | None], None]) -> None:
        """Call `emit(first, mask)` for each block of as many columns as there are lanes; only a partial last block has
        a mask."""
        whole: e.Index
        left: e.Index
        if isinstance(count, int):
            whole, left = count // self.lanes * self.lanes, count % self.lanes
        else:
            whole = e.multiply(e.divide(count, self.lanes), self.lanes)
            left = e.subtract(count, whole)
        if not isinstance(whole, int) or whole:
            with e.loop(0, whole, self.lanes) as column:
                emit(column.index, None)
        if isinstance(left, int):
            if left:
                emit(whole, e.first_lanes(left, self.lanes))
            return
        with e.when(arith.cmpi(arith.CmpIPredicate.ne, left, e.index(0))):
            emit(whole, e.first_lanes(left, self.lanes))

    def _gather(
        self, operand: AttentionOperand, columns: int, start: e.Index, count: e.Index,
        scaled: Callable[[ir.Value], ir.Value], to: ir.Value,
    ) -> None:  # fmt: skip
        """Apply `scaled` to the elements from `start` on along `columns` of each query's row, and store them transposed
        as `[count][queries]` at `to`."""
        with e.loop(0, self.vectors) as v:

            def square(first: e.Index, mask: ir.Value | None) -> None:
                rows = []
                for lane in range(self.lanes):
                    row = self._query(v.index, lane)
                    address = operand.address((self.kernel.m, row), (columns, e.add(start, first)))
                    rows.append(scaled(e.load_lanes(self.wide, address, mask)))
                for i, row in enumerate(transposed(rows)):
                    e.store(row, self._place(to, e.add(first, i), v.index))

            self._squares(count, square)

    # ---- queries

    def _pack_queries(self) -> None:
        """Scale and transpose the queries, such that scores are exponents of 2."""
        factor = self._splat(self.kernel.scale * log2(EULER))
        self._gather(self.q, self.kernel.k1, 0, self.kernel.d, lambda x: arith.mulf(x, factor), self.stack.queries)

    # ---- a block of keys

    def _block(self, start: e.Index, largest: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
        count = e.minimum(e.subtract(self.keys, start), _KEYS)
        if self._mask_by_query:
            assert self.mask is not None
            self._gather(self.mask, self.kernel.k2, start, count, self._masking, self.stack.scores)
        new = self._scores(start, count, largest)
        factors = [exp2(arith.subf(old, now)) for old, now in zip(largest, new, strict=True)]
        total = [arith.mulf(s, f) for s, f in zip(sums, factors, strict=True)]
        total = self._exponentials(count, new, total)
        self._weighted(start, count, factors)
        return [*new, *total]

    @property
    def _mask_by_query(self) -> bool:
        return self.mask is not None and self.kernel.m in self.mask.strides

    def _scores(self, start: e.Index, count: e.Index, largest: Sequence[ir.Value]) -> list[ir.Value]:
        """Store the scores of a block, and return each query's largest score so far."""
        tile, d = self.kernel.registers.keys, self.kernel.d
        step = next(s for s in (4, 2, 1) if d % s == 0)
        grid = [(r, v) for r in range(tile) for v in range(self.vectors)]
        with e.loop(0, count, tile, list(largest)) as keys:
            local = [e.minimum(e.add(keys.index, r), e.subtract(count, 1)) for r in range(tile)]
            places = [e.add(start, key) for key in local]
            addresses = [self.k.address((self.kernel.k2, key)) for key in places]
            with e.loop(0, d, step, self._initial(local, places)) as inner:
                acc = list(inner.values)
                for i in range(step):
                    at = e.add(inner.index, i)
                    queries = [e.load(self.wide, self._place(self.stack.queries, at, v)) for v in range(self.vectors)]
                    for r, address in enumerate(addresses):
                        key = self._broadcast(e.at(address, e.multiply(at, 4)))
                        for v, query in enumerate(queries):
                            j = r * self.vectors + v
                            acc[j] = llvm.FMAOp(key, query, acc[j]).result
                inner.next = acc
            now = list(keys.values)
            for (r, v), score in zip(grid, inner.results, strict=True):
                e.store(score, self._place(self.stack.scores, e.add(keys.index, r), v))
                now[v] = larger(score, now[v])
            keys.next = now
        return list(keys.results)

    def _initial(self, local: Sequence[e.Index], places: Sequence[e.Index]) -> list[ir.Value]:
        """The initial values of scores: the mask, or zeros."""
        if self.mask is None:
            return [self._splat(0.0)] * (len(places) * self.vectors)
        found = []
        for here, key in zip(local, places, strict=True):
            if self._mask_by_query:
                found += [e.load(self.wide, self._place(self.stack.scores, here, v)) for v in range(self.vectors)]
            else:
                found += [self._masking(self._broadcast(self.mask.address((self.kernel.k2, key))))] * self.vectors
        return found

    def _masking(self, x: ir.Value) -> ir.Value:
        """Convert mask values to exponents of 2. Finite values stay finite: many programs mask with the lowest finite
        number, and if all keys are masked with it, they have equal weights."""
        lowest = self._splat(_LOWEST)
        exponent = arith.mulf(x, self._splat(log2(EULER)))
        return arith.select(arith.cmpf(arith.CmpFPredicate.OGE, x, lowest), larger(exponent, lowest), exponent)

    def _exponentials(self, count: e.Index, largest: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
        with e.loop(0, count, 1, list(sums)) as key:
            total = []
            for v in range(self.vectors):
                place = self._place(self.stack.scores, key.index, v)
                value = exp2(arith.subf(e.load(self.wide, place), largest[v]))
                e.store(value, place)
                total.append(arith.addf(key.values[v], value))
            key.next = total
        return list(key.results)

    def _weighted(self, start: e.Index, count: e.Index, factors: Sequence[ir.Value]) -> None:
        """Multiply the results so far by `factors`, and add this block's values times their weights."""
        columns, most = self.kernel.columns, self.kernel.registers.columns
        width = -(-columns // -(-columns // most))
        whole = columns // width * width
        with e.loop(0, whole, width) as first:
            self._weighted_columns(first.index, width, start, count, factors)
        if whole < columns:
            self._weighted_columns(whole, columns - whole, start, count, factors)

    def _weighted_columns(
        self, first: e.Index, width: int, start: e.Index, count: e.Index, factors: Sequence[ir.Value]
    ) -> None:
        grid = [(c, v) for c in range(width) for v in range(self.vectors)]
        places = [self._place(self.stack.results, e.add(first, c), v) for c, v in grid]
        begin = [
            arith.mulf(e.load(self.wide, place), factors[v]) for place, (_, v) in zip(places, grid, strict=True)
        ]  # fmt: skip
        with e.loop(0, count, 1, begin) as key:
            weights = [
                e.load(self.wide, self._place(self.stack.scores, key.index, v)) for v in range(self.vectors)
            ]  # fmt: skip
            row = self.v.address((self.kernel.k2, e.add(start, key.index)), (self.kernel.n, first))
            acc = list(key.values)
            for c in range(width):
                value = self._broadcast(e.at(row, 4 * c))
                for v, weight in enumerate(weights):
                    j = c * self.vectors + v
                    acc[j] = llvm.FMAOp(value, weight, acc[j]).result
            key.next = acc
        for place, value in zip(places, key.results, strict=True):
            e.store(value, place)

    # ---- results

    def _unpack_results(self, sums: Sequence[ir.Value]) -> None:
        """Divide weighted sums by the sums of weights, and store each query's row; zeros if all keys are masked."""
        zero, one = self._splat(0.0), self._splat(1.0)
        for v, total in enumerate(sums):
            none = arith.cmpf(arith.CmpFPredicate.OEQ, total, zero)
            e.store(arith.select(none, zero, arith.divf(one, total)), self._place(self.stack.factors, 0, v))
        with e.loop(0, self.vectors) as group:
            at = group.index
            factor = e.load(self.wide, self._place(self.stack.factors, 0, at))

            def square(first: e.Index, mask: ir.Value | None) -> None:
                columns = [
                    arith.mulf(e.load(self.wide, self._place(self.stack.results, e.add(first, i), at)), factor)
                    for i in range(self.lanes)
                ]
                rows = transposed(columns)
                # Lanes past the last query hold its values, and store them to its row again.
                for lane in range(self.lanes):
                    row = self._query(at, lane)
                    address = self.out.address((self.kernel.m, row), (self.kernel.n, first))
                    e.store_lanes(rows[lane], address, mask)

            self._squares(self.kernel.columns, square)


def stack_fits(d: int, columns: int) -> bool:
    """Whether the buffers of a chunk fit the stacks of IREE's threads in addition to their callers' frames."""
    return d + columns <= _MOST_COLUMNS
