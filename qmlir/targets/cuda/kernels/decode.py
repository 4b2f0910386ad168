"""Weights of codes as floats: the op that dequantises them, on a lane's part of a fragment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....core.mlir import ir
from ....kernels import emit as e
from ....kernels.description import Kernel, Operand
from ....kernels.tile.instruction import TiledMma
from ...gpu_kernels.epilogue import Epilogue
from .halves import Halves, halves
from .product import TiledProduct
from .tile import Tile


class DecodeBlock(Protocol):
    """A workgroup's tile: where a lane's part of a fragment of the weight is, and what it is read from."""

    @property
    def gemm(self) -> TiledProduct: ...

    kernel: Kernel
    tile: Tile
    epilogue: Epilogue
    tiled: TiledMma
    interleave: int
    n_fragments: int
    lane: e.Index
    n0: e.Index
    warp_column: e.Index
    k_warp: e.Index


class Decoder:
    """Makes fragments of a block's weight. Without a `decode` stage it holds nothing.

    Attributes:
        held: what the stage reads, for the tile of K that is multiplied: for each operand and place along K a vector
            for each run of columns that are neighbours.
    """

    def __init__(self, block: DecodeBlock) -> None:
        self.block, self.stage = block, block.kernel.rhs.decode
        self.operands = list(dict.fromkeys(self.stage.operands)) if self.stage is not None else []
        self.held: Sequence[ir.Value] = []
        n = block.kernel.n
        self._lanes = next(width for width in (4, 2, 1) if width <= block.interleave and n % width == 0)
        self._runs = block.n_fragments // self._lanes
        group, tile = block.kernel.group, block.tile
        share = tile.k // tile.warps[2]  # of one warp
        self._groups = 1 if group is None or group >= share else share // group
        self.halves = halves(block.kernel, block.gemm.storage)

    def load(self, k_tile: e.Index) -> list[ir.Value]:
        """What the stage reads at a tile."""
        if self.stage is None:
            return []
        read, found = self.block.epilogue.column_operands, []
        for number in range(self._groups):
            group = self._group(k_tile, number)
            for run in range(self._runs):
                held = read(group, self._column(run), self._lanes)
                found += [held[operand] for operand in self.operands]
        return found

    def _group(self, k_tile: e.Index, number: int) -> e.Index:
        """The group of this warp's part of a tile; behind the last one, where K is padded, the last again: what is
        multiplied there is zero, and has to stay it."""
        tile, group = self.block.tile, self.block.kernel.group
        if group is None:
            return 0
        share = tile.k // tile.warps[2]
        k = e.add(e.multiply(k_tile, tile.k), e.multiply(self.block.k_warp, share))
        found = e.add(e.divide(k, group), number)
        whole = self.block.gemm.padded_k == self.block.kernel.k
        return found if whole else e.minimum(found, self.block.kernel.groups - 1)

    def _column(self, run: int) -> e.Index:
        """The first of the neighbouring columns of this lane in some fragments: of fragments `run * lanes` and on."""
        block, fragment = self.block, run * self._lanes
        outer, inside = divmod(fragment, block.interleave)
        lane = block.tiled.weight.place("column", lane=block.lane)
        n = e.add(block.n0, e.add(block.warp_column, e.add(lane, outer * 8 * block.interleave + inside)))
        return n if block.kernel.n % block.tile.n == 0 else e.minimum(n, block.kernel.n - self._lanes)

    def fragment(self, word: ir.Value, number: int, column: int, step: int) -> list[ir.Value]:
        """Field `number` of a stored word, decoded: the two registers of fragment `column` at a step of this warp."""
        assert self.stage is not None
        if self.halves is not None:
            return self._pairs(self.halves, word, number, column, step)
        held = {operand: self._value(operand, column, step) for operand in self.operands}
        value = self.block.epilogue.decode_column(self.block.gemm.storage.codes(word, number), held)
        pairs = e.as_type(value, e.vector_of(2, e.integer(32)))
        return [e.lane(pairs, i) for i in range(2)]

    def _pairs(self, form: Halves, word: ir.Value, number: int, column: int, step: int) -> list[ir.Value]:
        """The same, by two floats at a time."""
        stage = self.stage
        assert stage is not None
        operands = {
            argument: self._value(source, column, step)
            for argument, source in zip(stage.body.arguments, stage.sources, strict=False)
            if isinstance(source, Operand)
        }
        return form.fragment(word, number, self.block.gemm.storage.bits, form.held(stage, operands))

    def _value(self, operand: Operand, column: int, step: int) -> ir.Value:
        group = step * self.block.gemm.mma.depth // (self.block.kernel.group or 1) if self._groups > 1 else 0
        run, lane = divmod(column, self._lanes)
        value = self.held[(group * self._runs + run) * len(self.operands) + self.operands.index(operand)]
        return e.lane(value, lane) if isinstance(value.type, ir.VectorType) else value
