"""Kernels for elementwise ops from codes to codes on x86: a lookup in a table in registers if the result depends on the
codes of one tensor alone, else the ops' bodies on vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from ....core.mlir import arith, flow, ir, math, tensor
from ....dialect.dtypes import Array
from ....ir import build
from ....ir.attributes import entry_points
from ....kernels.bodies import BodyCloner
from ....kernels.code_pooling import CodePooling
from ....kernels.emit import bits
from ....kernels.outline import function_of, once, unused_name
from ....kernels.pointwise import Evaluated, Pointwise, PointwiseStep, Read, divides_by, enumerable, evaluated, sizes_of
from ...base import Target
from ...cost import TYPICAL_CORE
from ...strategy import Accept, Decline, Estimate, Facts
from ..description import lacks
from ..threads.cost import a_nanosecond
from ..threads.program import team_of
from . import emit as e
from .chunks import Chunked, executable
from .rows import Lanes
from .rules import RULES

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_CHUNK = 16384  # elements
_UNROLL = 4
_BYTES = 64  # of a vector of codes


@dataclass(frozen=True)
class PointwiseStrategy:
    """Elementwise ops with the vectors of one kind of CPU."""

    target: Target
    lanes: Lanes

    @property
    def name(self) -> str:
        return self.lanes.name.replace("rows", "pointwise")

    def consider(self, group: Pointwise | CodePooling) -> Accept | Decline:
        """See `strategy.GroupStrategy`."""
        if not isinstance(group, Pointwise):
            return Decline("not elementwise")
        if declined := lacks(self.target, *self.lanes.features):
            return declined
        if None in group.shape[1:]:
            return Decline("an axis other than the first is dynamic", "static sizes")
        if 0 in group.shape:
            return Decline("no elements")
        table = group.table if "avx512vbmi" in self.target.capabilities.cpu_features else None
        if table is not None and group.leaves[0].follows(group.shape):
            return Accept(TablePlan(group, table), Estimate(None))
        nest = Nest.of(group)
        if nest is None or (nest.sizes[-1] is not None and nest.sizes[-1] < self.lanes.lanes):
            return Decline(
                "the operands are not contiguous along the result's last axis", "the same axis order for all operands"
            )
        return Accept(PointwisePlan(group, nest, self.lanes), Estimate(None))


# ---------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class TablePlan:
    """Replaces the group by a table lookup. One executable serves all tables of a program and tensors of any size."""

    group: Pointwise
    table: Array

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`."""
        result, source = op.results[0], self.group.leaves[0].value
        if (self.table == range(256)).all():
            result.replace_all_uses_with(source)
            return
        function = function_of(op)
        byte = build.element("i8")
        with op.location, ir.InsertionPoint(function):
            name = unused_name(function, "table")
            flat = ir.RankedTensorType.get([ir.ShapedType.get_dynamic_size()], byte)
            kinds = [flat, ir.RankedTensorType.get([256], byte), flat]
            entry = executable(name, [None], kinds, Chunked(_table_chunks, _look_up, _table_cost), [[0], [], [0]])
        entry = once(function.parent, name, entry)
        with op.location, ir.InsertionPoint(op):
            sizes = build.dims(source)
            count = _as_index(build.static(sizes), sizes)
            dynamic = [s for s in sizes if not isinstance(s, int)]
            call = flow.DispatchOp(
                [result.type], [count], entry_points(entry),
                [team_of(op), count, source, build.dense(self.table.view("i1"))], dynamic, dynamic,
            )  # fmt: skip
        result.replace_all_uses_with(call.results[0])

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return {"route": "kernel", "table": 256}


def _as_index(static: Sequence[int], sizes: Sequence[e.Index]) -> ir.Value:
    """The number of elements, of index type."""
    total = build.index(prod(s for s in sizes if isinstance(s, int)))
    for size in sizes:
        if not isinstance(size, int):
            total = arith.muli(total, size)
    return total


def _table_chunks(count: e.Index) -> e.Index:
    return e.divide_up(count, _CHUNK)


def _table_cost(count: e.Index) -> e.Index:
    return e.divide(count, a_nanosecond(TYPICAL_CORE.looked_up))


def _look_up(number: ir.Value, sizes: list[e.Index], buffers: list[e.Buffer]) -> None:
    (count,) = sizes
    source, table, result = (b.address for b in buffers)
    vector = e.vector_of(_BYTES, e.integer(8))
    quarters = [e.load(vector, e.at(table, i * _BYTES)) for i in range(4)]
    zero = e.splat(0, _BYTES, e.integer(8))
    first = e.multiply(number, _CHUNK)
    last = e.minimum(e.add(first, _CHUNK), count)

    def look_up(codes: ir.Value) -> ir.Value:
        low, high = (
            e.intrinsic("llvm.x86.avx512.vpermi2var.qi.512", [a, codes, b], vector)
            for a, b in (quarters[:2], quarters[2:])
        )
        return arith.select(arith.cmpi(arith.CmpIPredicate.slt, codes, zero), high, low)

    whole = e.add(first, e.multiply(e.divide(e.subtract(last, first), _BYTES), _BYTES))
    with e.loop(first, whole, _BYTES) as block:
        e.store(look_up(e.load(vector, e.at(source, block.index))), e.at(result, block.index))
    with e.loop(whole, last, _BYTES) as block:
        mask = e.first_lanes(e.subtract(last, block.index), _BYTES)
        whole_row = e.Buffer(source, e.integer(8), (count,))
        codes = e.load_vector(whole_row, (block.index,), _BYTES, mask)
        e.store_vector(look_up(codes), e.Buffer(result, e.integer(8), (count,)), (block.index,), mask)


# ---------------------------------------------------------------------------------------------------- bodies


@dataclass(frozen=True)
class Nest:
    """The loops over the result: their sizes (the first may be None), and the step of each leaf in each loop, in
    elements. Adjacent axes are merged into one loop if every tensor has one step for both."""

    sizes: tuple[int | None, ...]
    steps: Mapping[Read, tuple[int, ...]] = field(compare=False)

    @classmethod
    def of(cls, group: Pointwise) -> Nest | None:
        """The nest of a group; None if steps are not known at compile time, or if a tensor's step in the last loop is
        neither 0 nor 1."""
        shape = group.shape
        kept = [i for i, size in enumerate(shape) if size != 1]
        reads = [*group.leaves, *(c for c, a in group.constants.items() if a.size != 1)]
        if not all(map(_counts_outermost, reads)) or (None in shape and not any(_is_dynamic(r) for r in reads)):
            return None
        strides = {read: _strides(read, len(shape)) for read in reads}
        loops = [[i] for i in kept[:1]]
        for i in kept[1:]:
            size = shape[i]
            if all(s[i - 1 if i - 1 in kept else loops[-1][-1]] == s[i] * (size or 0) for s in strides.values()):
                loops[-1].append(i)
            else:
                loops.append([i])
        sizes: list[int | None] = []
        for loop in loops:
            sizes.append(None if shape[loop[0]] is None else prod(shape[i] or 1 for i in loop))
        dynamic = loops and shape[loops[0][0]] is None
        if dynamic and len(loops[0]) > 1:  # `PointwiseKernel.factor` is the product of the merged static sizes
            sizes[0] = None
        steps = {read: tuple(s[loop[-1]] for loop in loops) for read, s in strides.items()}
        if not loops or any(s[-1] not in (0, 1) for s in steps.values()):
            return None
        return cls(tuple(sizes), steps)


def _is_dynamic(read: Read) -> bool:
    return None in sizes_of(read.value)


def _counts_outermost(read: Read) -> bool:
    """Whether every dynamic axis is the outermost of the tensor and the first of the result, so that all steps are
    static."""
    wide = [(axis, size) for axis, size in zip(read.axes, sizes_of(read.value), strict=True) if size != 1]
    return all(size is not None or (i == 0 and axis == 0) for i, (axis, size) in enumerate(wide))


def _strides(read: Read, rank: int) -> list[int]:
    """The stride of a tensor along each axis of the result, in elements; 0 if it is broadcast along the axis."""
    found, step = [0] * rank, 1
    for axis, size in zip(reversed(read.axes), reversed(sizes_of(read.value)), strict=True):
        if axis is not None and size != 1:
            found[axis] = step
        step *= size or 1
    return found


@dataclass(frozen=True)
class PointwisePlan:
    """Replaces the group by a dispatch of the kernel."""

    group: Pointwise
    nest: Nest
    lanes: Lanes

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`."""
        result, function = op.results[0], function_of(op)
        reads = list(self.nest.steps)
        dynamic = None in self.nest.sizes
        with op.location, ir.InsertionPoint(function):
            name = unused_name(function, "pointwise")
            kernel = PointwiseKernel(self.group, self.nest, self.lanes.lanes)
            kinds = [*(r.value.type for r in reads), result.type]
            axes = [[0] * _dynamic(t) for t in kinds]
            chunked = Chunked(kernel.count, kernel.chunk, kernel.cost)
            entry = executable(name, [None] if dynamic else [], kinds, chunked, axes)
        entry = once(function.parent, name, entry)
        with op.location, ir.InsertionPoint(op):
            counted = next((r.value for r in reads if _dynamic(r.value.type)), None)
            sizes = [] if counted is None else [tensor.dim(counted, build.index(sizes_of(counted).index(None)))]
            call = flow.DispatchOp(
                [result.type], sizes, entry_points(entry),
                [team_of(op), *sizes, *(r.value for r in reads)],
                [s for r in reads for s in sizes * _dynamic(r.value.type)], sizes * _dynamic(result.type),
            )  # fmt: skip
        result.replace_all_uses_with(call.results[0])

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return {"route": "kernel", "lanes": self.lanes.lanes}


def _dynamic(t: ir.Type) -> int:
    """How many axes of a tensor are dynamic."""
    return sum(t.is_dynamic_dim(d) for d in range(t.rank))


class PointwiseKernel:
    """The executable of one group. A row is the last loop, or a piece of it."""

    def __init__(self, group: Pointwise, nest: Nest, lanes: int) -> None:
        self.group, self.nest, self.lanes = group, nest, lanes
        self.known: Evaluated | None = evaluated(group) if enumerable(group) else None
        rules = {**RULES, "arith.mulf": self._multiply, "arith.divf": self._divide}
        self.cloner = BodyCloner(lanes, rules, self.known.bound if self.known else lambda value: None)
        # The trip count of a dynamic first loop is its dynamic size times the static sizes merged into it.
        shape = group.shape
        self.factor = 1
        if nest.sizes[0] is None:
            self.factor = prod(s or 1 for s in shape) // prod(s or 1 for s in nest.sizes)

    def _sizes(self, dynamic: Sequence[e.Index]) -> list[e.Index]:
        first = [e.multiply(size, self.factor) for size in dynamic]
        return [first[0] if size is None else size for size in self.nest.sizes]

    def _pieces(self, dynamic: Sequence[e.Index]) -> e.Index:
        return e.divide_up(self._sizes(dynamic)[-1], _CHUNK)

    def _rows(self, dynamic: Sequence[e.Index]) -> e.Index:
        total = self._pieces(dynamic)
        for size in self._sizes(dynamic)[:-1]:
            total = e.multiply(total, size)
        return total

    @property
    def _rows_of_chunk(self) -> int:
        last = self.nest.sizes[-1]
        return 1 if last is None else max(1, _CHUNK // last)

    def count(self, *dynamic: e.Index) -> e.Index:
        return e.divide_up(self._rows(dynamic), self._rows_of_chunk)

    def cost(self, *dynamic: e.Index) -> e.Index:
        """About how many nanoseconds a call takes on one thread."""
        total: e.Index = len(self.group.steps)
        for size in self._sizes(dynamic):
            total = e.multiply(total, size)
        return e.divide(total, a_nanosecond(TYPICAL_CORE.elements))

    def chunk(self, number: ir.Value, dynamic: list[e.Index], buffers: list[e.Buffer]) -> None:
        memory = dict(zip(self.nest.steps, buffers, strict=False))
        first = e.multiply(number, self._rows_of_chunk)
        last = e.minimum(e.add(first, self._rows_of_chunk), self._rows(dynamic))
        with e.loop(first, last) as row:
            self._row(row.index, dynamic, memory, buffers[-1])

    def _row(self, row: ir.Value, dynamic: Sequence[e.Index], memory: Mapping[Read, e.Buffer], out: e.Buffer) -> None:
        sizes, pieces = self._sizes(dynamic), self._pieces(dynamic)
        piece = e.remainder(row, pieces)
        rest = at = e.divide(row, pieces)
        starts: dict[Read, e.Index] = dict.fromkeys(memory, 0)
        for i in reversed(range(len(sizes) - 1)):
            place = rest if i == 0 else e.remainder(rest, sizes[i])
            rest = e.divide(rest, sizes[i]) if i else rest
            for read in starts:
                starts[read] = e.add(starts[read], e.multiply(place, self.nest.steps[read][i]))
        begin = e.multiply(at, sizes[-1])
        made: dict[Read, ir.Value] = {}
        for read, array in self.group.constants.items():
            if array.size == 1:
                kind = read.value.type.element_type
                made[read] = e.splat(array.reshape(()).item(), self.lanes, kind)
        for read, buffer in memory.items():
            if self.nest.steps[read][-1] == 0:
                width = bits(buffer.element) // 8
                scalar = e.load(buffer.element, e.at(buffer.address, e.multiply(starts[read], width)))
                made[read] = e.broadcast(scalar, self.lanes)
        for step in self.group.steps:  # those whose result is the same for the whole row
            self._step(step, made)
        low = e.multiply(piece, _CHUNK)
        high = e.minimum(e.add(low, _CHUNK), sizes[-1])
        block = self.lanes * _UNROLL
        whole = e.add(low, e.multiply(e.divide(e.subtract(high, low), block), block))
        with e.loop(low, whole, block) as loop:
            for u in range(_UNROLL):
                self._vector(e.add(loop.index, u * self.lanes), starts, begin, made, memory, out, None)
        with e.loop(whole, high, self.lanes) as loop:
            mask = e.first_lanes(e.minimum(e.subtract(high, loop.index), self.lanes), self.lanes)
            self._vector(loop.index, starts, begin, made, memory, out, mask)

    def _vector(
        self, at: e.Index, starts: Mapping[Read, e.Index], begin: e.Index, made: Mapping[Read, ir.Value],
        memory: Mapping[Read, e.Buffer], out: e.Buffer, mask: ir.Value | None,
    ) -> None:  # fmt: skip
        here = dict(made)
        for read, buffer in memory.items():
            if read not in here:
                flat = e.Buffer(buffer.address, buffer.element, (1,))
                here[read] = e.load_vector(flat, (e.add(starts[read], at),), self.lanes, mask)
        for step in self.group.steps:
            self._step(step, here)
        flat = e.Buffer(out.address, out.element, (1,))
        e.store_vector(here[self.group.steps[-1].result], flat, (e.add(begin, at),), mask)

    def _step(self, step: PointwiseStep, made: dict[Read, ir.Value]) -> None:
        """Emit the step if its operands are in `made` and its result is not."""
        if step.result not in made and all(r in made for r in step.reads):
            made[step.result] = self.cloner.clone(step.body, [made[r] for r in step.reads])

    # ---- rules

    def _multiply(self, cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
        """Omit a multiplication by 1."""
        for i in (0, 1):
            if self.known is not None and self.known.constant(op.operands[1 - i]) == 1.0:
                return operands[i]
        return RULES["arith.mulf"](cloner, op, operands)

    def _divide(self, cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
        """Replace a division by a product and a fused multiply-add if these are bit-exact: a division takes five times
        as long."""
        found = None if self.known is None else divides_by(self.known, op)
        if found is None:
            return None
        x, (high, low) = operands[0], found
        f32 = op.results[0].type
        small = RULES["arith.mulf"](cloner, op, [x, e.splat(low, cloner.lanes, f32)])
        assert small is not None
        return math.fma(x, e.splat(high, cloner.lanes, f32), small)
