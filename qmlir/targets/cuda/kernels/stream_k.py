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
from dataclasses import dataclass

from ....core.mlir import arith, ir, memref
from ....kernels import emit as e
from ....kernels.outline import Scratch
from ....kernels.row_sums import uses_row_sums
from ...gpu_kernels.loop import elements, like
from . import instructions as gpu
from .executable import workgroup_id
from .mma_loop import Block
from .product import TiledProduct
from .raster import blocks

_WORDS = 4  # that a thread stores at once
_COUNTED = 4  # bytes of a counter


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


def launched(gemm: TiledProduct, rows: e.Index) -> e.Index:
    """How many workgroups there are: none without a step."""
    return e.minimum(gemm.workgroups, e.multiply(blocks(gemm.kernel, gemm.tile, rows), gemm.k_steps))


def sharable(gemm: TiledProduct) -> bool:
    """Whether the tile of a kernel can be made in parts."""
    kernel, group = gemm.kernel, gemm.kernel.group
    # A last tile of K with fewer groups than others is multiplied by other code than they are.
    whole = kernel.combine is None or group is None or group >= gemm.tile.k or kernel.k % gemm.tile.k == 0
    return kernel.batch is None and whole


def scratch(gemm: TiledProduct) -> Scratch:
    """Counters, of each workgroup one, and the workspace: a place for the first and for the last tile of each share."""
    return Scratch(gemm.workgroups, 2 * gemm.workgroups * part_bytes(gemm) // 4, gemm.kernel.value_type)


def part_bytes(gemm: TiledProduct) -> int:
    """Of the sums of a part of a tile."""
    return 4 * _vectors(gemm) * _threads(gemm) * _WORDS


def _threads(gemm: TiledProduct) -> int:
    """That hold sums: those of the first warps along K."""
    return gemm.tile.threads // gemm.tile.warps[2]


def _vectors(gemm: TiledProduct) -> int:
    sums = gemm.tile.warp[0] // 16 if uses_row_sums(gemm.kernel) and gemm.kernel.combine is None else 0
    return gemm.tile.accumulators // _WORDS + sums


def work(
    gemm: TiledProduct, rows: e.Index, buffers: Sequence[ir.Value], block_of: Callable[[list[ir.Value], e.Index], Block]
) -> None:
    """One workgroup's share. Buffers: inputs, counters, result, workspace; `block_of` makes the block of a tile, of
    inputs with the result and the tile's number."""
    *inputs, counters, out, space = buffers
    tiles = blocks(gemm.kernel, gemm.tile, rows)
    shares = Shares(launched(gemm, rows), gemm.k_steps, tiles)
    me = workgroup_id()
    first, last = shares.start(me), shares.start(e.add(me, 1))
    last_tile = e.divide(e.subtract(last, 1), shares.steps)
    flag = gpu.shared([1], e.integer(32))
    with e.loop(e.divide(first, shares.steps), e.add(last_tile, 1), 1) as tile:
        base = e.multiply(tile.index, shares.steps)
        start = e.subtract(e.choose(e.less(first, base), base, first), base)
        stop = e.minimum(e.subtract(last, base), shares.steps)
        block = block_of([*inputs, out], tile.index)
        part = _Part(gemm, block, shares, base, counters, space, flag)
        part.finish(me, block.accumulated(start, stop))
        # The next tile's copies go where these are: none is on its way, and nobody reads them.
        gpu.wait(0)
        gpu.barrier()


class _Part:
    """A part of the tile whose first step is `base`."""

    def __init__(
        self,
        gemm: TiledProduct,
        block: Block,
        shares: Shares,
        base: e.Index,
        counters: ir.Value,
        space: ir.Value,
        flag: ir.Value,
    ) -> None:
        self.gemm, self.block, self.shares, self.base = gemm, block, shares, base
        self.counters, self.space, self.flag = counters, space, flag
        self.first_owner = shares.owner(base)
        last = shares.owner(e.add(base, shares.steps - 1))
        self.parts = e.add(e.subtract(last, self.first_owner), 1)
        self.lane = e.remainder(block.thread, _threads(gemm))
        self.keeps = block.keeps  # threads that hold the sums

    def finish(self, me: ir.Value, state: list[ir.Value]) -> None:
        """Hand over the sums of a part; the last to do so finishes the tile."""
        alone = e.equal(self.parts, 1)

        def handed_over() -> ir.Value:
            """Whether this part is the last."""
            e.guarded(self.keeps, lambda: self._store(me, state))
            gpu.barrier()  # the whole part is stored before it is counted
            e.guarded(e.equal(self.block.thread, 0), self._count)
            gpu.barrier()
            before = arith.index_castui(ir.IndexType.get(), memref.load(self.flag, [e.index(0)]))
            return e.condition(e.equal(before, e.subtract(self.parts, 1)))

        i1 = e.integer(1)
        finishes = e.value_of(alone, i1, lambda: e.condition(True), handed_over)
        mine = e.both(self.keeps, finishes)
        e.guarded(mine, lambda: self.block.finish(self._total(state, alone)))

    def _slot(self, owner: e.Index) -> e.Index:
        """Where a workgroup's sums are: a tile that is not the first of its share is its last."""
        later = e.less(self.shares.start(owner), self.base)
        return e.add(e.multiply(owner, 2), e.choose(later, 1, 0))

    def _place(self, slot: e.Index, vector_number: int) -> list[ir.Value]:
        number = e.add(e.multiply(slot, _vectors(self.gemm)), vector_number)
        return [e.index(e.multiply(e.add(e.multiply(number, _threads(self.gemm)), self.lane), _WORDS))]

    def _store(self, me: ir.Value, state: list[ir.Value]) -> None:
        words, slot = elements(state), self._slot(me)
        for i in range(0, len(words), _WORDS):
            e.store_run(e.gathered(words[i : i + _WORDS]), self.space, self._place(slot, i // _WORDS))

    def _count(self) -> None:
        before = gpu.count(self.counters, self.first_owner, _COUNTED)
        memref.store(before, self.flag, [e.index(0)])

    def _total(self, state: list[ir.Value], alone: e.Condition) -> list[ir.Value]:
        """The sums of all parts in the order of K; those of a tile that is one part as they are."""
        words = elements(state)
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
