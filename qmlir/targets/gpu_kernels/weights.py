"""How a weight is stored: `[K / depth][N][words]`, each piece the codes of one column that a thread loads at once.

Neighbouring columns are neighbours in memory, so that neighbouring threads read one run of bytes. A byte holds 8 / bits
codes: of a word with codes of four bits, the low halves are four codes in order and the high halves the next four.
Codes are signed, and come out of their byte at its top: a shift and a mask give four bytes `code << (8 - bits)`, whose
products are shifted back once a sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.mlir import arith, ir
from ...dialect.dtypes import Array
from ...kernels.description import Kernel
from ...kernels.layouts import WeightLayout
from ...kernels.weights import constant_bytes, fits_top_of_byte
from . import emit as e
from .small_floats import doubled_e2m1

_ONES = 0x01010101
COLUMNS = 4  # of one thread: the lanes of its vectors


@dataclass(frozen=True)
class CodeFormat:
    """What a stored code stands for is its bits, signed, plus `offset`."""

    bits: int
    offset: int
    words: int  # of one piece: 1, 2 or 4
    e2m1: bool = False  # of that format, taken out of their bytes as twice what they stand for

    @property
    def fields(self) -> int:
        """Codes of a byte."""
        return 8 // self.bits

    @property
    def depth(self) -> int:
        """Codes of a piece."""
        return 4 * self.fields * self.words

    @property
    def shift(self) -> int:
        """What products of a stored code's byte are shifted by."""
        return 0 if self.e2m1 else 8 - self.bits

    def bytes_of(self, word: ir.Value) -> list[ir.Value]:
        """The words of bytes `code << shift` in a stored word, in order."""
        if self.e2m1:
            return [doubled_e2m1(arith.shrui(word, e.word(4 * i)) if i else word) for i in range(self.fields)]
        if self.bits == 8:
            return [word]
        mask = e.word((255 >> self.shift << self.shift) * _ONES)
        lefts = [self.shift - i * self.bits for i in range(self.fields)]
        return [arith.andi(arith.shli(word, e.word(left)) if left else word, mask) for left in lefts]

    def layout(self, n: int, k: int) -> WeightLayout:
        """Of codes `[N, K]`."""
        padded = -(-n // COLUMNS) * COLUMNS, -(-k // self.depth) * self.depth
        factors = ((padded[0],), (padded[1] // self.depth, self.words, self.fields, 4))
        field = 3 if self.fields > 1 else None
        return WeightLayout(padded, factors, (1, 0, 2, 3, 4), self.bits, field, self.offset)


def stored(codes: Array, kernel: Kernel, most_words: int = 4) -> CodeFormat | None:
    """The shortest storage of a weight `[N, K]` whose pieces divide the groups along K, or the channels of a
    convolution; None where there is none.

    Codes that are declared to have 8 bits keep them: what they are may change with the next weight, and the program's
    speed with it. `most_words` bounds the pieces.
    """
    for bits in (2, 4, 8):
        offset = offset_of(codes, kernel, bits)
        for words in (4, 2, 1):
            if offset is None or words > most_words:
                continue
            candidate = CodeFormat(bits, offset, words, kernel.rhs.e2m1)
            window = kernel.lhs.window
            whole = kernel.group if window is None else window.channels
            if whole is None or whole % candidate.depth == 0:
                return candidate
    return None


def offset_of(codes: Array, kernel: Kernel, bits: int) -> int | None:
    """What is taken off the codes so that they fit `bits` with a sign; None where they do not."""
    if kernel.rhs.e2m1:
        return 0 if bits == 4 else None
    if bits == 8:
        return 0
    low, high = (int(codes.min()), int(codes.max())) if codes.size else (0, 0)
    if not fits_top_of_byte(kernel):
        return None
    if (kernel.rhs.magnitude > 16 and kernel.rhs.decode is None) or high - low >= 1 << bits:
        return None
    least = -(1 << (bits - 1))
    return 0 if least <= low and high < -least else low - least


def packed(codes: Array, form: CodeFormat) -> ir.Value:
    """The weight `[.., N, K]` as a constant at the insertion point, bytes `[.., K / depth, N, 4 * words]`."""
    return constant_bytes(form.layout(*codes.shape[-2:]).each(codes))
