"""The correctly rounded quotient on devices whose own division is not.

Vulkan asks for an error of at most 2.5 units in the last place of OpFDiv, for divisors from 2^-126 to 2^126 (Vulkan
specification, "Precision and Operation of SPIR-V Instructions"), and NVIDIA's driver makes use of that. Therefore the
device divides only significands, which are in [1, 2). All else is computed in integers, which no driver rounds, flushes
or reorders:

    a / b = +-(A / B) 2^e, integers A and B chosen so that Q = A / B is in [2^p, 2^(p + 1)), p = 23 for f32
    q = the device's quotient, truncated, less 3: in (Q - 6.5, Q - 0.5]
    A - q B, modulo 2^32, is the remainder, because it is less than 8 B < 2^27
    three comparisons (with 4 B, 2 B and B) make q the integer part of Q, and the remainder less than B
    q, with a bit for "more than half" and one for "not exact" appended, is rounded to nearest, ties to even, at the
    result's last bit: a normal quotient of two such numbers is never half way between two results, a subnormal one
    may be
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, isfinite

from ..core.mlir import OpLike, arith, ir
from .scalars import shaped_like
from .walk import made_by, producer

_DIGITS = {32: 23, 64: 52}  # stored bits of a significand, without the leading one
# Ops of the math dialect that devices do not approximate.
_EXACT = ("absf", "ceil", "copysign", "floor", "fma", "round", "roundeven", "trunc")


def exact_quotient(op: OpLike, a: ir.Value, b: ir.Value) -> ir.Value | None:
    """`a / b` at the insertion point, for the division `op` of a body; None if the device's own division suffices.

    `a` and `b` are the operands of `op`, as scalars or as vectors. A division by a power of two becomes a product,
    which is exact. The device's own division suffices for the result of a function, such as a sigmoid, because
    functions are approximated too.
    """
    kind = _element(a.type)
    if not isinstance(kind, ir.FloatType) or kind.width < 16 or any(_approximated(x) for x in op.operands):
        return None
    inverse = _exact_inverse(op.operands[1], kind)
    if inverse is not None:
        return arith.mulf(a, _constant(inverse, a.type))
    if kind.width > 16:
        return _divided(a, b)
    # A quotient of two numbers of at most 11 bits, rounded to 24 bits, can be rounded again without an error.
    wide = shaped_like(a, ir.F32Type.get())
    return arith.truncf(a.type, _divided(arith.extf(wide, a), arith.extf(wide, b)))


def _element(t: ir.Type) -> ir.Type:
    return t.element_type if isinstance(t, ir.VectorType) else t


def _constant(value: float, t: ir.Type) -> ir.Value:
    kind = _element(t)
    number = ir.FloatAttr.get(kind, value) if isinstance(kind, ir.FloatType) else ir.IntegerAttr.get(kind, value)
    return arith.constant(t, number if t == kind else ir.DenseElementsAttr.get_splat(t, number))


def _approximated(value: ir.Value) -> bool:
    """Whether a value of a body depends on a function that devices approximate."""
    left, seen = [value], {value}
    while left:
        op = producer(left.pop())
        dialect, _, name = ("" if op is None else op.name).partition(".")
        if dialect == "math" and name not in _EXACT:
            return True
        if op is not None and dialect in ("arith", "math"):
            left += [x for x in op.operands if x not in seen]
            seen.update(op.operands)
    return False


def _exact_inverse(divisor: ir.Value, kind: ir.FloatType) -> float | None:
    """The inverse of a constant that is a power of two; None for others, and where a device may flush it to 0."""
    made = made_by(divisor, "arith.constant")
    value = None if made is None else made.attributes["value"]
    if not isinstance(value, ir.FloatAttr) or not isfinite(value.value) or abs(frexp(value.value)[0]) != 0.5:
        return None
    inverse = 1 / value.value
    return inverse if abs(frexp(inverse)[1]) < (14 if isinstance(kind, ir.F16Type) else 126) else None


def _divided(a: ir.Value, b: ir.Value) -> ir.Value:
    """`a / b` by the formula in the module's docstring, for f32 or f64."""
    f = _Format(a.type)
    bits_a, bits_b = (arith.bitcast(f.word, x) for x in (a, b))
    sign = arith.andi(arith.xori(bits_a, bits_b), f.c(f.sign))
    size_a, size_b = (arith.andi(x, f.c(f.sign - 1)) for x in (bits_a, bits_b))
    (exponent_a, digits_a), (exponent_b, digits_b) = f.parts(size_a), f.parts(size_b)
    one = f.c(1)
    less = arith.select(f.is_("ult", digits_a, digits_b), one, f.c(0))  # A then has one more digit
    exponent = arith.subi(arith.addi(arith.subi(exponent_a, exponent_b), f.c(f.bias)), less)

    near = arith.divf(f.scaled(digits_a, arith.addi(less, f.c(f.digits))), f.scaled(digits_b, f.c(0)))
    q = arith.subi(arith.fptosi(f.word, near), f.c(3))
    divisor = arith.ori(digits_b, f.c(f.first))
    dividend = arith.shli(arith.ori(digits_a, f.c(f.first)), arith.addi(less, f.c(f.digits)))
    rest = arith.subi(dividend, arith.muli(q, divisor))
    for step in (2, 1, 0):
        part = arith.shli(divisor, f.c(step)) if step else divisor
        fits = f.is_("uge", rest, part)
        rest = arith.select(fits, arith.subi(rest, part), rest)
        q = arith.select(fits, arith.addi(q, f.c(1 << step)), q)

    half = arith.select(f.is_("ugt", arith.shli(rest, one), divisor), f.c(2), f.c(0))
    inexact = arith.select(f.is_("ne", rest, f.c(0)), one, f.c(0))
    q = arith.ori(arith.shli(q, f.c(2)), arith.ori(half, inexact))
    # A subnormal result has fewer digits; far below the smallest one all are shifted out.
    lost = arith.minsi(arith.maxsi(arith.subi(one, exponent), f.c(0)), f.c(f.digits + 2))
    below = arith.subi(arith.shli(f.c(2), lost), one)  # half of the last digit that is kept, less 1
    lost = arith.addi(lost, f.c(2))
    even = arith.andi(arith.shrui(q, lost), one)
    rounded = arith.shrui(arith.addi(arith.addi(q, below), even), lost)
    # The leading digit adds 1 to the exponent. An exponent that is too large gives infinity.
    above = arith.subi(arith.maxsi(exponent, one), one)
    size = arith.minui(arith.addi(arith.shli(above, f.c(f.digits)), rounded), f.c(f.infinity))
    return arith.bitcast(a.type, f.with_special(size, sign, size_a, size_b))


@dataclass(frozen=True)
class _Format:
    """The bit layout of a float type, scalar or vector, in integers of the same width (`word`)."""

    type: ir.Type

    @property
    def word(self) -> ir.Type:
        integer = ir.IntegerType.get_signless(_element(self.type).width)
        return ir.VectorType.get(self.type.shape, integer) if isinstance(self.type, ir.VectorType) else integer

    @property
    def digits(self) -> int:
        return _DIGITS[_element(self.type).width]

    @property
    def first(self) -> int:
        """The bit of the leading digit, which is not stored; also the bits of the smallest normal number."""
        return 1 << self.digits

    @property
    def sign(self) -> int:
        return 1 << (_element(self.type).width - 1)

    @property
    def bias(self) -> int:
        return (self.sign >> (self.digits + 1)) - 1

    @property
    def infinity(self) -> int:
        return self.sign - self.first

    def c(self, value: int) -> ir.Value:
        return _constant(value - 2 * self.sign if value >= self.sign else value, self.word)

    def is_(self, predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.cmpi(getattr(arith.CmpIPredicate, predicate), a, b)

    def parts(self, size: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The biased exponent and the stored digits of a number >= 0. A subnormal number, an integer in units of the
        smallest one, is normalised, as if exponents had a larger range."""
        subnormal = self.is_("ult", size, self.c(self.first))
        size = arith.select(subnormal, arith.bitcast(self.word, arith.uitofp(self.type, size)), size)
        exponent = arith.shrui(size, self.c(self.digits))
        unit = arith.select(subnormal, self.c(self.bias + self.digits - 1), self.c(0))
        return arith.subi(exponent, unit), arith.andi(size, self.c(self.first - 1))

    def scaled(self, digits: ir.Value, power: ir.Value) -> ir.Value:
        """`1.digits * 2^power`, as a float."""
        exponent = arith.shli(arith.addi(power, self.c(self.bias)), self.c(self.digits))
        return arith.bitcast(self.type, arith.ori(digits, exponent))

    def with_special(self, size: ir.Value, sign: ir.Value, size_a: ir.Value, size_b: ir.Value) -> ir.Value:
        """The bits of a quotient, with the special results for zeros, infinities and NaN."""
        zero, infinity = self.c(0), self.c(self.infinity)

        def either(a: ir.Value, b: ir.Value) -> ir.Value:
            return arith.ori(self.is_("eq", size_a, a), self.is_("eq", size_b, b))

        size = arith.select(either(zero, infinity), zero, size)
        size = arith.select(either(infinity, zero), infinity, size)
        # 0 / 0, infinity / infinity
        is_nan = arith.andi(self.is_("eq", size_a, size_b), either(zero, infinity))
        for operand in (size_a, size_b):
            is_nan = arith.ori(is_nan, self.is_("ugt", operand, infinity))
        return arith.select(is_nan, self.c(self.infinity | self.first >> 1), arith.ori(size, sign))
