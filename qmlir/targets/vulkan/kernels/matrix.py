"""Products on cooperative matrices of i8 (`VK_KHR_cooperative_matrix`).

Which lane holds what of a cooperative matrix is the driver's secret, so both sides go through shared memory, weights as
bytes taken apart from short codes, and sums go back through it: a lane then has neighbouring columns of rows that it
knows, and the epilogue is that of the other kernels. A subgroup makes 32 x 32 outputs, a workgroup 64 x 64.

    for each step of K:    load the next step to registers
                           multiply what is in shared memory
                           barrier, write the next step, barrier
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...._mlir import arith, ir
from ....kernels.description import Kernel
from ....kernels.row_sums import uses_row_sums
from ...gpu_kernels import emit as e
from ...gpu_kernels.activations import Rows, WindowRows, rows_of
from ...gpu_kernels.batch import Place, Products
from ...gpu_kernels.epilogue import Epilogue
from ...gpu_kernels.executable import Launch, View, executable
from ...gpu_kernels.weights import COLUMNS, Codes
from .machine import Spirv

FRAGMENT = 16  # rows, columns and K of a cooperative matrix
_ACROSS = 2  # fragments of a subgroup, and subgroups of a workgroup, along rows and along columns
_WAVE = FRAGMENT * _ACROSS
TILE = _WAVE * _ACROSS
_LOAD = 16  # codes of one load
_ONES = 0x01010101


@dataclass(frozen=True)
class CooperativeKernel:
    """A kernel, how its weight is stored, and `depth` codes along K of a step, a multiple of 16 and of a piece."""

    kernel: Kernel
    weights: Codes
    depth: int
    machine: Spirv

    @property
    def threads(self) -> int:
        return _ACROSS * _ACROSS * self.machine.subgroup

    @property
    def steps(self) -> int:
        return -(-self.kernel.k // self.depth)

    @property
    def stride(self) -> int:
        """Of a row of codes in shared memory, in 16 bytes; one more keeps rows off each other's banks."""
        return self.depth // _LOAD + 1

    @property
    def pieces(self) -> int:
        """Of the packed weight along K."""
        return -(-self.kernel.k // self.weights.depth)

    def emit(self, name: str, inputs: Any, result: Any) -> str:
        """The executable; see `outline`."""
        columns = -(-self.kernel.n // TILE)
        products = Products(self.kernel)
        launch = Launch(self.threads, self.machine.subgroup, lambda size: products.grid(size, columns, TILE))
        epilogue = Epilogue(self.kernel, self.machine, COLUMNS)
        activations = rows_of(self.kernel, _LOAD, self.steps * self.depth)
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
        return executable(name, products.size, views, launch, body, products.tokens)


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
        self.wave_row = e.multiply(e.divide(wave, _ACROSS), _WAVE)  # in the workgroup's tile
        self.wave_column = e.multiply(e.remainder(wave, _ACROSS), _WAVE)
        self.first_row, self.first_column = e.multiply(e.block(1), TILE), e.multiply(e.block(0), TILE)
        self.summing = plan.weights.offset != 0 or uses_row_sums(self.kernel)
        four = e.vector_of(4, self.i32)
        self.shared_lhs = e.shared((TILE, plan.stride), four)
        self.shared_rhs = e.shared((TILE, plan.stride), four)
        self.shared_sums = e.shared((TILE, TILE // COLUMNS + 1), four)
        self.total = ir.Type.parse(f'!gpu.mma_matrix<{FRAGMENT}x{FRAGMENT}xi32, "COp">')
        if self.summing:
            self.row_parts = e.shared((TILE, plan.depth // _LOAD), self.i32)

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
        zero = e.word(0)
        fragments = [
            ir.Operation.create("gpu.subgroup_mma_constant_matrix", results=[self.total], operands=[zero]).results[0]
            for _ in range(_ACROSS * _ACROSS)
        ]
        return [*fragments, *[zero] * (self._lhs_copies if self.summing else 0)]

    def _advance(self, step: e.Index, values: list[Any]) -> list[Any]:
        """The sums after the step that is in shared memory, where the next one is then."""
        totals, shares = values[: _ACROSS * _ACROSS], values[_ACROSS * _ACROSS :]
        fetched = self._fetch(e.minimum(e.add(step, 1), self.plan.steps - 1))
        if self.summing:
            shares = [self._with_row_sum(i, share) for i, share in enumerate(shares)]
        for k in range(self.plan.depth // FRAGMENT):
            left = [self._load("AOp", self.shared_lhs, self.wave_row, i, k) for i in range(_ACROSS)]
            right = [self._load("BOp", self.shared_rhs, self.wave_column, i, k) for i in range(_ACROSS)]
            totals = [
                ir.Operation.create(
                    "gpu.subgroup_mma_compute",
                    results=[self.total],
                    operands=[left[i // _ACROSS], right[i % _ACROSS], t],
                ).results[0]
                for i, t in enumerate(totals)
            ]
        e.barrier()
        self._store(fetched)
        e.barrier()
        return [*totals, *shares]

    def _load(self, kind: str, memory: Any, first: Any, number: int, k: int) -> Any:
        """A cooperative matrix of codes; the right side lies as `[N, K]`."""
        attributes = {"leadDimension": ir.IntegerAttr.get(ir.IndexType.get(), self.plan.stride)}
        if kind == "BOp":
            attributes["transpose"] = ir.UnitAttr.get()
        where = [e.index(e.add(first, number * FRAGMENT)), e.index(k)]
        t = ir.Type.parse(f'!gpu.mma_matrix<{FRAGMENT}x{FRAGMENT}xsi8, "{kind}">')
        return ir.Operation.create(
            "gpu.subgroup_mma_load_matrix", results=[t], operands=[memory, *where], attributes=attributes
        ).results[0]

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
        return self.plan.depth // _LOAD, self.plan.depth // self.plan.weights.depth

    @property
    def _lhs_copies(self) -> int:
        return -(-TILE * self._per_row[0] // self.plan.threads)

    @property
    def _rhs_copies(self) -> int:
        return -(-TILE * self._per_row[1] // self.plan.threads)

    def _fetch(self, step: e.Index) -> tuple[list[list[Any]], list[list[Any]]]:
        """What this thread copies of a step: words of activations, stored words of weights."""
        lhs_per, rhs_per = self._per_row
        left, right = [], []
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
        return left, right

    def _token(self, number: int) -> e.Index:
        """The row of the activation that a copy of this thread is of."""
        row, _, _ = self._copy(number, TILE * self._per_row[0], self._per_row[0])
        return self.place.token(self.place.inside(e.add(self.first_row, row)))

    def _store(self, fetched: tuple[list[list[Any]], list[list[Any]]]) -> None:
        lhs_per, rhs_per = self._per_row
        for i, words in enumerate(fetched[0]):
            row, at, ours = self._copy(i, TILE * lhs_per, lhs_per)
            with e.when(ours):
                e.store(e.gathered(words), self.shared_lhs, [row, at])
        for i, stored in enumerate(fetched[1]):
            row, at, ours = self._copy(i, TILE * rhs_per, rhs_per)
            words = [byte for word in stored for byte in self.plan.weights.bytes_of(word)]
            with e.when(ours):
                for j in range(0, len(words), 4):
                    where = e.add(e.multiply(at, len(words) // 4), j // 4)
                    e.store(e.gathered(words[j : j + 4]), self.shared_rhs, [row, where])

    def _with_row_sum(self, number: int, share: Any) -> Any:
        """The sum of the codes that this thread has copied, with those in shared memory now."""
        row, at, _ = self._copy(number, TILE * self._per_row[0], self._per_row[0])
        for word in e.elements(e.load(self.shared_lhs, [row, at])):
            share = self.plan.machine.dot(word, e.word(_ONES), share)
        return share

    # ---- sums

    @property
    def _vectors(self) -> int:
        """Of four columns, of a thread."""
        return _WAVE * _WAVE // COLUMNS // self.plan.machine.subgroup

    def _inside(self, number: int) -> tuple[Any, Any]:
        """Row and first column of a thread's vector in its subgroup's tile."""
        at = e.add(self.lane, number * self.plan.machine.subgroup)
        if self.kernel.planes:  # of which neighbouring rows are neighbours
            return e.remainder(at, _WAVE), e.divide(at, _WAVE)
        return e.divide(at, _WAVE // COLUMNS), e.remainder(at, _WAVE // COLUMNS)

    def _place(self, number: int) -> tuple[Any, Any]:
        row, at = self._inside(number)
        column = e.add(e.add(self.first_column, self.wave_column), e.multiply(at, COLUMNS))
        return e.add(e.add(self.first_row, self.wave_row), row), column

    def _readable(self, column: Any) -> Any:
        return e.minimum(column, (self.kernel.n - 1) // COLUMNS * COLUMNS)

    def _apart(self, values: list[Any]) -> tuple[list[Any], list[Any]]:
        """Fragments as vectors of columns of rows, and the sums of those rows."""
        fragments, shares = values[: _ACROSS * _ACROSS], values[_ACROSS * _ACROSS :]
        stride = ir.IntegerAttr.get(ir.IndexType.get(), TILE // COLUMNS + 1)
        for i, fragment in enumerate(fragments):
            row = e.add(self.wave_row, i // _ACROSS * FRAGMENT)
            column = e.divide(e.add(self.wave_column, i % _ACROSS * FRAGMENT), COLUMNS)
            ir.Operation.create(
                "gpu.subgroup_mma_store_matrix",
                operands=[fragment, self.shared_sums, e.index(row), e.index(column)],
                attributes={"leadDimension": stride},
            )
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
            if form.shift:
                value = arith.shrsi(value, e.broadcast(e.word(form.shift), COLUMNS))
            if form.offset:
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
