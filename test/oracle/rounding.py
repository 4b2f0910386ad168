"""Numbers of the second oracle: exact fractions, and correct rounding of them to a float type.

A finite number is a `Fraction`; infinities and NaN are Python floats. Fractions are rounded to the nearest, ties to the
even mantissa. Nothing here uses the arithmetic of numpy or ml_dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

Number = Fraction | float
INF, NAN = math.inf, math.nan
ZERO = Fraction(0)


@dataclass(frozen=True)
class Format:
    """A binary float type. `special`: "ieee" has infinities and NaN; "fn" only NaN, as the code of all ones; "fnuz"
    only NaN, as the code of negative zero; "none" neither (e2m1)."""

    exponent: int
    mantissa: int
    bias: int
    special: str = "ieee"

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @cached_property
    def largest(self) -> Fraction:
        """The largest finite number."""
        top = (1 << self.exponent) - (2 if self.special == "ieee" else 1)
        last = (1 << self.mantissa) - (2 if self.special == "fn" else 1)
        return (1 + Fraction(last, 1 << self.mantissa)) * Fraction(2) ** (top - self.bias)

    def decode(self, code: int) -> Number:
        """The number that a code represents."""
        sign = -1 if code >> (self.bits - 1) else 1
        exponent = code >> self.mantissa & ((1 << self.exponent) - 1)
        mantissa = code & ((1 << self.mantissa) - 1)
        ones = exponent == (1 << self.exponent) - 1
        if self.special == "ieee" and ones:
            return NAN if mantissa else sign * INF
        if self.special == "fn" and ones and mantissa == (1 << self.mantissa) - 1:
            return NAN
        if self.special == "fnuz" and code == 1 << (self.bits - 1):
            return NAN
        if exponent == 0:
            return sign * Fraction(mantissa, 1 << self.mantissa) * Fraction(2) ** (1 - self.bias)
        return sign * (1 + Fraction(mantissa, 1 << self.mantissa)) * Fraction(2) ** (exponent - self.bias)

    def round(self, x: Number, saturate: bool = False) -> Number:
        """`x` in this type. Above the largest number: infinity or NaN, or with `saturate` the largest number."""
        if isinstance(x, float):
            if saturate and not math.isnan(x):
                return self.largest if x > 0 else -self.largest
            return x
        if not x:
            return ZERO
        e = max(_exponent(x), 1 - self.bias) - self.mantissa
        n, d = (x.numerator, x.denominator << e) if e >= 0 else (x.numerator << -e, x.denominator)
        q = _nearest(n, d)
        rounded = Fraction(q << e) if e >= 0 else Fraction(q, 1 << -e)
        if abs(rounded) > self.largest:
            if saturate or self.special == "none":
                return self.largest if x > 0 else -self.largest
            return NAN if self.special in ("fn", "fnuz") else INF if x > 0 else -INF
        return rounded


FORMATS = {
    "f64": Format(11, 52, 1023),
    "f32": Format(8, 23, 127),
    "f16": Format(5, 10, 15),
    "bf16": Format(8, 7, 127),
    "e4m3": Format(4, 3, 7, "fn"),
    "e5m2": Format(5, 2, 15),
    "e4m3fnuz": Format(4, 3, 8, "fnuz"),
    "e5m2fnuz": Format(5, 2, 16, "fnuz"),
    "e2m1": Format(2, 1, 1, "none"),
}


def _exponent(x: Fraction) -> int:
    """floor(log2 |x|)."""
    n, d = abs(x.numerator), x.denominator
    e = n.bit_length() - d.bit_length()
    return e if (n >= d << e if e >= 0 else n << -e >= d) else e - 1


def _nearest(n: int, d: int) -> int:
    """The integer nearest to n / d, ties to even."""
    q, r = divmod(n, d)
    return q + 1 if 2 * r > d or (2 * r == d and q % 2) else q


def half_even(x: Fraction) -> int:
    """The nearest integer, ties to even."""
    return _nearest(x.numerator, x.denominator)


def half_away(x: Fraction) -> int:
    """`sign(x) * floor(|x| + 0.5)`, computed exactly."""
    magnitude = math.floor(abs(x) + Fraction(1, 2))
    return magnitude if x >= 0 else -magnitude


def trunc(x: Fraction) -> int:
    """Toward zero."""
    return int(x)


ROUND: dict[str, Callable[[Fraction], int]] = {"half_even": half_even, "half_away": half_away, "trunc": trunc}


def _rounded_once(exact: Callable[[Any, Any], Any]) -> Callable[..., Number]:
    """Make an operation that computes on fractions and rounds once to a type, by default f32. If an operand is infinite
    or NaN, Python's floats give the result."""

    def operation(x: Number, y: Number, to: str = "f32") -> Number:
        if isinstance(x, float) or isinstance(y, float):
            # All that matters here is the sign, and whether an operand is zero, finite or neither.
            return float(exact(float(x), float(y)))
        return FORMATS[to].round(exact(x, y))

    return operation


add = _rounded_once(lambda x, y: x + y)
sub = _rounded_once(lambda x, y: x - y)
mul = _rounded_once(lambda x, y: x * y)


def div(x: Number, y: Number, to: str = "f32") -> Number:
    """`x / y`, rounded once; division by zero as in IEEE 754."""
    if not isinstance(y, float) and y == 0:
        return NAN if x == 0 or x != x else INF if x > 0 else -INF
    if isinstance(x, float) or isinstance(y, float):
        return (
            float(x) / float(y) if not (isinstance(y, float) and math.isinf(y) and not isinstance(x, float)) else ZERO
        )
    return FORMATS[to].round(x / y)


def number(x: float) -> Number:
    """The exact number that a Python float represents."""
    return Fraction(x) if math.isfinite(x) else x


def wrap32(x: int) -> int:
    """Modulo 2^32, signed."""
    return (x + 2**31) % 2**32 - 2**31
