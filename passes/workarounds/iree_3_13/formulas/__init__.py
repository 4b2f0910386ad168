"""Formulas for functions of one and two f32, one file per family, by which `expand_functions.py` replaces them."""

from __future__ import annotations

from collections.abc import Callable

from .....core.mlir import ir
from .error_function import erfc
from .exponential import double_log2, double_power, exp, exp2, expm1, integer_power, log1p, log10, power
from .hyperbolic import acosh, asinh, atanh, cosh, double_tanh, sinh, tanh
from .remainder import remainder
from .trigonometric import arccosine, arcsine, arctangent, arctangent2, cosine, sine, tangent
from .truncation import truncated

__all__ = ["DOUBLE", "FUNCTIONS", "erfc", "exp", "truncated"]

FUNCTIONS: dict[str, Callable[..., ir.Value | None]] = {
    "arith.remf": remainder,
    "math.acos": arccosine, "math.acosh": acosh, "math.asin": arcsine, "math.asinh": asinh, "math.atan": arctangent,
    "math.atan2": arctangent2, "math.atanh": atanh, "math.cos": cosine, "math.cosh": cosh, "math.erfc": erfc,
    "math.exp2": exp2, "math.expm1": expm1, "math.fpowi": integer_power, "math.log10": log10, "math.log1p": log1p,
    "math.powf": power, "math.sin": sine, "math.sinh": sinh, "math.tan": tangent, "math.tanh": tanh,
}  # fmt: skip
# Formulas in f64: functions that CPUs have no library for, and powers, which IREE computes as NaN for bases up to 0.
DOUBLE: dict[str, Callable[..., ir.Value]] = {
    "math.log10": log10, "math.log2": double_log2, "math.powf": double_power, "math.tanh": double_tanh,
}  # fmt: skip
