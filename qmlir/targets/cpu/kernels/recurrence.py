"""Recurrent layers on CPUs: one kernel computes the whole loop over the steps.

A chunk is one direction and a block of rows of the batch, which are independent of the other rows. In each step, one
block of units after another, the sums of all gates are accumulated in registers and the new state is computed from
them, so that only states are stored. The weights are packed in the order in which they are read: for each block of
units and each element of the state, a few vectors of each gate. They are read from the caches once per step, for any
number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....core.mlir import arith, ir, llvm
from ....kernels.recurrence import Phase, Recurrence
from ...cost import TYPICAL_CORE
from ..threads.cost import a_nanosecond
from ..threads.program import has_helpers
from . import emit as e
from .chunks import Chunked, executable

# The most rows of a chunk: more if the weights do not stay in a core's own cache from one chunk to the next.
_ROWS, _MORE_ROWS, _OWN_CACHE = 16, 64, 1 << 20
# The most rows whose sums are in registers at once. For a dynamic batch, the rest is computed in tiles of 2 and 1.
_TILE, _DYNAMIC_TILE = 6, 4
_UNROLL = 4
# The cost of a gate of a unit in addition to its multiply-adds, in operations.
_GATE_OPERATIONS = 40


@dataclass(frozen=True)
class RecurrenceRegisters:
    """The vectors of a CPU: f32 lanes, and how many sums are in registers at once."""

    name: str
    features: tuple[frozenset[str], ...]
    lanes: int
    sums: int


X86 = (
    RecurrenceRegisters("recurrence-avx512", (frozenset({"avx512f", "avx512bw", "avx512vl"}),), lanes=16, sums=24),
    RecurrenceRegisters("recurrence-avx2", (frozenset({"avx2", "fma"}),), lanes=8, sums=12),
)
ARM = RecurrenceRegisters("recurrence-neon", (frozenset({"neon"}),), lanes=4, sums=24)


@dataclass(frozen=True)
class UnitBlocks:
    """How the units of a layer are divided into blocks for one of its phases: each has `vectors` vectors per gate."""

    hidden: int
    gates: tuple[int, ...]
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def whole(self) -> int:
        """The number of blocks without padding."""
        return self.hidden // self.width

    @property
    def count(self) -> int:
        return -(-self.hidden // self.width)


class RecurrenceKernel:
    """The executable of a layer whose inputs have the static sizes `steps` and `batch`, None if dynamic."""

    def __init__(self, layer: Recurrence, steps: int | None, batch: int | None, registers: RecurrenceRegisters) -> None:
        self.layer, self.steps, self.batch, self.registers = layer, steps, batch, registers
        own = 4 * layer.gates * layer.hidden**2 <= _OWN_CACHE
        self.rows = min(batch or _MORE_ROWS, _ROWS if own else _MORE_ROWS)
        most = max(1, registers.sums // max(len(phase.gates) for phase in layer.phases))
        if batch is None or batch % self.rows:
            self.tiles = [n for n in (_DYNAMIC_TILE, 2, 1) if n <= most]
        else:
            tiles = -(-self.rows // min(self.rows, most, _TILE))
            self.tiles = [-(-self.rows // tiles)]
        self.blocks = [self._blocks(phase) for phase in layer.phases]
        # Slots 0 and 1 are the states of the last and of this step; the others hold what a phase makes for the next.
        made = [name for phase in layer.phases for name in phase.writes if name not in ("h", "c")]
        self.slots = {name: 2 + i for i, name in enumerate(made)}

    def _blocks(self, phase: Phase) -> UnitBlocks:
        """The blocks with the least padding, of these the widest."""
        gates, lanes, hidden = phase.gates, self.registers.lanes, self.layer.hidden
        most = max(1, self.registers.sums // (self.tiles[0] * len(gates)))
        all_vectors = -(-hidden // lanes)
        best = min(range(1, most + 1), key=lambda n: (-(-all_vectors // n) * n, -n))
        return UnitBlocks(hidden, gates, best, lanes)

    @property
    def workspace(self) -> int:
        """The number of tensors `[D, B, H]` that are needed in addition to the results."""
        return 2 + len(self.slots)

    def emit(self, name: str, tensors: Sequence[ir.Type], axes: Sequence[Sequence[int]]) -> str:
        """Emit the executable for operands, results and a workspace of these types; return its entry point. Its sizes
        are the number of steps and the batch, if they are dynamic."""
        kernel = Chunked(self._count, self._chunk, self._cost, shared=has_helpers(self.registers.features))
        return executable(name, [self.steps, self.batch], tensors, kernel, axes)

    def _row_blocks(self, batch: e.Index) -> e.Index:
        return e.divide_up(batch, self.rows)

    def _count(self, _: e.Index, batch: e.Index) -> e.Index:
        return e.multiply(self._row_blocks(batch), self.layer.directions)

    def _cost(self, steps: e.Index, batch: e.Index) -> e.Index:
        """About how many nanoseconds a call takes on one thread."""
        layer = self.layer
        row = layer.directions * layer.gates * layer.hidden * (2 * layer.hidden + _GATE_OPERATIONS)
        return e.divide(e.multiply(e.multiply(steps, batch), row), a_nanosecond(TYPICAL_CORE.floats))

    def _chunk(self, number: ir.Value, sizes: list[e.Index], buffers: list[e.Buffer]) -> None:
        steps, batch = sizes
        names = [*self.layer.operands]
        names[1:2] = [f"weights{i}" for i in range(len(self.blocks))]
        results = ["y", "last_h", *(["last_c"] if "c" in names else []), "work"]
        memory = dict(zip([*names, *results], buffers, strict=True))
        blocks = self._row_blocks(batch)
        first = e.multiply(e.remainder(number, blocks), self.rows)
        count: e.Index = self.rows
        if not isinstance(batch, int) or batch % self.rows:
            count = e.minimum(e.subtract(batch, first), self.rows)
        direction = e.divide(number, blocks)
        for d in range(self.layer.directions):
            with e.when(self.layer.directions == 1 or e.equal(direction, d)):
                _Direction(self, d, memory, steps, first, count).emit()


@dataclass
class _Place:
    """A tile of rows and a block of units in one step."""

    step: e.Index
    row: e.Index
    rows: int
    phase: Phase
    blocks: UnitBlocks
    number: int
    block: e.Index
    slots: Mapping[str, e.Index]
    masks: Mapping[int, ir.Value | None] = field(default_factory=dict)  # of each vector that has units


class _Direction:
    """Emits the steps of one direction for a block of rows. The methods run in the order of the file."""

    def __init__(
        self, kernel: RecurrenceKernel, d: int, memory: Mapping[str, e.Buffer], steps: e.Index, first: e.Index,
        count: e.Index,
    ) -> None:  # fmt: skip
        self.kernel, self.layer, self.d, self.memory = kernel, kernel.layer, d, memory
        self.steps, self.first, self.count = steps, first, count
        self.lanes, self.f32 = kernel.registers.lanes, ir.F32Type.get()

    def emit(self) -> None:
        work, last = self.memory["work"], self.memory["last_h"]
        self._copy(self.memory["h"], [], work, [0])
        if "c" in self.memory:
            self._copy(self.memory["c"], [], self.memory["last_c"], [])
        with e.loop(0, self.steps) as step:
            t = step.index
            if self.layer.reverse[self.d]:
                t = e.index(e.subtract(e.subtract(self.steps, 1), t))
            old = e.remainder(step.index, 2)
            slots = {**self.kernel.slots, "old": old, "h": e.subtract(1, old)}
            for number, (phase, blocks) in enumerate(zip(self.layer.phases, self.kernel.blocks, strict=True)):
                if blocks.whole:
                    masks: dict[int, ir.Value | None] = dict.fromkeys(range(blocks.vectors))
                    with e.loop(0, blocks.whole) as block:
                        self._rows(_Place(t, 0, 0, phase, blocks, number, block.index, slots, masks))
                if blocks.whole < blocks.count:
                    masks = self._ragged(blocks)
                    self._rows(_Place(t, 0, 0, phase, blocks, number, blocks.whole, slots, masks))
        self._copy(work, [e.remainder(self.steps, 2)], last, [])

    def _copy(self, source: e.Buffer, of: Sequence[e.Index], target: e.Buffer, to: Sequence[e.Index]) -> None:
        hidden = self.layer.hidden
        vectors = hidden // self.lanes
        left = hidden - vectors * self.lanes
        with e.loop(0, self.count) as row:
            at = e.add(self.first, row.index)

            def move(unit: e.Index, mask: ir.Value | None) -> None:
                value = e.load_vector(source, [*of, self.d, at, unit], self.lanes, mask)
                e.store_vector(value, target, [*to, self.d, at, unit], mask)

            with e.loop(0, vectors) as v:
                move(e.multiply(v.index, self.lanes), None)
            if left:
                move(vectors * self.lanes, e.first_lanes(left, self.lanes))

    def _ragged(self, blocks: UnitBlocks) -> dict[int, ir.Value | None]:
        left = self.layer.hidden - blocks.whole * blocks.width
        return {
            v: e.first_lanes(left - v * self.lanes, self.lanes) if left < (v + 1) * self.lanes else None
            for v in range(blocks.vectors) if v * self.lanes < left
        }  # fmt: skip

    # ---- tiles

    def _rows(self, place: _Place) -> None:
        """Emit all rows of the chunk, in tiles of as many rows as there are registers for."""
        start: e.Index = 0
        for tile in self.kernel.tiles:
            end = e.multiply(e.divide(self.count, tile), tile)
            with e.loop(start, end, tile) as row:
                self._tile(place, e.add(self.first, row.index), tile)
            start = end
        if isinstance(self.count, int) and self.count % tile:
            self._tile(place, e.add(self.first, start), self.count % tile)

    def _tile(self, place: _Place, row: e.Index, rows: int) -> None:
        place.row, place.rows = row, rows
        gates = len(place.phase.gates)
        sums = self._sums(place)
        for r in range(rows):
            for v in place.masks:
                self._unit(place, r, v, [sums[(r * gates + g) * place.blocks.vectors + v] for g in range(gates)])

    def _sums(self, place: _Place) -> list[ir.Value]:
        """The sums of each row, gate and vector of units, in this order."""
        hidden, blocks = self.layer.hidden, place.blocks
        gates, vectors = len(blocks.gates), blocks.vectors
        zero = e.splat(0.0, self.lanes, self.f32)
        start = [
            self._start(place, r, gate, v) if v in place.masks else zero
            for r in range(place.rows) for gate in blocks.gates for v in range(vectors)
        ]  # fmt: skip
        weights = self.memory[f"weights{place.number}"]
        source = place.phase.source
        slot = place.slots["old" if source == "h" else source]
        at = [self._state(slot, e.add(place.row, r)) for r in range(place.rows)]
        step = next(s for s in (_UNROLL, 2, 1) if hidden % s == 0)
        with e.loop(0, hidden, step, start) as inner:
            acc = list(inner.values)
            for i in range(step):
                k = e.add(inner.index, i)
                row = [
                    e.load_vector(weights, [self.d, place.block, k, j * self.lanes], self.lanes)
                    for j in range(gates * vectors)
                ]
                for r in range(place.rows):
                    x = e.broadcast(e.load(self.f32, e.at(at[r], e.multiply(k, 4))), self.lanes)
                    for j, weight in enumerate(row):
                        n = r * len(row) + j
                        acc[n] = llvm.FMAOp(x, weight, acc[n]).result
            inner.next = acc
        return list(inner.results)

    def _state(self, slot: e.Index, row: e.Index) -> ir.Value:
        """The address of a row of the workspace."""
        work = self.memory["work"]
        return e.at(work.address, work.offset([slot, self.d, row, 0]))

    def _start(self, place: _Place, r: int, gate: int, v: int) -> ir.Value:
        if self.layer.starts_from(gate) == "bias":
            return e.load_vector(self.memory["bias"], [self.d, self._unit_of(place, v)], self.lanes, place.masks[v])
        return self._input(place, r, gate, v)

    def _unit_of(self, place: _Place, v: int) -> e.Index:
        """The first unit of a vector."""
        return e.add(e.multiply(place.block, place.blocks.width), v * self.lanes)

    def _input(self, place: _Place, r: int, gate: int, v: int) -> ir.Value:
        at = e.add((self.d * self.layer.gates + gate) * self.layer.hidden, self._unit_of(place, v))
        where = [place.step, e.add(place.row, r), at]
        return e.load_vector(self.memory["inputs"], where, self.lanes, place.masks[v])

    # ---- a vector of units

    def _unit(self, place: _Place, r: int, v: int, sums: Sequence[ir.Value]) -> None:
        unit, row, mask = self._unit_of(place, v), e.add(place.row, r), place.masks[v]
        work = self.memory["work"]
        cells = (self.memory["last_c"], [self.d, row, unit]) if "c" in self.memory else None

        def read(name: str) -> ir.Value:
            if name.startswith("x"):
                return self._input(place, r, int(name[1:]), v)
            if name.startswith("p"):
                at = e.add(int(name[1:]) * self.layer.hidden, unit)
                return e.load_vector(self.memory["peepholes"], [self.d, at], self.lanes, mask)
            if name == "c":
                assert cells is not None
                return e.load_vector(*cells, self.lanes, mask)
            slot = place.slots["old" if name == "h" else name]
            return e.load_vector(work, [slot, self.d, row, unit], self.lanes, mask)

        found = dict(self.layer.computed(self.d, place.phase, sums, read))
        inside = None
        if self.layer.lengths:
            length = e.load_element(self.memory["lengths"], [row])
            now = arith.index_cast(length.type, e.index(place.step))
            inside = arith.cmpi(arith.CmpIPredicate.slt, now, length)
        for name, value in found.items():
            if name in ("h", "c") and inside is not None:
                kept = arith.select(inside, value, read(name))
            else:
                kept = value
            if name == "c":
                assert cells is not None
                e.store_vector(kept, *cells, mask)
                continue
            e.store_vector(kept, work, [place.slots[name], self.d, row, unit], mask)
            if name == "h":
                outside = e.splat(0.0, self.lanes, self.f32)
                shown = value if inside is None else arith.select(inside, value, outside)
                e.store_vector(shown, self.memory["y"], [place.step, self.d, row, unit], mask)
