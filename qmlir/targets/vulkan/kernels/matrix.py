"""Products on cooperative matrices (`VK_KHR_cooperative_matrix`), of i8 or of f16 by decoded weights.

Which lane holds what of a cooperative matrix is the driver's secret, so both sides go through shared memory, weights as
bytes taken apart from short codes or as the f16 that these stand for, and sums go back through it: a lane then has
neighbouring columns of rows that it knows, and the epilogue is that of the other kernels. A subgroup makes 32 x 32
outputs, a workgroup 64 x 64.

    for each step of K:    load the next step to registers
                           multiply what is in shared memory
                           barrier, write the next step, barrier
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core.mlir import arith, ir, vector
from ....kernels.description import Kernel
from ....kernels.row_sums import uses_row_sums
from ...gpu import Mma
from ...gpu_kernels import emit as e
from ...gpu_kernels.activations import Rows, WindowRows, rows_of
from ...gpu_kernels.batch import Place, Products
from ...gpu_kernels.epilogue import Epilogue, as_i8
from ...gpu_kernels.executable import Function, Launch, View, executable
from ...gpu_kernels.weights import COLUMNS, Codes
from .machine import Spirv

WAVE = 32  # rows and columns of a subgroup
_ACROSS = 2  # subgroups of a workgroup, along rows and along columns
TILE = WAVE * _ACROSS
_LOAD = 16  # bytes of one load
_ONES = 0x01010101


@dataclass(frozen=True)
class CooperativeKernel:
    """A kernel, how its weight is stored, and `depth` elements along K of a step, a multiple of a piece and of a
    `matrix`."""

    kernel: Kernel
    weights: Codes
    depth: int
    matrix: Mma
    machine: Spirv

    @property
    def fragments(self) -> tuple[int, int]:
        """Cooperative matrices of a subgroup, along rows and along columns."""
        return WAVE // self.matrix.m, WAVE // self.matrix.n

    @property
    def width(self) -> int:
        """Bytes of what is multiplied: codes, or f16."""
        return 1 if self.kernel.rhs.decode is None else 2

    @property
    def load(self) -> int:
        """Elements of one load."""
        return _LOAD // self.width

    @property
    def threads(self) -> int:
        return _ACROSS * _ACROSS * self.machine.subgroup

    @property
    def steps(self) -> int:
        return -(-self.kernel.k // self.depth)

    @property
    def unit(self) -> int:
        """Words of an element of shared memory: cooperative matrices start at whole ones."""
        return min(_LOAD, self.matrix.k * self.width) // 4

    @property
    def stride(self) -> int:
        """Of a row in shared memory; 16 bytes more keep rows off each other's banks."""
        return (self.depth * self.width + _LOAD) // (4 * self.unit)

    @property
    def summing(self) -> bool:
        """Whether rows of activations are added up beside the product."""
        return self.kernel.rhs.decode is None and (self.weights.offset != 0 or uses_row_sums(self.kernel))

    @property
    def shared_bytes(self) -> int:
        """Of both sides, the sums, and the sums of rows (see `_Threads`)."""
        sides = 2 * TILE * self.stride * 4 * self.unit
        sums = TILE * (TILE // COLUMNS + 1) * 4 * COLUMNS
        return sides + sums + (TILE * (self.depth // self.load) * 4 if self.summing else 0)

    @property
    def pieces(self) -> int:
        """Of the packed weight along K."""
        return -(-self.kernel.k // self.weights.depth)

    def emit(self, name: str, inputs: Any, result: Any) -> str:
        """The executable; see `outline`."""
        return executable(name, self.function)

    @property
    def function(self) -> Function:
        """The kernel as a function of an executable."""
        columns = -(-self.kernel.n // TILE)
        products = Products(self.kernel)
        launch = Launch(self.threads, self.machine.subgroup, lambda size: products.grid(size, columns, TILE))
        epilogue = Epilogue(self.kernel, self.machine, COLUMNS, decodes_columns=True)
        activations = rows_of(self.kernel, self.load, self.steps * self.depth)
        words, i32 = self.weights.words, e.integer(32)
        matrices = () if self.kernel.batch is None else (self.kernel.batch.matrices,)
        weight = View(
            (*matrices, self.pieces, -(-self.kernel.n // COLUMNS) * COLUMNS),
            i32 if words == 1 else e.vector_of(words, i32),
        )
        picks = products.views

        def body(size: e.Index, memory: list[Any]) -> None:
            place = products.place(size, memory[2 : 2 + len(picks)], e.multiply(e.block(1), TILE))
            epilogue.bind(memory[2 + len(picks) :], place)
            threads = _Threads(self, epilogue, activations, memory[0], memory[1], place)
            with e.when(place.used):
                threads.run()

        views = [activations.view, weight, *picks, *epilogue.views]
        return Function(products.size, views, launch, body, products.tokens)


@dataclass(frozen=True)
class _Fetched:
    """What a thread copies of a step: words of activations, stored words of weights, and what decodes each of these."""

    activations: list[list[Any]]
    weights: list[list[Any]]
    scales: list[dict[Any, Any]]


class _Threads:
    """What one thread does."""

    def __init__(
        self,
        plan: CooperativeKernel,
        epilogue: Epilogue,
        activations: Rows | WindowRows,
        lhs: Any,
        rhs: Any,
        place: Place,
    ) -> None:
        self.plan, self.kernel, self.epilogue, self.activations = plan, plan.kernel, epilogue, activations
        self.lhs, self.rhs, self.place = lhs, rhs, place
        self.i32 = e.integer(32)
        self.thread = e.thread()
        wave = e.divide(self.thread, plan.machine.subgroup)
        self.lane = e.remainder(self.thread, plan.machine.subgroup)
        self.wave_row = e.multiply(e.divide(wave, _ACROSS), WAVE)  # in the workgroup's tile
        self.wave_column = e.multiply(e.remainder(wave, _ACROSS), WAVE)
        self.first_row, self.first_column = e.multiply(e.block(1), TILE), e.multiply(e.block(0), TILE)
        self.decodes, self.summing = self.kernel.rhs.decode is not None, plan.summing
        unit, acc = e.vector_of(plan.unit, self.i32), self.kernel.acc_type
        self.shared_lhs = e.shared((TILE, plan.stride), unit)
        self.shared_rhs = e.shared((TILE, plan.stride), unit)
        self.shared_sums = e.shared((TILE, TILE // COLUMNS + 1), e.vector_of(COLUMNS, acc))
        self.total = ir.Type.parse(f'!gpu.mma_matrix<{plan.matrix.m}x{plan.matrix.n}x{acc}, "COp">')
        self.down, self.across = plan.fragments
        if self.summing:
            self.row_parts = e.shared((TILE, plan.depth // plan.load), self.i32)

    def run(self) -> None:
        self.tokens = [self._token(i) for i in range(self._lhs_copies)]
        self._store(self._fetch(0))
        e.barrier()
        if self.kernel.combine is None:
            with e.loop(0, self.plan.steps, 1, self._zeros()) as step:
                step.next = self._advance(step.index, step.values)
            values, sums = self._apart(step.results)
        else:
            values = self._groups()
            sums = [None] * len(values)
        for i, (value, sum_) in enumerate(zip(values, sums, strict=True)):
            row, column = self._place(i)
            safe = self.place.inside(row)
            result = self.epilogue.finish(value, sum_, safe, self._readable(column))
            self.epilogue.write(result, row, column)

    def _groups(self) -> list[Any]:
        """Sums over groups along K, in ascending order."""
        per = self.plan.steps // self.kernel.groups
        with e.loop(0, self.kernel.groups, 1, [self.epilogue.start() for _ in range(self._vectors)]) as outer:
            with e.loop(0, per, 1, self._zeros()) as inner:
                inner.next = self._advance(e.add(e.multiply(outer.index, per), inner.index), inner.values)
            parts, sums = self._apart(inner.results)
            totals = []
            with self.epilogue.scope():
                for i, (total, part, sum_) in enumerate(zip(outer.values, parts, sums, strict=True)):
                    row, column = self._place(i)
                    safe = self.place.inside(row)
                    totals.append(self.epilogue.combine(total, part, sum_, outer.index, safe, self._readable(column)))
            outer.next = totals
        return list(outer.results)

    # ---- the main loop

    def _zeros(self) -> list[Any]:
        """Of each fragment, row by row, and of the thread's share of the sums of rows."""
        zero = _create("gpu.subgroup_mma_constant_matrix", self.total, [e.zero(self.kernel.acc_type)])
        return [*[zero] * (self.down * self.across), *[e.word(0)] * (self._lhs_copies if self.summing else 0)]

    def _advance(self, step: e.Index, values: list[Any]) -> list[Any]:
        """The sums after the step that is in shared memory, where the next one is then."""
        count = self.down * self.across
        totals, shares = values[:count], values[count:]
        fetched = self._fetch(e.minimum(e.add(step, 1), self.plan.steps - 1))
        if self.summing:
            shares = [self._with_row_sum(i, share) for i, share in enumerate(shares)]
        for k in range(self.plan.depth // self.plan.matrix.k):
            left = [self._load("AOp", self.shared_lhs, self.wave_row, i, k) for i in range(self.down)]
            right = [self._load("BOp", self.shared_rhs, self.wave_column, i, k) for i in range(self.across)]
            totals = [
                _create("gpu.subgroup_mma_compute", self.total, [left[i // self.across], right[i % self.across], t])
                for i, t in enumerate(totals)
            ]
        e.barrier()
        self._store(fetched)
        e.barrier()
        return [*totals, *shares]

    def _load(self, kind: str, memory: Any, first: Any, number: int, k: int) -> Any:
        """A cooperative matrix; the right side lies as `[N, K]`."""
        attributes = {"leadDimension": ir.IntegerAttr.get(ir.IndexType.get(), self.plan.stride)}
        if kind == "BOp":
            attributes["transpose"] = ir.UnitAttr.get()
        matrix, unit = self.plan.matrix, 4 * self.plan.unit
        rows, columns = (matrix.m, matrix.k) if kind == "AOp" else (matrix.k, matrix.n)
        height = matrix.m if kind == "AOp" else matrix.n
        where = [e.index(e.add(first, number * height)), e.index(k * matrix.k * self.plan.width // unit)]
        t = ir.Type.parse(f'!gpu.mma_matrix<{rows}x{columns}x{"f16" if self.decodes else "si8"}, "{kind}">')
        return _create("gpu.subgroup_mma_load_matrix", t, [memory, *where], **attributes)

    # ---- to shared memory

    def _copy(self, number: int, count: int, per_row: int) -> tuple[Any, Any, Any]:
        """Of a thread's copy: its row, its place in the row, and whether it is one."""
        at = e.add(self.thread, number * self.plan.threads)
        ours = True if count % self.plan.threads == 0 else e.less(at, count)
        if per_row == self._per_row[0] and self._planes:
            return e.remainder(at, TILE), e.divide(at, TILE), ours
        row = e.divide(at, per_row)
        return (row if ours is True else e.minimum(row, TILE - 1)), e.remainder(at, per_row), ours

    @property
    def _planes(self) -> bool:
        """Whether neighbours in memory are those of neighbouring rows: threads then copy these."""
        return self.kernel.lhs.window is not None and self.kernel.lhs.window.planes

    @property
    def _per_row(self) -> tuple[int, int]:
        """Copies of a row of activations, and of a column of weights."""
        return self.plan.depth // self.plan.load, self.plan.depth // self.plan.weights.depth

    @property
    def _lhs_copies(self) -> int:
        return -(-TILE * self._per_row[0] // self.plan.threads)

    @property
    def _rhs_copies(self) -> int:
        return -(-TILE * self._per_row[1] // self.plan.threads)

    def _fetch(self, step: e.Index) -> _Fetched:
        """What this thread copies of a step."""
        lhs_per, rhs_per = self._per_row
        left, right, held = [], [], []
        for i, token in enumerate(self.tokens):
            _, at, _ = self._copy(i, TILE * lhs_per, lhs_per)
            left.append(self.activations.load(self.lhs, token, e.add(e.multiply(step, lhs_per), at)))
        last = -(-self.kernel.n // COLUMNS) * COLUMNS - 1
        for i in range(self._rhs_copies):
            column, at, _ = self._copy(i, TILE * rhs_per, rhs_per)
            piece = e.add(e.multiply(step, rhs_per), at)
            if self.plan.pieces % rhs_per:  # behind the last piece the activations are zeros
                piece = e.minimum(piece, self.plan.pieces - 1)
            safe = e.minimum(e.add(self.first_column, column), last)
            right.append(e.elements(e.load(self.rhs, self.place.of_matrix(piece, safe))))
            if self.decodes:
                group = 0 if self.kernel.group is None else e.divide(step, self.kernel.group // self.plan.depth)
                held.append(self.epilogue.column_operands(group, e.minimum(safe, self.kernel.n - 1)))
        return _Fetched(left, right, held)

    def _token(self, number: int) -> e.Index:
        """The row of the activation that a copy of this thread is of."""
        row, _, _ = self._copy(number, TILE * self._per_row[0], self._per_row[0])
        return self.place.token(self.place.inside(e.add(self.first_row, row)))

    def _store(self, fetched: _Fetched) -> None:
        lhs_per, rhs_per = self._per_row
        for i, words in enumerate(fetched.activations):
            row, at, ours = self._copy(i, TILE * lhs_per, lhs_per)
            with e.when(ours):
                self._write(words, self.shared_lhs, row, at)
        for i, stored in enumerate(fetched.weights):
            row, at, ours = self._copy(i, TILE * rhs_per, rhs_per)
            if self.decodes:
                words = self._numbers(stored, fetched.scales[i])
            else:
                words = [byte for word in stored for byte in self.plan.weights.bytes_of(word)]
            with e.when(ours):
                self._write(words, self.shared_rhs, row, at)

    def _write(self, words: list[Any], memory: Any, row: e.Index, piece: e.Index) -> None:
        """Write the words of a piece to a row."""
        unit = self.plan.unit
        for i in range(0, len(words), unit):
            where = e.add(e.multiply(piece, len(words) // unit), i // unit)
            e.store(e.gathered(words[i : i + unit]), memory, [row, where])

    def _numbers(self, stored: list[Any], held: dict[Any, Any]) -> list[Any]:
        """Words of f16, from stored codes of one column. Four at a time: longer vectors SPIR-V has not."""
        form, found = self.plan.weights, []
        for word in stored:
            for field in range(form.fields):
                lefts = [32 - form.bits - (8 * lane + form.bits * field) for lane in range(4)]
                codes = arith.shrsi(
                    arith.shli(e.broadcast(word, 4), e.gathered([e.word(left) for left in lefts])),
                    e.broadcast(e.word(32 - form.bits), 4),
                )
                if form.offset:
                    codes = arith.addi(codes, e.broadcast(e.word(form.offset), 4))
                numbers = self.epilogue.decode_column(as_i8(codes, 4), held)
                found += e.elements(vector.bitcast(e.vector_of(2, self.i32), numbers))
        return found

    def _with_row_sum(self, number: int, share: Any) -> Any:
        """The sum of the codes that this thread has copied, with those in shared memory now."""
        row, at, _ = self._copy(number, TILE * self._per_row[0], self._per_row[0])
        units = _LOAD // (4 * self.plan.unit)
        for i in range(units):
            for word in e.elements(e.load(self.shared_lhs, [row, e.add(e.multiply(at, units), i)])):
                share = self.plan.machine.dot(word, e.word(_ONES), share)
        return share

    # ---- sums

    @property
    def _vectors(self) -> int:
        """Of four columns, of a thread."""
        return WAVE * WAVE // COLUMNS // self.plan.machine.subgroup

    def _inside(self, number: int) -> tuple[Any, Any]:
        """Row and first column of a thread's vector in its subgroup's tile."""
        at = e.add(self.lane, number * self.plan.machine.subgroup)
        if self.kernel.planes:  # of which neighbouring rows are neighbours
            return e.remainder(at, WAVE), e.divide(at, WAVE)
        return e.divide(at, WAVE // COLUMNS), e.remainder(at, WAVE // COLUMNS)

    def _place(self, number: int) -> tuple[Any, Any]:
        row, at = self._inside(number)
        column = e.add(e.add(self.first_column, self.wave_column), e.multiply(at, COLUMNS))
        return e.add(e.add(self.first_row, self.wave_row), row), column

    def _readable(self, column: Any) -> Any:
        return e.minimum(column, (self.kernel.n - 1) // COLUMNS * COLUMNS)

    def _apart(self, values: list[Any]) -> tuple[list[Any], list[Any]]:
        """Fragments as vectors of columns of rows, and the sums of those rows."""
        count, matrix = self.down * self.across, self.plan.matrix
        fragments, shares = values[:count], values[count:]
        stride = ir.IntegerAttr.get(ir.IndexType.get(), TILE // COLUMNS + 1)
        for i, fragment in enumerate(fragments):
            row = e.add(self.wave_row, i // self.across * matrix.m)
            column = e.divide(e.add(self.wave_column, i % self.across * matrix.n), COLUMNS)
            _create("gpu.subgroup_mma_store_matrix", None, [fragment, self.shared_sums, e.index(row), e.index(column)],
                    leadDimension=stride)  # fmt: skip
        per = self._per_row[0]
        for i, share in enumerate(shares):
            row, at, ours = self._copy(i, TILE * per, per)
            with e.when(ours):
                e.store(share, self.row_parts, [row, at])
        e.barrier()
        found, sums = [], []
        form = self.plan.weights
        for i in range(self._vectors):
            row, at = self._inside(i)
            row = e.add(self.wave_row, row)
            value = e.load(self.shared_sums, [row, e.add(e.divide(self.wave_column, COLUMNS), at)])
            sum_ = self._row_sum(row) if self.summing else None
            if form.shift and not self.decodes:
                value = arith.shrsi(value, e.broadcast(e.word(form.shift), COLUMNS))
            if form.offset and not self.decodes:
                value = arith.addi(value, e.broadcast(arith.muli(sum_, e.word(form.offset)), COLUMNS))
            found.append(value)
            sums.append(sum_)
        e.barrier()
        return found, sums

    def _row_sum(self, row: Any) -> Any:
        total = e.word(0)
        for at in range(self._per_row[0]):
            total = arith.addi(total, e.load(self.row_parts, [row, at]))
        return total


def _create(name: str, result: Any, operands: list[Any], **attributes: Any) -> Any:
    """An operation without a class of its own in the bindings."""
    results = [] if result is None else [result]
    made = ir.Operation.create(name, results=results, operands=operands, attributes=attributes)
    return made.results[0] if results else None
