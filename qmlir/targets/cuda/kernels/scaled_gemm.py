"""Products on `mma.sync` with block scales along K: MXFP8, MXFP4, NVFP4.

The loop is that of other products (`mma_loop.py`). K is counted in bytes, so that two e2m1 codes count as one. In
addition to the codes a lane holds the scales of its rows and columns, four along K per word, which it loads at least
one tile ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....core.mlir import arith, ir
from ....kernels import emit as e
from ....kernels.description import COLUMN, GROUP, ROW, Operand
from ...gpu_kernels.scaled import SCALES_PER_WORD
from ...strategy import Facts
from .decode import Decoder
from .mma_gemm import MmaGemm
from .mma_loop import Block, Words
from .scaled_instructions import ScaledMma
from .tile import Tile

_NO_SIGNS = 0x7F7F7F7F


def words_of(instruction: ScaledMma, tile: Tile) -> int:
    """Words of scales per row that a warp uses of a tile; 0 if they are not whole words."""
    steps, rest = divmod(tile.k // tile.warps[2], instruction.depth)
    words, more = divmod(steps * instruction.fragments.blocks, SCALES_PER_WORD)
    return 0 if rest or more else words


class _ScaledBlock(Block):
    gemm: ScaledGemm

    def _lanes(self) -> None:
        super()._lanes()
        self.scales = self.decoder = _Scales(self)

    def steps_of(self, stage: e.Index, state: Sequence[ir.Value], steps: Sequence[int]) -> list[ir.Value]:
        """As in `Block`, one step at a time: each takes its scales from other bytes of the words."""
        found = list(state)
        for step in steps:
            self.mma = replace(self.gemm.instruction, first=self.scales.at(step)[1])
            found = super().steps_of(stage, found, [step])
        return found

    def _lhs_words(self, stage: e.Index, i: int, step: int) -> list[ir.Value]:
        return [*super()._lhs_words(stage, i, step), self.scales.row(i, step)]

    def _rhs_fragment(self, words: Words, number: int, j: int, step: int) -> list[ir.Value]:
        return [*super()._rhs_fragment(words, number, j, step), self.scales.column(j, step)]


@dataclass(frozen=True, kw_only=True)
class ScaledGemm(MmaGemm):
    """Products of codes and scales on one tile."""

    block = _ScaledBlock
    instruction: ScaledMma

    @property
    def mma(self) -> ScaledMma:
        return self.instruction

    @property
    def facts(self) -> Facts:
        tile, bits = self.tile, self.instruction.code_bits
        return {
            **super().facts, "mma": self.instruction.name, "tile": [tile.m, tile.n, tile.k * 8 // bits],
            "weight_bits": bits, "block": self.instruction.block,
        }  # fmt: skip


class _Scales(Decoder):
    """The words of scales along K, for each fragment of rows, then for each fragment of columns.

    The sign of a scale has been moved to its codes, so its bit is dropped (`gpu_kernels/scaled.py`).
    """

    def __init__(self, block: _ScaledBlock) -> None:
        super().__init__(block)
        self._scaled_block = block
        instruction = block.gemm.instruction
        self._blocks = instruction.fragments.blocks
        self._words = words_of(instruction, block.tile)
        self._word_count = -(-block.kernel.k * 8 // instruction.code_bits // instruction.block // SCALES_PER_WORD)
        self._signed = instruction.scale == "ue4m3"

    def at(self, step: int) -> tuple[int, int]:
        """The word along K with the scales of a step of this warp, and the first byte of these scales in it."""
        return divmod(step * self._blocks, SCALES_PER_WORD)

    def row(self, i: int, step: int) -> ir.Value:
        """The word of row fragment `i` at a step."""
        return self.held[i * self._words + self.at(step)[0]]

    def column(self, j: int, step: int) -> ir.Value:
        """The word of column fragment `j` at a step."""
        return self.held[(self._scaled_block.m_fragments + j) * self._words + self.at(step)[0]]

    def load(self, k_tile: e.Index) -> list[ir.Value]:
        """Load the words of tile `k_tile`. Past the last word it is the last one again: the codes there are zeros, and
        if one of its scales is NaN, the sum is NaN anyway."""
        block, fragments = self._scaled_block, self._scaled_block.gemm.instruction.fragments
        assert fragments.a_scale is not None
        assert fragments.b_scale is not None
        lhs, rhs = block.kernel.scales
        first = e.multiply(e.add(e.multiply(k_tile, block.tile.warps[2]), block.k_warp), self._words)
        row = e.add(block.warp_row, fragments.a_scale.place("m", lane=block.lane))
        column = e.add(block.warp_column, fragments.b_scale.place("n", lane=block.lane))
        places = [(lhs, ROW, block._lhs_row(e.add(row, 16 * i))) for i in range(block.m_fragments)]
        places += [(rhs, COLUMN, block._rhs_row(e.add(column, 8 * j))) for j in range(block.n_fragments)]
        return [
            self._word(operand, {axis: place, GROUP: e.minimum(e.add(first, i), self._word_count - 1)})
            for operand, axis, place in places
            for i in range(self._words)
        ]

    def _word(self, operand: Operand, places: dict[str, e.Index]) -> ir.Value:
        word = self._scaled_block.epilogue.number(operand, places)
        return arith.andi(word, e.constant(_NO_SIGNS, e.integer(32))) if self._signed else word
