"""Products on `mma.sync` with scales of blocks along K: MXFP8, MXFP4, NVFP4.

The loop is that of other products; K is counted in bytes, so that two codes of e2m1 are one. Beside the codes a lane
holds the scales of its rows and columns, four along K in a word, which it asks memory for a tile ahead.
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
    """Words of scales of a row that a warp takes of a tile; 0 where they are not whole ones."""
    steps, rest = divmod(tile.k // tile.warps[2], instruction.depth)
    words, more = divmod(steps * instruction.fragments.blocks, SCALES_PER_WORD)
    return 0 if rest or more else words


class _ScaledBlock(Block):
    gemm: ScaledGemm

    def _lanes(self) -> None:
        super()._lanes()
        self.scales = self.decoder = _Scales(self)

    def steps_of(self, stage: e.Index, state: Sequence[ir.Value], steps: Sequence[int]) -> list[ir.Value]:
        """One by one: each takes other bytes of the words of scales."""
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
    """Words of scales: of each fragment of rows, then of columns, those along K.

    The sign of a scale has gone to its codes, so its bit is dropped (`scaled_strategy.py`).
    """

    def __init__(self, block: _ScaledBlock) -> None:
        super().__init__(block)
        self._scaled = block
        instruction = block.gemm.instruction
        self._blocks = instruction.fragments.blocks
        self._words = words_of(instruction, block.tile)
        self._all = -(-block.kernel.k * 8 // instruction.code_bits // instruction.block // SCALES_PER_WORD)
        self._signed = instruction.scale == "ue4m3"

    def at(self, step: int) -> tuple[int, int]:
        """Which word along K an instruction of this warp takes scales of, and from which byte on."""
        return divmod(step * self._blocks, SCALES_PER_WORD)

    def row(self, i: int, step: int) -> ir.Value:
        """Of fragment `i` of rows."""
        return self.held[i * self._words + self.at(step)[0]]

    def column(self, j: int, step: int) -> ir.Value:
        """Of fragment `j` of columns."""
        return self.held[(self._scaled.m_fragments + j) * self._words + self.at(step)[0]]

    def load(self, k_tile: e.Index) -> list[ir.Value]:
        """Of tile `k_tile`. Behind the last word the last again: what it is multiplied with are zeros, and where it is
        no number, so is its own product."""
        block, fragments = self._scaled, self._scaled.gemm.instruction.fragments
        assert fragments.a_scale is not None
        assert fragments.b_scale is not None
        lhs, rhs = block.kernel.scales
        first = e.multiply(e.add(e.multiply(k_tile, block.tile.warps[2]), block.k_warp), self._words)
        row = e.add(block.warp_row, fragments.a_scale.place("m", lane=block.lane))
        column = e.add(block.warp_column, fragments.b_scale.place("n", lane=block.lane))
        places = [(lhs, ROW, block._lhs_row(e.add(row, 16 * i))) for i in range(block.m_fragments)]
        places += [(rhs, COLUMN, block._rhs_row(e.add(column, 8 * j))) for j in range(block.n_fragments)]
        return [
            self._word(operand, {axis: place, GROUP: e.minimum(e.add(first, i), self._all - 1)})
            for operand, axis, place in places
            for i in range(self._words)
        ]

    def _word(self, operand: Operand, places: dict[str, e.Index]) -> ir.Value:
        word = self._scaled.epilogue.number(operand, places)
        return arith.andi(word, e.constant(_NO_SIGNS, e.integer(32))) if self._signed else word
