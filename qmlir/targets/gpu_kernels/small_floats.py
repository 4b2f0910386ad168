"""Exact conversions of one-byte floats in registers: f32 and bf16 represent every code of e4m3 and e5m2, OCP and FNUZ,
and f16 represents every code of e4m3 without subnormals, which some instructions take for zero."""

from __future__ import annotations

from ...core.mlir import arith, ir, vector
from ...kernels.small_floats import FORMATS, decoded
from . import emit as e


def of_word(word: ir.Value, kind: str) -> ir.Value:
    """The four codes of a word as f32 lanes."""
    parts = [arith.andi(e.shifted(word, -8 * i), e.word(0xFF)) for i in range(4)]
    return decoded(e.gathered(parts), kind)


def halves_of_word(word: ir.Value, kind: str, element: str) -> list[ir.Value]:
    """The four codes of a word as two words of two f16 or bf16 each. Codes of e5m2 may be subnormal in f16, which some
    matrix instructions take for zero."""
    if element == "f16":
        return [_pair(word, kind), _pair(arith.shrui(word, e.word(16)), kind)]
    bits = e.elements(vector.bitcast(e.vector_of(4, e.integer(32)), of_word(word, kind)))
    # The upper half of such an f32 is its value as bf16.
    uppers = [arith.shrui(low, e.word(16)) for low in bits[::2]]
    return [
        arith.ori(upper, arith.andi(high, e.word(0xFFFF0000))) for upper, high in zip(uppers, bits[1::2], strict=True)
    ]


def doubled_e2m1(word: ir.Value) -> ir.Value:
    """Four codes of e2m1, each in the low half of a byte, as bytes of twice their value: integers from -12 to 12."""

    def bit(i: int) -> ir.Value:
        """Bit `i` of every code, at the bottom of its byte."""
        return arith.andi(e.shifted(word, -i), e.word(0x01010101))

    def mask(bits: ir.Value) -> ir.Value:
        return arith.muli(bits, e.word(0xFF))

    mantissa, low, high = bit(0), bit(1), bit(2)
    # The mantissa, with a leading one if the exponent is not zero, is shifted by the exponent minus one.
    some = arith.ori(low, high)
    number = arith.ori(mantissa, arith.shli(some, e.word(1)))
    shifted = arith.shli(number, e.word(1))
    twice = arith.shli(number, e.word(2))
    long = mask(arith.andi(high, low))
    medium = arith.xori(mask(high), long)
    neither = arith.xori(mask(high), e.word(0xFFFFFFFF))
    size = arith.ori(
        arith.andi(number, neither), arith.ori(arith.andi(shifted, medium), arith.andi(twice, long))
    )  # fmt: skip
    # Negate in two's complement; zero is left unchanged, so no byte carries into the next.
    negative = arith.andi(bit(3), arith.ori(mantissa, some))
    return arith.addi(arith.xori(size, mask(negative)), negative)


def _pair(word: ir.Value, kind: str) -> ir.Value:
    """The lower two codes of a word as two f16. An e5m2 code is the upper byte of its f16. Exponent and mantissa of an
    e4m3 code, moved to their places in f16, are its value divided by a power of two: two to the difference of the
    exponents' biases."""
    low = arith.shli(arith.andi(word, e.word(0xFF)), e.word(8))
    codes = arith.ori(low, arith.shli(arith.andi(word, e.word(0xFF00)), e.word(16)))
    if kind == "f8E5M2":
        return codes
    sign = arith.andi(codes, e.word(0x80008000))
    magnitude = arith.shrui(arith.andi(codes, e.word(0x7F007F00)), e.word(1))
    if FORMATS[kind].special == "fnuz":  # NaN is the sign bit alone
        some = arith.addi(arith.andi(codes, e.word(0x7F007F00)), e.word(0x7F007F00))
        none = arith.andi(sign, arith.xori(some, e.word(0xFFFFFFFF)))
        none = arith.ori(arith.subi(none, arith.shrui(none, e.word(5))), arith.shrui(none, e.word(6)))
    else:  # NaN is the largest pattern
        none = arith.andi(arith.addi(magnitude, e.word(0x00800080)), e.word(0x40004000))
        none = arith.ori(none, arith.subi(none, arith.shrui(none, e.word(5))))
    bits = arith.ori(arith.ori(magnitude, none), sign)
    f16 = e.vector_of(2, ir.F16Type.get())
    scale = e.splat(2.0 ** (15 - FORMATS[kind].bias), 2, ir.F16Type.get())
    made = arith.mulf(vector.bitcast(f16, e.gathered([bits])), scale)
    return e.elements(vector.bitcast(e.vector_of(1, e.integer(32)), made))[0]
