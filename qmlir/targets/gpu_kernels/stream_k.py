"""Products whose K is shared by several workgroups, for results of few tiles.

As many workgroups as run at the same time take equal, consecutive shares of all steps along K of all tiles: a share may
start and end in the middle of a tile (stream-K; Osama, Merrill, Cecka, Garland, Owens, "Stream-K: Work-centric
Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU", PPoPP 2023). If each tile is cut into equal
parts, this is split-K. Partial sums of a tile go to a workspace in global memory, and the tile's counter tells which
workgroup is last: that one adds up all partial sums in the order of K, so that a result does not depend on which it
was, and runs the stages. No workgroup waits for another, so there is no deadlock if they do not run at the same time.

The counters start at zero in every call: they are a tensor of the program that is filled with zeros. The workspace is a
result that is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...core.mlir import arith, ir
from ...kernels.description import Kernel
from ...kernels.outline import Scratch, gather_indices
from ..base import Target
from ..cost import Figures
from . import emit as e
from .executable import KernelBody, KernelFunction, View
from .loop import TileLoop, elements, like
from .machine import Machine

_WORDS = 4  # words that a thread stores at once
_FILL = 2.0e-6  # seconds to fill the counters, before the product


@dataclass(frozen=True)
class Sharing:
    """How K of all tiles of a product is shared.

    Attributes:
        workgroups: the number of workgroups that share it.
        steps: steps along K of a tile: rounds of its loop.
        holders: threads of a workgroup that hold sums.
        words: words of sums that each of them holds.
        machine: the target's instructions.
    """

    workgroups: int
    steps: int
    holders: int
    words: int
    machine: Machine

    @property
    def vectors(self) -> int:
        """The number of stores with which a thread hands over its sums."""
        return -(-self.words // _WORDS)

    @property
    def part_bytes(self) -> int:
        """Bytes of the partial sums of a tile."""
        return 4 * self.vectors * self.holders * _WORDS

    def launched(self, tiles: e.Index) -> e.Index:
        """The number of workgroups: at most one per step."""
        return e.minimum(self.workgroups, e.multiply(tiles, self.steps))

    def seconds(self, of_unit: float, f: Figures) -> float:
        """The seconds that sharing adds to a call, with `of_unit` workgroups on each unit: for the counters, and for
        storing and loading the partial sums of two tiles of each share."""
        return f.cache(4 * of_unit * self.part_bytes) + _FILL + 4 * f.latency

    def scratch(self, kernel: Kernel) -> Scratch:
        """The counters, one per workgroup, and the workspace, with a slot for the first and for the last tile of each
        share."""
        return Scratch(self.workgroups, 2 * self.workgroups * self.part_bytes // 4, kernel.value_type)


def on_request_only(kernel: Kernel, target: Target) -> str:
    """Why K of a product is shared on request only; "" if the estimate decides. The bits of a result may depend on the
    order in which groups along K are added up, as for exact integer sums that are scaled per group."""
    if kernel.combine is not None and str(kernel.acc_type) == "i32":
        return "groups are added up in their order"
    peak = target.capabilities.peak
    return "the device's number of units is not known" if peak is None or peak.units is None else ""


def split_inputs(kernel: Kernel, inputs: Sequence[ir.Type]) -> tuple[Sequence[ir.Type], Sequence[ir.Type]]:
    """The types of the kernel's own inputs, and those of scratch memory if they follow (see `outline`)."""
    count = 2 + len(gather_indices(kernel)) + len(kernel.operands)
    return inputs[:count], inputs[count:]


def with_scratch(function: KernelFunction, scratch: Sequence[ir.Type], used: bool) -> KernelFunction:
    """The function with counters before its result and a workspace after it, if there are types for both. All functions
    of an executable have these operands; the body gets their memrefs only if `used`."""
    if not scratch:
        return function
    counters, space = map(View.of, scratch)
    if function.launch.machine.vectors_in_memory:
        space = View.of_vectors(space.shape, _WORDS, space.element)
    *others, result = function.views

    def alone(rows: e.Index, buffers: list[ir.Value]) -> None:
        function.body(rows, [*buffers[:-3], buffers[-2]])

    body = function.body if used else alone
    return replace(function, views=[*others, counters, result, space], results=3, body=body)


@dataclass(frozen=True)
class Shares:
    """`workgroups` shares of the `steps` steps of each of `tiles` tiles, whose lengths differ by at most one step."""

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
        """The number of shares, the first ones, that are one step longer."""
        return e.remainder(self.total, self.workgroups)

    def start(self, workgroup: e.Index) -> e.Index:
        """The first step of a share."""
        return e.add(e.multiply(workgroup, self._short), e.minimum(workgroup, self._longer))

    def owner(self, step: e.Index) -> e.Index:
        """The workgroup whose share a step is in."""
        long = e.multiply(self._longer, e.add(self._short, 1))
        behind = e.add(self._longer, e.divide(e.subtract(step, long), self._short))
        return e.choose(e.less(step, long), e.divide(step, e.add(self._short, 1)), behind)


def shared_body(
    sharing: Sharing, tiles: Callable[[e.Index], e.Index],
    loop_of: Callable[[e.Index, list[ir.Value], e.Index], TileLoop],
) -> KernelBody:  # fmt: skip
    """The body of a kernel for a product of `tiles(rows)` tiles, with the views of `with_scratch`. `loop_of` makes the
    loop of a tile from the number of rows, the other views and the tile's number."""

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
            sharing.machine.leave()

    return body


class _Part:
    """A workgroup's part of the tile whose first step is `base`. `memory`: the counters, the workspace, and a flag in
    shared memory."""

    def __init__(
        self, sharing: Sharing, loop: TileLoop, shares: Shares, base: e.Index,
        memory: tuple[ir.Value, ir.Value, ir.Value],
    ) -> None:  # fmt: skip
        self.sharing, self.loop, self.shares, self.base = sharing, loop, shares, base
        self.counters, self.space, self.flag = memory
        self.first_owner = shares.owner(base)
        last = shares.owner(e.add(base, shares.steps - 1))
        self.parts = e.add(e.subtract(last, self.first_owner), 1)
        self.keeps = loop.keeps  # whether this thread holds sums
        self.holder = loop.thread if self.keeps is True else e.remainder(loop.thread, sharing.holders)

    def finish(self, me: ir.Value, state: list[ir.Value]) -> None:
        """Hand over the part's sums; the last workgroup to do so finishes the tile."""
        alone = e.equal(self.parts, 1)

        def handed_over() -> ir.Value:
            """Hand over the sums. Returns whether this part is the last."""
            e.guarded(self.keeps, lambda: self._store(me, state))
            self.sharing.machine.release()
            e.barrier()  # the whole part is stored before it is counted
            e.guarded(e.equal(self.loop.thread, 0), self._count)
            e.barrier()
            self.sharing.machine.acquire()
            before = e.as_index(e.load(self.flag, [0]))
            return e.condition(e.equal(before, e.subtract(self.parts, 1)))

        i1 = e.integer(1)
        finishes = e.value_of(alone, i1, lambda: e.condition(True), handed_over)
        mine = e.both(self.keeps, finishes)
        e.guarded(mine, lambda: self.loop.finish(self._total(state, alone)))

    def _slot(self, owner: e.Index) -> e.Index:
        """The workspace slot of a workgroup's sums: a tile that is not the first of a share is its last."""
        later = e.less(self.shares.start(owner), self.base)
        return e.add(e.multiply(owner, 2), e.choose(later, 1, 0))

    def _place(self, slot: e.Index, vector_number: int) -> e.Index:
        """The number of a vector in the workspace."""
        number = e.add(e.multiply(slot, self.sharing.vectors), vector_number)
        return e.add(e.multiply(number, self.sharing.holders), self.holder)

    def _words(self, state: list[ir.Value]) -> list[ir.Value]:
        """The sums as scalars, padded to whole vectors."""
        words = elements(state)
        assert len(words) == self.sharing.words, "what a thread hands over is what there is a place for"
        return words + words[-1:] * (-len(words) % _WORDS)

    def _store(self, me: ir.Value, state: list[ir.Value]) -> None:
        words, slot = self._words(state), self._slot(me)
        for i in range(0, len(words), _WORDS):
            e.store_vector(e.gathered(words[i : i + _WORDS]), self.space, self._place(slot, i // _WORDS))

    def _count(self) -> None:
        e.store(self.sharing.machine.count(self.counters, self.first_owner), self.flag, [0])

    def _total(self, state: list[ir.Value], alone: e.Condition) -> list[ir.Value]:
        """The sums of all parts, added in the order of K; for a tile of one part, its own sums."""
        words = self._words(state)
        zero = e.constant(0, words[0].type)
        add = arith.addf if isinstance(words[0].type, ir.FloatType) else arith.addi
        start = [arith.select(e.condition(alone), word, zero) for word in words]
        with e.loop(0, e.choose(alone, 0, self.parts), 1, start) as part:
            slot = self._slot(e.add(self.first_owner, part.index))
            total = []
            for i in range(0, len(words), _WORDS):
                read = e.load_vector(self.space, self._place(slot, i // _WORDS), _WORDS)
                total += [add(part.values[i + j], e.lane(read, j)) for j in range(_WORDS)]
            part.next = total
        return like(state, part.results)
