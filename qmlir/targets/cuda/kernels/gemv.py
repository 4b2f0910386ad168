"""Products of a few rows, bound by reading the weight from memory.

The lanes of a warp share K of a few columns. Each lane reads 16 bytes of every column's weights at once and multiplies
them by the same codes of each row (`dp4a`); shuffles add up the lanes' sums. The warps of a workgroup take different
columns, or different parts of K if there are few columns. Sums of groups are collected in shared memory, where one
thread per result combines them in order and runs the stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from ....core.mlir import arith, ir, memref
from ....kernels.description import Kernel
from ....kernels.row_sums import uses_row_sums
from ...base import Target
from ...cost import Figures, Work
from ...gpu_kernels import emit as e
from ...gpu_kernels.activations import Rows, rows_of
from ...gpu_kernels.dot import DotKernel, DotLoop, WorkSplit
from ...gpu_kernels.epilogue import Epilogue
from ...gpu_kernels.loop import Run, Source, Where, Workgroup, across
from ...gpu_kernels.raster import InBands
from ...gpu_kernels.tiled import TileProgram
from ...gpu_kernels.weights import CHUNK, CodeFormat
from ...strategy import Facts
from . import instructions as gpu
from .machine import Nvidia
from .product import moved

WARP, _WARPS = 32, 4  # threads, warps of a workgroup
MOST_ROWS = 8
_GROUPS_READ_TOGETHER = 32  # groups whose scales are read together, because each separate read waits for memory


def gemv(kernel: Kernel, machine: Nvidia, storage: CodeFormat, constant: bool, columns: int, k_warps: int) -> Gemv:
    """The kernel with `columns` columns per warp, whose workgroups have `k_warps` warps that share columns."""
    rows = MOST_ROWS if kernel.m is None else kernel.m
    split = WorkSplit(WARP * k_warps, _WARPS // k_warps, 1, rows, columns)
    return Gemv(kernel, machine, storage, constant, split, "dp4a, K shared by lanes")


@dataclass(frozen=True)
class Gemv(DotKernel):
    """An integer kernel for up to `most_rows` rows; the last ones may be missing at run time. Its weight is stored in
    rows of whole chunks."""

    @property
    def name(self) -> str:
        return f"{self.split.columns}x{self.k_warps}x{self.most_rows}"

    @property
    def k_warps(self) -> int:
        """Warps of a workgroup that share columns."""
        return self.split.workers // WARP

    @property
    def facts(self) -> Facts:
        return {
            "codegen": self.algorithm, "columns": self.shape[1], "k_warps": self.k_warps,
            "weight_bits": self.weights.bits,
        }  # fmt: skip

    def work(self, target: Target, f: Figures) -> Work:
        fields, columns, rows = self.weights.fields, self.split.columns, self.most_rows
        each = -(-self.blocks // f.units)
        room = target.capabilities.shared_memory // self.shared_bytes
        together = max(1, min(each, room, f.threads // self.threads))
        busy = {
            "multiply": f.dots(self.threads * columns * (CHUNK // 4) * fields * rows),
            "cache": f.cache(self.threads * columns * CHUNK),
            "activations": f.shared(self.threads * CHUNK * fields * rows),  # from the L1 cache
            "latency": f.latency / together,
        }
        steps = -(-self.chunks // self.split.workers)
        memory = moved(self.kernel, f.rows(self.kernel.m, self.most_rows), self.padded_k, fields)
        return Work(each, steps, busy, once=f.latency, memory=memory)

    @property
    def most_rows(self) -> int:
        return self.split.rows

    @property
    def chunks(self) -> int:
        return -(-self.kernel.k // self.weights.depth)

    @property
    def padded_k(self) -> int:
        return self.chunks * self.weights.depth

    @property
    def parts(self) -> int:
        """Partial sums along K of one result: one per group, or one per warp."""
        return self.k_warps if self.kernel.combine is None else self.kernel.groups

    @property
    def shared_bytes(self) -> int:
        # For the partial sums, followed by those of the row sums.
        return 4 * self.parts * self.most_rows * (self.shape[1] + int(uses_row_sums(self.kernel)))

    @property
    def blocks(self) -> int:
        return -(-self.kernel.n // self.shape[1])

    def program(self, inputs: Sequence[ir.Type]) -> TileProgram:
        # The row length of the packed weight itself: another kernel that reads it may have padded the rows further.
        weight = Rows(self.kernel.n, ir.RankedTensorType(inputs[1]).shape[-1], CHUNK, e.integer(8))
        # Without rows no workgroup is launched, so a missing row can be read as the last one.
        raster, epilogue = InBands(self.kernel, *self.shape, flat=True), Epilogue(self.kernel, self.machine, 1)
        steps = -(-self.chunks // WARP)
        activations = rows_of(self.kernel, self.weights.depth, steps * WARP * self.weights.depth)
        loop = partial(_Block, self, activations, weight)
        return TileProgram(raster, loop, epilogue, activations.view, weight.view)


class _Block(DotLoop):
    """The work of one workgroup. A step is one chunk per lane; warps that share columns take steps in turn."""

    plan: Gemv

    def __init__(self, gemv: Gemv, source: Source, weight: Rows, workgroup: Workgroup) -> None:
        super().__init__(gemv, source, workgroup)
        self.weight, self.per_round, self.steps = weight, 1, -(-gemv.chunks // WARP)
        self.parts = e.shared([gemv.parts, gemv.most_rows, gemv.shape[1] + self.summing], e.integer(32))

    def _find_outputs(self, tile_row: e.Index, tile_column: e.Index) -> None:
        gemv = self.plan
        self.thread = gpu.thread_id(WARP * _WARPS)
        self.lane, warp = e.remainder(self.thread, WARP), e.divide(self.thread, WARP)
        self.worker, self.workers = e.remainder(warp, gemv.k_warps), gemv.k_warps
        n_warp = e.divide(warp, gemv.k_warps)
        self.first_warp = e.less(n_warp, 1)  # of the warps that read the same codes along K
        self.local = e.multiply(n_warp, gemv.split.columns)
        self.n0 = e.multiply(tile_column, gemv.shape[1])
        self.column = self.safe_column = e.add(self.n0, self.local)
        self.rows = self.safe_rows = list(range(gemv.most_rows))
        # If LLVM can prove which words or bytes of a chunk every lane has, it merges their loads into one of 16 bytes,
        # which reads past the end in the last lane.
        ragged = self.kernel.k % CHUNK and gemv.chunks % WARP == 0
        self.chunk = gpu.hidden(self.lane) if ragged else self.lane  # in a step

    @property
    def keeps(self) -> e.Condition:
        """Every thread finishes results of its own."""
        return True

    # ---- sums along K

    def step(
        self, step: e.Index, totals: list[ir.Value], held: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        return super().step(e.add(e.multiply(step, WARP), self.chunk), totals, held)

    def _stored_codes(self, piece: e.Index) -> list[list[ir.Value]]:
        chunks, last = self.plan.chunks, self.kernel.n - 1
        chunk = piece if chunks % WARP == 0 else e.minimum(piece, chunks - 1)
        columns = [e.minimum(e.add(self.column, c), last) for c in range(self.plan.split.columns)]
        return [self.weight.load(column, self.rhs, chunk) for column in columns]

    def added(self, totals: list[ir.Value]) -> list[ir.Value]:
        """Write each warp's sums to shared memory. Nothing stays in registers."""
        self._store_sums(across(totals, WARP, WARP), self.worker, e.equal(self.lane, 0))
        return []

    def groups(self, first: e.Index, last: e.Index, held: list[ir.Value]) -> list[ir.Value]:
        """Write each group's sums to shared memory; neighbouring lanes share a group. Nothing stays in registers."""
        gemv = self.plan
        lanes = (self.kernel.group or 1) // gemv.weights.depth
        with e.loop(self.worker, last, self.workers) as each:
            values, _ = self.step(each.index, self.zeros(), [])
            number = e.add(e.multiply(each.index, WARP), self.lane)
            there = True if gemv.chunks % WARP == 0 else e.less(number, gemv.chunks)
            wanted = e.both(e.equal(e.remainder(self.lane, lanes), 0), there)
            self._store_sums(across(values, lanes, WARP), e.divide(number, lanes), wanted)
        return []

    def _store_sums(self, totals: Sequence[ir.Value], part: e.Index, wanted: e.Condition) -> None:
        """Write the sum of each column and row to shared memory."""
        gemv, width = self.plan, self._width

        def write(first: int, columns: int, local: e.Index) -> None:
            for c in range(columns):
                for m in range(gemv.most_rows):
                    where = [e.index(part), e.index(m), e.index(e.add(local, c))]
                    memref.store(totals[m * width + first + c], self.parts, where)

        e.guarded(wanted, lambda: write(0, gemv.split.columns, self.local))
        if self.summing:
            e.guarded(e.both(wanted, self.first_warp), lambda: write(gemv.split.columns, 1, gemv.shape[1]))

    # ---- results

    @property
    def run_count(self) -> int:
        return -(-self.plan.most_rows * self.plan.shape[1] // (WARP * _WARPS))

    def where(self, number: int) -> Where:
        """The place of a result of this thread. Neighbouring threads have neighbouring columns."""
        gemv, n = self.plan, self.kernel.n
        at = e.add(self.thread, number * WARP * _WARPS)
        row, column = e.divide(at, gemv.shape[1]), e.add(self.n0, e.remainder(at, gemv.shape[1]))
        safe_row = row if isinstance(self.place.rows, int) else self.place.inside(row)
        return Where(row, column, safe_row, column if n % gemv.shape[1] == 0 else e.minimum(column, n - 1))

    def finish(self, state: Sequence[ir.Value]) -> None:
        """Finish this thread's results one after another, each from its partial sums in shared memory."""
        e.barrier()
        results, threads = self.plan.most_rows * self.plan.shape[1], WARP * _WARPS
        for i in range(self.run_count):
            number = e.add(self.thread, i * threads)
            with e.when(True if (i + 1) * threads <= results else e.less(number, results)):
                at = self.where(i)
                run = self._total(at, e.remainder(number, self.plan.shape[1]))
                self._stored(run, at)

    def runs(self, totals: list[ir.Value]) -> list[Run]:
        """The run of one result: its sum, and the sum of its row."""
        return self.of_bytes([e.gathered(totals[:1])], totals[1:] or [None], self.plan.weights.shift)

    def _total(self, at: Where, local: e.Index) -> Run:
        """The run of a result in column `local` of the workgroup: its partial sums added up, or combined in the order
        of the groups."""
        columns = [local, *([self.plan.shape[1]] if self.summing else [])]

        def part(number: e.Index) -> list[ir.Value]:
            return [e.load(self.parts, [number, at.row, column]) for column in columns]

        if self.kernel.combine is None:
            parts = [part(p) for p in range(self.plan.parts)]
            return self.runs([reduce(arith.addi, values) for values in zip(*parts, strict=True)])[0]
        total, groups = self.epilogue.start(), self.kernel.groups
        rest = groups % _GROUPS_READ_TOGETHER

        def combined(total: ir.Value, first: e.Index, count: int) -> ir.Value:
            with self.epilogue.scope():
                for number in (e.add(first, i) for i in range(count)):
                    run = self.runs(part(number))[0]
                    total = self.epilogue.combine(total, run.value, run.row_sum, number, at.safe_row, at.safe_column)
            return total

        if groups > rest:
            with e.loop(0, groups - rest, _GROUPS_READ_TOGETHER, [total]) as group:
                group.next = [combined(group.values[0], group.index, _GROUPS_READ_TOGETHER)]
            total = group.results[0]
        return Run(combined(total, groups - rest, rest))
