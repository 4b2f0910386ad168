"""The routing of rows to blocks of one group each, in one workgroup: it makes the tables in which a product by experts
finds its rows and their places. The many small ops of the lowering, which run on every target, make the same tables,
except for the order of rows within a group, which no result depends on.

If each row has the number of its group, rows are counted by atomic additions in shared memory, which also give each row
its place in the group. If rows are sorted by group, only the groups' sizes are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...core.mlir import OpLike, arith, flow, ir, memref, tensor
from ...ir.attributes import entry_points
from ...ir.facts import MAGNITUDES, ROUTES
from ...ir.walk import defining_op
from ...kernels.description import Kernel
from ...kernels.outline import function_of, once, unused_name
from ...kernels.routing import Routing, routing_of, sweep
from ..strategy import Accept, Contraction, Decline, Facts, Plan, Strategy, confirmed
from . import emit as e
from .executable import KernelFunction, Launch, View, executable
from .machine import Machine

_COUNTERS = 4  # i32 counters of each group
_LOADED = 4  # counters that LLVM may load at once, including unneeded ones


@dataclass(frozen=True)
class RoutedPlan:
    """One dispatch that routes rows to blocks of one expert each, and a kernel that reads and writes the rows at their
    original places."""

    inner: Plan
    strategy: Strategy
    contraction: Contraction
    describe_kernel: Callable[[Contraction], Kernel | Decline]  # with `Batch.counts`
    machine: Machine

    def apply(self, op: OpLike) -> None:
        name, c = self.strategy.name, self.contraction
        kernel = confirmed(self.describe_kernel(c), name, c)
        routing = confirmed(routing_of(kernel) or Decline("its rows are not sorted by expert"), name, c)
        function = function_of(op)
        route(routing, self.machine)
        with magnitudes(op, self.contraction):
            answer = self.strategy.consider(self.contraction)
        confirmed(answer, name, c).plan.apply(op)
        sweep(function)  # ops that the kernel has made unused, such as gathers

    def describe(self) -> Facts:
        return {**self.inner.describe(), "routing": "one dispatch"}


@contextmanager
def magnitudes(op: OpLike, c: Contraction) -> Iterator[None]:
    """Set the attributes with the operands' largest codes while the context is active: without them, a weight of short
    codes would be taken for one of bytes."""
    known = [(n, v) for n, v in zip(MAGNITUDES, (c.lhs_magnitude, c.rhs_magnitude), strict=True)]
    for name, value in known:
        op.attributes[name] = ir.IntegerAttr.get(e.integer(64), value)
    yield
    for name, _ in known:
        del op.attributes[name]


def with_routing(
    answer: Accept | Decline, strategy: Strategy, c: Contraction,
    describe_kernel: Callable[[Contraction], Kernel | Decline], machine: Machine,
) -> Accept | Decline:  # fmt: skip
    """The answer; its plan also replaces the ops that make the tables of a product by experts, if there are such ops
    and the counters of all groups fit shared memory."""
    kernel = None if isinstance(answer, Decline) or c.op is None else describe_kernel(c)
    routing = None if kernel is None or isinstance(kernel, Decline) else routing_of(kernel)
    if isinstance(answer, Decline) or routing is None or 4 * _COUNTERS * routing.groups > machine.routing[1]:
        return answer
    return replace(answer, plan=RoutedPlan(answer.plan, strategy, c, describe_kernel, machine))


def route(routing: Routing, machine: Machine) -> None:
    """Replace the ops that make the tables by one dispatch of one workgroup."""
    before = defining_op(routing.index)
    function = function_of(before)
    rows = ir.RankedTensorType(routing.block_of.type)
    dynamic = rows.is_dynamic_dim(0)
    results = [*(value.type for value in routing.results), routing.row_of.type]
    with before.location, ir.InsertionPoint(function):
        name = unused_name(function, "route")
        size = None if dynamic else rows.get_dim_size(0)
        tables = ir.RankedTensorType(routing.row_of.type)
        made = None if tables.is_dynamic_dim(0) else tables.get_dim_size(0)
        kernel = _Route(routing.groups, routing.width, routing.sorted, size, made, machine)
        entry = kernel.emit(name, [routing.source.type], results)
    entry = once(function.parent, name, entry)
    with before.location, ir.InsertionPoint(before):
        count = [_size_of(routing.block_of)] if dynamic else []
        blocks = [_size_of(routing.index)] if dynamic else []
        sizes = [arith.index_cast(e.integer(32), n) for n in count]
        source = [tensor.dim(routing.source, e.index(0))] if dynamic and not routing.sorted else []
        call = flow.DispatchOp(
            results, count, entry_points(entry), [*sizes, routing.source], source,
            [*blocks, *blocks, *count, *count, *blocks],
        )  # fmt: skip
        call.operation.attributes[ROUTES] = ir.UnitAttr.get()
        for old, new in zip(routing.results, call.results, strict=False):
            old.replace_all_uses_with(new)
    sweep(function)


def _size_of(value: ir.Value) -> ir.Value:
    """The dynamic first size of a generic's result: that of the `tensor.empty` that it writes to."""
    op: OpLike = defining_op(value)
    while op.name != "tensor.empty":
        op = defining_op(op.operands[len(op.operands) - 1])
    return op.operands[0]


@dataclass(frozen=True)
class _Route:
    """The routing kernel, for `rows` rows in `count` blocks (None: dynamic)."""

    groups: int
    width: int
    sorted: bool
    rows: int | None
    count: int | None
    machine: Machine

    def emit(self, name: str, inputs: Sequence[ir.Type], results: Sequence[ir.Type]) -> str:
        views = [View.of(t) for t in (*inputs, *results)]
        launch = Launch(self.machine.routing[0], self.machine, lambda rows: (1, 1, 1))
        return executable(name, KernelFunction(self.rows, views, launch, self._body, results=len(results)))

    def blocks(self, rows: e.Index) -> e.Index:
        """The number of blocks (passes/core/lower/blocks.py)."""
        if self.count is not None:
            return self.count
        return e.minimum(rows, e.add(e.divide_up(rows, self.width), self.groups - 1))

    def _body(self, rows: e.Index, buffers: list[ir.Value]) -> None:
        source, index, row_of, block_of, slot_of, target = buffers
        thread, threads, i32 = e.thread(), self.machine.routing[0], e.integer(32)
        zero = e.constant(0, i32)
        # For each group: its number of rows, its first block and first row, and its rows placed so far. LLVM may load
        # counters past the last group together with it, so they are initialised too.
        groups = -(-self.groups // _LOADED) * _LOADED
        counts, first_block, first_row, taken = (e.shared([groups], i32) for _ in range(_COUNTERS))

        with e.loop(thread, groups, threads) as each:
            at = each.index if groups == self.groups else e.minimum(each.index, self.groups - 1)
            e.store(arith.maxsi(e.load(source, [at]), zero) if self.sorted else zero, counts, [each.index])
            e.store(zero, taken, [each.index])
        e.barrier()
        if not self.sorted:
            with e.loop(0, rows, threads) as each:
                group = e.load(source, [e.minimum(e.add(each.index, thread), e.subtract(rows, 1))])
                self._counted(counts, group, e.less(e.add(each.index, thread), rows))
            e.barrier()
        with e.loop(thread, groups, threads) as mine:
            with e.loop(0, mine.index, 1, [zero, zero]) as each:
                count = e.load(counts, [each.index])
                each.next = [arith.addi(each.values[0], self._blocks_of(count)), arith.addi(each.values[1], count)]
            e.store(each.results[0], first_block, [mine.index])
            e.store(each.results[1], first_row, [mine.index])
        e.barrier()
        blocks = self.blocks(rows)
        with e.loop(thread, blocks, threads) as block:
            number = arith.index_cast(i32, block.index)
            with e.loop(0, self.groups, 1, [zero]) as each:
                end = arith.addi(e.load(first_block, [each.index]), self._blocks_of(e.load(counts, [each.index])))
                passed = arith.extui(i32, arith.cmpi(arith.CmpIPredicate.sle, end, number))
                each.next = [arith.addi(each.values[0], passed)]
            e.store(each.results[0], index, [block.index])
        e.barrier()
        last = arith.index_cast(i32, e.index(rows))
        with e.loop(thread, e.multiply(blocks, self.width), threads) as place:
            block, slot = e.divide(place.index, self.width), e.remainder(place.index, self.width)
            group = e.load(index, [block])
            used = self._known(group)
            safe = arith.select(used, group, zero)
            inside = arith.subi(arith.index_cast(i32, e.index(block)), e.load(first_block, [e.as_index(safe)]))
            inside = arith.addi(arith.muli(inside, e.constant(self.width, i32)), arith.index_cast(i32, e.index(slot)))
            there = arith.andi(used, arith.cmpi(arith.CmpIPredicate.slt, inside, e.load(counts, [e.as_index(safe)])))
            row = arith.addi(e.load(first_row, [e.as_index(safe)]), inside)
            if self.sorted:
                there = arith.andi(there, arith.cmpi(arith.CmpIPredicate.slt, row, last))
            negative = e.constant(-1, i32)
            with e.when(arith.xori(there, e.constant(1, e.integer(1)))):
                e.store(zero, row_of, [block, slot])
                e.store(negative, target, [block, slot])
            if self.sorted:
                with e.when(there):
                    self._write_tables(row_of, block_of, slot_of, target, row, block, slot)
        if self.sorted:
            return
        with e.loop(0, rows, threads) as each:
            at = e.add(each.index, thread)
            here, own = e.less(at, rows), e.minimum(at, e.subtract(rows, 1))
            row, group = arith.index_cast(i32, e.index(own)), e.load(source, [own])
            known, rank = self._counted(taken, group, here)
            with e.when(known):
                first = e.as_index(e.load(first_block, [e.as_index(group)]))
                to = e.add(e.multiply(first, self.width), e.as_index(rank))
                into, at = e.divide(to, self.width), e.remainder(to, self.width)
                self._write_tables(row_of, block_of, slot_of, target, row, into, at)
            with e.when(e.both(here, arith.xori(self._known(group), e.constant(1, e.integer(1))))):
                e.store(zero, block_of, [own])
                e.store(zero, slot_of, [own])

    def _write_tables(
        self, row_of: ir.Value, block_of: ir.Value, slot_of: ir.Value, target: ir.Value, row: ir.Value,
        block: e.Index, slot: e.Index,
    ) -> None:  # fmt: skip
        """Write a row's place in the blocks, and the place's row, to the tables."""
        i32 = e.integer(32)
        e.store(row, row_of, [block, slot])
        e.store(row, target, [block, slot])
        e.store(arith.index_cast(i32, e.index(block)), block_of, [e.as_index(row)])
        e.store(arith.index_cast(i32, e.index(slot)), slot_of, [e.as_index(row)])

    def _counted(self, counters: ir.Value, group: ir.Value, inside: e.Condition) -> tuple[ir.Value, ir.Value]:
        """Count a row. Returns whether it exists and its group is valid, and how many rows of the group were counted
        before. All threads execute the atomic operation, some adding zero: after one that only some threads execute,
        Mesa's software device loses track of the active threads."""
        i32 = e.integer(32)
        known = e.condition(e.both(inside, self._known(group)))
        where = e.as_index(arith.select(known, group, e.constant(0, i32)))
        more = arith.extui(i32, known)
        return known, memref.AtomicRMWOp(arith.AtomicRMWKind.addi, more, counters, [where]).result

    def _known(self, group: ir.Value) -> ir.Value:
        return arith.cmpi(arith.CmpIPredicate.ult, group, e.constant(self.groups, e.integer(32)))

    def _blocks_of(self, count: ir.Value) -> ir.Value:
        i32 = e.integer(32)
        return arith.divui(arith.addi(count, e.constant(self.width - 1, i32)), e.constant(self.width, i32))
