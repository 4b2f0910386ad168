"""Products without a matrix instruction: dot products of bytes, or multiply-adds of decoded weights.

A thread makes `rows` by four outputs. Threads stand in a workgroup as `row_groups` by `column_groups` by `workers`;
workers share K of the same outputs and add up their sums by shuffles. Many workers and all rows in one thread is the
cooperative form, for a few rows, where reading the weight is all the time there is (64 threads as 8 groups of 8
workers in ExecuTorch's Vulkan operator `linear_qcsnw`); one worker is the tiled form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.mlir import arith, ir, math
from ...kernels.description import Kernel
from ...kernels.row_sums import uses_row_sums
from ...kernels.small_floats import decoded
from . import emit as e
from .activations import Columns, Numbers, Rows, WindowRows, numbers_of, rows_of
from .batch import Place, Products
from .epilogue import Epilogue, as_i8
from .executable import Function, Launch, View, executable
from .machine import Machine
from .weights import COLUMNS, Codes

_ONES = 0x01010101


@dataclass(frozen=True)
class Shape:
    """How the threads of a workgroup share the work; `workers` is a power of two within a subgroup."""

    workers: int
    column_groups: int
    row_groups: int
    rows: int  # of a thread

    @property
    def threads(self) -> int:
        return self.workers * self.column_groups * self.row_groups

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a workgroup."""
        return self.row_groups * self.rows, self.column_groups * COLUMNS


@dataclass(frozen=True)
class DotKernel:
    """A kernel, how its weight is stored (None: as the program has it, `[N, K]`), and how threads share the work."""

    kernel: Kernel
    weights: Codes
    packed: bool
    shape: Shape
    machine: Machine

    def emit(self, name: str, inputs: Any, result: Any) -> str:
        """The executable; see `outline`."""
        return executable(name, self.function)

    @property
    def function(self) -> Function:
        """The kernel as a function of an executable."""
        tile, kernel = self.shape.tile, self.kernel
        columns = -(-kernel.n // tile[1])
        products = Products(kernel)
        launch = Launch(self.shape.threads, self.machine.subgroup, lambda size: products.grid(size, columns, tile[0]))
        epilogue = Epilogue(kernel, self.machine, COLUMNS)
        depth = self.weights.depth
        activations = numbers_of(kernel, depth, self.machine) if self.floats else rows_of(kernel, depth)
        picks = products.views
        views = [activations.view, self._weight_view, *picks, *epilogue.views]

        def body(size: e.Index, memory: list[Any]) -> None:
            first_row = e.multiply(e.block(1), tile[0])
            place = products.place(size, memory[2 : 2 + len(picks)], first_row)
            epilogue.bind(memory[2 + len(picks) :], place)
            with e.when(place.used):
                _Threads(self, epilogue, activations, memory[0], memory[1], place).run()

        return Function(products.size, views, launch, body, products.tokens)

    @property
    def floats(self) -> bool:
        """Whether it multiplies floats."""
        return isinstance(self.kernel.acc_type, ir.F32Type)

    @property
    def pieces(self) -> int:
        """Along K."""
        return -(-self.kernel.k // self.weights.depth)

    @property
    def _matrices(self) -> int:
        """Of the weight, each with columns of its own."""
        return 1 if self.kernel.batch is None else self.kernel.batch.matrices

    @property
    def _rows_of_weight(self) -> Rows | Columns:
        """A weight as the program has it: `[.., N, K]`, or `[.., K, N]`."""
        kernel, depth = self.kernel, self.weights.depth
        if kernel.rhs.k_last:
            return Rows(self._matrices * kernel.n, kernel.k, depth, e.integer(8), kernel.rhs.flipped)
        return Columns(self._matrices, kernel.n, kernel.k, depth, kernel.rhs.flipped)

    @property
    def _weight_view(self) -> View:
        if not self.packed:
            return self._rows_of_weight.view
        words = self.weights.words
        element = e.integer(32) if words == 1 else e.vector_of(words, e.integer(32))
        batch = self.kernel.batch
        matrices = () if batch is None else (batch.matrices,)
        return View((*matrices, self.pieces, -(-self.kernel.n // COLUMNS) * COLUMNS), element)

    def load_weight(self, memory: Any, place: Place, piece: e.Index, column: e.Index) -> list[list[Any]]:
        """For each column of a thread the stored words of a piece."""
        if not self.packed:
            weight, last = self._rows_of_weight, self.kernel.n - 1
            if isinstance(weight, Columns):
                return weight.load(memory, place.matrix, column, piece)
            first = e.multiply(place.matrix, self.kernel.n)
            columns = [e.add(first, e.minimum(e.add(column, c), last)) for c in range(COLUMNS)]
            return [weight.load(memory, c, piece) for c in columns]
        return [e.elements(e.load(memory, place.of_matrix(piece, e.add(column, c)))) for c in range(COLUMNS)]


class _Threads:
    """What one thread does."""

    def __init__(
        self,
        plan: DotKernel,
        epilogue: Epilogue,
        activations: Rows | WindowRows | Numbers,
        lhs: Any,
        rhs: Any,
        place: Place,
    ) -> None:
        self.plan, self.kernel, self.machine = plan, plan.kernel, plan.machine
        self.epilogue, self.activations = epilogue, activations
        self.lhs, self.rhs, self.place = lhs, rhs, place
        shape, thread = plan.shape, e.thread()
        self.thread = thread
        self.worker = e.remainder(thread, shape.workers)
        group = e.divide(thread, shape.workers)
        block = e.add(e.multiply(e.block(0), shape.column_groups), e.remainder(group, shape.column_groups))
        self.column = e.multiply(block, COLUMNS)
        last = -(-self.kernel.n // COLUMNS) * COLUMNS - COLUMNS
        whole = self.kernel.n % (shape.column_groups * COLUMNS) == 0
        self.safe_column = self.column if whole else e.minimum(self.column, last)
        first = e.add(
            e.multiply(e.block(1), shape.row_groups * shape.rows),
            e.multiply(e.divide(group, shape.column_groups), shape.rows),
        )
        self.rows = [e.add(first, i) for i in range(shape.rows)]
        exact = isinstance(place.rows, int) and place.rows % (shape.row_groups * shape.rows) == 0
        self.safe_rows = self.rows if exact else [place.inside(r) for r in self.rows]
        self.tokens = [place.token(r) for r in self.safe_rows]
        self.i32 = e.integer(32)
        # `sum a (stored + offset) = sum a stored + offset * sum a`
        self.summing = not plan.floats and (plan.weights.offset != 0 or uses_row_sums(self.kernel))

    def run(self) -> None:
        if self.kernel.combine is not None:
            values, sums = self._groups(), [None] * len(self.rows)
        elif self.plan.floats:
            values, sums = self._numbers(), [None] * len(self.rows)
        else:
            values, sums = self._codes()
        # All workers have the sums; the first one stores them.
        ours = True if self.plan.shape.workers == 1 else e.less(self.worker, 1)
        with e.when(ours):
            for value, sum_, row, safe in zip(values, sums, self.rows, self.safe_rows, strict=True):
                result = self.epilogue.finish(value, sum_, safe, self.safe_column)
                self.epilogue.write(result, row, self.column)

    # ---- integers

    def _zeros(self) -> list[Any]:
        """Accumulators of each row's columns, and of its sum."""
        kind = self.kernel.acc_type
        return [e.zero(kind) for _ in self.rows for _ in range(COLUMNS + self.summing)]

    def _piece(self, piece: e.Index, totals: list[Any]) -> list[Any]:
        """The accumulators after another piece of K."""
        if self.plan.floats:
            lanes = [e.gathered(totals[i : i + COLUMNS]) for i in range(0, len(totals), COLUMNS)]
            return [x for lane in self._multiplied(piece, lanes) for x in e.elements(lane)]
        dot = self.machine.dot
        stored = self.plan.load_weight(self.rhs, self.place, piece, self.safe_column)
        columns = [[b for w in words for b in self.plan.weights.bytes_of(w)] for words in stored]
        following = []
        width = COLUMNS + self.summing
        for r, row in enumerate(self.tokens):
            words = self.activations.load(self.lhs, row, piece)
            mine = totals[r * width : (r + 1) * width]
            for c, column in enumerate(columns):
                for a, b in zip(words, column, strict=True):
                    mine[c] = dot(a, b, mine[c])
            if self.summing:
                for a in words:
                    mine[COLUMNS] = dot(a, e.word(_ONES), mine[COLUMNS])
            following += mine
        return following

    def _apart(self, totals: list[Any]) -> tuple[list[Any], list[Any]]:
        """Of each row the vector of its accumulators and its sum."""
        width = COLUMNS + self.summing
        if self.plan.floats:
            parts = [e.gathered(totals[i : i + COLUMNS]) for i in range(0, len(totals), COLUMNS)]
            return parts, [None] * len(parts)
        values, sums = [], []
        offset, shift = self.plan.weights.offset, self.plan.weights.shift
        for r in range(len(self.rows)):
            mine = totals[r * width : (r + 1) * width]
            sum_ = mine[COLUMNS] if self.summing else None
            value = e.gathered(mine[:COLUMNS])
            if shift:
                value = arith.shrsi(value, e.broadcast(e.word(shift), COLUMNS))
            if offset:
                value = arith.addi(value, e.broadcast(arith.muli(sum_, e.word(offset)), COLUMNS))
            values.append(value)
            sums.append(sum_)
        return values, sums

    def _codes(self) -> tuple[list[Any], list[Any]]:
        """All of K in one sum."""
        workers = self.plan.shape.workers
        with e.loop(self.worker, self.plan.pieces, workers, self._zeros()) as step:
            step.next = self._piece(step.index, step.values)
        return self._apart(self._added(step.results, arith.addi))

    def _added(self, totals: list[Any], add: Any) -> list[Any]:
        """Sums over the workers, in all of them."""
        offset = self.plan.shape.workers // 2
        while offset:
            totals = [add(t, e.shuffle(t, e.word(offset), self.machine.subgroup, "xor")) for t in totals]
            offset //= 2
        return totals

    def _groups(self) -> list[Any]:
        """Sums over groups along K, in ascending order. Each worker makes the part of another group, and all of them
        take in all parts."""
        workers, groups = self.plan.shape.workers, self.kernel.groups
        per = self.plan.pieces // groups
        start = [self.epilogue.start() for _ in self.rows]
        with e.loop(0, groups, workers, start) as outer:
            mine = e.add(outer.index, self.worker)
            if groups % workers:
                mine = e.minimum(mine, groups - 1)
            with e.loop(0, per, 1, self._zeros()) as inner:
                piece = e.add(e.multiply(mine, per), inner.index)
                inner.next = self._piece(piece, inner.values)
            if workers == 1:
                outer.next = self._combined(outer.values, inner.results, outer.index)
            else:
                outer.next = self._in_turn(outer.index, outer.values, inner.results)
        return list(outer.results)

    def _in_turn(self, first: e.Index, totals: list[Any], parts: list[Any]) -> list[Any]:
        """The totals after the groups from `first` on, one of each worker."""
        workers, groups = self.plan.shape.workers, self.kernel.groups
        left = e.minimum(workers, e.subtract(groups, first)) if groups % workers else workers
        base = e.subtract(e.remainder(self.thread, self.machine.subgroup), self.worker)
        with e.loop(0, left, 1, totals) as turn:
            lane = arith.index_cast(self.i32, e.index(e.add(base, turn.index)))
            theirs = [e.shuffle(p, lane, self.machine.subgroup, "idx") for p in parts]
            turn.next = self._combined(turn.values, theirs, e.add(first, turn.index))
        return turn.results

    def _combined(self, totals: list[Any], parts: list[Any], group: e.Index) -> list[Any]:
        values, sums = self._apart(parts)
        with self.epilogue.scope():
            return [
                self.epilogue.combine(total, value, sum_, group, row, self.safe_column)
                for total, value, sum_, row in zip(totals, values, sums, self.safe_rows, strict=True)
            ]

    # ---- numbers

    def _numbers(self) -> list[Any]:
        """Floats by decoded codes, sums in f32."""
        workers = self.plan.shape.workers
        lanes = e.vector_of(COLUMNS, ir.F32Type.get())
        with e.loop(self.worker, self.plan.pieces, workers, [e.zero(lanes) for _ in self.rows]) as step:
            step.next = self._multiplied(step.index, step.values)
        if workers == 1:
            return list(step.results)
        flat = self._added([x for total in step.results for x in e.elements(total)], arith.addf)
        return [e.gathered(flat[i : i + COLUMNS]) for i in range(0, len(flat), COLUMNS)]

    def _multiplied(self, piece: e.Index, totals: list[Any]) -> list[Any]:
        """The sums of each row after another piece of K."""
        form = self.plan.weights
        lanes = e.vector_of(COLUMNS, ir.F32Type.get())
        group = 0
        if self.kernel.group is not None:
            group = e.divide(piece, self.kernel.group // form.depth)
        stored = self.plan.load_weight(self.rhs, self.place, piece, self.safe_column)
        words = [e.gathered([column[i] for column in stored]) for i in range(form.words)]
        rows = [self.activations.load(self.lhs, row, piece) for row in self.tokens]
        totals = list(totals)
        with self.epilogue.scope():
            for k in range(form.depth):
                number = self._number(words, k, group)
                if number.type != lanes:
                    number = arith.extf(lanes, number)
                for r, row in enumerate(rows):
                    totals[r] = math.fma(e.broadcast(row[k], COLUMNS), number, totals[r])
        return totals

    def _number(self, words: list[Any], k: int, group: e.Index) -> Any:
        """What the codes at `k` of a piece stand for."""
        if self.kernel.rhs.decode is not None:
            return self.epilogue.decode(self._code(words, k), group, self.safe_column)
        word, low = words[k // 4], 8 * (k % 4)
        code = arith.shrui(word, e.broadcast(e.word(low), COLUMNS)) if low else word
        code = arith.andi(code, e.broadcast(e.word(0xFF), COLUMNS))
        return decoded(code, str(self.kernel.rhs.value.type.element_type))

    def _code(self, words: list[Any], k: int) -> Any:
        """The codes at `k` of a piece, i8."""
        form = self.plan.weights
        per_word = 4 * form.fields
        word, inside = words[k // per_word], k % per_word
        low = 8 * (inside % 4) + form.bits * (inside // 4)

        def of(value: int) -> Any:
            return e.broadcast(e.word(value), COLUMNS)

        left = 32 - form.bits - low
        code = arith.shrsi(arith.shli(word, of(left)) if left else word, of(32 - form.bits))
        return as_i8(arith.addi(code, of(form.offset)) if form.offset else code, COLUMNS)
