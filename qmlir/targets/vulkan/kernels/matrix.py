"""Products on cooperative matrices (`VK_KHR_cooperative_matrix`), of i8 or of f16 by decoded weights.

Only the driver knows which lane holds which elements of a cooperative matrix. Both operands are therefore stored in
shared memory, weights as bytes unpacked from short codes or as decoded f16, and the sums are read back through it: each
lane then has neighbouring columns of known rows, and the epilogue is that of the other kernels. A subgroup computes
32 x 32 results, a workgroup 64 x 64.

    for each step of K:    load the next step to registers
                           multiply what is in shared memory
                           barrier, write the next step, barrier
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import hypot

from ....core.mlir import arith, ir, vector
from ....dialect.dtypes import Array
from ....kernels.description import Operand
from ....kernels.row_sums import uses_row_sums
from ...base import Target
from ...cost import Figures, Work
from ...gpu import MatrixInstruction
from ...gpu_kernels import emit as e
from ...gpu_kernels.activations import rows_of
from ...gpu_kernels.epilogue import Epilogue
from ...gpu_kernels.executable import View
from ...gpu_kernels.loop import Run, Source, Where, Workgroup, elements
from ...gpu_kernels.raster import Raster
from ...gpu_kernels.stages import LOAD, Copies, Fetched, SharedRows, StagedLoop, shared_shape
from ...gpu_kernels.stream_k import Sharing
from ...gpu_kernels.tiled import LOAD as SLOTS, TYPICAL_ROWS, TiledKernel, TileProgram, matrices
from ...gpu_kernels.weights import COLUMNS, CodeFormat
from ...strategy import Facts
from .machine import Spirv

WAVE = 32  # rows and columns of a subgroup
_ACROSS = 2  # subgroups of a workgroup, along rows and along columns
TILE = WAVE * _ACROSS
_ONES = 0x01010101
_SUMS = TILE // COLUMNS + 1  # vectors per row of sums in shared memory, the last one padding
# A subgroup's issue slots for the products of its fragments, 16 codes deep; and the cost of its reads from shared
# memory and its barriers in a step, in loads.
_MULTIPLY = 128
_SHARED_LOADS = 16
_MOST_RESIDENT = 4  # workgroups of a unit at the same time, if shared memory suffices


@dataclass(frozen=True)
class CooperativeSizes(TiledKernel):
    """The sizes of a kernel.

    Attributes:
        weights: the storage of its weight.
        depth: elements along K of a step, a multiple of those of a piece and of `matrix`.
        workgroups: number that share K of all tiles (`stream_k`); 0: one workgroup per tile.
    """

    machine: Spirv
    weights: CodeFormat
    depth: int
    matrix: MatrixInstruction
    workgroups: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        return TILE, TILE

    @property
    def width(self) -> int:
        """Bytes of a multiplied element: a code or an f16."""
        return 1 if self.kernel.rhs.decode is None else 2

    @property
    def load(self) -> int:
        """Elements of one load."""
        return LOAD // self.width

    @property
    def threads(self) -> int:
        return _ACROSS * _ACROSS * self.machine.subgroup

    @property
    def steps(self) -> int:
        return -(-self.kernel.k // self.depth)

    @property
    def unit(self) -> int:
        """Words per element of shared memory; each cooperative matrix starts at an element."""
        return min(LOAD, self.matrix.k * self.width) // 4

    @property
    def summing(self) -> bool:
        """Whether row sums of the activations are computed in addition to the product."""
        return self.kernel.rhs.decode is None and (self.weights.offset != 0 or uses_row_sums(self.kernel))

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for both operands, the sums, row sums (see `_Threads`), and a word of `stream_k`."""
        stride = shared_shape(TILE, self.depth * self.width, self.unit)[1]
        sides = 2 * TILE * stride * 4 * self.unit
        sums = TILE * _SUMS * 4 * COLUMNS
        more = (TILE * (self.depth // self.load) if self.summing else 0) + (self.workgroups > 0)
        return sides + sums + 4 * more

    @property
    def pieces(self) -> tuple[int, int]:
        """See `CodeFormat`."""
        return self.weights.pieces(self.kernel.n, self.kernel.k)


@dataclass(frozen=True)
class CooperativeKernel(CooperativeSizes):
    """A kernel on cooperative matrices."""

    @property
    def name(self) -> str:
        return str(self.depth) + "-stream-k" * (self.workgroups > 0)

    @property
    def packing(self) -> CodeFormat:
        return self.weights

    @property
    def facts(self) -> Facts:
        return {
            "algorithm": "cooperative matrix",
            "mma": self.matrix.name,
            "weight_bits": self.weights.bits,
            "workgroup": [TILE, TILE, self.depth],
        }

    def work(self, target: Target, f: Figures) -> Work:
        """See `DotKernel.work`."""
        m = f.rows(self.kernel.m, TYPICAL_ROWS)
        blocks = -(-m // TILE) * -(-self.kernel.n // TILE)
        times, steps, once = f.waves(blocks * self.threads), self.steps, 0.0
        read = blocks * TILE * self.kernel.k * (1 / self.weights.fields + 1) / f.units / steps
        if (sharing := self.sharing) is not None:
            times = sharing.workgroups // f.units
            steps = -(-blocks * steps // sharing.workgroups)
            read, once = times * TILE * self.depth * (1 / self.weights.fields + 1), sharing.seconds(times, f)
        loads = 2 * TILE * self.depth // (self.threads * 16) + _SHARED_LOADS
        busy = f.slots(_MULTIPLY * self.depth / 16 + SLOTS * loads)
        step = {"multiply": times * busy, "cache": f.cache(read)}
        # The next step's codes are being loaded while this step's are multiplied.
        longest = max(step.values())
        return Work(1, steps, step, alone={"latency": hypot(longest, f.latency) - longest}, once=once)

    def shared_among(self, target: Target) -> CooperativeKernel:
        """The kernel with as many workgroups as run at the same time."""
        fit = target.capabilities.shared_memory // (self.shared_bytes + 4)
        return replace(self, workgroups=Figures(target.capabilities).units * max(1, min(_MOST_RESIDENT, fit)))

    @property
    def sharing(self) -> Sharing | None:
        if not self.workgroups:
            return None
        ordered, runs = self.kernel.combine is not None, WAVE * WAVE // COLUMNS // self.machine.subgroup
        words = runs * (COLUMNS + (uses_row_sums(self.kernel) and not ordered))
        steps = self.kernel.groups if ordered else self.steps
        return Sharing(self.workgroups, steps, self.threads, words, self.machine)

    def weight(self, codes: Array | None, padded_k: int) -> ir.Value:
        assert codes is not None
        return self.weights.packed(codes, padded_k)

    def program(self, inputs: Sequence[ir.Type]) -> TileProgram:
        epilogue = Epilogue(self.kernel, self.machine, COLUMNS, decodes_columns=True)
        weight = View.of_words((*matrices(self.kernel), *self.pieces), self.weights.words)
        activations = rows_of(self.kernel, self.load, self.steps * self.depth)
        raster, loop = Raster(self.kernel, *self.shape), partial(_Threads, self, activations)
        return TileProgram(raster, loop, epilogue, activations.view, weight)


class _Threads(StagedLoop):
    """The code of one thread."""

    def __init__(self, plan: CooperativeKernel, source: Source, workgroup: Workgroup) -> None:
        super().__init__(plan.kernel, plan.machine, source, workgroup, plan.steps)
        self.plan = plan
        self.thread, subgroup = e.thread(), plan.machine.subgroup
        thread = self.thread
        wave = e.divide(thread, subgroup)
        self.lane = e.remainder(thread, subgroup)
        self.wave_row = e.multiply(e.divide(wave, _ACROSS), WAVE)  # in the workgroup's tile
        self.wave_column = e.multiply(e.remainder(wave, _ACROSS), WAVE)
        self.first_row, self.first_column = (e.multiply(number, TILE) for number in workgroup.tile)
        self.decodes, self.summing = self.kernel.rhs.decode is not None, plan.summing
        self.shared, self.weights = (SharedRows(TILE, plan.depth * plan.width, plan.unit) for _ in range(2))
        acc, i32 = self.kernel.acc_type, e.integer(32)
        self.sums = e.shared((TILE, _SUMS), e.vector_of(COLUMNS, acc))
        self.total = ir.Type.parse(f'!gpu.mma_matrix<{plan.matrix.m}x{plan.matrix.n}x{acc}, "COp">')
        # The number of cooperative matrices of a subgroup, along rows and along columns.
        self.down, self.across = WAVE // plan.matrix.m, WAVE // plan.matrix.n
        window, per = self.kernel.lhs.window, (plan.depth // plan.load, plan.depth // plan.weights.depth)
        down = window is not None and window.planes
        self.copies = Copies(thread, plan.threads, TILE, per[0], down)
        self.rhs_copies = Copies(thread, plan.threads, TILE, per[1], down and per[0] == per[1])
        if self.summing:
            self.row_parts = e.shared((TILE, per[0]), i32)

    @property
    def run_count(self) -> int:
        """The number of vectors of four columns per thread."""
        return WAVE * WAVE // COLUMNS // self.machine.subgroup

    def zeros(self) -> list[ir.Value]:
        """Zeros for each fragment, row by row, and for the thread's shares of the row sums."""
        zero = e.operation("gpu.subgroup_mma_constant_matrix", self.total, [e.zero(self.kernel.acc_type)])
        shares = self.copies.count if self.summing else 0
        return [*[zero] * (self.down * self.across), *[e.word(0)] * shares]

    # ---- a step

    def fetch(self, step: e.Index) -> list[Fetched]:
        return [self.activations(step), self._weights(step)]

    def multiply(self, step: e.Index, half: e.Index, totals: list[ir.Value], held: list[ir.Value]) -> list[ir.Value]:
        count = self.down * self.across
        totals, shares = totals[:count], totals[count:]
        shares = [self._with_row_sum(i, share) for i, share in enumerate(shares)]
        for k in range(self.plan.depth // self.plan.matrix.k):
            left = [self._operand("AOp", self.wave_row, i, k) for i in range(self.down)]
            right = [self._operand("BOp", self.wave_column, i, k) for i in range(self.across)]
            totals = [
                e.operation("gpu.subgroup_mma_compute", self.total, [left[i // self.across], right[i % self.across], t])
                for i, t in enumerate(totals)
            ]
        return [*totals, *shares]

    def _operand(self, kind: str, first: e.Index, number: int, k: int) -> ir.Value:
        """Load a cooperative matrix from shared memory; the right operand is stored as `[N, K]`."""
        shared = self.weights if kind == "BOp" else self.shared
        attributes: dict[str, ir.Attribute] = {"leadDimension": ir.IntegerAttr.get(ir.IndexType.get(), shared.stride)}
        if kind == "BOp":
            attributes["transpose"] = ir.UnitAttr.get()
        matrix, unit = self.plan.matrix, 4 * self.plan.unit
        rows, columns = (matrix.m, matrix.k) if kind == "AOp" else (matrix.k, matrix.n)
        height = matrix.m if kind == "AOp" else matrix.n
        where = [e.index(e.add(first, number * height)), e.index(k * matrix.k * self.plan.width // unit)]
        t = ir.Type.parse(f'!gpu.mma_matrix<{rows}x{columns}x{"f16" if self.decodes else "si8"}, "{kind}">')
        return e.operation("gpu.subgroup_mma_load_matrix", t, [shared.memory, *where], **attributes)

    # ---- weights to shared memory

    def _weights(self, step: e.Index) -> Fetched:
        """The weights that this thread copies of a step: stored words, and the operands that decode each piece."""
        plan, copies = self.plan, self.rhs_copies
        pieces: list[list[ir.Value]] = []
        held: list[dict[Operand, ir.Value]] = []
        for i in range(copies.count):
            column, at, _ = copies.at(i)
            piece = e.add(e.multiply(step, copies.per_row), at)
            if plan.pieces[0] % copies.per_row:  # past the last piece the activations are zeros
                piece = e.minimum(piece, plan.pieces[0] - 1)
            safe = e.minimum(e.add(self.first_column, column), plan.pieces[1] - 1)
            pieces.append(e.elements(e.load(self.workgroup.rhs, self.place.of_matrix(piece, safe))))
            if self.decodes:
                group = 0 if self.kernel.group is None else e.divide(step, self.kernel.group // plan.depth)
                held.append(self.epilogue.column_operands(group, e.minimum(safe, self.kernel.n - 1)))

        def store(half: e.Index) -> None:
            for i, stored in enumerate(pieces):
                column, at, ours = copies.at(i)
                words = self._decoded(stored, held[i]) if self.decodes else plan.weights.unpacked(stored)
                with e.when(ours):
                    self.weights.write(words, half, column, at)

        return Fetched(store)

    def _decoded(self, stored: list[ir.Value], held: dict[Operand, ir.Value]) -> list[ir.Value]:
        """Decode stored codes of one column to words of f16, four codes at a time: SPIR-V has no longer vectors."""
        form, found = self.plan.weights, []
        for word in stored:
            for field in range(form.fields):
                lefts = [32 - form.bits - (8 * lane + form.bits * field) for lane in range(4)]
                codes = form.codes_at(e.broadcast(word, 4), e.gathered([e.word(left) for left in lefts]))
                numbers = self.epilogue.decode_column(codes, held)
                found += e.elements(vector.bitcast(e.vector_of(2, e.integer(32)), numbers))
        return found

    # ---- sums

    def accumulated(self, first: e.Index, last: e.Index) -> list[ir.Value]:
        """As `TileLoop.accumulated`; workgroups that share K hand over runs, because no lane knows the elements of a
        fragment that it holds."""
        state = super().accumulated(first, last)
        if not self.plan.workgroups or self.kernel.combine is not None:
            return state
        runs = self.runs(state)
        sums = [run.row_sum for run in runs if run.row_sum is not None] if uses_row_sums(self.kernel) else []
        return [
            *(run.value for run in runs),
            *(e.gathered(sums[i : i + COLUMNS]) for i in range(0, len(sums), COLUMNS)),
        ]

    def finish(self, state: Sequence[ir.Value]) -> None:
        if not self.plan.workgroups or self.kernel.combine is not None:
            super().finish(state)
            return
        sums: list[ir.Value | None] = [*elements(state[self.run_count :])]
        values = state[: self.run_count]
        self.store([Run(*run) for run in zip(values, sums or [None] * self.run_count, strict=True)])

    def _with_row_sum(self, number: int, share: ir.Value) -> ir.Value:
        """`share` plus the sum of the codes of copy `number` of this thread, which are in shared memory."""
        row, at, _ = self.copies.at(number)
        units = LOAD // (4 * self.plan.unit)
        for i in range(units):
            for word in self.shared.read(0, row, e.add(e.multiply(at, units), i)):
                share = self.machine.dot(word, e.word(_ONES), share)
        return share

    def _inside(self, number: int) -> tuple[e.Index, e.Index]:
        """The row of a thread's vector in its subgroup's tile, and the vector's number in that row."""
        at = e.add(self.lane, number * self.machine.subgroup)
        if self.kernel.planes:  # neighbouring rows are neighbours in memory
            return e.remainder(at, WAVE), e.divide(at, WAVE)
        return e.divide(at, WAVE // COLUMNS), e.remainder(at, WAVE // COLUMNS)

    def where(self, number: int) -> Where:
        row, at = self._inside(number)
        column = e.add(e.add(self.first_column, self.wave_column), e.multiply(at, COLUMNS))
        return self.at(e.add(e.add(self.first_row, self.wave_row), row), column, COLUMNS)

    def runs(self, totals: list[ir.Value]) -> list[Run]:
        self._store_totals(totals)
        e.barrier()
        values: list[ir.Value] = []
        sums: list[ir.Value | None] = []
        for i in range(self.run_count):
            row, at = self._inside(i)
            row = e.add(self.wave_row, row)
            values.append(e.load(self.sums, [row, e.add(e.divide(self.wave_column, COLUMNS), at)]))
            sums.append(self._row_sum(row) if self.summing else None)
        e.barrier()
        return self.of_bytes(values, sums, self.plan.weights.shift, self.plan.weights.offset)

    def _store_totals(self, totals: list[ir.Value]) -> None:
        """Store fragments and shares of row sums to shared memory."""
        count, matrix = self.down * self.across, self.plan.matrix
        stride = ir.IntegerAttr.get(ir.IndexType.get(), _SUMS)
        for i, fragment in enumerate(totals[:count]):
            row = e.add(self.wave_row, i // self.across * matrix.m)
            column = e.divide(e.add(self.wave_column, i % self.across * matrix.n), COLUMNS)
            operands = [fragment, self.sums, e.index(row), e.index(column)]
            ir.Operation.create(
                "gpu.subgroup_mma_store_matrix", operands=operands, attributes={"leadDimension": stride}
            )
        for i, share in enumerate(totals[count:]):
            row, at, ours = self.copies.at(i)
            with e.when(ours):
                e.store(share, self.row_parts, [row, at])

    def _row_sum(self, row: e.Index) -> ir.Value:
        total: ir.Value = e.word(0)
        for at in range(self.copies.per_row):
            total = arith.addi(total, e.load(self.row_parts, [row, at]))
        return total
