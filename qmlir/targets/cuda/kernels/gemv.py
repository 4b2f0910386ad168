"""Products of a few rows, bound by the memory that the weight is read from.

The lanes of a warp share the codes along K of a few columns: each reads 16 bytes of every column's weights at once,
multiplies them by the same codes of each row (`dp4a`), and the lanes' sums are added by shuffles. Warps of a workgroup
take other columns, or other parts of K where there are few columns. Sums of groups meet in shared memory, where one
thread a result combines them in order and runs the stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....core.mlir import arith, ir, memref, vector
from ....kernels.description import Kernel
from ....kernels.row_sums import uses_row_sums
from ...gpu_kernels import emit as e
from ...gpu_kernels.batch import Products
from ...gpu_kernels.epilogue import Epilogue, Where
from ...gpu_kernels.executable import KernelFunction, Launch, executable
from . import instructions as gpu
from .executable import WARP, function_of, in_a_row, with_scratch, workgroup_id
from .machine import Nvidia
from .shared_tile import CHUNK
from .weights import Storage

_WARPS = 4
_ONES = 0x01010101
_FLIP = -0x7F7F7F80  # 0x80808080: turns the top bit of four codes
MOST_ROWS = 8


@dataclass(frozen=True)
class Gemv:
    """An integer kernel for a few rows, whose weight is stored in rows of whole chunks.

    Attributes:
        columns: of a warp.
        k_warps: of a workgroup that share columns.
        most_rows: of a product with a dynamic number of them.
    """

    kernel: Kernel
    storage: Storage
    columns: int
    k_warps: int
    most_rows: int = MOST_ROWS

    scratch: None = None

    @property
    def rows(self) -> int:
        """That are computed, of which the last ones may not be there."""
        return self.most_rows if self.kernel.m is None else self.kernel.m

    @property
    def chunk_codes(self) -> int:
        """Codes of a weight that one lane reads at once."""
        return CHUNK * self.storage.fields

    @property
    def chunks(self) -> int:
        return -(-self.kernel.k // self.chunk_codes)

    @property
    def padded_k(self) -> int:
        return self.chunks * self.chunk_codes

    @property
    def block_columns(self) -> int:
        return self.columns * (_WARPS // self.k_warps)

    @property
    def parts(self) -> int:
        """Sums along K that one result is made of: of groups, or of warps."""
        return self.k_warps if self.kernel.group is None else self.kernel.groups

    @property
    def shared_bytes(self) -> int:
        """Of the parts, and of the rows' sums behind them."""
        return 4 * self.parts * self.rows * (self.block_columns + int(uses_row_sums(self.kernel)))

    @property
    def blocks(self) -> int:
        return -(-self.kernel.n // self.block_columns)

    @property
    def variant(self) -> tuple[int, int, int]:
        """What makes it another than other kernels of a product."""
        return self.columns, self.k_warps, self.rows

    def of(self, kernel: Kernel) -> Gemv:
        """The same for another number of rows, dynamic ones as many as this one has at most."""
        return replace(self, kernel=kernel, most_rows=self.rows)

    @property
    def launch(self) -> Launch:
        # No row, no workgroup: the kernel reads the last row where one is not there.
        return in_a_row(WARP * _WARPS, lambda rows: e.multiply(self.blocks, e.divide_up(rows, self.rows)))

    def emit(self, name: str, inputs: Sequence[ir.Type], result: ir.Type) -> str:
        """An executable at the insertion point; returns its entry point."""
        return executable(name, self.function(inputs, result))

    def function(self, inputs: Sequence[ir.Type], result: ir.Type) -> KernelFunction:
        """The kernel as a function of an executable, of tensors of these types."""
        made = with_scratch(self.kernel, inputs, result, lambda r, b: _Block(self, r, b).run(), uses=False)
        tensors, body, results = made
        return function_of(self.kernel.m, tensors, self.launch, body, results=results)


class _Block:
    """One workgroup's work."""

    def __init__(self, gemv: Gemv, rows: e.Index, buffers: list[ir.Value]) -> None:
        self.gemv, self.kernel, self.rows = gemv, gemv.kernel, rows
        self.lhs, self.rhs, *operands = buffers
        self.place = Products(self.kernel).place(rows, [])
        self.epilogue = Epilogue(self.kernel, Nvidia(), 1)
        self.epilogue.bind(operands, self.place)
        self.wants_sums = uses_row_sums(self.kernel)
        self.thread = gpu.thread_id(WARP * _WARPS)
        self.lane, warp = e.remainder(self.thread, WARP), e.divide(self.thread, WARP)
        self.k_warp, n_warp = e.remainder(warp, gemv.k_warps), e.divide(warp, gemv.k_warps)
        self.first_warp = e.less(n_warp, 1)  # of those that read the same codes along K
        self.local = e.multiply(n_warp, gemv.columns)
        self.n0 = e.multiply(workgroup_id(), gemv.block_columns)
        columns = gemv.block_columns + int(self.wants_sums)
        self.parts = gpu.shared([gemv.parts, gemv.rows, columns], e.integer(32))

    def run(self) -> None:
        if self.kernel.group is None:
            self._whole()
        else:
            self._groups(self.kernel.group // self.gemv.chunk_codes)
        gpu.barrier()
        results = self.gemv.rows * self.gemv.block_columns
        threads = WARP * _WARPS
        for first in range(0, results, threads):
            number = e.add(self.thread, first)
            here = True if first + threads <= results else e.less(number, results)
            e.guarded(here, lambda number=number: self._finish(number))  # type: ignore[misc]

    # ---- sums along K

    def _whole(self) -> None:
        """All of K: lanes keep their sums to the end."""
        gemv = self.gemv
        rounds = -(-gemv.chunks // WARP)
        with e.loop(self.k_warp, rounds, gemv.k_warps, self._zeros()) as each:
            each.next = self._chunk(each.index, each.values)
        totals = [gpu.sum_across(value, WARP) for value in each.results]
        self._store(totals, self.k_warp, e.equal(self.lane, 0))

    def _groups(self, lanes: int) -> None:
        """Groups that so many neighbouring lanes share, apart."""
        gemv = self.gemv
        with e.loop(self.k_warp, -(-gemv.chunks // WARP), gemv.k_warps) as each:
            values = self._chunk(each.index, self._zeros())
            totals = [gpu.sum_across(value, lanes) for value in values]
            number = e.add(e.multiply(each.index, WARP), self.lane)
            first = e.equal(e.remainder(self.lane, lanes), 0)
            there = True if gemv.chunks % WARP == 0 else e.less(number, gemv.chunks)
            self._store(totals, e.divide(number, lanes), e.both(first, there))

    def _zeros(self) -> list[ir.Value]:
        """Sums of each column and row, and after them the sums of rows."""
        count = self.gemv.rows * (self.gemv.columns + int(self.wants_sums))
        return [e.constant(0, e.integer(32))] * count

    def _chunk(self, round_: e.Index, values: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums with one more chunk of each lane."""
        gemv, made = self.gemv, list(values)
        number = e.add(e.multiply(round_, WARP), self.lane)
        stored = number if gemv.chunks % WARP == 0 else e.minimum(number, gemv.chunks - 1)
        weights = [self._weight(c, stored) for c in range(gemv.columns)]
        ones = e.constant(_ONES, e.integer(32))
        for m in range(gemv.rows):
            for f in range(gemv.storage.fields):
                k = e.add(e.multiply(number, gemv.chunk_codes), f * CHUNK)
                for w, word in enumerate(self._codes(m, k)):
                    for c in range(gemv.columns):
                        at = c * gemv.rows + m
                        made[at] = gpu.dp4a(weights[c][w][f], word, made[at])
                    if self.wants_sums:
                        at = gemv.columns * gemv.rows + m
                        made[at] = gpu.dp4a(ones, word, made[at])
        return made

    def _weight(self, column: int, chunk: e.Index) -> list[list[ir.Value]]:
        """A chunk of a column's weights: for each stored word the words of its fields."""
        n = e.minimum(e.add(self.n0, e.add(self.local, column)), self.kernel.n - 1)
        where = [e.index(n), e.index(e.multiply(chunk, CHUNK))]
        return [self.gemv.storage.decode(word) for word in _words(self.rhs, where, CHUNK)]

    def _codes(self, m: int, k: e.Index) -> list[ir.Value]:
        """16 codes of a row from `k` on, as words; zeros behind its end."""
        size = next(size for size in (16, 4, 1) if self.kernel.k % size == 0)
        row = e.minimum(m, e.subtract(self.rows, 1))
        # Where LLVM can tell which of the parts every lane has, it reads 16 bytes in their place: more than the last
        # lane has. So it is not told where a row ends.
        end = self.kernel.k if self.gemv.chunks % WARP or size == CHUNK else gpu.hidden(self.kernel.k)
        words: list[ir.Value] = []
        for part in range(0, CHUNK, size):
            place = e.add(k, part)
            there = True if self.gemv.chunks % WARP == 0 and self._whole_k else e.less(place, end)
            where = [e.index(row), e.index(e.choose(there, place, 0))]
            if size == 1:
                words.append(self._known(memref.load(self.lhs, where), there, -128))
            else:
                words += [self._known(word, there, _FLIP) for word in _words(self.lhs, where, size)]
        if size == 1:
            i32 = e.integer(32)
            groups = (e.gathered(words[i : i + 4]) for i in range(0, CHUNK, 4))
            words = [e.lane(vector.bitcast(e.vector_of(1, i32), group), 0) for group in groups]
        return words

    @property
    def _whole_k(self) -> bool:
        return self.kernel.k == self.gemv.padded_k

    def _known(self, value: ir.Value, there: e.Condition, flip: int) -> ir.Value:
        if self.kernel.lhs.flipped:
            value = arith.xori(value, e.constant(flip, value.type))
        return value if there is True else arith.select(e.condition(there), value, e.constant(0, value.type))

    def _store(self, totals: Sequence[ir.Value], part: e.Index, wanted: e.Condition) -> None:
        """Each column's and row's sum to shared memory."""
        gemv = self.gemv

        def write(first: int, columns: int, local: e.Index) -> None:
            for c in range(columns):
                for m in range(gemv.rows):
                    where = [e.index(part), e.index(m), e.index(e.add(local, c))]
                    memref.store(totals[first + c * gemv.rows + m], self.parts, where)

        e.guarded(wanted, lambda: write(0, gemv.columns, self.local))
        if self.wants_sums:
            e.guarded(e.both(wanted, self.first_warp), lambda: write(gemv.columns * gemv.rows, 1, gemv.block_columns))

    # ---- results

    def _finish(self, number: e.Index) -> None:
        """The combination of groups, the stages, and the store of one result."""
        gemv, kernel = self.gemv, self.kernel
        part_m, local = e.divide(number, gemv.block_columns), e.remainder(number, gemv.block_columns)
        n = e.add(self.n0, local)
        m = part_m if isinstance(self.rows, int) else self.place.inside(part_m)
        safe = n if kernel.n % gemv.block_columns == 0 else e.minimum(n, kernel.n - 1)

        def at(part: e.Index, column: e.Index) -> ir.Value:
            return memref.load(self.parts, [e.index(part), e.index(part_m), e.index(column)])

        if kernel.combine is None:
            first = self._total([at(p, local) for p in range(gemv.parts)])
            sums = self._total([at(p, gemv.block_columns) for p in range(gemv.parts)]) if self.wants_sums else None
            value = e.gathered([self._shifted(first)])
        else:
            with e.loop(0, kernel.groups, 1, [self.epilogue.start()]) as group, self.epilogue.scope():
                part = e.gathered([self._shifted(at(group.index, local))])
                row_sum = at(group.index, gemv.block_columns) if self.wants_sums else None
                total = self.epilogue.combine(group.values[0], part, row_sum, group.index, m, safe)
                group.next = [total]
            value, sums = group.results[0], None
        value = self.epilogue.finish(value, sums, m, safe)
        self.epilogue.write(value, Where(part_m, n, m, safe))

    def _total(self, parts: Sequence[ir.Value]) -> ir.Value:
        total = parts[0]
        for part in parts[1:]:
            total = arith.addi(total, part)
        return total

    def _shifted(self, total: ir.Value) -> ir.Value:
        shift = self.gemv.storage.shift
        return arith.shrsi(total, e.constant(shift, e.integer(32))) if shift else total


def _words(source: ir.Value, where: Sequence[ir.Value], size: int) -> list[ir.Value]:
    """`size` bytes of memory as 32-bit words."""
    words = vector.bitcast(e.vector_of(size // 4, e.integer(32)), e.load_run(source, where, size))
    return e.elements(words)
