"""Groups along K, distributed over warps: each warp computes the sums of different groups, and then all warps combine
the sums of every group in ascending order.

So a product of few rows can keep as many warps busy as K has groups, and is bit-exact with one whose warp combines all
groups alone. The sums of a tile's groups pass through shared memory. Each warp owns one run of neighbouring columns of
every lane's results, and adds the groups to it one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....core.mlir import arith, ir
from ....kernels.description import Kernel
from ...gpu_kernels import emit as e
from ...gpu_kernels.epilogue import Epilogue, GroupReads
from ...gpu_kernels.loop import Run, Where, split
from .tile import Tile


class SharedBlock(Protocol):
    """The part of a `Block` that `HandedGroups` needs."""

    kernel: Kernel
    tile: Tile
    epilogue: Epilogue
    thread: ir.Value
    k_warp: e.Index
    across: int
    wants_sums: bool
    group_reads: GroupReads

    def zeros(self) -> list[ir.Value]: ...
    def runs(self, totals: list[ir.Value]) -> list[Run]: ...
    def where(self, number: int) -> Where: ...
    def advance(self, k_tile: e.Index, ring: Sequence[ir.Value]) -> None: ...
    def moved(self, ring: Sequence[ir.Value]) -> list[ir.Value]: ...
    def steps_of(self, stage: e.Index, state: Sequence[ir.Value], steps: Sequence[int]) -> list[ir.Value]: ...


def hands_over(kernel: Kernel, tile: Tile) -> bool:
    """Whether the tile's warps along K compute different groups."""
    return kernel.combine is not None and tile.warps[2] > 1


def lanes(tile: Tile) -> int:
    """Columns, per lane, of the run that a warp combines: the warp's share of a lane's results of the tile."""
    return tile.accumulators // tile.warps[2]


def fits(kernel: Kernel, tile: Tile) -> bool:
    """Whether a warp's share of a tile's K consists of whole groups, and its share of the results is one run."""
    share, per_lane = tile.k // tile.warps[2], lanes(tile)
    group = kernel.group or share
    columns = tile.warp[1] // 4  # per lane in a row
    return share % group == 0 and per_lane in (1, 2, 4, 8) and columns % per_lane == kernel.n % per_lane == 0


def shared_bytes(kernel: Kernel, tile: Tile, sums: bool) -> int:
    """Shared memory for the sums of a tile's groups, and with `sums` for the row sums, which four lanes each hold."""
    groups = tile.k // (kernel.group or tile.k)
    return 4 * tile.m * (tile.n + 4 * tile.warps[1] * sums) * groups


class HandedGroups:
    """Computes the totals of this warp's run."""

    def __init__(self, block: SharedBlock, steps: int) -> None:
        """`steps`: steps of the instruction in a warp's share of a tile."""
        tile, kernel = block.tile, block.kernel
        assert kernel.group is not None
        warps = tile.warps[2]
        self.block, self.inside = block, tile.k // kernel.group
        self.mine, self.steps = self.inside // warps, steps * warps // self.inside
        holders = tile.threads // warps
        self.holder = e.remainder(block.thread, holders)
        kind = e.vector_of(lanes(tile), kernel.acc_type)
        self.sums = e.shared([self.inside, warps, holders], kind, alignment=16)
        rows = warps // block.across
        self.row_sums = e.shared([self.inside, rows, holders], kernel.acc_type) if block.wants_sums else None

    def totals(self, first: e.Index, last: e.Index, ring: Sequence[ir.Value]) -> list[ir.Value]:
        """The totals over all groups of the tiles from `first` to `last`."""
        block, start = self.block, [self.block.epilogue.start()]
        read = self._read(first)
        with e.loop(first, last, 1, [*ring, *start, *read]) as tile:
            place, totals, known = split(tile.values, len(ring), len(start))
            read = self._read(e.minimum(e.add(tile.index, 1), e.subtract(last, 1)))
            block.advance(tile.index, place)
            for i in range(self.mine):
                sums = block.steps_of(place[0], block.zeros(), range(i * self.steps, (i + 1) * self.steps))
                self._hand_over(block.runs(sums), e.add(e.multiply(block.k_warp, self.mine), i))
            e.barrier()
            total = totals[0]
            each = len(known) // self.inside
            for i in range(self.inside):
                total = self._combined(total, tile.index, i, known[i * each : (i + 1) * each])
            tile.next = [*block.moved(place), total, *read]
        return [tile.results[len(ring)]]

    def _group(self, k_tile: e.Index, i: int) -> e.Index:
        """The number of a tile's `i`th group; past the last group, the last one again."""
        group = e.add(e.multiply(k_tile, self.inside), i)
        groups = self.block.kernel.groups
        return group if groups % self.inside == 0 else e.minimum(group, groups - 1)

    def _read(self, k_tile: e.Index) -> list[ir.Value]:
        """Read the operands that combine the groups of a tile."""
        read = self.block.group_reads.read
        return [value for i in range(self.inside) for value in read(self._group(k_tile, i))]

    def _hand_over(self, runs: Sequence[Run], group: e.Index) -> None:
        for number, run in enumerate(runs):
            e.store(run.value, self.sums, [group, number, self.holder])
            row, column = divmod(number, self.block.across)
            if self.row_sums is not None and column == 0:
                assert run.row_sum is not None
                e.store(run.row_sum, self.row_sums, [group, row, self.holder])

    def _combined(self, total: ir.Value, k_tile: e.Index, i: int, known: Sequence[ir.Value]) -> ir.Value:
        """The total with the `i`th group of a tile combined; unchanged if there is no such group."""
        block, at = self.block, self.block.where(0)
        group = self._group(k_tile, i)
        with block.epilogue.scope():
            block.group_reads.know(group, known)
            part = e.load(self.sums, [i, block.k_warp, self.holder])
            row_sum = None
            if self.row_sums is not None:
                row_sum = e.load(self.row_sums, [i, e.divide(block.k_warp, block.across), self.holder])
            made = block.epilogue.combine(total, part, row_sum, group, at.safe_row, at.safe_column)
        groups = block.kernel.groups
        if groups % self.inside <= i and groups % self.inside:
            there = e.less(e.add(e.multiply(k_tile, self.inside), i), groups)
            return arith.select(e.condition(there), made, total)
        return made
