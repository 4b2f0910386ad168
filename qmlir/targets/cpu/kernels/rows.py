"""Kernels for row groups on CPUs: all passes over a row, one vector at a time, while it is in the first-level cache.

A chunk is a few rows. A value that a pass makes for a later one is kept on the stack, or read back from the result if
it is a result of the kernel. A reduction has several accumulators, so that it does not wait for its own last addition.
A value with one element per row is a vector of equal lanes. Sums are accumulated per lane first: their order differs
from the program's, as in any vectorised code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....core.mlir import arith, ir, vector
from ....ir.walk import terminator_of
from ....kernels.bodies import BodyCloner
from ....kernels.emit import bits
from ....kernels.outline_rows import dynamic_axes
from ....kernels.rows import NARROW, SCALAR, WIDE, Reduction, RowGroup, RowStep
from ...cost import TYPICAL_CORE
from ..threads.cost import a_nanosecond
from ..threads.program import has_helpers
from . import emit as e
from .chunks import Chunked, executable
from .rules import RULES

_CHUNK = 16384  # elements
_STACK = 64 << 10  # bytes
_UNROLL = 4


@dataclass(frozen=True)
class Lanes:
    """The vectors of a CPU, in f32 lanes."""

    name: str
    features: tuple[frozenset[str], ...]
    lanes: int


LANES = (
    Lanes("rows-avx512", (frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"}),), 16),
    Lanes("rows-avx2", (frozenset({"avx2", "fma"}),), 8),
)
NEON = Lanes("rows-neon", (frozenset({"neon"}),), 4)


def waiting(rows: RowGroup) -> list[ir.Value]:
    """The values that a pass makes for later ones and that are not results: they are kept on the stack."""
    phases = rows.phases()
    leaving = {v for v, _ in rows.outputs}
    made = {v: p for p, steps in enumerate(phases) for s in steps if s.result == WIDE for v in s.op.results}
    found: dict[ir.Value, None] = {}
    for p, steps in enumerate(phases):
        for step in steps:
            found.update({v: None for v in step.inputs if v in made and made[v] < p and v not in leaving})
    return list(found)


def stack_bytes(rows: RowGroup) -> int:
    """The bytes of the values that are kept on the stack."""
    return sum(bits(v.type.element_type) // 8 * rows.space.width for v in waiting(rows))


def stack_fits(rows: RowGroup) -> bool:
    """Whether these values fit the stacks of IREE's threads."""
    return stack_bytes(rows) <= _STACK


class CpuRowsKernel:
    """The executable of one group."""

    def __init__(self, rows: RowGroup, lanes: Lanes) -> None:
        self.rows, self.lanes, self.features = rows, lanes.lanes, lanes.features
        self.dynamic = [i for i, size in enumerate(rows.space.rows) if size is None]
        self.tensors = [*rows.inputs, *rows.outputs]
        self.chunk_rows = max(1, _CHUNK // rows.space.width)

    def emit(self, name: str) -> str:
        """Emit the executable at the insertion point; return its entry point."""
        which = [[self.dynamic.index(a) for a in dynamic_axes(v)] for v, _ in self.tensors]
        kernel = Chunked(self._count, self._chunk, self._cost, shared=has_helpers(self.features))
        return executable(name, [None] * len(self.dynamic), [v.type for v, _ in self.tensors], kernel, which)

    def _total(self, dynamic: Sequence[e.Index]) -> e.Index:
        values = iter(dynamic)
        total: e.Index = 1
        for size in self.rows.space.rows:
            total = e.multiply(total, next(values) if size is None else size)
        return total

    def _count(self, *dynamic: e.Index) -> e.Index:
        return e.divide_up(self._total(dynamic), self.chunk_rows)

    def _cost(self, *dynamic: e.Index) -> e.Index:
        """About how many nanoseconds a call takes on one thread."""
        steps = len(self.rows.steps) * self.rows.space.width
        return e.divide(e.multiply(self._total(dynamic), steps), a_nanosecond(TYPICAL_CORE.elements))

    def _chunk(self, number: ir.Value, dynamic: list[e.Index], buffers: list[e.Buffer]) -> None:
        stack = {v: self._scratch(v) for v in waiting(self.rows)}
        memory = {v: (b, how) for (v, how), b in zip(self.tensors, buffers, strict=True)}
        first = e.multiply(number, self.chunk_rows)
        last = e.minimum(e.add(first, self.chunk_rows), self._total(dynamic))
        with e.loop(first, last) as row:
            RowEmitter(self, memory, stack, row.index).emit()

    def _scratch(self, value: ir.Value) -> e.Buffer:
        element, width = value.type.element_type, self.rows.space.width
        return e.Buffer(e.pointer(e.scratch([width], element)), element, (width,))


class RowEmitter:
    """Emits one row. The methods run in the order of the file."""

    def __init__(
        self,
        kernel: CpuRowsKernel,
        memory: Mapping[ir.Value, tuple[e.Buffer, str]],
        stack: Mapping[ir.Value, e.Buffer],
        row: ir.Value,
    ) -> None:
        self.rows, self.lanes, self.row = kernel.rows, kernel.lanes, row
        self.memory, self.stack = memory, stack
        self.cloner = BodyCloner(self.lanes, RULES)
        self.of_row: dict[ir.Value, ir.Value] = {}  # narrow values and scalars, broadcast to all lanes
        self.leaving = {v for v, _ in self.rows.outputs}

    def emit(self) -> None:
        for steps in self.rows.phases():
            self._pass([s for s in steps if s.result == WIDE or s.reductions])
            for step in steps:
                if step.result == NARROW and not step.reductions:
                    known = dict(zip(step.body.arguments, [self._narrow(v) for v in step.inputs], strict=False))
                    [value] = self._yielded(step, known)
                    self.of_row[step.op.results[0]] = value
        for value, how in self.rows.outputs:
            if how == NARROW:
                buffer = self.memory[value][0]
                lane = vector.ExtractOp(self.of_row[self.rows.source(value)], [], [0]).result
                e.store(lane, e.at(buffer.address, e.multiply(self.row, bits(buffer.element) // 8)))

    # ---- a pass

    def _pass(self, steps: Sequence[RowStep]) -> None:
        """Emit `steps` over the row: blocks of several vectors, then the remaining vectors; a partial one is masked."""
        if not steps:
            return
        for step in steps:  # narrow operands are loaded in front of the loop
            for value, how in zip(step.inputs, step.sources, strict=True):
                if how in (NARROW, SCALAR):
                    self._narrow(value)
        reductions = [r for s in steps for r in s.reductions]
        width, lanes = self.rows.space.width, self.lanes
        vectors = width // lanes
        unroll = min(_UNROLL, vectors)
        running = [self._neutral(r) for r in reductions for _ in range(unroll)]
        if not unroll:
            running = [self._neutral(r) for r in reductions]
        count = max(1, unroll)
        blocks = vectors // unroll * unroll * lanes if unroll else 0
        if blocks:
            with e.loop(0, blocks, unroll * lanes, running) as block:
                values = list(block.values)
                for u in range(unroll):
                    at = e.add(block.index, u * lanes)
                    values[u::count] = self._vector(steps, at, values[u::count], None)
                block.next = values
            running = list(block.results)
        for at in range(blocks, width, lanes):
            u = (at - blocks) // lanes % count
            mask = e.first_lanes(width - at, lanes) if width - at < lanes else None
            running[u::count] = self._vector(steps, at, running[u::count], mask)
        results = [v for s in steps if s.reductions for v in s.op.results]
        for i, (value, reduction) in enumerate(zip(results, reductions, strict=True)):
            self.of_row[value] = self._total(reduction, running[i * count : (i + 1) * count])

    def _vector(
        self, steps: Sequence[RowStep], at: e.Index, running: list[ir.Value], mask: ir.Value | None
    ) -> list[ir.Value]:
        """Emit the steps on one vector; return the new accumulators."""
        here: dict[ir.Value, ir.Value] = {}
        after = list(running)
        number = 0
        for step in steps:
            arguments = [
                self._narrow(v) if how in (NARROW, SCALAR) else self._load(v, how, at, mask, here)
                for v, how in zip(step.inputs, step.sources, strict=True)
            ]
            known = dict(zip(step.body.arguments, arguments, strict=False))
            if not step.reductions:
                [value] = self._yielded(step, known)
                here[step.op.results[0]] = value
                self._keep(step.op.results[0], value, at, mask)
                continue
            for reduction in step.reductions:
                element = self.cloner.value(reduction.element, known)
                if mask is not None:
                    element = arith.select(mask, element, self._neutral(reduction))
                after[number] = self._combined(reduction, after[number], element)
                number += 1
        return after

    def _yielded(self, step: RowStep, known: dict[ir.Value, ir.Value]) -> list[ir.Value]:
        end = terminator_of(step.body)
        return [self.cloner.value(v, known) for v in end.operands]

    # ---- memory

    def _place(self, value: ir.Value, how: str, at: e.Index) -> ir.Value:
        """The address of a vector."""
        buffer = self.stack.get(value) or self.memory[value][0]
        size = bits(buffer.element) // 8
        offset = e.multiply(at, size)
        if how == WIDE and value not in self.stack:
            offset = e.add(e.multiply(self.row, self.rows.space.width * size), offset)
        return e.at(buffer.address, offset)

    def _load(
        self, value: ir.Value, how: str, at: e.Index, mask: ir.Value | None, here: dict[ir.Value, ir.Value]
    ) -> ir.Value:
        if value not in here:
            t = self.cloner.widen(value.type.element_type)
            here[value] = e.load_lanes(t, self._place(value, how, at), mask)
        return here[value]

    def _keep(self, value: ir.Value, vector_: ir.Value, at: e.Index, mask: ir.Value | None) -> None:
        if value in self.stack or value in self.leaving:
            e.store_lanes(vector_, self._place(value, WIDE, at), mask)

    def _narrow(self, value: ir.Value) -> ir.Value:
        """A value with one element per row, or in total, broadcast to all lanes."""
        value = self.rows.source(value)
        if value not in self.of_row:
            buffer, how = self.memory[value]
            at = e.multiply(self.row, bits(buffer.element) // 8) if how == NARROW else 0
            self.of_row[value] = e.broadcast(e.load(buffer.element, e.at(buffer.address, at)), self.lanes)
        made: ir.Value = self.of_row[value]
        return made

    # ---- reductions

    def _neutral(self, reduction: Reduction) -> ir.Value:
        return e.splat(reduction.neutral, self.lanes, reduction.element.type)

    def _combined(self, reduction: Reduction, a: ir.Value, b: ir.Value) -> ir.Value:
        return ir.Operation.create(reduction.combine.name, results=[a.type], operands=[a, b]).results[0]

    def _total(self, reduction: Reduction, running: list[ir.Value]) -> ir.Value:
        """Combine all lanes of all accumulators and the reduction's start; the result is in every lane."""
        while len(running) > 1:
            pairs = zip(running[::2], running[1::2], strict=False)
            odd = running[-1:] if len(running) % 2 else []
            running = [self._combined(reduction, a, b) for a, b in pairs] + odd
        [value] = running
        step = self.lanes // 2
        while step:
            value = self._combined(
                reduction, value, vector.shuffle(value, value, [i ^ step for i in range(self.lanes)])
            )
            step //= 2
        start = reduction.start
        if start.value == reduction.neutral:
            return value
        operands = [self.cloner.splat(start), value]
        return ir.Operation.create(reduction.combine.name, results=[value.type], operands=operands).results[0]
