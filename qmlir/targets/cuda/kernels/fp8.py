"""One-byte floats by one-byte floats on `mma.sync`.

By default codes become f16 in registers, exactly: every e4m3 and e5m2 is one, and the sums are those of f16 products,
in f32. The words that `ldmatrix` gives a lane hold four neighbours along K of a row, where the instruction's operands
of f16 want two at 2 t and two at 2 t + 8: both sides are dealt alike, so the same codes meet, in another order.

`fast` uses the instruction for the codes themselves, which keeps about 14 bits of its sums up to Hopper (DeepSeek-V3
technical report, section 3.3); sums of each tile of K, at most `LONGEST` codes, are added up in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.mlir import arith, ir
from ....kernels import emit as e
from ....kernels.tile.instruction import Fragments
from ...strategy import Facts
from . import instructions as gpu
from .mma_gemm import MmaGemm
from .mma_loop import Block

# MLIR's names of the formats, and PTX's.
KINDS = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
LONGEST = 128  # codes along K of one sum of `fast`


@dataclass(frozen=True)
class HalfMma:
    """`mma.sync.m16n8k16` on f16, made of one-byte floats: 4 sums, 2 and 1 words of codes a lane."""

    lhs_kind: str  # "e4m3" | "e5m2"
    rhs_kind: str
    converts: bool  # whether there is an instruction that makes f16 of e4m3
    depth: int = 16
    acc: str = "f32"
    operand: str = "f16"

    @property
    def fragments(self) -> Fragments:
        """See `Multiply`."""
        return gpu.FRAGMENTS[self.depth, 16]

    @property
    def step_bytes(self) -> int:
        return self.depth

    def lhs(self, words: Sequence[ir.Value]) -> list[ir.Value]:
        """The words of rows r and r + 8 as the registers of both rows at 2 t, then at 2 t + 8."""
        pairs = [self._halves(word, self.lhs_kind) for word in words]
        return [pair[i] for i in range(2) for pair in pairs]

    def rhs(self, words: Sequence[ir.Value]) -> list[ir.Value]:
        return [half for word in words for half in self._halves(word, self.rhs_kind)]

    def __call__(self, lhs: Sequence[ir.Value], rhs: Sequence[ir.Value], acc: Sequence[ir.Value]) -> list[ir.Value]:
        return gpu.Mma(16, "f16", "f32")(lhs, rhs, acc)

    def _halves(self, word: ir.Value, kind: str) -> tuple[ir.Value, ir.Value]:
        """The four codes of a word as two words of two f16."""
        if kind == "e4m3" and self.converts:
            i16 = e.integer(16)
            parts = [arith.trunci(i16, word), arith.trunci(i16, arith.shrui(word, _word(16)))]
            pair = e.vector_of(2, ir.F16Type.get())
            made = [e.intrinsic("llvm.nvvm.e4m3x2.to.f16x2.rn", [part], pair) for part in parts]
            return e.as_word(made[0]), e.as_word(made[1])
        return self._spread(word, kind), self._spread(arith.shrui(word, _word(16)), kind)

    def _spread(self, word: ir.Value, kind: str) -> ir.Value:
        """The lower two codes of a word as two f16: those of e5m2 are the upper byte of theirs."""
        low = arith.shli(arith.andi(word, _word(0xFF)), _word(8))
        codes = arith.ori(low, arith.shli(arith.andi(word, _word(0xFF00)), _word(16)))
        if kind == "e5m2":
            return codes
        # Exponent and mantissa in their places are the number / 2^8, the difference of the exponents' biases; the
        # largest pattern is no number.
        magnitude = arith.shrui(arith.andi(codes, _word(0x7F007F00)), _word(1))
        none = arith.andi(arith.addi(magnitude, _word(0x00800080)), _word(0x40004000))
        none = arith.ori(none, arith.subi(none, arith.shrui(none, _word(5))))
        bits = arith.ori(arith.ori(magnitude, none), arith.andi(codes, _word(0x80008000)))
        f16 = ir.F16Type.get()
        return e.as_word(arith.mulf(e.as_pair(bits, e.vector_of(2, f16)), e.splat(256.0, 2, f16)))


@dataclass(frozen=True)
class CodeMma:
    """`mma.sync.m16n8k32` on the codes (sm_89 and newer)."""

    lhs_kind: str
    rhs_kind: str
    depth: int = 32
    acc: str = "f32"

    @property
    def operand(self) -> str:
        return self.lhs_kind

    @property
    def fragments(self) -> Fragments:
        """See `Multiply`."""
        return gpu.FRAGMENTS[self.depth, 8]

    @property
    def step_bytes(self) -> int:
        return self.depth

    def lhs(self, words: Sequence[ir.Value]) -> list[ir.Value]:
        return list(words)

    def rhs(self, words: Sequence[ir.Value]) -> list[ir.Value]:
        return list(words)

    def __call__(self, lhs: Sequence[ir.Value], rhs: Sequence[ir.Value], acc: Sequence[ir.Value]) -> list[ir.Value]:
        kinds = f"f32.{self.lhs_kind}.{self.rhs_kind}.f32"
        places = ["{$0, $1, $2, $3}", "{$4, $5, $6, $7}", "{$8, $9}", "{$10, $11, $12, $13}"]
        text = f"mma.sync.aligned.m16n8k32.row.col.{kinds} {', '.join(places)};"
        return gpu.of_sums(text, [*lhs, *rhs], acc)


def _word(value: int) -> ir.Value:
    return e.constant(value - (1 << 32) if value >> 31 else value, e.integer(32))


@dataclass(frozen=True)
class Fp8Gemm(MmaGemm):
    """Products of one-byte floats on one tile."""

    converts: bool = False
    fast: bool = False

    @property
    def mma(self) -> HalfMma | CodeMma:
        kinds = [KINDS[str(side.value.type.element_type)] for side in (self.kernel.lhs, self.kernel.rhs)]
        whole = (self.kernel.group or 32) % 32 == 0 and self.tile.k % (32 * self.tile.warps[2]) == 0
        return CodeMma(kinds[0], kinds[1]) if self.fast and whole else HalfMma(kinds[0], kinds[1], self.converts)

    @property
    def rate(self) -> str:
        return "f8E4M3FN" if self.fast else "f16"

    @property
    def decodes(self) -> bool:
        return not self.fast

    @property
    def attributes(self) -> dict[str, int]:
        # Beside the sums of a group stand those of all. ptxas spills some to get another block onto a multiprocessor,
        # unless it is told that one will do.
        return {"nvvm.minctasm": 1} if self.fast and self.kernel.group else {}

    @property
    def facts(self) -> Facts:
        kinds = f"{self.mma.lhs_kind} x {self.mma.rhs_kind}"
        return {**super().facts, "codes": kinds if self.decodes else f"{kinds}, sums of {self.tile.k} apart"}

    @property
    def block(self) -> type[Block]:
        return _Block


class _Block(Block):
    def _tile(self, stage: e.Index, state: Sequence[ir.Value]) -> list[ir.Value]:
        """Sums of a tile apart from those before it, where the instruction keeps fewer bits than f32 has."""
        if not isinstance(self.mma, CodeMma):
            return super()._tile(stage, state)
        inside = super()._tile(stage, self.zeros())
        return [arith.addf(total, part) for total, part in zip(state, inside, strict=True)]
