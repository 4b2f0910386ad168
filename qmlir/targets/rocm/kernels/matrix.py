"""Products on AMD's matrix instructions.

A wave makes `rows` by `columns` tiles of 16 x 16; the waves of a workgroup stand side by side along N. The weight goes
from memory to registers, each lane's codes of a step in one load: they are packed in the order of the instruction's
lanes, so that a wave reads one run of bytes and no wave reads another's. The activation is shared through LDS, two
steps in turn: while one is multiplied, the next is on its way, and one barrier a step is enough.

    for each step of K:    load the next step (weights to registers, activations too)
                           read this step's activations from LDS, multiply
                           write the next activations to the other half of LDS, barrier

Sums over groups along K are scaled and added up in registers behind each group. Sums of activation rows, where zero
points ask for them, are one more column tile of ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core.mlir import arith, ir, vector
from ....dialect.dtypes import Array
from ....kernels.description import Kernel
from ....kernels.layouts import WeightLayout
from ....kernels.row_sums import uses_row_sums
from ....kernels.tile.instruction import TiledMma
from ....kernels.tile.packing import packed
from ....kernels.weights import constant_bytes
from ...gpu_kernels import emit as e
from ...gpu_kernels.activations import Rows, WindowRows, rows_of
from ...gpu_kernels.batch import Place, Products
from ...gpu_kernels.epilogue import Epilogue
from ...gpu_kernels.executable import Function, Launch, View, executable
from ...gpu_kernels.small_floats import halves_of_word
from ...gpu_kernels.weights import Codes
from .instructions import Instruction
from .machine import Amd

_TILE = 16
_ONES = 0x01010101
_LOAD = 16  # bytes of the widest load


@dataclass(frozen=True)
class Step:
    """One step along K: `loads` times `blocks` blocks, of each of which a lane has `run` neighbouring elements. The
    codes of `blocks` are one load of a lane, of `codes.words` words."""

    instruction: Instruction
    run: int
    loads: int
    blocks: int
    codes: Codes
    # Formats of one-byte floats that become the instruction's type in registers: the activation's, the weight's.
    converted: tuple[str, str] | None = None

    @property
    def bytes(self) -> int:
        """Of an element of the activation in memory."""
        return 1 if self.converted is not None else self.instruction.bytes

    @property
    def block(self) -> int:
        return self.run * self.instruction.parts

    @property
    def depth(self) -> int:
        """Codes along K."""
        return self.block * self.blocks * self.loads

    @property
    def mma(self) -> TiledMma:
        """Where its elements are among lanes."""
        return TiledMma(self.instruction.fragments, "a", self.depth, self.run)

    def layout(self, n: int, k: int) -> WeightLayout:
        """Of codes `[N, K]`: steps, tiles of columns, lanes, and the codes of a lane in the order of K; of each load
        those of all lanes."""
        weight = self.mma.weight
        codes, lanes = reversed(weight["value"]), reversed(weight["lane"])
        of_loads = self.loads.bit_length() - 1
        own = [bit for bit in codes if bit is not None]
        digits = [*own[:of_loads], *(bit for bit in lanes if bit is not None), *own[of_loads:]]
        return packed(digits, (n, k), ("k", "column"), self.codes.bits, self.codes.offset)


@dataclass(frozen=True)
class Tiles:
    """Tiles of a wave, and waves of a workgroup."""

    rows: int
    columns: int
    waves: int


@dataclass(frozen=True)
class MatrixKernel:
    """A kernel, how it steps along K and how it is tiled."""

    kernel: Kernel
    step: Step
    tiles: Tiles
    machine: Amd

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a workgroup."""
        return _TILE * self.tiles.rows, _TILE * self.tiles.columns * self.tiles.waves

    @property
    def threads(self) -> int:
        return self.tiles.waves * self.machine.subgroup

    @property
    def steps(self) -> int:
        return -(-self.kernel.k // self.step.depth)

    @property
    def column_tiles(self) -> int:
        """Of the packed weight."""
        return -(-self.kernel.n // _TILE)

    @property
    def shared_bytes(self) -> int:
        rows, stride = self._shared_shape
        return 2 * rows * stride * 4 * self._fragment_words

    @property
    def _fragment_words(self) -> int:
        """Of one load from LDS: a lane's elements of a block, four words at most."""
        return min(4, self.step.run * self._width // 4)

    @property
    def _width(self) -> int:
        """Bytes of an element of the activation."""
        return self.step.bytes

    @property
    def _shared_shape(self) -> tuple[int, int]:
        """Rows, and loads of a row, 16 bytes of which keep rows off each other's banks."""
        return self.tile[0], (self.step.depth * self._width + _LOAD) // (4 * self._fragment_words)

    def packed(self, codes: Array) -> Any:
        """The weight as a constant at the insertion point."""
        array = self.step.layout(*codes.shape[-2:]).each(codes)
        array = array.reshape(*self._weight_shape, -1)
        return constant_bytes(np.ascontiguousarray(array))

    def emit(self, name: str, inputs: Any, result: Any) -> str:
        """The executable; see `outline`."""
        return executable(name, self.function)

    @property
    def function(self) -> Function:
        """The kernel as a function of an executable."""
        tile = self.tile
        columns = -(-self.kernel.n // tile[1])
        products = Products(self.kernel)
        launch = Launch(self.threads, self.machine.subgroup, lambda size: products.grid(size, columns, tile[0]))
        epilogue = Epilogue(self.kernel, self.machine, self.step.instruction.registers, decodes_columns=True)
        activations = rows_of(self.kernel, _LOAD // self._width, self.steps * self.step.depth)
        picks = products.views
        views = [activations.view, self._weight_view, *picks, *epilogue.views]

        def body(size: e.Index, memory: list[Any]) -> None:
            place = products.place(size, memory[2 : 2 + len(picks)], e.multiply(e.block(1), tile[0]))
            epilogue.bind(memory[2 + len(picks) :], place)
            wave = _Wave(self, epilogue, activations, memory[0], memory[1], place)
            with e.when(place.used):
                wave.run()

        return Function(products.size, views, launch, body, products.tokens)

    @property
    def _weight_shape(self) -> tuple[int, ...]:
        """Of loads of lanes."""
        matrices = () if self.kernel.batch is None else (self.kernel.batch.matrices,)
        lanes = _TILE * self.step.instruction.parts
        return (*matrices, self.steps, self.column_tiles, self.step.loads, lanes)

    @property
    def _weight_view(self) -> View:
        words = self.step.codes.words
        element = e.integer(32) if words == 1 else e.vector_of(words, e.integer(32))
        return View(self._weight_shape, element)


class _Wave:
    """What one lane of a wave does."""

    def __init__(
        self, plan: MatrixKernel, epilogue: Epilogue, activations: Rows | WindowRows, lhs: Any, rhs: Any, place: Place
    ) -> None:
        self.plan, self.kernel, self.step, self.tiles = plan, plan.kernel, plan.step, plan.tiles
        self.epilogue, self.activations = epilogue, activations
        self.lhs, self.rhs, self.place = lhs, rhs, place
        self.instruction = plan.step.instruction
        self.thread = e.thread()
        wave, lane = e.divide(self.thread, plan.machine.subgroup), e.remainder(self.thread, plan.machine.subgroup)
        mma = plan.step.mma
        self.packed_lane = mma.weight.distinct("lane").place("number", lane=lane)
        self.weight_column = mma.weight.place("column", lane=lane)
        self.right_row = mma.activation.place("row", lane=lane)
        per_load = 4 * plan._fragment_words // plan._width
        self.right_load = mma.activation.counted_in("k", per_load).place("k", lane=lane)
        self.row, self.column = (mma.result.place(axis, lane=lane) for axis in ("row", "column"))
        self.first_row = e.multiply(e.block(1), plan.tile[0])
        first = e.add(e.multiply(e.block(0), self.tiles.waves), wave)
        self.first_tile = e.multiply(first, self.tiles.columns)
        self.summing = (plan.step.codes.offset != 0 and self.kernel.rhs.decode is None) or uses_row_sums(self.kernel)
        self.i32 = e.integer(32)
        shape = (2, *plan._shared_shape)
        words = plan._fragment_words
        self.shared = e.shared(shape, self.i32 if words == 1 else e.vector_of(words, self.i32))
        self.acc = e.vector_of(self.instruction.registers, self.kernel.acc_type)

    def run(self) -> None:
        self.tokens = [self._token(i) for i in range(self._copies[1])]
        weights = self._weights(0)
        self._to_shared(0, self._activations(0))
        self._barrier()
        if self.kernel.combine is None:
            with e.loop(0, self.plan.steps, 1, [*self._zeros(), *weights]) as step:
                step.next = self._advance(step.index, step.values)
            totals, sums = self._apart(step.results[: self._accumulators])
        else:
            totals, sums = self._groups(weights), [None] * self.tiles.rows
        self._finish(totals, sums)

    def _groups(self, weights: list[Any]) -> list[Any]:
        """Sums over groups along K, in ascending order."""
        groups = self.kernel.groups
        per = self.plan.steps // groups
        start = [self.epilogue.start() for _ in range(self.tiles.rows * self.tiles.columns)]
        with e.loop(0, groups, 1, [*start, *weights]) as outer:
            held = outer.values[len(start) :]
            with e.loop(0, per, 1, [*self._zeros(), *held]) as inner:
                at = e.add(e.multiply(outer.index, per), inner.index)
                inner.next = self._advance(at, inner.values)
            parts, sums = self._apart(inner.results[: self._accumulators])
            totals = []
            with self.epilogue.scope():
                for i, (total, part) in enumerate(zip(outer.values, parts, strict=False)):
                    row, column = self._place(i)
                    sum_ = sums[i // self.tiles.columns]
                    safe = self.place.inside(row)
                    totals.append(self.epilogue.combine(total, part, sum_, outer.index, safe, self._readable(column)))
            outer.next = [*totals, *inner.results[self._accumulators :]]
        return list(outer.results[: len(start)])

    # ---- the main loop

    @property
    def _accumulators(self) -> int:
        return self.tiles.rows * (self.tiles.columns + self.summing)

    def _zeros(self) -> list[Any]:
        """Of each tile, row by row, and then of each row's sums."""
        return [e.zero(self.acc) for _ in range(self._accumulators)]

    def _advance(self, step: Any, values: list[Any]) -> list[Any]:
        """Multiply a step, whose weights are in registers and whose activations are in LDS; bring the next."""
        totals, weights = list(values[: self._accumulators]), values[self._accumulators :]
        following = e.minimum(e.add(step, 1), self.plan.steps - 1)
        next_weights = self._weights(following)
        next_rows = self._activations(following)
        half = e.remainder(step, 2)
        group: e.Index = 0
        if self.kernel.rhs.decode is not None and self.kernel.group is not None:
            group = e.divide(step, self.kernel.group // self.step.depth)
        loads = self.step.loads
        left = [self._left(weights[c * loads : (c + 1) * loads], group, c) for c in range(self.tiles.columns)]
        tile_count = self.tiles.rows * self.tiles.columns
        ones = [e.word(_ONES)] * self.instruction.words
        for r in range(self.tiles.rows):
            right = self._right(half, r)
            pieces = len(right)
            for p in range(pieces):
                for c in range(self.tiles.columns):
                    i = r * self.tiles.columns + c
                    totals[i] = self.instruction.multiply(left[c][p], right[p], totals[i])
                if self.summing:
                    totals[tile_count + r] = self.instruction.multiply(ones, right[p], totals[tile_count + r])
        self._to_shared(e.subtract(1, half), next_rows)
        self._barrier()
        return [*totals, *next_weights]

    def _weights(self, step: e.Index) -> list[Any]:
        """The stored codes of a step, of each column tile."""
        last = self.plan.column_tiles - 1
        tiles = [e.minimum(e.add(self.first_tile, c), last) for c in range(self.tiles.columns)]
        return [
            e.load(self.rhs, self.place.of_matrix(step, tile, load, self.packed_lane))
            for tile in tiles
            for load in range(self.step.loads)
        ]

    def _left(self, stored: list[Any], group: e.Index, tile: int) -> list[list[Any]]:
        """The words of each instruction of a step."""
        count = self.instruction.words
        stored_words = [word for load in stored for word in e.elements(load)]
        words = [byte for word in stored_words for byte in self.step.codes.bytes_of(word)]
        if self.kernel.rhs.decode is not None:
            words = self._decoded(words, group, tile)
        elif self.step.converted is not None:
            words = self._converted(words, self.step.converted[1])
        return [words[i : i + count] for i in range(0, len(words), count)]

    def _converted(self, words: list[Any], kind: str) -> list[Any]:
        """Words of 16-bit floats, from words of one-byte floats."""
        return [half for word in words for half in halves_of_word(word, kind, self.instruction.element)]

    def _decoded(self, words: list[Any], group: e.Index, tile: int) -> list[Any]:
        """Words of numbers, from words of bytes `code << shift`; all of one column."""
        form = self.step.codes
        column = e.add(e.multiply(e.add(self.first_tile, tile), _TILE), self.weight_column)
        lanes = 4 * len(words)
        codes = vector.bitcast(e.vector_of(lanes, e.integer(8)), e.gathered(words))
        if form.shift:
            kind = codes.type
            shift = arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, e.attribute(form.shift, e.integer(8))))
            codes = arith.shrsi(codes, shift)
        if form.offset:
            kind = codes.type
            more = arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, e.attribute(form.offset, e.integer(8))))
            codes = arith.addi(codes, more)
        held = self.epilogue.column_operands(group, e.minimum(column, self.kernel.n - 1))
        numbers = self.epilogue.decode_column(codes, held)
        return e.elements(vector.bitcast(e.vector_of(lanes // 2, self.i32), numbers))

    def _right(self, half: Any, tile: int) -> list[list[Any]]:
        """The activations of a tile of rows, the words of each instruction."""
        words, count = self.plan._fragment_words, self.instruction.words
        row = e.add(self.right_row, tile * _TILE)
        loads = self.step.run * self.plan._width // (4 * words)  # of a block
        found = []
        for block in range(self.step.loads * self.step.blocks):
            first = e.add(self.right_load, block * self.instruction.parts * loads)
            for i in range(loads):
                found += e.elements(e.load(self.shared, [half, row, e.add(first, i)]))
        if self.step.converted is not None:
            found = self._converted(found, self.step.converted[0])
        return [found[i : i + count] for i in range(0, len(found), count)]

    # ---- activations on their way to LDS

    @property
    def _copies(self) -> tuple[int, int]:
        """Loads of 16 bytes of a step in all, and of one thread."""
        count = self.plan.tile[0] * self.step.depth * self.plan._width // _LOAD
        return count, -(-count // self.plan.threads)

    def _copy(self, number: int) -> tuple[Any, Any, Any]:
        """Of a thread's copy: its row, its load in the row, and whether it is one."""
        count, _ = self._copies
        per_row = self.step.depth * self.plan._width // _LOAD
        at = e.add(self.thread, number * self.plan.threads)
        ours = True if count % self.plan.threads == 0 else e.less(at, count)
        if self._planes:
            return e.remainder(at, self.plan.tile[0]), e.divide(at, self.plan.tile[0]), ours
        row = e.divide(at, per_row)
        if ours is not True:
            row = e.minimum(row, self.plan.tile[0] - 1)
        return row, e.remainder(at, per_row), ours

    @property
    def _planes(self) -> bool:
        """Whether neighbours in memory are those of neighbouring rows: threads then copy these."""
        return self.kernel.lhs.window is not None and self.kernel.lhs.window.planes

    def _activations(self, step: e.Index) -> list[list[Any]]:
        """The words that this thread copies of a step."""
        per_row = self.step.depth * self.plan._width // _LOAD
        found = []
        for i, token in enumerate(self.tokens):
            _, at, _ = self._copy(i)
            found.append(self.activations.load(self.lhs, token, e.add(e.multiply(step, per_row), at)))
        return found

    def _token(self, number: int) -> e.Index:
        """The row of the activation that a copy of this thread is of."""
        return self.place.token(self.place.inside(e.add(self.first_row, self._copy(number)[0])))

    def _to_shared(self, half: e.Index, copies: list[list[Any]]) -> None:
        words = self.plan._fragment_words
        for i, copy in enumerate(copies):
            row, at, ours = self._copy(i)
            with e.when(ours):
                for j in range(0, 4, words):
                    value = copy[j] if words == 1 else e.gathered(copy[j : j + words])
                    where = e.add(e.multiply(at, 4 // words), j // words)
                    e.store(value, self.shared, [half, row, where])

    def _barrier(self) -> None:
        """Waits for LDS and not for the loads that are on their way to registers."""
        ir.Context.current.get_dialect_descriptor("amdgpu")
        ir.Operation.create("amdgpu.lds_barrier")

    # ---- the result

    def _place(self, tile: int) -> tuple[Any, Any]:
        """The row and the first column of what a lane has of a tile."""
        r, c = divmod(tile, self.tiles.columns)
        row = e.add(e.add(self.first_row, r * _TILE), self.row)
        column = e.add(e.multiply(e.add(self.first_tile, c), _TILE), self.column)
        return row, column

    def _readable(self, column: Any) -> Any:
        """A column that is there, at the start of a lane's run."""
        width = self.instruction.registers
        last = (self.kernel.n - 1) // width * width
        return e.minimum(column, last)

    def _apart(self, values: list[Any]) -> tuple[list[Any], list[Any]]:
        """Sums of tiles as they are meant, and of each row of tiles the sum of a lane's row."""
        count = self.tiles.rows * self.tiles.columns
        sums: list[Any] = [None] * self.tiles.rows
        if self.summing:
            sums = [vector.extract(v, [], [0]) for v in values[count:]]
        tiles = list(values[:count])
        form, lanes = self.step.codes, self.instruction.registers
        if self.kernel.rhs.decode is not None:
            return tiles, sums
        if form.shift:
            tiles = [arith.shrsi(t, e.broadcast(e.word(form.shift), lanes)) for t in tiles]
        if form.offset:
            more = [e.broadcast(arith.muli(s, e.word(form.offset)), lanes) for s in sums]
            tiles = [arith.addi(t, more[i // self.tiles.columns]) for i, t in enumerate(tiles)]
        return tiles, sums

    def _finish(self, totals: list[Any], sums: list[Any]) -> None:
        for i, total in enumerate(totals):
            row, column = self._place(i)
            safe = self.place.inside(row)
            sum_ = sums[i // self.tiles.columns]
            result = self.epilogue.finish(total, sum_, safe, self._readable(column))
            self.epilogue.write(result, row, column)
