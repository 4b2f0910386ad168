"""One-byte floats by one-byte floats on `mma.sync`.

By default codes are converted to f16 in registers. This is exact, because every e4m3 and e5m2 value is an f16 value;
their products are summed in f32. A word that `ldmatrix` gives lane t of a quad has four neighbours along K of a row,
while the f16 instruction takes two at 2 t and two at 2 t + 8. K is permuted alike on both sides, so the same codes
meet, in another order.

`fast` uses the fp8 instruction, which keeps about 14 bits of its sums up to Hopper (DeepSeek-V3 technical report,
section 3.3). The sums of each tile of K, at most `LONGEST` codes, are therefore added up in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.mlir import arith, ir
from ...gpu_kernels import emit as e
from ...gpu_kernels.scaled import KINDS
from ...gpu_kernels.small_floats import halves_of_word
from ...strategy import Facts
from . import instructions as gpu
from .mma_gemm import MmaGemm
from .mma_loop import Block

FORMATS = {kind: name for name, kind in KINDS.items()}
LONGEST = 128  # codes along K of one sum of `fast`


@dataclass(frozen=True)
class HalfMma(gpu.Multiply):
    """`mma.sync.m16n8k16` on f16 converted from one-byte floats. A lane has 2 and 1 words of codes, and 4 sums."""

    converts: bool  # whether the target has an instruction that converts e4m3 to f16

    @property
    def operand(self) -> str:
        return "f16"

    @property
    def rate(self) -> str:
        return "f16"

    def lhs(self, words: Sequence[ir.Value]) -> list[ir.Value]:
        """Convert the words of rows r and r + 8 to the registers of both rows at 2 t, then of both at 2 t + 8."""
        pairs = [self._halves(word, self.lhs_kind) for word in words]
        return [pair[i] for i in range(2) for pair in pairs]

    def rhs(self, words: Sequence[ir.Value]) -> list[ir.Value]:
        return [half for word in words for half in self._halves(word, self.rhs_kind)]

    def __call__(self, lhs: Sequence[ir.Value], rhs: Sequence[ir.Value], acc: Sequence[ir.Value]) -> list[ir.Value]:
        return gpu.alike("f16", 16)(lhs, rhs, acc)

    def _halves(self, word: ir.Value, kind: str) -> Sequence[ir.Value]:
        """Convert the four codes of a word to two words of two f16."""
        if kind != "e4m3" or not self.converts:
            return halves_of_word(word, FORMATS[kind], "f16")
        i16 = e.integer(16)
        parts = [arith.trunci(i16, word), arith.trunci(i16, arith.shrui(word, e.word(16)))]
        pair = e.vector_of(2, ir.F16Type.get())
        return [e.as_word(e.intrinsic("llvm.nvvm.e4m3x2.to.f16x2.rn", [part], pair)) for part in parts]


class _Block(Block):
    def _tile(self, stage: e.Index, state: Sequence[ir.Value]) -> list[ir.Value]:
        """Sum a tile separately from the totals if the instruction keeps fewer bits than f32 has."""
        if isinstance(self.mma, HalfMma):
            return super()._tile(stage, state)
        inside = super()._tile(stage, self.zeros())
        return [arith.addf(total, part) for total, part in zip(state, inside, strict=True)]


@dataclass(frozen=True)
class Fp8Gemm(MmaGemm):
    """Products of one-byte floats on one tile."""

    block = _Block
    converts: bool = False
    fast: bool = False

    @property
    def mma(self) -> gpu.Multiply:
        left, right = (KINDS[str(side.value.type.element_type)] for side in (self.kernel.lhs, self.kernel.rhs))
        whole = (self.kernel.group or 32) % 32 == 0 and self.tile.k % (32 * self.tile.warps[2]) == 0
        if self.fast and whole:
            return gpu.Mma(left, right, gpu.FRAGMENTS[32, 8])
        return HalfMma(left, right, gpu.FRAGMENTS[16, 16], self.converts)

    @property
    def decodes(self) -> bool:
        return isinstance(self.mma, HalfMma)

    @property
    def facts(self) -> Facts:
        kinds = f"{self.mma.lhs_kind} x {self.mma.rhs_kind}"
        return {**super().facts, "codes": kinds if self.decodes else f"{kinds}, separate sums of {self.tile.k}"}
