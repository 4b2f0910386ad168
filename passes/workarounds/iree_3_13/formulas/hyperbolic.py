"""Hyperbolic functions and their inverses."""

from __future__ import annotations

import math as numbers
from functools import reduce

from .....core.mlir import arith, ir, math
from .....ir.build import scalar
from .....ir.scalars import const, polynomial
from .exponential import atanh_series, expm1, log1p
from .scalars import LN2, NAN, add, compare, div, mul, select, sub, with_sign


def _half_exp(a: ir.Value) -> ir.Value:
    """`e^a / 2`, even if `e^a` is too large for an f32: halving the argument is exact."""
    root = math.exp(mul(a, const(0.5)))
    return mul(mul(root, const(0.5)), root)


def sinh(x: ir.Value) -> ir.Value:
    """`sinh(x)`; near 0 by Taylor's series."""
    square = mul(x, x)
    small = mul(x, polynomial(square, [1 / numbers.factorial(k) for k in (11, 9, 7, 5, 3, 1)]))
    half = _half_exp(math.absf(x))
    large = with_sign(sub(half, div(const(0.25), half)), x)
    return select(compare("OLT", math.absf(x), const(1.0)), small, large)


def cosh(x: ir.Value) -> ir.Value:
    half = _half_exp(math.absf(x))
    return add(half, div(const(0.25), half))


def tanh(x: ir.Value) -> ir.Value:
    """`t / (t + 2)` with t = e^(2a) - 1 and a = |x|, but at most 10: from there on the result rounds to 1 in f32."""
    a = math.absf(x)
    t = expm1(mul(const(2.0), select(compare("OGT", a, const(10.0)), const(10.0), a)))
    return with_sign(div(t, add(t, const(2.0))), x)


def double_tanh(x: ir.Value) -> ir.Value:
    """`tanh(x)` of an f64: near 0 a quotient of polynomials (Cephes), elsewhere `1 - 2 / (e^(2a) + 1)` with a = |x|."""

    def c(value: float) -> ir.Value:
        return scalar(value, x.type)

    def horner(at: ir.Value, *coefficients: float) -> ir.Value:
        return reduce(lambda value, k: add(mul(value, at), c(k)), coefficients[1:], c(coefficients[0]))

    square, a = mul(x, x), math.absf(x)
    top = horner(square, -9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3)
    bottom = horner(square, 1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3)
    near = add(x, mul(mul(x, square), div(top, bottom)))
    power = math.exp(mul(c(2.0), select(compare("OGT", a, c(30.0)), c(30.0), a)))
    far = sub(c(1.0), div(c(2.0), add(power, c(1.0))))
    return with_sign(select(compare("OLT", a, c(0.625)), near, far), x)


def asinh(x: ir.Value) -> ir.Value:
    """`log1p(a + a^2 / (1 + sqrt(1 + a^2)))` with a = |x| (Abramowitz and Stegun, 4.6.20, without its cancellation);
    for large a `log(2 a)`."""
    a = math.absf(x)
    far = compare("OGT", a, const(1e4))
    near = select(far, const(0.0), a)
    square = mul(near, near)
    inner = log1p(add(near, div(square, add(const(1.0), math.sqrt(add(const(1.0), square))))))
    found = select(compare("OLT", a, const(1e-4)), a, inner)
    return with_sign(select(far, add(math.log(a), const(LN2)), found), x)


def acosh(x: ir.Value) -> ir.Value:
    """`log1p(t + sqrt(t (t + 2)))` with t = x - 1 (Abramowitz and Stegun, 4.6.21); for large x `log(2 x)`."""
    far = compare("OGT", x, const(1e4))
    t = sub(select(arith.ori(far, compare("OLT", x, const(1.0))), const(1.0), x), const(1.0))
    inner = log1p(add(t, math.sqrt(mul(t, add(t, const(2.0))))))
    found = select(far, add(math.log(x), const(LN2)), inner)
    return select(compare("OLT", x, const(1.0)), const(NAN), found)


def atanh(x: ir.Value) -> ir.Value:
    """Near 0 by Taylor's series, elsewhere `log((1 + x) / (1 - x)) / 2` (Abramowitz and Stegun, 4.6.22)."""
    a = math.absf(x)
    large = with_sign(mul(const(0.5), math.log(div(add(const(1.0), a), sub(const(1.0), a)))), x)
    large = select(compare("OGT", a, const(1.0)), const(NAN), large)
    return select(compare("OLT", a, const(0.25)), atanh_series(x), large)
