"""The loop of a product: one thread's share of a tile, for any kind of multiplication.

    load the first steps                                        (`start`)
    for each step of K:    load the next one, multiply this one   (`step`)
    add up the sums of threads that share K                     (`added`)
    take neighbouring columns of rows out of the accumulators   (`runs`), finish and write them

Sums over groups along K are combined after each group, in ascending order. A subclass defines the accumulators and how
a step is multiplied; `stages.py` has the base for operands that pass through shared memory. Workgroups may share K
too: each computes some of the steps of a tile (`accumulated`), and the last of them finishes it (`finish`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeAlias

from ...core.mlir import arith, ir
from ...kernels.description import Kernel
from . import emit as e
from .batch import Place
from .epilogue import Epilogue, GroupReads, Where as Where
from .executable import View
from .machine import Machine

Values: TypeAlias = "list[ir.Value]"
ReadPiece: TypeAlias = "Callable[[ir.Value, e.Index], Values]"  # loads one piece of a row from a memref


class Source(Protocol):
    """An activation in its stored layout, read in pieces along K."""

    @property
    def view(self) -> View: ...

    def row(self, m: e.Index) -> ReadPiece:
        """A function that loads pieces of row `m`; the row's address is computed here, once."""


@dataclass(frozen=True)
class Workgroup:
    """The inputs of a workgroup's threads: their product, the row and column of their tile among the product's tiles,
    both operands in memory, and the epilogue."""

    place: Place
    tile: tuple[e.Index, e.Index]
    lhs: ir.Value
    rhs: ir.Value
    epilogue: Epilogue


@dataclass(frozen=True)
class Run:
    """Neighbouring columns of a row: the vector of their sums, and the sum of the row's codes if it is needed."""

    value: ir.Value
    row_sum: ir.Value | None = None


class TileLoop(ABC):
    """One thread's share of a tile, whose K is multiplied in `steps` steps. `workers` neighbouring threads, a power of
    two within a subgroup, share K of the same outputs; `worker` is this thread's number among them."""

    worker: e.Index = 0
    workers: int = 1
    thread: ir.Value  # its number in the workgroup
    group_reads: GroupReads = GroupReads()

    def __init__(self, kernel: Kernel, machine: Machine, place: Place, epilogue: Epilogue, steps: int) -> None:
        self.kernel, self.machine, self.place, self.epilogue = kernel, machine, place, epilogue
        self.steps = steps
        self.per_round = 1 if kernel.combine is None else max(1, steps // kernel.groups)

    # ---- the multiplication

    def start(self, first: e.Index, last: e.Index) -> Values:
        """Load the first of the steps from `first` to `last`. Returns its values that the loop carries in registers."""
        return []

    @abstractmethod
    def zeros(self) -> Values:
        """The accumulators before the first step."""

    @abstractmethod
    def step(self, step: e.Index, totals: Values, held: Values) -> tuple[Values, Values]:
        """The accumulators after a step, and the values of the next step that the loop carries."""

    @abstractmethod
    def runs(self, totals: Values) -> list[Run]:
        """The runs that the accumulators hold."""

    @abstractmethod
    def where(self, number: int) -> Where:
        """The place of a run in the product."""

    @property
    @abstractmethod
    def run_count(self) -> int:
        """The number of runs of a thread."""

    def at(self, row: e.Index, column: e.Index, lanes: int) -> Where:
        """The place of a run of `lanes` columns, whose first column is a multiple of `lanes`."""
        last = (self.kernel.n - 1) // lanes * lanes
        return Where(row, column, self.place.inside(row), e.minimum(column, last))

    def of_bytes(self, sums: Values, row_sums: Sequence[ir.Value | None], shift: int = 0, offset: int = 0) -> list[Run]:
        """Runs of sums over the bytes of stored codes and the sums of their rows' codes. If the weight is not decoded,
        sums are `2^shift` times too large, and `sum a (stored + offset) = sum a stored + offset * sum a`."""
        if self.kernel.rhs.decode is None:
            lanes = sums[0].type.shape[0]
            if shift:
                sums = [arith.shrsi(s, e.broadcast(e.word(shift), lanes)) for s in sums]
            if offset:
                rows = [row for row in dict.fromkeys(row_sums) if row is not None]
                more = {row: e.broadcast(arith.muli(row, e.word(offset)), lanes) for row in rows}
                sums = [arith.addi(s, more[row]) for s, row in zip(sums, row_sums, strict=True) if row is not None]
        return [Run(*run) for run in zip(sums, row_sums, strict=True)]

    # ---- the loop

    @property
    def keeps(self) -> e.Condition:
        """Whether this thread, of those that share K, stores their results."""
        return True if self.workers == 1 else e.less(self.worker, 1)

    def run(self) -> None:
        state = self.accumulated(0, self.steps // self.per_round)
        e.guarded(self.keeps, lambda: self.finish(state))

    def accumulated(self, first: e.Index, last: e.Index) -> Values:
        """Sums over rounds `first` to `last` along K. A round is a step, and the sums are accumulators; or a group that
        is combined, and the sums are totals of runs."""
        held = self.start(e.multiply(first, self.per_round), e.multiply(last, self.per_round))
        if self.kernel.combine is not None:
            return self.groups(first, last, held)
        start = self.zeros()
        few = isinstance(last, int) and last <= self.machine.rolled
        with e.loop(e.add(first, self.worker), last, self.workers, [*start, *held], few) as each:
            each.next = self._next(each.index, each.values, len(start))
        return self.added(each.results[: len(start)])

    def finish(self, state: Sequence[ir.Value]) -> None:
        """Apply the epilogue to the sums, or totals, over all of K, and store the results."""
        self.store([Run(value) for value in state] if self.kernel.combine is not None else self.runs([*state]))

    def store(self, runs: Sequence[Run]) -> None:
        for i, run in enumerate(runs):
            self._stored(run, self.where(i))

    def _stored(self, run: Run, at: Where, place: Sequence[e.Index] = ()) -> None:
        """Finish a run and store it; see `Epilogue.write`."""
        result = self.epilogue.finish(run.value, run.row_sum, at.safe_row, at.safe_column)
        self.epilogue.write(result, at, place)

    def _next(self, step: e.Index, values: Values, accumulators: int) -> Values:
        totals, held = self.step(step, values[:accumulators], values[accumulators:])
        return [*totals, *held]

    def groups(self, first: e.Index, last: e.Index, held: Values) -> Values:
        """Totals of runs over groups along K. Each worker computes the partial sums of a different group, and all of
        them combine the partial sums of all."""
        groups = self.kernel.groups
        start = [self.epilogue.start() for _ in range(self.run_count)]
        reads = self.group_reads
        read = reads.read(first)
        with e.loop(first, last, self.workers, [*start, *read, *held]) as outer:
            totals, known, held = split(outer.values, len(start), len(read))
            read = reads.read(e.minimum(e.add(outer.index, 1), e.subtract(last, 1)))
            mine = e.add(outer.index, self.worker)
            if groups % self.workers:
                mine = e.minimum(mine, groups - 1)
            zeros = self.zeros()
            with e.loop(0, self.per_round, 1, [*zeros, *held]) as inner:
                at = e.add(e.multiply(mine, self.per_round), inner.index)
                inner.next = self._next(at, inner.values, len(zeros))
            parts, held = inner.results[: len(zeros)], inner.results[len(zeros) :]
            if self.workers == 1:
                with self.epilogue.scope():
                    reads.know(outer.index, known)
                    totals = self._combined(totals, parts, outer.index)
            else:
                totals = self._in_turn(totals, parts, outer.index)
            outer.next = [*totals, *read, *held]
        return list(outer.results[: len(start)])

    def _combined(self, totals: Values, parts: Values, group: e.Index) -> Values:
        """Totals of runs, combined with the sums of one more group."""
        runs = self.runs(parts)
        found = []
        with self.epilogue.scope():
            for i, (total, run) in enumerate(zip(totals, runs, strict=True)):
                at = self.where(i)
                found.append(self.epilogue.combine(total, run.value, run.row_sum, group, at.safe_row, at.safe_column))
        return found

    # ---- threads that share K

    def added(self, totals: Values) -> Values:
        """Sums over the workers, valid in the threads that store results (`keeps`)."""
        if self.workers == 1:
            return totals
        return like(totals, across(elements(totals), self.workers, self.machine.subgroup))

    def _in_turn(self, totals: Values, parts: Values, first: e.Index) -> Values:
        """The totals after the groups from `first` on, one group per worker."""
        workers, groups = self.workers, self.kernel.groups
        left = e.minimum(workers, e.subtract(groups, first)) if groups % workers else workers
        base = e.subtract(e.remainder(e.thread(), self.machine.subgroup), self.worker)
        scalars = elements(parts)
        with e.loop(0, left, 1, totals) as turn:
            lane = arith.index_cast(e.integer(32), e.index(e.add(base, turn.index)))
            theirs = [e.shuffle(s, lane, self.machine.subgroup, "idx") for s in scalars]
            turn.next = self._combined(turn.values, like(parts, theirs), e.add(first, turn.index))
        return turn.results


def across(
    scalars: Values, lanes: int, subgroup: int, combine: Callable[[ir.Value, ir.Value], ir.Value] | None = None
) -> Values:
    """Reduce over `lanes` neighbouring lanes of a subgroup, a power of two, by sums or `combine`; each lane gets the
    results."""
    combine = combine or (arith.addf if isinstance(scalars[0].type, ir.FloatType) else arith.addi)
    while lanes > 1:
        lanes //= 2
        scalars = [combine(s, e.shuffle(s, e.word(lanes), subgroup, "xor")) for s in scalars]
    return scalars


def split(values: Sequence[ir.Value], *sizes: int) -> list[Values]:
    """Slices of these sizes, and the remaining values."""
    ends = list(accumulate(sizes, initial=0))
    return [list(values[a:b]) for a, b in zip(ends, [*ends[1:], len(values)], strict=True)]


def elements(values: Sequence[ir.Value]) -> Values:
    """The values as scalars: vectors are split into their elements."""
    return [scalar for value in values for scalar in e.elements(value)]


def like(values: Sequence[ir.Value], scalars: Sequence[ir.Value]) -> Values:
    """Gather scalars to vectors if `values` are vectors."""
    kind = values[0].type
    if not isinstance(kind, ir.VectorType):
        return list(scalars)
    lanes = kind.shape[0]
    return [e.gathered(scalars[i : i + lanes]) for i in range(0, len(scalars), lanes)]
