"""Storage formats of weights of codes, and the packing of their bytes.

A byte holds 8 / bits codes, its fields, so that a 32-bit word is unpacked to one word of four codes per field. Signed
codes are unpacked to the top of a byte: a shift and a mask give four bytes `code << (8 - bits)`, and products are
shifted back once per sum, without sign extension. Unsigned codes are unpacked to the bottom of a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...core.mlir import arith, ir
from ...dialect.dtypes import Array
from ...kernels.description import Kernel
from ...kernels.layouts import WeightLayout, by_columns
from ...kernels.weights import constant_bytes, fits_top_of_byte
from . import emit as e
from .small_floats import doubled_e2m1

_ONES = 0x01010101
COLUMNS = 4  # of one thread: the lanes of its vectors
CHUNK = 16  # bytes of the chunks that a row is stored in, in the order "rows"


@dataclass(frozen=True)
class CodeFormat:
    """A storage format. The value of a stored code is its bits plus `offset`.

    Attributes:
        words: words of a piece, which a thread loads at once: 1, 2 or 4.
        e2m1: codes of that format, unpacked to bytes of twice their value.
        signed: whether the bits are a signed number.
        order: the order of the codes `[N, K]` in memory.
            "pieces": `[K / depth][N][words]`. Neighbouring columns are contiguous, so that neighbouring threads read
            contiguous bytes. In a word of 4-bit codes, the low halves of the bytes are four codes in order, the high
            halves the next four.
            "rows": rows of chunks of 16 bytes, byte j of which has codes j, 16 + j, ..: each field of a word has four
            neighbouring codes, which are a word of bytes for a lane of `mma.sync`.
            "halves": rows for `mma.sync.m16n8k16` on 16-bit operands. Of each step of 16 codes, lane t needs those at
            2 t, 2 t + 1, 2 t + 8 and 2 t + 9: they are the four bytes of its word, one field per step. Neighbouring
            codes are two bytes apart, as in a word of two floats.
    """

    bits: int = 8
    offset: int = 0
    words: int = 4
    e2m1: bool = False
    signed: bool = True
    order: Literal["pieces", "rows", "halves"] = "pieces"

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
        """The number of bits by which products of a stored code's byte are shifted back."""
        return 0 if self.e2m1 or not self.signed or self.order == "halves" else 8 - self.bits

    def pieces(self, n: int, k: int) -> tuple[int, int]:
        """The numbers of pieces along K, and of columns, of a weight in "pieces"."""
        return -(-k // self.depth), -(-n // COLUMNS) * COLUMNS

    def bytes_of(self, word: ir.Value, fields: Sequence[int] | None = None) -> list[ir.Value]:
        """The words of bytes `code << shift` of some fields of a stored word, by default of all fields in order."""
        fields = range(self.fields) if fields is None else fields
        if self.e2m1:
            return [doubled_e2m1(e.shifted(word, -4 * i)) for i in fields]
        if self.bits == 8:
            return [word]
        mask = e.word(((1 << self.bits) - 1 << self.shift) * _ONES)
        return [arith.andi(e.shifted(word, self.shift - i * self.bits), mask) for i in fields]

    def unpacked(self, words: Sequence[ir.Value]) -> list[ir.Value]:
        """As `bytes_of`, for all fields of neighbouring stored words, in the order of K."""
        taken = [self.bytes_of(word) for word in words]
        if self.order == "pieces":
            return [made for of_word in taken for made in of_word]
        return [of_word[field] for field in range(self.fields) for of_word in taken]

    def codes_at(self, words: ir.Value, lefts: ir.Value | None) -> ir.Value:
        """The i8 codes in lanes of words whose bits a shift by `lefts` moves to the top; None: they are at the top."""
        lanes = words.type.shape[0]
        top = words if lefts is None else arith.shli(words, lefts)
        code = arith.shrsi(top, e.broadcast(e.word(32 - self.bits), lanes))
        if self.offset:
            code = arith.addi(code, e.broadcast(e.word(self.offset), lanes))
        return arith.trunci(e.vector_of(lanes, e.integer(8)), code)

    def codes(self, word: ir.Value, field: int) -> ir.Value:
        """The four i8 codes of a field of a stored word in "halves", in the order of K."""
        codes = []
        for byte in (0, 2, 1, 3):
            high = 32 - self.bits - (8 * byte + self.bits * field)
            shift = arith.shrsi if self.signed else arith.shrui
            codes.append(shift(e.shifted(word, high), e.word(32 - self.bits)))
        return arith.trunci(e.vector_of(4, e.integer(8)), e.gathered(codes))

    def layout(self, n: int, k: int) -> WeightLayout:
        """The layout of codes `[N, K]`; in "rows" and "halves", `k` is the padded K."""
        field = {"pieces": 3, "rows": 2, "halves": 2}[self.order] if self.fields > 1 else None
        if self.order == "pieces":
            pieces, columns = self.pieces(n, k)
            factors = ((columns,), (pieces, self.words, self.fields, 4))
            return WeightLayout((columns, pieces * self.depth), factors, (1, 0, 2, 3, 4), self.bits, field, self.offset)
        chunk = (CHUNK,) if self.order == "rows" else (2, 4, 2)
        order = (0, 1, 2, 3) if self.order == "rows" else (0, 1, 2, 4, 5, 3)
        factors = ((n,), (k // (CHUNK * self.fields), self.fields, *chunk))
        return WeightLayout((n, k), factors, order, self.bits, field)

    def packed(self, codes: Array, k: int) -> ir.Value:
        """Constant codes `[.., N, K]` at the insertion point, padded to `k` if they are stored in rows."""
        array = self.layout(codes.shape[-2], k).each(codes)
        return constant_bytes(array if self.order == "pieces" else array.reshape(*codes.shape[:-1], k // self.fields))

    def packed_rows(self, kernel: Kernel, codes: Array | None, k: int) -> ir.Value:
        """As `packed`; a weight that is not constant (`codes` is None) is read in its stored layout, `[.., N, K]`."""
        return by_columns(kernel.rhs) if codes is None else self.packed(codes, k)


def stored(codes: Array, kernel: Kernel, most_words: int = 4) -> CodeFormat | None:
    """The shortest storage of a weight `[N, K]` whose pieces divide the groups along K, or the channels of a
    convolution; None if there is none.

    Codes that are declared as 8 bits keep 8 bits even if their values are shorter, because another weight may use all
    bits, which would change the program's speed. `most_words` bounds the pieces.
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
    """The offset that is subtracted from the codes so that they fit signed `bits`; None if they do not fit."""
    if kernel.rhs.e2m1:
        return 0 if bits == 4 else None
    if bits == 8:
        return 0
    low, high = _bounds(codes)
    if not fits_top_of_byte(kernel):
        return None
    if (kernel.rhs.magnitude > 16 and kernel.rhs.decode is None) or high - low >= 1 << bits:
        return None
    least = -(1 << (bits - 1))
    return 0 if least <= low and high < -least else low - least


def stored_in_rows(codes: Array | None, kernel: Kernel) -> CodeFormat:
    """The shortest storage in "rows", or in "halves" if codes are decoded to floats. It has no offset, which would need
    row sums."""
    order: Literal["rows", "halves"] = "rows" if kernel.rhs.decode is None else "halves"
    whole = CodeFormat(order=order)
    if codes is None or codes.size == 0 or (kernel.rhs.magnitude > 16 and order == "rows"):
        return whole
    low, high = _bounds(codes)
    for bits in (2, 4):
        if low >= 0 and high < 1 << bits:
            return CodeFormat(bits, signed=False, order=order)
        if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1):
            return CodeFormat(bits, order=order) if fits_top_of_byte(kernel) else whole
    return whole


def _bounds(codes: Array) -> tuple[int, int]:
    return (int(codes.min()), int(codes.max())) if codes.size else (0, 0)


def byte_codes(codes: Array | None) -> Array | None:
    """Constant codes as signed bytes; one-byte floats as their bits."""
    return codes if codes is None or codes.dtype == np.int8 else codes.view(np.int8)
