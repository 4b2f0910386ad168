"""Divisions with the error that a Vulkan device may have: up to 2.5 units in the last place (Vulkan specification,
"Precision and Operation of SPIR-V Instructions")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def vulkan_division(units: float | None) -> Callable[[Array, Array], Array]:
    """Return a division of f32 or f64 with an error of `units` in the last place, at most 2.5; None for a random error
    of each quotient. Zeros, subnormals, infinities and NaN have no error."""
    rng = np.random.default_rng(0)

    def divided(a: Array, b: Array) -> Array:
        kind = np.result_type(a, b)
        wide = np.float64 if kind == np.float32 else np.longdouble
        with np.errstate(all="ignore"):
            exact = np.asarray(a, wide) / np.asarray(b, wide)
            unit = np.exp2(np.floor(np.log2(np.abs(exact)))) * wide(np.finfo(kind).eps)
            error = rng.uniform(-2.5, 2.5, exact.shape).astype(wide) if units is None else wide(units)
            near = (exact + error * unit).astype(kind)
            # A value that rounding moved over the bound moves one step back.
            near = np.where(np.abs(near - exact) > 2.5 * unit, np.nextafter(near, exact.astype(kind)), near)
            usual = np.isfinite(near) & np.isfinite(exact) & (np.abs(exact) >= np.finfo(kind).tiny)
            assert (~usual | (np.abs(near - exact) <= 2.5 * unit)).all()
            return np.asarray(np.where(usual, near, exact.astype(kind)))

    return divided
