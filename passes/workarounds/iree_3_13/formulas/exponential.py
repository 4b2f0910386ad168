"""Exponentials, logarithms and powers."""

from __future__ import annotations

import math as numbers

from .....core.mlir import arith, ir, math
from .....ir.build import scalar
from .....ir.scalars import const, i32, polynomial
from .....ir.walk import made_by
from .scalars import (
    INF,
    LN2,
    NAN,
    add,
    bits_of,
    compare,
    constant_of,
    div,
    float_of,
    int32,
    leading_bits,
    mul,
    select,
    sub,
    with_sign,
)


def _power_of_two(n: ir.Value) -> ir.Value:
    """`2^n` for an i32 in [-126, 127]."""
    return float_of(arith.shli(arith.addi(n, int32(127)), int32(23)))


def scaled_exp(r: ir.Value, n: ir.Value) -> ir.Value:
    """`e^r * 2^n` for |r| <= 0.36 and a whole f32 `n`, neither of them NaN. The polynomial is that of Cephes' expf."""
    n = select(compare("OGT", n, const(-250)), n, const(-250))
    n = arith.fptosi(i32(), select(compare("OLT", n, const(250)), n, const(250)))
    tail = polynomial(r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
                           5.0000001201e-1))  # fmt: skip
    value = add(const(1.0), add(r, mul(mul(r, r), tail)))
    half = arith.shrsi(n, int32(1))  # two factors: 2^n alone may not be an f32
    return mul(mul(value, _power_of_two(half)), _power_of_two(arith.subi(n, half)))


def exp(x: ir.Value) -> ir.Value:
    """`e^x` by Cody and Waite's reduction (Software Manual for the Elementary Functions, 1980): ln 2 is the sum of two
    constants, and the product of the first one and a whole number is exact."""
    near = _between(x, -200.0, 200.0)
    n = math.roundeven(mul(near, const(1 / LN2)))
    r = sub(sub(near, mul(n, const(0.693359375))), mul(n, const(-2.12194440054691e-4)))
    return select(compare("UNO", x, x), x, scaled_exp(r, n))


def _between(x: ir.Value, lo: float, hi: float) -> ir.Value:
    """`x` clamped to the bounds; NaN becomes `lo`."""
    x = select(compare("OGT", x, const(lo)), x, const(lo))
    return select(compare("OLT", x, const(hi)), x, const(hi))


def exp2(x: ir.Value) -> ir.Value:
    near = _between(x, -200.0, 200.0)
    n = math.roundeven(near)
    return select(compare("UNO", x, x), x, scaled_exp(mul(sub(near, n), const(LN2)), n))


def expm1(x: ir.Value) -> ir.Value:
    """`e^x - 1`; near 0 by Taylor's series."""
    small = mul(x, polynomial(x, [1 / numbers.factorial(k) for k in range(9, 0, -1)]))
    return select(compare("OLT", math.absf(x), const(0.5)), small, sub(math.exp(x), const(1.0)))


def atanh_series(s: ir.Value) -> ir.Value:
    """`atanh(s)` for |s| <= 0.26, by Taylor's series."""
    return mul(s, polynomial(mul(s, s), [1 / k for k in (13, 11, 9, 7, 5, 3, 1)]))


def log1p(x: ir.Value) -> ir.Value:
    """`log(1 + x)`; near 0 by `2 atanh(x / (2 + x))`, whose series has only odd powers (Abramowitz and Stegun,
    4.1.27)."""
    near = compare("OLT", math.absf(x), const(0.4))
    inside = select(near, x, const(0.0))
    small = mul(const(2.0), atanh_series(div(inside, add(const(2.0), inside))))
    return select(near, select(compare("OEQ", x, const(0.0)), x, small), math.log(add(const(1.0), x)))


def log10(x: ir.Value) -> ir.Value:
    return mul(math.log(x), scalar(1 / numbers.log(10), x.type))


def double_log2(x: ir.Value) -> ir.Value:
    """`log2(x)` of an f64."""
    return mul(math.log(x), scalar(1 / LN2, x.type))


def power(x: ir.Value, y: ir.Value) -> ir.Value:
    """`x^y`; by a square root if `y` is the constant 0.5 or -0.5, by `exp2` if `x` is the constant 2."""
    if constant_of(y) in (0.5, -0.5):
        root = math.sqrt(x)
        return root if constant_of(y) == 0.5 else div(const(1.0), root)
    return exp2(y) if constant_of(x) == 2.0 else _power(x, y)


def integer_power(x: ir.Value, n: ir.Value) -> ir.Value | None:
    """`x^n`; None for a small constant `n`, for which IREE multiplies, and each product is rounded once."""
    constant = made_by(n, "arith.constant")
    if constant is not None and abs(ir.IntegerAttr(constant.attributes["value"]).value) <= 8:
        return None
    return _power(x, arith.sitofp(ir.F32Type.get(), n))


def _power(x: ir.Value, y: ir.Value) -> ir.Value:
    """`x^y` by `2^(y log2 |x|)`. The logarithm is a sum of two values, the first of which has few bits, so that the
    products that decide are exact, as in fdlibm's e_pow (Sun Microsystems, 1993). The special cases are those of C's
    pow (C11, F.10.4.4)."""
    a = math.absf(x)
    # |x| = 2^e m with m in [sqrt(1/2), sqrt(2))
    shifted = arith.subi(bits_of(a), int32(0x3F3504F3))
    e = arith.sitofp(ir.F32Type.get(), arith.shrsi(shifted, int32(23)))
    m = float_of(arith.addi(arith.andi(shifted, int32(0x007FFFFF)), int32(0x3F3504F3)))
    # s = (m - 1) / (m + 1) as a sum of two values; log2(m) = 2 / ln 2 * atanh(s)
    above, below = sub(m, const(1.0)), add(m, const(1.0))
    s = div(above, below)
    s_head, below_head = leading_bits(s), leading_bits(below)
    below_tail = sub(m, sub(below_head, const(1.0)))
    s_tail = div(sub(sub(above, mul(s_head, below_head)), mul(s_head, below_tail)), below)
    square = mul(s, s)
    series = mul(mul(s, square), polynomial(square, [1 / k for k in (13, 11, 9, 7, 5, 3)]))
    factor = 2 / LN2
    factor_head = 2.884765625  # 12 bits
    high = mul(s_head, const(factor_head))
    low = add(mul(s_head, const(factor - factor_head)), mul(const(factor), add(s_tail, series)))
    # y (e + high + low) as a sum of whole numbers and a rest
    rough = mul(y, add(e, high))
    y_near = select(compare("OLT", math.absf(rough), const(300.0)), y, const(0.0))
    y_head, high_head = leading_bits(y_near), leading_bits(high)
    y_tail = sub(y_near, y_head)
    first, second = mul(y_head, e), mul(y_head, high_head)
    n1, n2 = math.roundeven(first), math.roundeven(second)
    rest = add(mul(y_tail, add(e, high)), mul(y_head, sub(high, high_head)), mul(y_near, low))
    rest = add(add(sub(first, n1), sub(second, n2)), rest)
    n3 = math.roundeven(rest)
    found = scaled_exp(mul(sub(rest, n3), const(LN2)), add(n1, n2, n3))
    zero, infinite = const(0.0), const(INF)
    found = select(
        compare("OGE", rough, const(300.0)), infinite, select(compare("OLE", rough, const(-300.0)), zero, found)
    )
    # |x| is 0 or infinite, or |y| is infinite
    rises = compare("OGT", y, zero)
    end = select(arith.xori(compare("OLT", a, const(1.0)), rises), infinite, zero)
    size = math.absf(y)
    at_end = arith.ori(
        compare("OEQ", size, infinite), arith.ori(compare("OLT", a, const(2.0**-126)), compare("OEQ", a, infinite))
    )
    found = select(at_end, end, found)
    finite = arith.andi(compare("OGE", a, const(2.0**-126)), compare("OLT", a, infinite))
    return _with_cases_of_pow(found, x, y, finite, 2.0**24)


def double_power(x: ir.Value, y: ir.Value) -> ir.Value:
    """`x^y` of f64 by `e^(y log |x|)`, with the special cases of C's pow, which IREE leaves out."""
    a = math.absf(x)
    finite = arith.andi(compare("OGT", a, scalar(0.0, x.type)), compare("OLT", a, scalar(INF, x.type)))
    return _with_cases_of_pow(math.exp(mul(y, math.log(a))), x, y, finite, 2.0**53)


def _with_cases_of_pow(found: ir.Value, x: ir.Value, y: ir.Value, finite: ir.Value, even: float) -> ir.Value:
    """`x^y` also for negative `x`, NaN and 1, from `found`, which is |x|^y. `finite`: |x| is not 0 and not infinite.
    `even`: all floats from this one on are even."""

    def c(value: float) -> ir.Value:
        return scalar(value, x.type)

    whole, size = compare("OEQ", math.floor(y), y), math.absf(y)
    half = mul(y, c(0.5))
    odd = arith.andi(arith.andi(whole, compare("ONE", math.floor(half), half)), compare("OLT", size, c(even)))
    negative = compare("OLT", with_sign(c(1.0), x), c(0.0))
    found = select(arith.andi(odd, negative), arith.negf(found), found)
    fraction = arith.andi(arith.xori(whole, scalar(1, ir.IntegerType.get_signless(1))), compare("OLT", size, c(INF)))
    found = select(arith.andi(arith.andi(negative, fraction), finite), c(NAN), found)
    found = select(compare("UNO", x, y), c(NAN), found)
    one = arith.ori(compare("OEQ", y, c(0.0)), compare("OEQ", x, c(1.0)))
    at_one = arith.andi(compare("OEQ", math.absf(x), c(1.0)), compare("OEQ", size, c(INF)))
    return select(arith.ori(one, at_one), c(1.0), found)
