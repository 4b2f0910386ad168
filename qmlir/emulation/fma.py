"""Arithmetic of f64 with one rounding, in the modes that numpy does not have."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ..dialect.dtypes import Array


def _fused(a: float, b: float, c: float, mode: str) -> float:
    try:
        total = Fraction(a) * Fraction(b) + Fraction(c)
    except (OverflowError, ValueError):  # infinities and NaN
        return c if math.isfinite(a) and math.isfinite(b) else a * b + c
    if not total:
        zero = a * b + c  # has the right sign, unless two numbers cancel and the mode is down
        same = math.copysign(1, a) * math.copysign(1, b) == math.copysign(1, c)
        return -0.0 if mode == "rm" and not (c == 0 and same) else zero
    try:
        near = float(total)
    except OverflowError:
        near = math.inf if total > 0 else -math.inf
    if mode == "rz":
        mode = "rm" if total > 0 else "rp"
    if mode == "rm" and near > total:
        return math.nextafter(near, -math.inf)
    return math.nextafter(near, math.inf) if mode == "rp" and near < total else near


_fused_each = np.frompyfunc(_fused, 4, 1)


def fma64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """`a * b + c` of f64 with one rounding: to nearest even (`rn`), to zero (`rz`), down (`rm`) or up (`rp`)."""
    values = (np.asarray(x, np.float64).astype(object) for x in (a, b, c))
    return np.asarray(_fused_each(*values, mode)).astype(np.float64)
