"""How a weight of codes is stored: bytes along K, or several short codes a byte, and its bytes."""

from __future__ import annotations

from dataclasses import dataclass

from ....core.mlir import arith, ir
from ....dialect.dtypes import Array
from ....kernels import emit as e
from ....kernels.description import Kernel
from ....kernels.layouts import WeightLayout
from ....kernels.weights import constant_bytes, fits_top_of_byte
from .shared_tile import CHUNK


@dataclass(frozen=True)
class Storage:
    """Codes of `bits` bits.

    A chunk of 16 bytes holds `CHUNK * fields` neighbours along K: byte j has codes j, 16 + j, .. from its lowest bits
    on. So a 32-bit word, taken apart, is one word of each of `fields` chunks of whole bytes: what a lane of `mma.sync`
    needs. Signed codes are left in the highest bits of their byte, 16 or 64 times too large, and the sums are shifted
    back: no sign has to be extended.
    """

    bits: int = 8
    signed: bool = True
    halves: bool = False  # for fragments of 16-bit numbers, see `halves_layout`

    @property
    def fields(self) -> int:
        return 8 // self.bits

    @property
    def shift(self) -> int:
        """By how many bits sums of products are too large."""
        return 8 - self.bits if self.signed and not self.halves else 0

    def layout(self, n: int, padded_k: int) -> WeightLayout:
        """Of a weight `[n, K]` with K padded: rows of `padded_k / fields` bytes."""
        if self.halves:
            return self._halves_layout(n, padded_k)
        if self.bits == 8:
            return WeightLayout((n, padded_k), ((n,), (padded_k,)), (0, 1))
        blocks = (padded_k // (CHUNK * self.fields), self.fields, CHUNK)
        return WeightLayout((n, padded_k), ((n,), blocks), (0, 1, 2, 3), bits=self.bits, field=2)

    def _halves_layout(self, n: int, padded_k: int) -> WeightLayout:
        """For `mma.sync.m16n8k16` on 16-bit numbers, of which lane t needs those at 2 t, 2 t + 1, 2 t + 8 and 2 t + 9
        of each step of 16: the four bytes of its word, a field a step. Neighbours are two bytes apart, as they are in a
        word of two floats (`halves.py`)."""
        steps, t, half, pair = self.fields, 4, 2, 2
        blocks = (padded_k // (CHUNK * steps), steps, half, t, pair)
        field = 2 if self.bits < 8 else None
        return WeightLayout((n, padded_k), ((n,), blocks), (0, 1, 2, 4, 5, 3), bits=self.bits, field=field)

    def codes(self, word: ir.Value, number: int) -> ir.Value:
        """The four codes of a field of a stored word of `halves`, i8, in their order."""
        i32 = e.integer(32)
        codes = []
        for byte in (0, 2, 1, 3):
            low = 8 * byte + self.bits * number
            high = 32 - self.bits - low
            code = arith.shli(word, e.constant(high, i32)) if high else word
            shift = arith.shrsi if self.signed else arith.shrui
            codes.append(shift(code, e.constant(32 - self.bits, i32)))
        return arith.trunci(e.vector_of(4, e.integer(8)), e.gathered(codes))

    def decode(self, word: ir.Value) -> list[ir.Value]:
        """A stored word as a word of each of its fields."""
        return [self.field(word, number) for number in range(self.fields)]

    def field(self, word: ir.Value, number: int) -> ir.Value:
        """One field of a stored word as a word of four codes."""
        if self.bits == 8:
            return word
        i32 = e.integer(32)
        mask = (1 << self.bits) - 1
        spread = mask * 0x01010101 << self.shift
        kept = e.constant(spread - (1 << 32) if spread >> 31 else spread, i32)
        left = self.shift - number * self.bits
        moved = word
        if left > 0:
            moved = arith.shli(word, e.constant(left, i32))
        elif left < 0:
            moved = arith.shrui(word, e.constant(-left, i32))
        return arith.andi(moved, kept)


def storage_for(kernel: Kernel, codes: Array | None) -> Storage:
    """The shortest storage that holds the codes of a kernel's constant weight, and whose sums fit i32. Codes declared
    to have 8 bits keep them: what they are may change with the next weight, and the program's speed with it."""
    if codes is None or kernel.rhs.magnitude > 16 or codes.size == 0:
        return Storage()
    found = _shortest(codes, halves=False)
    return found if not found.shift or fits_top_of_byte(kernel) else Storage()


def storage_for_halves(codes: Array) -> Storage:
    """The shortest storage of codes that become floats one by one."""
    return _shortest(codes, halves=True)


def _shortest(codes: Array, halves: bool) -> Storage:
    low, high = (int(codes.min()), int(codes.max())) if codes.size else (0, 0)
    for bits in (2, 4):
        if low >= 0 and high < 1 << bits:
            return Storage(bits, signed=False, halves=halves)
        if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1):
            return Storage(bits, halves=halves)
    return Storage(halves=halves)


def packed_constant(codes: Array, storage: Storage, padded_k: int) -> ir.Value:
    """The weight `[N, padded_k / fields]`, of a batch `[B, N, ...]`, as a constant at the insertion point."""
    rows = codes.reshape(-1, codes.shape[-1])
    array = storage.layout(len(rows), padded_k).apply(rows)
    return constant_bytes(array.reshape(*codes.shape[:-1], padded_k // storage.fields))
