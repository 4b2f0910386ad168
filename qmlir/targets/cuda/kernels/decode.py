"""Weights of codes, dequantised to floats in registers: the `decode` stage on a lane's part of a fragment."""

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
    """The part of a `Block` that a decoder needs: its tile, and which columns of the weight this lane holds."""

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
    """Decodes the fragments of a block's weight. Without a `decode` stage it does nothing.

    Attributes:
        held: the stage's operands for the tile of K that is multiplied, ordered by group along K, run of neighbouring
            columns, and operand; each is a vector over the columns of the run, or a scalar.
    """

    def __init__(self, block: DecodeBlock) -> None:
        self.block, self.stage = block, block.kernel.rhs.decode
        self.operands = list(dict.fromkeys(self.stage.operands)) if self.stage is not None else []
        self.held: Sequence[ir.Value] = []
        n = block.kernel.n
        self._lanes = next(width for width in (4, 2, 1) if width <= block.interleave and n % width == 0)
        self._runs = block.n_fragments // self._lanes
        group, tile = block.kernel.group, block.tile
        share = tile.k // tile.warps[2]  # of K, of one warp
        self._groups = 1 if group is None or group >= share else share // group
        self.halves = halves(block.kernel, block.gemm.storage)

    def load(self, k_tile: e.Index) -> list[ir.Value]:
        """Load the stage's operands for tile `k_tile`."""
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
        """Group `number` of this warp's part of a tile. Past the end, where K is padded, it is the last group again:
        activations are zero there, and a valid scale keeps the products zero."""
        tile, group = self.block.tile, self.block.kernel.group
        if group is None:
            return 0
        share = tile.k // tile.warps[2]
        k = e.add(e.multiply(k_tile, tile.k), e.multiply(self.block.k_warp, share))
        found = e.add(e.divide(k, group), number)
        whole = self.block.gemm.padded_k == self.block.kernel.k
        return found if whole else e.minimum(found, self.block.kernel.groups - 1)

    def _column(self, run: int) -> e.Index:
        """This lane's first column in fragment `run * lanes`; its columns in the following fragments are neighbours."""
        block, fragment = self.block, run * self._lanes
        outer, inside = divmod(fragment, block.interleave)
        lane = block.tiled.weight.place("column", lane=block.lane)
        n = e.add(block.n0, e.add(block.warp_column, e.add(lane, outer * 8 * block.interleave + inside)))
        return n if block.kernel.n % block.tile.n == 0 else e.minimum(n, block.kernel.n - self._lanes)

    def fragment(self, word: ir.Value, number: int, column: int, step: int) -> list[ir.Value]:
        """Decode field `number` of a stored word to the two registers of fragment `column` at a step of this warp."""
        assert self.stage is not None
        if self.halves is not None:
            return self._pairs(self.halves, word, number, column, step)
        held = {operand: self._value(operand, column, step) for operand in self.operands}
        value = self.block.epilogue.decode_column(self.block.gemm.storage.codes(word, number), held)
        pairs = e.as_type(value, e.vector_of(2, e.integer(32)))
        return [e.lane(pairs, i) for i in range(2)]

    def _pairs(self, form: Halves, word: ir.Value, number: int, column: int, step: int) -> list[ir.Value]:
        """As `fragment`, two floats at a time."""
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
