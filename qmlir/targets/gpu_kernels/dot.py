"""Products without a matrix instruction: dot products of bytes, or multiply-adds of decoded weights.

A thread computes `rows` by four outputs. A workgroup has `row_groups` by `column_groups` by `workers` threads; workers
share K of the same outputs and add up their sums by shuffles. With many workers and all rows in one thread it is the
cooperative form, for a few rows, where reading the weight takes all the time (64 threads as 8 groups of 8
workers in ExecuTorch's Vulkan operator `linear_qcsnw`); with one worker it is the tiled form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ...core.mlir import arith, ir, math
from ...dialect.dtypes import Array
from ...kernels.description import Kernel
from ...kernels.row_sums import uses_row_sums
from ...kernels.small_floats import decoded
from ..base import Target
from ..cost import Figures, Work
from ..strategy import Facts
from . import emit as e
from .activations import Columns, Rows, numbers_of, rows_of
from .epilogue import Epilogue
from .executable import View
from .loop import Run, Source, TileLoop, Where, Workgroup
from .raster import Raster
from .stream_k import Sharing
from .tiled import AS_IT_IS, LOAD, TYPICAL_ROWS, TiledKernel, TileProgram, matrices
from .weights import COLUMNS, CodeFormat

if TYPE_CHECKING:
    from collections.abc import Hashable

_ONES = 0x01010101


@dataclass(frozen=True)
class WorkSplit:
    """How the threads of a workgroup share the work; `workers` is a power of two within a subgroup."""

    workers: int
    column_groups: int
    row_groups: int
    rows: int  # of a thread
    columns: int = COLUMNS  # of a thread

    @property
    def threads(self) -> int:
        return self.workers * self.column_groups * self.row_groups

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a workgroup."""
        return self.row_groups * self.rows, self.column_groups * self.columns


_RESIDENT = 4  # workgroups of a unit, if they share K of all tiles


@dataclass(frozen=True)
class DotKernel(TiledKernel):
    """A kernel, the storage of its weight, whether the weight is packed that way or read in the program's layout, how
    threads share the work, and the number of workgroups that share K of all tiles, 0: one workgroup per tile."""

    weights: CodeFormat
    packed: bool
    split: WorkSplit
    algorithm: str
    workgroups: int = 0

    @property
    def threads(self) -> int:
        return self.split.threads

    @property
    def shape(self) -> tuple[int, int]:
        return self.split.tile

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.workgroups > 0)  # a word of `stream_k`

    @property
    def name(self) -> str:
        split = self.split
        sizes = (split.workers, split.column_groups, split.row_groups, split.rows)
        return "x".join(map(str, sizes)) + "-stream-k" * (self.workgroups > 0)

    @property
    def packing(self) -> Hashable:
        return self.weights if self.packed else AS_IT_IS

    @property
    def most_rows(self) -> int | None:
        """See `TiledKernel.most_rows`. Threads that share K read the weight again for every few rows, so tiles are used
        for more."""
        return 2 * self.split.rows if self.split.workers > 1 else None

    @property
    def facts(self) -> Facts:
        return {
            "algorithm": self.algorithm,
            "weight_bits": self.weights.bits,
            "tile": list(self.shape),
            "workers": self.split.workers,
        }

    def work(self, target: Target, f: Figures) -> Work:
        """See `TiledKernel.work`. A piece of K takes the longest of three times: the instructions of the threads that
        run at the same time, the reads from cache, and the latency of a read, because threads read one piece at a
        time."""
        split, form, m = self.split, self.weights, f.rows(self.kernel.m, TYPICAL_ROWS)
        rows, columns = split.tile
        pieces = -(-self.kernel.k // (form.depth * split.workers))
        dots = split.rows * COLUMNS * form.words * form.fields * (1 if self.kernel.rhs.decode is None else 4)
        shuffles = 2 * split.rows * COLUMNS * (split.workers.bit_length() - 1)
        blocks = -(-m // rows) * -(-self.kernel.n // columns)
        read = blocks * self.kernel.k * (columns / form.fields + rows) / f.units / pieces
        times = f.waves(blocks * split.threads)
        once = times * f.slots(shuffles)
        if (sharing := self.sharing) is not None:
            of_unit = sharing.workgroups // f.units
            read *= of_unit * f.units / blocks
            times, once = -(-of_unit * split.threads // f.lanes), sharing.seconds(of_unit, f)
            pieces = -(-blocks * pieces // sharing.workgroups)
        piece = {
            "multiply": times * f.slots(dots + LOAD * (COLUMNS + split.rows)),
            "cache": f.cache(read),
            "latency": f.latency,
        }
        return Work(1, pieces, piece, once=once)

    def shared_among(self, target: Target) -> DotKernel:
        """The kernel with as many workgroups as run at the same time."""
        return replace(self, workgroups=Figures(target.capabilities).units * _RESIDENT)

    @property
    def sharing(self) -> Sharing | None:
        if not self.workgroups:
            return None
        ordered, pieces = self.kernel.combine is not None, self.pieces[0]
        words = self.split.rows * (COLUMNS + (self.summing and not ordered))
        return Sharing(self.workgroups, self.kernel.groups if ordered else pieces, self.threads, words, self.machine)

    @property
    def summing(self) -> bool:
        """Whether sums of the codes of rows are computed in addition to the product."""
        return not self.floats and (self.weights.offset != 0 or uses_row_sums(self.kernel))

    def weight(self, codes: Array | None, padded_k: int) -> ir.Value:
        return self.kernel.rhs.value if codes is None else self.weights.packed(codes, padded_k)

    def program(self, inputs: Sequence[ir.Type]) -> TileProgram:
        kernel, depth = self.kernel, self.weights.depth
        activations = numbers_of(kernel, depth, self.machine) if self.floats else rows_of(kernel, depth)
        epilogue = Epilogue(kernel, self.machine, COLUMNS)
        weight = View.of_words((*matrices(kernel), *self.pieces), self.weights.words)
        if not self.packed:
            weight = _rows_of_weight(kernel, depth).view
        loop = partial(DotLoop, self, activations)
        return TileProgram(Raster(kernel, *self.shape), loop, epilogue, activations.view, weight)

    @property
    def floats(self) -> bool:
        """Whether the kernel multiplies floats."""
        return isinstance(self.kernel.acc_type, ir.F32Type)

    @property
    def pieces(self) -> tuple[int, int]:
        """See `CodeFormat`."""
        return self.weights.pieces(self.kernel.n, self.kernel.k)


def _rows_of_weight(kernel: Kernel, depth: int) -> Rows | Columns:
    """A weight in the program's layout: `[.., N, K]`, or `[.., K, N]`."""
    matrices = 1 if kernel.batch is None else kernel.batch.matrices
    if kernel.rhs.k_last:
        return Rows(matrices * kernel.n, kernel.k, depth, e.integer(8), kernel.rhs.flipped)
    return Columns(matrices, kernel.n, kernel.k, depth, kernel.rhs.flipped)


class DotLoop(TileLoop):
    """The loop of one thread; its runs are four columns of a row."""

    def __init__(self, plan: DotKernel, source: Source, workgroup: Workgroup) -> None:
        super().__init__(plan.kernel, plan.machine, workgroup.place, workgroup.epilogue, plan.pieces[0])
        self.plan, self.lhs, self.rhs, self.source = plan, workgroup.lhs, workgroup.rhs, source
        self.summing = plan.summing
        self._find_outputs(*workgroup.tile)

    def _find_outputs(self, tile_row: e.Index, tile_column: e.Index) -> None:
        """Compute the rows and the first column of this thread's outputs."""
        split, self.thread = self.plan.split, e.thread()
        self.workers = split.workers
        self.worker = e.remainder(self.thread, split.workers)
        group = e.divide(self.thread, split.workers)
        block = e.add(e.multiply(tile_column, split.column_groups), e.remainder(group, split.column_groups))
        self.column = e.multiply(block, COLUMNS)
        whole = self.kernel.n % (split.column_groups * COLUMNS) == 0
        self.safe_column = self.column if whole else e.minimum(self.column, self.plan.pieces[1] - COLUMNS)
        first = e.add(
            e.multiply(tile_row, split.row_groups * split.rows),
            e.multiply(e.divide(group, split.column_groups), split.rows),
        )
        self.rows = [e.add(first, i) for i in range(split.rows)]
        self.safe_rows = self.rows

    def start(self, first: e.Index, last: e.Index) -> list[ir.Value]:
        rows, height = self.place.rows, self.plan.shape[0]
        if not isinstance(rows, int) or rows % height:
            self.safe_rows = [self.place.inside(row) for row in self.rows]
        self.read_rows = [self.source.row(self.place.token(row)) for row in self.safe_rows]
        return []

    @property
    def run_count(self) -> int:
        return len(self.rows)

    def where(self, number: int) -> Where:
        return Where(self.rows[number], self.column, self.safe_rows[number], self.safe_column)

    @property
    def _width(self) -> int:
        """Accumulators of a row: one for each column, and one for the sum of its codes if that is needed."""
        return self.plan.split.columns + self.summing

    def zeros(self) -> list[ir.Value]:
        """For each row its scalar accumulators, or for floats one vector."""
        if self.plan.floats:
            return [e.zero(e.vector_of(COLUMNS, self.kernel.acc_type)) for _ in self.rows]
        return [e.zero(self.kernel.acc_type) for _ in self.rows for _ in range(self._width)]

    def step(
        self, step: e.Index, totals: list[ir.Value], held: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        return (self._numbers if self.plan.floats else self._codes)(step, totals), []

    def runs(self, totals: list[ir.Value]) -> list[Run]:
        if self.plan.floats:
            return [Run(total) for total in totals]
        rows = [totals[i : i + self._width] for i in range(0, len(totals), self._width)]
        values = [e.gathered(row[:COLUMNS]) for row in rows]
        form, sums = self.plan.weights, [row[COLUMNS] if self.summing else None for row in rows]
        return self.of_bytes(values, sums, form.shift, form.offset)

    def _stored_codes(self, piece: e.Index) -> list[list[ir.Value]]:
        """The stored words of a piece, for each column."""
        place, column, last = self.place, self.safe_column, self.kernel.n - 1
        if self.plan.packed:
            return [e.elements(e.load(self.rhs, place.of_matrix(piece, e.add(column, c)))) for c in range(COLUMNS)]
        weight = _rows_of_weight(self.kernel, self.plan.weights.depth)
        if isinstance(weight, Columns):
            return weight.load(self.rhs, place.matrix, column, piece)
        first = e.multiply(place.matrix, self.kernel.n)
        columns = [e.add(first, e.minimum(e.add(column, c), last)) for c in range(COLUMNS)]
        return [weight.load(c, self.rhs, piece) for c in columns]

    # ---- integers

    def _codes(self, piece: e.Index, totals: list[ir.Value]) -> list[ir.Value]:
        """The sums after another piece of K."""
        dot, width = self.machine.dot, self._width
        stored = self._stored_codes(piece)
        columns = [self.plan.weights.unpacked(words) for words in stored]
        following = []
        for r, read in enumerate(self.read_rows):
            words = read(self.lhs, piece)
            mine = totals[r * width : (r + 1) * width]
            for c, column in enumerate(columns):
                for a, b in zip(words, column, strict=True):
                    mine[c] = dot(a, b, mine[c])
            if self.summing:
                for a in words:
                    mine[-1] = dot(a, e.word(_ONES), mine[-1])
            following += mine
        return following

    # ---- floats

    def _numbers(self, piece: e.Index, totals: list[ir.Value]) -> list[ir.Value]:
        """The f32 sums of floats times decoded weights after another piece of K."""
        form, totals = self.plan.weights, list(totals)
        lanes = e.vector_of(COLUMNS, ir.F32Type.get())
        group: e.Index = 0
        if self.kernel.group is not None:
            group = e.divide(piece, self.kernel.group // form.depth)
        stored = self._stored_codes(piece)
        words = [e.gathered([column[i] for column in stored]) for i in range(form.words)]
        rows = [read(self.lhs, piece) for read in self.read_rows]
        with self.epilogue.scope():
            for k in range(form.depth):
                number = self._number(words, k, group)
                if number.type != lanes:
                    number = arith.extf(lanes, number)
                for r, row in enumerate(rows):
                    totals[r] = math.fma(e.broadcast(row[k], COLUMNS), number, totals[r])
        return totals

    def _number(self, words: list[ir.Value], k: int, group: e.Index) -> ir.Value:
        """The decoded values of the codes at `k` of a piece."""
        if self.kernel.rhs.decode is not None:
            return self.epilogue.decode(self._code(words, k), group, self.safe_column)
        word, low = words[k // 4], 8 * (k % 4)
        code = arith.shrui(word, e.broadcast(e.word(low), COLUMNS)) if low else word
        code = arith.andi(code, e.broadcast(e.word(0xFF), COLUMNS))
        return decoded(code, str(self.kernel.rhs.value.type.element_type))

    def _code(self, words: list[ir.Value], k: int) -> ir.Value:
        """The codes at `k` of a piece, as i8."""
        form = self.plan.weights
        per_word = 4 * form.fields
        word, inside = words[k // per_word], k % per_word
        left = 32 - form.bits - 8 * (inside % 4) - form.bits * (inside // 4)
        return form.codes_at(word, e.broadcast(e.word(left), COLUMNS) if left else None)
