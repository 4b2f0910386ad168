"""Products of a few rows, bound by the memory that the weight is read from.

The lanes of a warp share the codes along K of a few columns: each reads 16 bytes of every column's weights at once,
multiplies them by the same codes of each row (`dp4a`), and the lanes' sums are added by shuffles. Warps of a workgroup
take other columns, or other parts of K where there are few columns. Sums of groups meet in shared memory, where one
thread a result combines them in order and runs the stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from ....core.mlir import arith, ir, memref, vector
from ....kernels.description import Kernel
from ....kernels.row_sums import uses_row_sums
from ...base import Target
from ...cost import Figures, Work
from ...gpu_kernels import emit as e
from ...gpu_kernels.batch import Products
from ...gpu_kernels.epilogue import Epilogue
from ...gpu_kernels.executable import KernelFunction, Launch, View
from ...gpu_kernels.loop import Run, TileLoop, Where, across
from ...gpu_kernels.weights import CHUNK
from ...strategy import Facts
from . import instructions as gpu
from .machine import Nvidia
from .product import RowsOfWeight, moved

WARP, _WARPS = 32, 4  # threads, warps of a workgroup
_ONES = 0x01010101
_FLIP = -0x7F7F7F80  # 0x80808080: turns the top bit of four codes
MOST_ROWS = 8
_TOGETHER = 32  # groups, whose scales are read at once: each read takes as long as memory does


@dataclass(frozen=True)
class Gemv(RowsOfWeight):
    """An integer kernel for a few rows, whose weight is stored in rows of whole chunks.

    Attributes:
        columns: of a warp.
        k_warps: of a workgroup that share columns.
        dynamic_rows: how many a product with a dynamic number of them has at most.
    """

    columns: int
    k_warps: int
    dynamic_rows: int = MOST_ROWS

    @property
    def name(self) -> str:
        return f"{self.columns}x{self.k_warps}x{self.most_rows}"

    @property
    def threads(self) -> int:
        return WARP * _WARPS

    @property
    def shape(self) -> tuple[int, int]:
        return self.most_rows, self.block_columns

    @property
    def facts(self) -> Facts:
        return {
            "codegen": "dp4a, K shared by lanes", "columns": self.block_columns, "k_warps": self.k_warps,
            "weight_bits": self.storage.bits,
        }  # fmt: skip

    def work(self, target: Target, f: Figures) -> Work:
        fields, columns, rows = self.storage.fields, self.columns, self.most_rows
        each = -(-self.blocks // f.units)
        room = target.capabilities.shared_memory // self.shared_bytes
        together = max(1, min(each, room, 1024 // self.threads))
        busy = {
            "multiply": f.dots(self.threads * columns * (CHUNK // 4) * fields * rows),
            "cache": f.cache(self.threads * columns * CHUNK),
            "activations": f.shared(self.threads * CHUNK * fields * rows),  # in the L1 cache
            "latency": f.latency / together,
        }
        steps = -(-self.chunks // (WARP * self.k_warps))
        memory = moved(self.kernel, f.rows(self.kernel.m, self.most_rows), self.padded_k, fields)
        return Work(each, steps, busy, once=f.latency, memory=memory)

    @property
    def most_rows(self) -> int:
        """That are computed, of which the last ones may not be there."""
        return self.dynamic_rows if self.kernel.m is None else self.kernel.m

    @property
    def chunks(self) -> int:
        return -(-self.kernel.k // self.storage.depth)

    @property
    def padded_k(self) -> int:
        return self.chunks * self.storage.depth

    @property
    def block_columns(self) -> int:
        return self.columns * (_WARPS // self.k_warps)

    @property
    def parts(self) -> int:
        """Sums along K that one result is made of: of groups, or of warps."""
        return self.k_warps if self.kernel.combine is None else self.kernel.groups

    @property
    def shared_bytes(self) -> int:
        """Of the parts, and of the rows' sums behind them."""
        return 4 * self.parts * self.most_rows * (self.block_columns + int(uses_row_sums(self.kernel)))

    @property
    def blocks(self) -> int:
        return -(-self.kernel.n // self.block_columns)

    def of(self, kernel: Kernel) -> Gemv:
        return replace(self, kernel=kernel, dynamic_rows=self.most_rows)

    def alone(self, inputs: Sequence[ir.Type], result: ir.Type) -> KernelFunction:
        def grid(rows: e.Index) -> tuple[e.Index, e.Index, e.Index]:
            # No row, no workgroup: the kernel reads the last row where one is not there.
            return e.multiply(self.blocks, e.divide_up(rows, self.most_rows)), 1, 1

        launch = Launch(self.threads, self.machine, grid)
        views = [View.of(tensor) for tensor in (*inputs, result)]
        return KernelFunction(self.kernel.m, views, launch, lambda rows, buffers: _Block(self, rows, buffers).run())


class _Block(TileLoop):
    """One workgroup's work. A step is a chunk of each lane; warps that share columns take steps in turn."""

    def __init__(self, gemv: Gemv, rows: e.Index, buffers: list[ir.Value]) -> None:
        kernel = gemv.kernel
        self.lhs, self.rhs, *operands = buffers
        place, epilogue = Products(kernel).place(rows, []), Epilogue(kernel, Nvidia(), 1)
        epilogue.bind(operands, place)
        super().__init__(kernel, Nvidia(), place, epilogue, -(-gemv.chunks // WARP))
        self.gemv, self.per_round = gemv, 1
        self.wants_sums = uses_row_sums(kernel)
        self.thread = gpu.thread_id(WARP * _WARPS)
        self.lane, warp = e.remainder(self.thread, WARP), e.divide(self.thread, WARP)
        self.worker, self.workers = e.remainder(warp, gemv.k_warps), gemv.k_warps
        n_warp = e.divide(warp, gemv.k_warps)
        self.first_warp = e.less(n_warp, 1)  # of those that read the same codes along K
        self.local = e.multiply(n_warp, gemv.columns)
        self.n0 = e.multiply(gpu.workgroup_id(), gemv.block_columns)
        columns = gemv.block_columns + int(self.wants_sums)
        self.parts = gpu.shared([gemv.parts, gemv.most_rows, columns], e.integer(32))

    @property
    def keeps(self) -> e.Condition:
        """Each thread finishes other results."""
        return True

    # ---- sums along K

    def zeros(self) -> list[ir.Value]:
        """Sums of each column and row, and after them the sums of rows."""
        return [e.word(0)] * (self.gemv.most_rows * (self.gemv.columns + int(self.wants_sums)))

    def step(
        self, step: e.Index, totals: list[ir.Value], held: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        gemv, made = self.gemv, list(totals)
        number = e.add(e.multiply(step, WARP), self.lane)
        stored = number if gemv.chunks % WARP == 0 else e.minimum(number, gemv.chunks - 1)
        weights = [self._weight(c, stored) for c in range(gemv.columns)]
        for m in range(gemv.most_rows):
            for f in range(gemv.storage.fields):
                k = e.add(e.multiply(number, gemv.storage.depth), f * CHUNK)
                for w, word in enumerate(self._codes(m, k)):
                    for c in range(gemv.columns):
                        at = c * gemv.most_rows + m
                        made[at] = gpu.dp4a(weights[c][w][f], word, made[at])
                    if self.wants_sums:
                        at = gemv.columns * gemv.most_rows + m
                        made[at] = gpu.dp4a(e.word(_ONES), word, made[at])
        return made, held

    def added(self, totals: list[ir.Value]) -> list[ir.Value]:
        """Nothing in registers: each warp's sums are in shared memory."""
        self._share(across(totals, WARP, WARP), self.worker, e.equal(self.lane, 0))
        return []

    def groups(self, first: e.Index, last: e.Index, held: list[ir.Value]) -> list[ir.Value]:
        """The same of groups, each of which neighbouring lanes share."""
        gemv = self.gemv
        lanes = (self.kernel.group or 1) // gemv.storage.depth
        with e.loop(self.worker, last, self.workers) as each:
            values, _ = self.step(each.index, self.zeros(), [])
            number = e.add(e.multiply(each.index, WARP), self.lane)
            there = True if gemv.chunks % WARP == 0 else e.less(number, gemv.chunks)
            wanted = e.both(e.equal(e.remainder(self.lane, lanes), 0), there)
            self._share(across(values, lanes, WARP), e.divide(number, lanes), wanted)
        return []

    def _weight(self, column: int, chunk: e.Index) -> list[list[ir.Value]]:
        """A chunk of a column's weights: for each stored word the words of its fields."""
        n = e.minimum(e.add(self.n0, e.add(self.local, column)), self.kernel.n - 1)
        where = [e.index(n), e.index(e.multiply(chunk, CHUNK))]
        return [self.gemv.storage.bytes_of(word) for word in _words(self.rhs, where, CHUNK)]

    def _codes(self, m: int, k: e.Index) -> list[ir.Value]:
        """16 codes of a row from `k` on, as words; zeros behind its end."""
        size = next(size for size in (16, 4, 1) if self.kernel.k % size == 0)
        row = self.place.inside(m)
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

    def _share(self, totals: Sequence[ir.Value], part: e.Index, wanted: e.Condition) -> None:
        """Each column's and row's sum to shared memory."""
        gemv = self.gemv

        def write(first: int, columns: int, local: e.Index) -> None:
            for c in range(columns):
                for m in range(gemv.most_rows):
                    where = [e.index(part), e.index(m), e.index(e.add(local, c))]
                    memref.store(totals[first + c * gemv.most_rows + m], self.parts, where)

        e.guarded(wanted, lambda: write(0, gemv.columns, self.local))
        if self.wants_sums:
            e.guarded(
                e.both(wanted, self.first_warp), lambda: write(gemv.columns * gemv.most_rows, 1, gemv.block_columns)
            )

    # ---- results

    @property
    def run_count(self) -> int:
        return -(-self.gemv.most_rows * self.gemv.block_columns // (WARP * _WARPS))

    def where(self, number: int) -> Where:
        """Of a result of this thread. Neighbouring threads have neighbouring columns."""
        gemv, n = self.gemv, self.kernel.n
        at = e.add(self.thread, number * WARP * _WARPS)
        row, column = e.divide(at, gemv.block_columns), e.add(self.n0, e.remainder(at, gemv.block_columns))
        safe_row = row if isinstance(self.place.rows, int) else self.place.inside(row)
        return Where(row, column, safe_row, column if n % gemv.block_columns == 0 else e.minimum(column, n - 1))

    def finish(self, state: Sequence[ir.Value]) -> None:
        """One result of a thread after the other: what its parts in shared memory are together."""
        gpu.barrier()
        results, threads = self.gemv.most_rows * self.gemv.block_columns, WARP * _WARPS
        for i in range(self.run_count):
            number = e.add(self.thread, i * threads)
            with e.when(True if (i + 1) * threads <= results else e.less(number, results)):
                at = self.where(i)
                run = self._total(at, e.remainder(number, self.gemv.block_columns))
                self._stored(run, at)

    def runs(self, totals: list[ir.Value]) -> list[Run]:
        """Of one result: its sum, and that of its row."""
        return self.of_bytes([e.gathered(totals[:1])], totals[1:] or [None], self.gemv.storage.shift)

    def _total(self, at: Where, local: e.Index) -> Run:
        """Of a result in column `local` of the workgroup: parts added up, or combined in the order of groups."""
        columns = [local, *([self.gemv.block_columns] if self.wants_sums else [])]

        def part(number: e.Index) -> list[ir.Value]:
            return [e.load(self.parts, [number, at.row, column]) for column in columns]

        if self.kernel.combine is None:
            parts = [part(p) for p in range(self.gemv.parts)]
            return self.runs([reduce(arith.addi, values) for values in zip(*parts, strict=True)])[0]
        total, groups = self.epilogue.start(), self.kernel.groups
        rest = groups % _TOGETHER

        def combined(total: ir.Value, first: e.Index, count: int) -> ir.Value:
            with self.epilogue.scope():
                for number in (e.add(first, i) for i in range(count)):
                    run = self.runs(part(number))[0]
                    total = self.epilogue.combine(total, run.value, run.row_sum, number, at.safe_row, at.safe_column)
            return total

        if groups > rest:
            with e.loop(0, groups - rest, _TOGETHER, [total]) as group:
                group.next = [combined(group.values[0], group.index, _TOGETHER)]
            total = group.results[0]
        return Run(combined(total, groups - rest, rest))


def _words(source: ir.Value, where: Sequence[ir.Value], size: int) -> list[ir.Value]:
    """`size` bytes of memory as 32-bit words."""
    words = vector.bitcast(e.vector_of(size // 4, e.integer(32)), e.load_run(source, where, size))
    return e.elements(words)
