"""Sines, tangents and their inverses."""

from __future__ import annotations

import itertools
import math as numbers

from .....core.mlir import arith, ir, math
from .....ir.build import scalar
from .....ir.scalars import const, i32, polynomial
from .scalars import INF, NAN, add, bits_of, compare, div, int32, mul, select, sub, with_sign

# A word of zeros, and the bits of 2 / pi behind its point in words (as in any table; here from pi to 300 digits).
_TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)


def _unsigned_product(a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The low and the high word of a product."""
    op = ir.Operation.create("arith.mului_extended", results=[i32(), i32()], operands=[a, b])
    return op.results[0], op.results[1]


def _reduced(a: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """`(s, r, q)` for a >= 0: a is `q pi/2 - r` if s and `q pi/2 + r` otherwise, with r in [0, pi/4] and q modulo 4.

    Payne and Hanek's reduction (Radian Reduction for Trigonometric Functions, SIGNUM 1983): only those bits of 2 / pi
    count whose product with a is below 4. 96 of them times the 24 bits of the mantissa leave 62 bits behind the point.
    """
    bits = bits_of(a)
    mantissa = arith.ori(arith.andi(bits, int32(0x007FFFFF)), int32(0x00800000))
    place = arith.subi(arith.shrui(bits, int32(23)), int32(120))  # position of the first bit that counts
    word, shift = arith.shrui(place, int32(5)), arith.andi(place, int32(31))
    back = arith.subi(int32(31), shift)

    def table(k: int) -> ir.Value:
        """Word `word + k` of the bits of 2 / pi."""
        found = int32(_TWO_OVER_PI[k])
        for w in range(1, 5):
            found = select(arith.cmpi(arith.CmpIPredicate.eq, word, int32(w)), int32(_TWO_OVER_PI[w + k]), found)
        return found

    words = [table(k) for k in range(4)]
    parts = [
        arith.ori(arith.shli(x, shift), arith.shrui(arith.shrui(y, int32(1)), back))
        for x, y in itertools.pairwise(words)
    ]
    low, high = _unsigned_product(mantissa, parts[1])
    _, carried = _unsigned_product(mantissa, parts[2])
    low = arith.addi(low, carried)
    carry = arith.extui(i32(), arith.cmpi(arith.CmpIPredicate.ult, low, carried))
    high = arith.addi(arith.addi(arith.muli(mantissa, parts[0]), high), carry)
    # 2 bits before the point, 62 behind it; rounded to the nearest whole number
    moved = arith.addi(high, int32(0x20000000))
    q = arith.shrui(moved, int32(30))
    high = arith.subi(arith.andi(moved, int32(0x3FFFFFFF)), int32(0x20000000))
    below = arith.cmpi(arith.CmpIPredicate.slt, high, int32(0))
    flip = select(below, int32(0xFFFFFFFF), int32(0))
    high, low = arith.xori(high, flip), arith.xori(low, flip)
    f32 = ir.F32Type.get()
    # In halves, because not every target converts an unsigned word to f32.
    top, bottom = arith.shrui(low, int32(16)), arith.andi(low, int32(0xFFFF))
    fraction = add(mul(arith.sitofp(f32, top), const(2.0**-46)), mul(arith.sitofp(f32, bottom), const(2.0**-62)))
    r = mul(add(mul(arith.sitofp(f32, high), const(2.0**-30)), fraction), const(numbers.pi / 2))
    small = compare("OLT", a, const(0.78))
    q = select(small, int32(0), q)
    r = select(small, a, select(compare("OLT", a, const(INF)), r, const(NAN)))
    no = scalar(0, ir.IntegerType.get_signless(1))
    return select(small, no, below), r, q


def _sine_and_cosine(r: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The sine and the cosine of r in [0, pi/4], by Taylor's series."""
    square = mul(r, r)
    odd = [(-1) ** (k // 2) / numbers.factorial(k) for k in (9, 7, 5, 3, 1)]
    even = [(-1) ** (k // 2) / numbers.factorial(k) for k in (10, 8, 6, 4, 2, 0)]
    return mul(r, polynomial(square, odd)), polynomial(square, even)


def _bit(q: ir.Value, n: int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.ne, arith.andi(q, int32(1 << n)), int32(0))


def _negated(x: ir.Value, condition: ir.Value) -> ir.Value:
    return select(condition, arith.negf(x), x)


def sine(x: ir.Value) -> ir.Value:
    below, r, q = _reduced(math.absf(x))
    s, c = _sine_and_cosine(r)
    found = select(_bit(q, 0), c, _negated(s, below))
    negative = arith.cmpi(arith.CmpIPredicate.slt, bits_of(x), int32(0))
    return _negated(found, arith.xori(_bit(q, 1), negative))


def cosine(x: ir.Value) -> ir.Value:
    below, r, q = _reduced(math.absf(x))
    s, c = _sine_and_cosine(r)
    found = select(_bit(q, 0), arith.negf(_negated(s, below)), c)
    return _negated(found, _bit(q, 1))


def tangent(x: ir.Value) -> ir.Value:
    below, r, q = _reduced(math.absf(x))
    s, c = _sine_and_cosine(r)
    s = _negated(s, below)
    found = select(_bit(q, 0), arith.negf(div(c, s)), div(s, c))
    return _negated(found, arith.cmpi(arith.CmpIPredicate.slt, bits_of(x), int32(0)))


def _arctangent(a: ir.Value) -> ir.Value:
    """The arctangent of a >= 0: Cephes' atanf, reduced at tan(pi/8) and tan(3 pi/8)."""
    over, middle = compare("OGT", a, const(2.414213562373095)), compare("OGT", a, const(0.4142135623730950))
    top = select(over, const(-1.0), select(middle, sub(a, const(1.0)), a))
    under = select(over, a, select(middle, add(a, const(1.0)), const(1.0)))
    start = select(over, const(numbers.pi / 2), select(middle, const(numbers.pi / 4), const(0.0)))
    t = div(top, under)
    z = mul(t, t)
    series = polynomial(z, (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1))
    return add(start, add(t, mul(mul(t, z), series)))


def arctangent(x: ir.Value) -> ir.Value:
    return with_sign(_arctangent(math.absf(x)), x)


def arctangent2(y: ir.Value, x: ir.Value) -> ir.Value:
    """The angle of (x, y); the special cases are those of C's atan2 (C11, F.10.1.4)."""
    a, b = math.absf(y), math.absf(x)
    steep = compare("OGT", a, b)
    less, more = select(steep, b, a), select(steep, a, b)
    ratio = div(less, more)
    ratio = select(compare("OEQ", more, const(0.0)), const(0.0), ratio)
    ratio = select(compare("OEQ", less, const(INF)), const(1.0), ratio)
    angle = _arctangent(ratio)
    angle = select(steep, sub(const(numbers.pi / 2), angle), angle)
    left = arith.cmpi(arith.CmpIPredicate.slt, bits_of(x), int32(0))
    angle = with_sign(select(left, sub(const(numbers.pi), angle), angle), y)
    return select(compare("UNO", x, y), const(NAN), angle)


def _arcsine(a: ir.Value) -> ir.Value:
    """The arcsine of a in [0, 0.5], by the polynomial of Cephes' asinf."""
    z = mul(a, a)
    series = polynomial(z, (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1))
    return add(a, mul(mul(a, z), series))


def _arcsine_parts(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Whether |x| > 0.5, and half of the arccosine of |x| if so, else the arcsine of |x|; NaN outside of the domain."""
    a = math.absf(x)
    large = compare("OGT", a, const(0.5))
    inside = select(compare("OLE", a, const(1.0)), a, const(1.0))
    near = select(large, math.sqrt(mul(const(0.5), sub(const(1.0), inside))), a)
    return large, select(compare("OLE", a, const(1.0)), _arcsine(near), const(NAN))


def arcsine(x: ir.Value) -> ir.Value:
    large, part = _arcsine_parts(x)
    return with_sign(select(large, sub(const(numbers.pi / 2), mul(const(2.0), part)), part), x)


def arccosine(x: ir.Value) -> ir.Value:
    large, part = _arcsine_parts(x)
    double = mul(const(2.0), part)
    left = compare("OLT", x, const(0.0))
    near = sub(const(numbers.pi / 2), with_sign(part, x))
    return select(large, select(left, sub(const(numbers.pi), double), double), near)
