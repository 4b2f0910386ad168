"""Products on AMD's matrix instructions.

A wave computes `rows` by `columns` tiles of 16 x 16; the waves of a workgroup are side by side along N. The weight is
loaded from memory straight to registers, in few loads per step and lane: codes are packed in the order of the
instruction's lanes, so that a wave reads one run of bytes and no wave reads another's. The activation is shared through
LDS with two buffers: while one step is multiplied, the next is being loaded, and one barrier per step is enough.

    for each step of K:    load the next step (weights to registers, activations too)
                           read this step's activations from LDS, multiply
                           write the next activations to the other half of LDS, barrier

After each group along K its sums are scaled and added to the totals in registers. Sums of activation rows, if zero
points require them, are computed as one more column tile of ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import hypot
from typing import ClassVar

import numpy as np

from ....core.mlir import arith, ir, vector
from ....dialect.dtypes import Array
from ....kernels.layouts import WeightLayout
from ....kernels.row_sums import uses_row_sums
from ....kernels.tile.instruction import TiledMma
from ....kernels.tile.packing import packed
from ....kernels.weights import constant_bytes
from ...base import Target
from ...cost import Figures, Work
from ...gpu_kernels import emit as e
from ...gpu_kernels.activations import rows_of
from ...gpu_kernels.epilogue import Epilogue
from ...gpu_kernels.executable import View
from ...gpu_kernels.loop import Run, Source, Where, Workgroup
from ...gpu_kernels.raster import Raster
from ...gpu_kernels.small_floats import halves_of_word
from ...gpu_kernels.stages import LOAD, Copies, Fetched, SharedRows, StagedLoop, shared_shape
from ...gpu_kernels.stream_k import Sharing
from ...gpu_kernels.tiled import TYPICAL_ROWS, TiledKernel, TileProgram, matrices
from ...gpu_kernels.weights import CodeFormat
from ...strategy import Facts
from .instructions import Instruction
from .machine import Amd

_TILE = 16
_ONES = 0x01010101
_OTHER_REGISTERS = 64  # of a lane, in addition to its sums
_TYPICAL_PRODUCTS = 16  # assumed for a dynamic number of products


@dataclass(frozen=True)
class KStep:
    """One step along K: `loads` times `blocks` blocks. A lane holds `run` neighbouring elements of each block; it loads
    the codes of `blocks` blocks at once, as `codes.words` words."""

    instruction: Instruction
    run: int
    loads: int
    blocks: int
    codes: CodeFormat
    # One-byte float formats of activation and weight that are converted to the instruction's type in registers.
    converted: tuple[str, str] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of an element of the activation in memory."""
        return 1 if self.converted is not None else self.instruction.bytes

    @property
    def block(self) -> int:
        return self.run * self.instruction.parts

    @property
    def depth(self) -> int:
        """Codes along K."""
        return self.block * self.blocks * self.loads

    @property
    def fragment_words(self) -> int:
        """Words of one load from LDS: a lane's elements of a block, at most four words."""
        return min(4, self.run * self.bytes // 4)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of activations in a step."""
        return self.depth * self.bytes

    @property
    def mma(self) -> TiledMma:
        """How the elements of a step are distributed over lanes."""
        return TiledMma(self.instruction.fragments, "a", self.depth, self.run)

    def layout(self, n: int, k: int) -> WeightLayout:
        """The layout of packed codes `[N, K]`: steps, column tiles, loads, lanes, and the codes of a lane in the order
        of K."""
        weight = self.mma.weight
        codes, lanes = reversed(weight["value"]), reversed(weight["lane"])
        of_loads = self.loads.bit_length() - 1
        own = [bit for bit in codes if bit is not None]
        digits = [*own[:of_loads], *(bit for bit in lanes if bit is not None), *own[of_loads:]]
        return packed(digits, (n, k), ("k", "column"), self.codes.bits, self.codes.offset)


@dataclass(frozen=True)
class Tiles:
    """A wave's tiles along rows and columns, the waves of a workgroup, and whether workgroups share K (`stream_k`)."""

    rows: int
    columns: int
    waves: int
    stream_k: bool = False

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.columns}x{self.waves}" + "-stream-k" * self.stream_k


class Wave(StagedLoop):
    """The loop of one lane of a wave."""

    halves = 2

    def __init__(self, plan: MatrixKernel, source: Source, workgroup: Workgroup) -> None:
        super().__init__(plan.kernel, plan.machine, source, workgroup, plan.steps)
        self.plan, self.along_k, self.tiles = plan, plan.step, plan.tiles
        self.instruction, mma = plan.step.instruction, plan.step.mma
        subgroup, thread = plan.machine.subgroup, e.thread()
        self.thread = thread
        wave, lane = e.divide(thread, subgroup), e.remainder(thread, subgroup)
        self.lane = lane
        self.packed_lane = mma.weight.distinct("lane").place("number", lane=lane)
        self.weight_column = mma.weight.place("column", lane=lane)
        self.right_row = mma.activation.place("row", lane=lane)
        per_load = 4 * plan.step.fragment_words // plan.step.bytes
        self.right_load = mma.activation.counted_in("k", per_load).place("k", lane=lane)
        self.row, self.column = (mma.result.place(axis, lane=lane) for axis in ("row", "column"))
        self.first_row = e.multiply(workgroup.tile[0], plan.shape[0])
        first = e.add(e.multiply(workgroup.tile[1], self.tiles.waves), wave)
        self.first_tile = e.multiply(first, self.tiles.columns)
        self.summing = plan.summing
        self.shared = SharedRows(plan.shape[0], plan.step.row_bytes, plan.step.fragment_words, self.halves)
        window = self.kernel.lhs.window
        down = window is not None and window.planes
        self.copies = Copies(thread, plan.threads, plan.shape[0], plan.step.row_bytes // LOAD, down)

    @property
    def run_count(self) -> int:
        return self.tiles.rows * self.tiles.columns

    def barrier(self) -> None:
        """Wait for LDS, but not for loads in flight to registers."""
        ir.Context.current.get_dialect_descriptor("amdgpu")
        ir.Operation.create("amdgpu.lds_barrier")

    def zeros(self) -> list[ir.Value]:
        """Zero accumulators of each tile, row by row, followed by those of the row sums."""
        kind = e.vector_of(self.instruction.registers, self.kernel.acc_type)
        return [e.zero(kind) for _ in range(self.tiles.rows * (self.tiles.columns + self.summing))]

    # ---- a step

    def fetch(self, step: e.Index) -> list[Fetched]:
        return [Fetched(held=self._weights(step)), self.activations(step)]

    def multiply(self, step: e.Index, half: e.Index, totals: list[ir.Value], held: list[ir.Value]) -> list[ir.Value]:
        totals = list(totals)
        group: e.Index = 0
        if self.kernel.rhs.decode is not None and self.kernel.group is not None:
            group = e.divide(step, self.kernel.group // self.along_k.depth)
        loads, columns = self.along_k.loads, self.tiles.columns
        left = [self._left(held[c * loads : (c + 1) * loads], group, c) for c in range(columns)]
        ones = [e.word(_ONES)] * self.instruction.words
        for r in range(self.tiles.rows):
            for p, right in enumerate(self._right(half, r)):
                for c in range(columns):
                    i = r * columns + c
                    totals[i] = self.product(left[c][p], right, totals[i], (r, c, p))
                if self.summing:
                    i = self.run_count + r
                    totals[i] = self.instruction.multiply(ones, right, totals[i])
        return totals

    def product(
        self, left: list[ir.Value], right: list[ir.Value], total: ir.Value, place: tuple[int, int, int]
    ) -> ir.Value:
        """A total with one more instruction's product. `place`: the numbers of its row tile, of its column tile, and of
        the instruction in the step."""
        return self.instruction.multiply(left, right, total)

    def _weights(self, step: e.Index) -> list[ir.Value]:
        """The stored codes of a step, for each column tile."""
        last = (self.kernel.n - 1) // _TILE
        tiles = [e.minimum(e.add(self.first_tile, c), last) for c in range(self.tiles.columns)]
        return [
            e.load(self.workgroup.rhs, self.place.of_matrix(step, tile, load, self.packed_lane))
            for tile in tiles
            for load in range(self.along_k.loads)
        ]

    def _left(self, stored: list[ir.Value], group: e.Index, tile: int) -> list[list[ir.Value]]:
        """The words of the weight for each instruction of a step."""
        form, converted = self.along_k.codes, self.along_k.converted
        stored_words = [word for load in stored for word in e.elements(load)]
        words = form.unpacked(stored_words)
        if self.kernel.rhs.decode is not None:
            words = self._decoded(words, group, tile)
        elif converted is not None:
            words = self._converted(words, converted[1])
        return self._by_instruction(words)

    def _by_instruction(self, words: list[ir.Value]) -> list[list[ir.Value]]:
        count = self.instruction.words
        return [words[i : i + count] for i in range(0, len(words), count)]

    def _converted(self, words: list[ir.Value], kind: str) -> list[ir.Value]:
        """Convert words of one-byte floats to words of 16-bit floats."""
        return [half for word in words for half in halves_of_word(word, kind, self.instruction.element)]

    def _decoded(self, words: list[ir.Value], group: e.Index, tile: int) -> list[ir.Value]:
        """Decode words of bytes `code << shift`, all of one column, to words of values."""
        form, lanes, i8 = self.along_k.codes, 4 * len(words), e.integer(8)
        column = e.add(e.multiply(e.add(self.first_tile, tile), _TILE), self.weight_column)
        codes = vector.bitcast(e.vector_of(lanes, i8), e.gathered(words))
        if form.shift:
            codes = arith.shrsi(codes, e.splat(form.shift, lanes, i8))
        if form.offset:
            codes = arith.addi(codes, e.splat(form.offset, lanes, i8))
        held = self.epilogue.column_operands(group, e.minimum(column, self.kernel.n - 1))
        numbers = self.epilogue.decode_column(codes, held)
        return e.elements(vector.bitcast(e.vector_of(lanes // 2, e.integer(32)), numbers))

    def _right(self, half: e.Index, tile: int) -> list[list[ir.Value]]:
        """The words of the activation in a row tile for each instruction of a step."""
        row = e.add(self.right_row, tile * _TILE)
        loads = self.along_k.run * self.along_k.bytes // (4 * self.shared.unit)  # of a block
        found = []
        for block in range(self.along_k.loads * self.along_k.blocks):
            first = e.add(self.right_load, block * self.instruction.parts * loads)
            for i in range(loads):
                found += self.shared.read(half, row, e.add(first, i))
        if self.along_k.converted is not None:
            found = self._converted(found, self.along_k.converted[0])
        return self._by_instruction(found)

    # ---- the result

    def where(self, number: int) -> Where:
        r, c = divmod(number, self.tiles.columns)
        row = e.add(e.add(self.first_row, r * _TILE), self.row)
        column = e.add(e.multiply(e.add(self.first_tile, c), _TILE), self.column)
        return self.at(row, column, self.instruction.registers)

    def runs(self, totals: list[ir.Value]) -> list[Run]:
        values, form = totals[: self.run_count], self.along_k.codes
        sums: list[ir.Value | None] = [None] * self.run_count
        if self.summing:
            rows = [vector.extract(v, [], [0]) for v in totals[self.run_count :]]
            sums = [rows[i // self.tiles.columns] for i in range(self.run_count)]
        return self.of_bytes(values, sums, form.shift, form.offset)


@dataclass(frozen=True)
class MatrixKernel(TiledKernel):
    """A kernel with its step along K and its tiles; `wave` is the class of its loop."""

    wave: ClassVar[type[Wave]] = Wave

    machine: Amd
    step: KStep
    tiles: Tiles
    workgroups: int = 0  # number that share K of all tiles (`stream_k`); 0: one workgroup per tile

    @property
    def name(self) -> str:
        return self.tiles.name

    @property
    def packing(self) -> KStep:
        return self.step

    @property
    def facts(self) -> Facts:
        return {
            "algorithm": "matrix",
            "mma": self.step.instruction.name,
            "weight_bits": self.step.codes.bits,
            "workgroup": [*self.shape, self.step.depth],
        }

    @property
    def registers(self) -> int:
        """Registers of a lane that hold sums; with groups, their sums are separate from the totals."""
        sums = 2 if self.kernel.combine is not None else 1
        return self.tiles.rows * self.tiles.columns * self.step.instruction.registers * sums

    def _resident(self, target: Target) -> int:
        """Waves that a SIMD runs at the same time."""
        has = target.capabilities
        workgroups = has.shared_memory // self.shared_bytes
        fit = has.simd_registers // (self.registers + _OTHER_REGISTERS)
        return max(1, min(has.simd_waves, fit, workgroups * self.tiles.waves // has.simds))

    def shared_among(self, target: Target) -> MatrixKernel:
        """The kernel with as many workgroups as run at the same time: two waves per SIMD, if they fit."""
        waves = target.capabilities.simds * Figures(target.capabilities).units * min(2, self._resident(target))
        return replace(self, workgroups=waves // self.tiles.waves)

    def work(self, target: Target, f: Figures) -> Work:
        """Rounds over the SIMDs of a device, times the work of one SIMD's waves in a step along K. A wave's other work
        (weights, its share of the activations, addresses) is counted as the time of some matrix instructions. A step is
        loaded while the previous one is multiplied; only the rest of the memory latency is waited for."""
        kernel, step, tiles = self.kernel, self.step, self.tiles
        m = f.rows(kernel.m, TYPICAL_ROWS)
        products = 1 if kernel.batch is None else kernel.batch.size or _TYPICAL_PRODUCTS
        rows, columns, waves, simds = tiles.rows, tiles.columns, tiles.waves, target.capabilities.simds
        blocks = products * -(-m // (_TILE * rows)) * -(-kernel.n // (_TILE * columns * waves))
        each = -(-blocks * waves // (simds * f.units))
        together: float = min(each, self._resident(target))
        rounds, steps, once = each / together, self.steps, 0.0
        if (sharing := self.sharing) is not None:
            together = sharing.workgroups * waves / (simds * f.units)
            rounds, steps = 1, -(-blocks * self.steps // sharing.workgroups)
            once = sharing.seconds(together * simds / waves, f)
        tile = simds * f.multiply(2 * _TILE * _TILE * step.depth, step.instruction.rate)
        addresses = 2.0 if sharing is None else 3.0  # a share starts and ends anywhere
        beside = {"weights": columns, "activations": rows / 2 + rows / waves, "addresses": addresses}
        busy = {name: together * tile * share for name, share in {"multiply": rows * columns, **beside}.items()}
        total = sum(busy.values())
        return Work(rounds, steps, alone={**busy, "latency": hypot(total, f.latency) - total}, once=once)

    @property
    def sharing(self) -> Sharing | None:
        if not self.workgroups:
            return None
        tiles, ordered = self.tiles, self.kernel.combine is not None
        steps = self.kernel.groups if ordered else self.steps
        words = tiles.rows * (tiles.columns + (self.summing and not ordered)) * self.step.instruction.registers
        return Sharing(self.workgroups, steps, self.threads, words, self.machine)

    @property
    def summing(self) -> bool:
        """Whether sums of activation rows are computed in addition to the product."""
        return (self.step.codes.offset != 0 and self.kernel.rhs.decode is None) or uses_row_sums(self.kernel)

    @property
    def shape(self) -> tuple[int, int]:
        return _TILE * self.tiles.rows, _TILE * self.tiles.columns * self.tiles.waves

    @property
    def threads(self) -> int:
        return self.tiles.waves * self.machine.subgroup

    @property
    def steps(self) -> int:
        return -(-self.kernel.k // self.step.depth)

    @property
    def shared_bytes(self) -> int:
        rows, stride = shared_shape(self.shape[0], self.step.row_bytes, self.step.fragment_words)
        flag = LOAD if self.workgroups else 0  # a word of `stream_k`, padded to align the rows behind it
        return 2 * rows * stride * 4 * self.step.fragment_words + flag

    def weight(self, codes: Array | None, padded_k: int) -> ir.Value:
        assert codes is not None
        array = self.step.layout(*codes.shape[-2:]).each(codes)
        array = array.reshape(*self._weight_shape, -1)
        return constant_bytes(np.ascontiguousarray(array))

    def program(self, inputs: Sequence[ir.Type]) -> TileProgram:
        epilogue = Epilogue(self.kernel, self.machine, self.step.instruction.registers, decodes_columns=True)
        weight = View.of_words(self._weight_shape, self.step.codes.words)
        activations = rows_of(self.kernel, LOAD // self.step.bytes, self.steps * self.step.depth)
        raster, loop = Raster(self.kernel, *self.shape), partial(self.wave, self, activations)
        return TileProgram(raster, loop, epilogue, activations.view, weight)

    @property
    def _weight_shape(self) -> tuple[int, ...]:
        """The shape of the packed weight, in loads of lanes."""
        lanes = _TILE * self.step.instruction.parts
        return (*matrices(self.kernel), self.steps, -(-self.kernel.n // _TILE), self.step.loads, lanes)
