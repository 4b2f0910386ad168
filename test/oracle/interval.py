"""Results with a tolerance: intervals of exact numbers.

If docs/semantics.md defines a result bit-exactly, both ends are the same number. Float contractions and transcendental
functions have the tolerance of section 5. `fused` intervals also contain the results of a fused multiply-add, which
does not round the product. Rounding is monotone, so every later step is computed on the two ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .rounding import FORMATS, ZERO, Number

EPS = Fraction(1, 2**24)
F32 = FORMATS["f32"]


@dataclass(frozen=True)
class Interval:
    lo: Number
    hi: Number

    def through(self, f: Callable[[Any], Any]) -> Interval:
        """The interval of `f(x)`, for a function that does not decrease."""
        return Interval(f(self.lo), self.hi if self.hi is self.lo and f is _same else f(self.hi))

    @property
    def middle(self) -> Fraction:
        return (Fraction(self.lo) + Fraction(self.hi)) / 2

    @property
    def half_width(self) -> Fraction:
        return (Fraction(self.hi) - Fraction(self.lo)) / 2

    def widened(self, by: Fraction) -> Interval:
        return Interval(self.lo - by, self.hi + by)


def _same(x: Any) -> Any:
    return x


def point(x: Number) -> Interval:
    return Interval(x, x)


@dataclass(frozen=True)
class Arithmetic:
    """f32 steps on intervals. `fused`: a product may stay unrounded until the next step rounds its own result."""

    fused: bool = False

    def add(self, x: Interval, y: Interval) -> Interval:
        return Interval(F32.round(x.lo + y.lo), F32.round(x.hi + y.hi))

    def mul(self, x: Interval, y: Interval) -> Interval:
        products = (
            [x.lo * y.lo] if x.lo == x.hi and y.lo == y.hi else [a * b for a in (x.lo, x.hi) for b in (y.lo, y.hi)]
        )
        rounded = [F32.round(p) for p in products]
        every = [*rounded, *products] if self.fused else rounded
        return Interval(min(every), max(every))

    def about(self, value: Fraction, terms: Fraction, count: int) -> Interval:
        """A sum of `count` float products, with section 5's tolerance for f32. `terms`: the sum of their magnitudes."""
        return point(value).widened(abs(value) / 2**22 + count * EPS * terms)

    def function(self, name: str, x: Interval) -> Interval:
        """An activation. Slopes are below 1.13; a library function is accurate to a few units in the last place."""
        if name in EXACT:
            return x.through(EXACT[name])
        middle = x.middle
        value = Fraction(SMOOTH[name](float(middle)))
        slack = Fraction(113, 100) * x.half_width + abs(value) / 2**20 + abs(middle) / 2**22 + Fraction(1, 2**40)
        return point(value).widened(slack)


EXACT: dict[str, Callable[[Any], Any]] = {
    "none": _same,
    "relu": lambda x: max(x, ZERO),
    "relu6": lambda x: min(max(x, ZERO), Fraction(6)),
}


def _gelu(x: float) -> float:
    return x / 2 * math.erfc(-x / math.sqrt(2))


def _gelu_tanh(x: float) -> float:
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x)) if x > -700 else 0.0


SMOOTH: dict[str, Callable[[float], float]] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "tanh": math.tanh,
}
