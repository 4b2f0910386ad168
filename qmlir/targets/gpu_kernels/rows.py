"""Row kernels on GPUs: dynamic quantisation, norms, and the ops between them, in passes over a row by the same threads.

Up to 256 threads share a row, each reading four neighbouring elements in turn; short rows share a workgroup. Each pass
reads the row again, from the nearest cache, and recomputes the elements of earlier passes: that takes a few
instructions, while keeping them would take registers in proportion to the row's length. A reduction is computed in each
thread, then by shuffles in a subgroup, and through shared memory if several subgroups share the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...core.mlir import arith, ir
from ...ir.walk import made_by, terminator_of
from ...kernels.rows import COLUMN, NARROW, SCALAR, WIDE, Reduction, RowGroup, RowStep
from . import bf16, emit as e
from .executable import KernelFunction, Launch, View, executable
from .loop import across
from .machine import Machine

_LANES = 4
_ROW_THREADS = 256  # the most threads that share a row
_THREADS = 64  # of a workgroup of short rows
_GRID_WIDTH = 1 << 15  # the most workgroups along the first axis of the grid: within every device's limit


@dataclass(frozen=True)
class Placed:
    """Where a kernel finds the elements of a value: in columns of `tensor` from `first` on; `width` is the length of
    its rows."""

    tensor: ir.Value
    first: int
    width: int


def placed(value: ir.Value, width: int) -> Placed:
    """Where a value with an element for each column is stored. A slice of columns of a wider tensor, such as half of a
    gated pair, is read in place without a copy."""
    whole = Placed(value, 0, width)
    op = made_by(value, "tensor.extract_slice")
    if op is None or width % _LANES:
        return whole
    source = ir.RankedTensorType(op.operands[0].type)
    offsets, strides = (list(op.attributes[f"static_{name}"]) for name in ("offsets", "strides"))
    axes = range(source.rank - 1)
    kind = ir.RankedTensorType(value.type)
    # A slice of the first rows can be read in place too.
    full = kind.rank == source.rank and all(
        (d == 0 and kind.is_dynamic_dim(0))
        if source.is_dynamic_dim(d)
        else not kind.is_dynamic_dim(d) and kind.get_dim_size(d) == source.get_dim_size(d)
        for d in axes
    )
    columns = source.get_dim_size(source.rank - 1) if not source.is_dynamic_dim(source.rank - 1) else 1
    if not full or set(strides) != {1} or any(offsets[d] for d in axes) or columns % _LANES:
        return whole
    known = offsets[-1] != ir.ShapedType.get_dynamic_stride_or_offset()
    return Placed(op.operands[0], offsets[-1], columns) if known and offsets[-1] % _LANES == 0 else whole


@dataclass(frozen=True)
class GpuRowsKernel:
    """The executable of one group."""

    rows: RowGroup
    machine: Machine

    @property
    def count(self) -> int | None:
        """The number of rows, None if it is dynamic."""
        total = 1
        for size in self.rows.space.rows:
            if size is None:
                return None
            total *= size
        return total

    @property
    def vectors(self) -> int:
        """Vectors of a row, the last of which may be short."""
        return -(-self.rows.space.width // _LANES)

    @property
    def whole(self) -> bool:
        """Whether a row has only whole vectors."""
        return self.rows.space.width % _LANES == 0

    @property
    def sharing(self) -> int:
        """Threads that share a row: a power of two."""
        return min(_ROW_THREADS, 1 << (self.vectors - 1).bit_length())

    @property
    def together(self) -> int:
        """Rows of a workgroup."""
        return max(1, _THREADS // self.sharing)

    @property
    def tensors(self) -> list[tuple[ir.Value, str]]:
        """The tensors that are read, then those that are written."""
        return [*self.rows.inputs, *self.rows.outputs]

    def emit(self, name: str) -> str:
        """Emit the executable at the insertion point; returns the entry point."""
        launch = Launch(self.sharing * self.together, self.machine, self._grid)
        views = [self._view(value, how) for value, how in self.tensors]
        return executable(name, KernelFunction(self.count, views, launch, self._body, results=len(self.rows.outputs)))

    def _grid(self, rows: e.Index) -> tuple[e.Index, e.Index, e.Index]:
        groups = e.divide_up(rows, self.together)
        across = e.minimum(groups, _GRID_WIDTH)
        return across, e.divide_up(groups, _GRID_WIDTH), 1

    def _view(self, value: ir.Value, how: str) -> View:
        element, width = bf16.stored_type(value.type.element_type, self.machine), self.rows.space.width
        if how == SCALAR:
            return View((1,), element)
        if how == NARROW:
            return View((self.count,), element)
        width = placed(value, width).width
        along: tuple[int, ir.Type] = (width, element)
        if self.whole:
            along = width // _LANES, e.vector_of(_LANES, element)
        return View(along[:1] if how == COLUMN else (self.count, along[0]), along[1])

    def _body(self, count: e.Index, memory: list[ir.Value]) -> None:
        buffers = {v: (m, how) for (v, how), m in zip(self.tensors, memory, strict=True)}
        _Row(self, count, buffers).run()


class _Row:
    """The work of a thread on its row. The methods run in the order of the file."""

    def __init__(self, kernel: GpuRowsKernel, count: e.Index, memory: Mapping[ir.Value, tuple[ir.Value, str]]) -> None:
        self.kernel, self.rows, self.memory = kernel, kernel.rows, memory
        self.made = {v: s for s in self.rows.steps if s.result == WIDE for v in s.op.results}
        self.written = {v for v, _ in self.rows.outputs}
        self.cloner = bf16.cloner(_LANES, kernel.machine, kernel.machine.rules)
        self.of_row: dict[ir.Value, ir.Value] = {}  # narrow values and scalars, in all lanes
        thread = e.thread()
        self.thread = e.remainder(thread, kernel.sharing)
        self.slot = e.divide(thread, kernel.sharing)  # of the row in the workgroup
        across = e.minimum(e.divide_up(count, kernel.together), _GRID_WIDTH)
        block = e.add(e.multiply(e.block(1), across), e.block(0))
        row = e.add(e.multiply(block, kernel.together), self.slot)
        self.inside = e.less(row, count)
        self.row = e.minimum(row, e.subtract(count, 1))

    def run(self) -> None:
        for steps in self.rows.phases():
            self._pass([s for s in steps if s.reductions or any(v in self.written for v in s.op.results)])
            for step in steps:
                if step.result == NARROW and not step.reductions:
                    known = dict(zip(step.body.arguments, [self._narrow(v) for v in step.inputs], strict=False))
                    self.of_row[step.op.results[0]] = self._yielded(step, known)
        for value, how in self.rows.outputs:
            if how == NARROW:
                number = e.elements(self._as_stored(value, self._narrow(value)))[0]
                with e.when(e.both(self.inside, e.less(self.thread, 1))):
                    e.store(number, self.memory[value][0], [self.row])

    # ---- a pass

    def _pass(self, steps: Sequence[RowStep]) -> None:
        """One pass over the row, with the steps that reduce or store something."""
        steps = [s for s in steps if s.reductions or s.result == WIDE]
        if not steps:
            return
        for step in steps:
            self._prepare(step)
        reductions = [r for s in steps for r in s.reductions]
        start = [e.splat(r.neutral, _LANES, r.element.type) for r in reductions]
        with e.loop(self.thread, self.kernel.vectors, self.kernel.sharing, start) as each:
            each.next = self._vector(steps, each.index, list(each.values))
        results = [v for s in steps if s.reductions for v in s.op.results]
        for value, reduction, running in zip(results, reductions, each.results, strict=True):
            self.of_row[value] = e.broadcast(self._total(reduction, running), _LANES)

    def _prepare(self, step: RowStep) -> None:
        """Load, before the loop, the values that all elements of the row share."""
        for value, how in zip(step.inputs, step.sources, strict=True):
            if how in (NARROW, SCALAR):
                self._narrow(value)
            elif value in self.made:
                self._prepare(self.made[value])

    def _vector(self, steps: Sequence[RowStep], at: e.Index, running: list[ir.Value]) -> list[ir.Value]:
        """Apply the steps to one vector; returns the running values of the reductions."""
        here: dict[ir.Value, ir.Value] = {}
        after: list[ir.Value] = []
        for step in steps:
            if not step.reductions:
                self._store(step.op.results[0], self._wide(step.op.results[0], at, here), at)
                continue
            known = self._arguments(step, at, here)
            for reduction in step.reductions:
                element = self.cloner.value(reduction.element, known)
                if not self.kernel.whole:
                    neutral = e.constant(reduction.neutral, reduction.element.type)
                    lanes = [
                        arith.select(e.condition(e.less(self._column(at, i), self.rows.space.width)), x, neutral)
                        for i, x in enumerate(e.elements(element))
                    ]
                    element = e.gathered(lanes)
                after.append(_combined(reduction, running[len(after)], element))
        return after

    def _arguments(self, step: RowStep, at: e.Index, here: dict[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
        values = [
            self._narrow(v) if how in (NARROW, SCALAR) else self._wide(v, at, here)
            for v, how in zip(step.inputs, step.sources, strict=True)
        ]
        return dict(zip(step.body.arguments, values, strict=False))

    def _yielded(self, step: RowStep, known: dict[ir.Value, ir.Value]) -> ir.Value:
        return self.cloner.value(terminator_of(step.body).operands[0], known)

    # ---- values

    def _wide(self, value: ir.Value, at: e.Index, here: dict[ir.Value, ir.Value]) -> ir.Value:
        """The vector at `at` of a value with an element for each column: loaded, or computed from other vectors."""
        if value not in here:
            step = self.made.get(value)
            here[value] = (
                self._load(value, at) if step is None else self._yielded(step, self._arguments(step, at, here))
            )
        return here[value]

    def _column(self, at: e.Index, lane: int) -> e.Index:
        return e.add(e.multiply(at, _LANES), lane)

    def _load(self, value: ir.Value, at: e.Index) -> ir.Value:
        memory, how = self.memory[value]
        row = [self.row] if how == WIDE else []
        if self.kernel.whole:
            first = placed(value, self.rows.space.width).first
            vector = e.load(memory, [*row, e.add(at, first // _LANES)])
        else:
            last = self.rows.space.width - 1
            columns = [e.minimum(self._column(at, i), last) for i in range(_LANES)]
            vector = e.gathered([e.load(memory, [*row, column]) for column in columns])
        return bf16.loaded(vector, value.type.element_type)

    def _store(self, value: ir.Value, vector: ir.Value, at: e.Index) -> None:
        memory, _ = self.memory[value]
        vector = self._as_stored(value, vector)
        if self.kernel.whole:
            with e.when(self.inside):
                e.store(vector, memory, [self.row, at])
            return
        for i, x in enumerate(e.elements(vector)):
            column = self._column(at, i)
            with e.when(e.both(self.inside, e.less(column, self.rows.space.width))):
                e.store(x, memory, [self.row, column])

    def _as_stored(self, value: ir.Value, vector: ir.Value) -> ir.Value:
        element = value.type.element_type
        return vector if bf16.stored_type(element, self.kernel.machine) == element else bf16.bits(vector)

    def _narrow(self, value: ir.Value) -> ir.Value:
        """A value that a row has once, or the program has once, in all lanes."""
        value = self.rows.source(value)
        if value not in self.of_row:
            memory, how = self.memory[value]
            number = e.load(memory, [self.row if how == NARROW else 0])
            self.of_row[value] = e.broadcast(bf16.loaded(number, value.type.element_type), _LANES)
        return self.of_row[value]

    # ---- reductions

    def _total(self, reduction: Reduction, running: ir.Value) -> ir.Value:
        """Reduce over all lanes of all threads of the row, and the start value; every thread gets the result."""
        first, *rest = e.elements(running)
        for x in rest:
            first = _combined(reduction, first, x)
        subgroup, sharing = self.kernel.machine.subgroup, self.kernel.sharing
        (first,) = across([first], min(subgroup, sharing), subgroup, partial(_combined, reduction))
        if sharing > subgroup:
            first = self._across_subgroups(reduction, first)
        if reduction.start.value == reduction.neutral:
            return first
        return _combined(reduction, e.constant(reduction.start.value, reduction.element.type), first)

    def _across_subgroups(self, reduction: Reduction, value: ir.Value) -> ir.Value:
        subgroup, parts = self.kernel.machine.subgroup, self.kernel.sharing // self.kernel.machine.subgroup
        shared = e.shared((self.kernel.together, parts), value.type)
        with e.when(e.less(e.remainder(self.thread, subgroup), 1)):
            e.store(value, shared, [self.slot, e.divide(self.thread, subgroup)])
        e.barrier()
        total = e.load(shared, [self.slot, 0])
        for i in range(1, parts):
            total = _combined(reduction, total, e.load(shared, [self.slot, i]))
        return total


def _combined(reduction: Reduction, a: ir.Value, b: ir.Value) -> ir.Value:
    return ir.Operation.create(reduction.combine.name, results=[a.type], operands=[a, b]).results[0]
