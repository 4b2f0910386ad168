"""Products whose K several workgroups share, for results of few tiles.

As many workgroups as run at the same time take equal shares of all steps along K of all tiles, one behind the other: a
share starts and ends in the middle of a tile (stream-K; Osama, Merrill, Cecka, Garland, Owens, "Stream-K: Work-centric
Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU", PPoPP 2023). Where each tile is cut into
equal parts it is split-K. Sums of a part of a tile go to a workspace in global memory, and the tile's counter says who
comes last: that one adds up all parts in the order of K, so a result does not depend on who was late, and runs the
stages. Nobody waits for anybody, so workgroups that do not run at the same time are no deadlock.

The counters start at zero in every call: they are a tensor of the program that a fill makes, and the workspace is a
result that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...core.mlir import arith, ir
from ...kernels.description import Kernel
from ...kernels.outline import Scratch, gather_indices
from ..cost import Figures
from . import emit as e
from .executable import KernelBody, KernelFunction, View
from .loop import TileLoop, elements, like

_WORDS = 4  # that a thread stores at once
_FILL = 2.0e-6  # seconds: of the counters of shared tiles, in front of the product


class Counter(Protocol):
    """How a target's workgroups know of each other, at the current insertion point."""

    def release(self) -> None:
        """In front of a barrier: what this thread has stored in global memory is seen by whoever sees what a thread of
        its workgroup counts behind the barrier."""

    def count(self, counters: ir.Value, number: e.Index) -> ir.Value:
        """Add one to an i32 in global memory; what it was before. What was stored in front of it (`release`) is seen by
        whoever counts there later, and this workgroup sees, behind its next barrier, what was stored by those who have
        counted there."""

    def leave(self) -> None:
        """Between two tiles of a workgroup: the memory that its threads share is free for the next one."""


@dataclass(frozen=True)
class Sharing:
    """How K of all tiles of a product is shared.

    Attributes:
        workgroups: that share it.
        steps: along K of a tile: rounds of its loop.
        holders: threads of a workgroup that hold sums.
        words: of sums that each of them holds.
        counter: of the target.
    """

    workgroups: int
    steps: int
    holders: int
    words: int
    counter: Counter

    @property
    def vectors(self) -> int:
        """Stores of a thread that hands over its sums."""
        return -(-self.words // _WORDS)

    @property
    def part_bytes(self) -> int:
        """Of the sums of a part of a tile."""
        return 4 * self.vectors * self.holders * _WORDS

    def launched(self, tiles: e.Index) -> e.Index:
        """How many workgroups there are: none without a step."""
        return e.minimum(self.workgroups, e.multiply(tiles, self.steps))

    def seconds(self, of_unit: float, f: Figures) -> float:
        """That sharing adds to a call, with `of_unit` workgroups on each unit: counters, and two parts of each share,
        there and back."""
        return f.cache(4 * of_unit * self.part_bytes) + _FILL + 4 * f.latency

    def scratch(self, kernel: Kernel) -> Scratch:
        """Counters, of each workgroup one, and the workspace: a place for the first and for the last tile of each
        share."""
        return Scratch(self.workgroups, 2 * self.workgroups * self.part_bytes // 4, kernel.value_type)


def in_order(kernel: Kernel) -> bool:
    """Whether the bits of a result depend on the order in which groups along K are added up: exact sums of integers,
    scaled. Parts of K may then be shared on request only."""
    return kernel.combine is not None and str(kernel.acc_type) == "i32"


def split_inputs(kernel: Kernel, inputs: Sequence[ir.Type]) -> tuple[Sequence[ir.Type], Sequence[ir.Type]]:
    """What the kernel reads, and the types of scratch where there are any behind (see `outline`)."""
    count = 2 + len(gather_indices(kernel)) + len(kernel.operands)
    return inputs[:count], inputs[count:]


def with_scratch(function: KernelFunction, scratch: Sequence[ir.Type], used: bool) -> KernelFunction:
    """The function with counters in front of its result and a workspace behind it, where there are types of both. All
    functions of an executable have them; the body gets their memory where it is `used`."""
    if not scratch:
        return function
    counters, space = map(View.of, scratch)
    *others, result = function.views

    def alone(rows: e.Index, buffers: list[ir.Value]) -> None:
        function.body(rows, [*buffers[:-3], buffers[-2]])

    body = function.body if used else alone
    return replace(function, views=[*others, counters, result, space], results=3, body=body)


@dataclass(frozen=True)
class Shares:
    """`workgroups` equal shares, or one longer than others, of `steps` steps of each of `tiles` tiles."""

    workgroups: e.Index
    steps: int
    tiles: e.Index

    @property
    def total(self) -> e.Index:
        return e.multiply(self.tiles, self.steps)

    @property
    def _short(self) -> e.Index:
        return e.divide(self.total, self.workgroups)

    @property
    def _longer(self) -> e.Index:
        """How many shares, the first ones, are one step longer."""
        return e.remainder(self.total, self.workgroups)

    def start(self, workgroup: e.Index) -> e.Index:
        """The first step of a share."""
        return e.add(e.multiply(workgroup, self._short), e.minimum(workgroup, self._longer))

    def owner(self, step: e.Index) -> e.Index:
        """Whose share a step is in."""
        long = e.multiply(self._longer, e.add(self._short, 1))
        behind = e.add(self._longer, e.divide(e.subtract(step, long), self._short))
        return e.choose(e.less(step, long), e.divide(step, e.add(self._short, 1)), behind)


def shared_body(
    sharing: Sharing, tiles: Callable[[e.Index], e.Index],
    loop_of: Callable[[e.Index, list[ir.Value], e.Index], TileLoop],
) -> KernelBody:  # fmt: skip
    """What a workgroup does of a product of `tiles(rows)` tiles, of views as `with_scratch` makes them. `loop_of` makes
    the loop of a tile from the number of rows, the other views and the tile's number."""

    def body(rows: e.Index, buffers: list[ir.Value]) -> None:
        *inputs, counters, out, space = buffers
        count = tiles(rows)
        shares = Shares(sharing.launched(count), sharing.steps, count)
        me = e.block(0)
        first, last = shares.start(me), shares.start(e.add(me, 1))
        last_tile = e.divide(e.subtract(last, 1), shares.steps)
        flag = e.shared([1], e.integer(32))
        with e.loop(e.divide(first, shares.steps), e.add(last_tile, 1), 1) as tile:
            base = e.multiply(tile.index, shares.steps)
            start = e.subtract(e.choose(e.less(first, base), base, first), base)
            stop = e.minimum(e.subtract(last, base), shares.steps)
            loop = loop_of(rows, [*inputs, out], tile.index)
            part = _Part(sharing, loop, shares, base, (counters, space, flag))
            part.finish(me, loop.accumulated(start, stop))
            sharing.counter.leave()

    return body


class _Part:
    """A part of the tile whose first step is `base`. `memory`: the counters, the workspace, a flag of the workgroup."""

    def __init__(
        self, sharing: Sharing, loop: TileLoop, shares: Shares, base: e.Index,
        memory: tuple[ir.Value, ir.Value, ir.Value],
    ) -> None:  # fmt: skip
        self.sharing, self.loop, self.shares, self.base = sharing, loop, shares, base
        self.counters, self.space, self.flag = memory
        self.first_owner = shares.owner(base)
        last = shares.owner(e.add(base, shares.steps - 1))
        self.parts = e.add(e.subtract(last, self.first_owner), 1)
        self.keeps = loop.keeps  # threads that hold the sums
        self.holder = loop.thread if self.keeps is True else e.remainder(loop.thread, sharing.holders)

    def finish(self, me: ir.Value, state: list[ir.Value]) -> None:
        """Hand over the sums of a part; the last to do so finishes the tile."""
        alone = e.equal(self.parts, 1)

        def handed_over() -> ir.Value:
            """Whether this part is the last."""
            e.guarded(self.keeps, lambda: self._store(me, state))
            self.sharing.counter.release()
            e.barrier()  # the whole part is stored before it is counted
            e.guarded(e.equal(self.loop.thread, 0), self._count)
            e.barrier()
            before = e.as_index(e.load(self.flag, [0]))
            return e.condition(e.equal(before, e.subtract(self.parts, 1)))

        i1 = e.integer(1)
        finishes = e.value_of(alone, i1, lambda: e.condition(True), handed_over)
        mine = e.both(self.keeps, finishes)
        e.guarded(mine, lambda: self.loop.finish(self._total(state, alone)))

    def _slot(self, owner: e.Index) -> e.Index:
        """Where a workgroup's sums are: a tile that is not the first of its share is its last."""
        later = e.less(self.shares.start(owner), self.base)
        return e.add(e.multiply(owner, 2), e.choose(later, 1, 0))

    def _place(self, slot: e.Index, vector_number: int) -> list[ir.Value]:
        number = e.add(e.multiply(slot, self.sharing.vectors), vector_number)
        return [e.index(e.multiply(e.add(e.multiply(number, self.sharing.holders), self.holder), _WORDS))]

    def _words(self, state: list[ir.Value]) -> list[ir.Value]:
        """The sums, and as many more as whole vectors have."""
        words = elements(state)
        assert len(words) == self.sharing.words, "what a thread hands over is what there is a place for"
        return words + words[-1:] * (-len(words) % _WORDS)

    def _store(self, me: ir.Value, state: list[ir.Value]) -> None:
        words, slot = self._words(state), self._slot(me)
        for i in range(0, len(words), _WORDS):
            e.store_run(e.gathered(words[i : i + _WORDS]), self.space, self._place(slot, i // _WORDS))

    def _count(self) -> None:
        e.store(self.sharing.counter.count(self.counters, self.first_owner), self.flag, [0])

    def _total(self, state: list[ir.Value], alone: e.Condition) -> list[ir.Value]:
        """The sums of all parts in the order of K; those of a tile that is one part as they are."""
        words = self._words(state)
        zero = e.constant(0, words[0].type)
        add = arith.addf if isinstance(words[0].type, ir.FloatType) else arith.addi
        start = [arith.select(e.condition(alone), word, zero) for word in words]
        with e.loop(0, e.choose(alone, 0, self.parts), 1, start) as part:
            slot = self._slot(e.add(self.first_owner, part.index))
            total = []
            for i in range(0, len(words), _WORDS):
                read = e.load_run(self.space, self._place(slot, i // _WORDS), _WORDS)
                total += [add(part.values[i + j], e.lane(read, j)) for j in range(_WORDS)]
            part.next = total
        return like(state, part.results)
