"""Fused multiply-add of f64, which numpy does not have."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..dialect.dtypes import Array


def _fused(a: float, b: float, c: float) -> float:
    try:
        total = Fraction(a) * Fraction(b) + Fraction(c)
        return float(total) if total else a * b + c  # has the right sign of zero
    except (OverflowError, ValueError):  # infinities and NaN, or the sum overflows
        return a * b + c


_fused_each = np.frompyfunc(_fused, 3, 1)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of f64 with one rounding, to nearest even."""
    return np.asarray(_fused_each(*(np.asarray(x, np.float64).astype(object) for x in (a, b, c)))).astype(np.float64)
