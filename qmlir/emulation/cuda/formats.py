"""Arithmetic that numpy does not have: PTX's roundings, exact fused multiply-adds, packed types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ...dialect.dtypes import DTYPES as FORMATS, Array as Array, NumpyType, from_numpy
from ..fma import fma64

DTYPES: dict[str, NumpyType] = {
    **{f"{k}{8 * n}": np.dtype(f"u{n}") for k in "bu" for n in (1, 2, 4, 8)},
    **{f"s{8 * n}": np.dtype(f"i{n}") for n in (1, 2, 4, 8)},
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
# Packed types: element type, and elements per register.
PACKED = {
    "f16x2": ("f16", 2), "bf16x2": ("bf16", 2), "f32x2": ("f32", 2), "s16x2": ("s16", 2), "u16x2": ("u16", 2),
    "e4m3x2": ("e4m3", 2), "e5m2x2": ("e5m2", 2),
}  # fmt: skip
FLOATS = frozenset(("f16", "bf16", "f32", "f64", "e4m3", "e5m2"))
ROUNDINGS = ("rn", "rna", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi")

_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def unsigned(dtype: npt.DTypeLike) -> NumpyType:
    """The unsigned integer dtype of the same size."""
    return np.dtype(f"u{np.dtype(dtype).itemsize}")


def flushed(x: Array) -> Array:
    """f32 values with subnormals replaced by zeros of their sign (`.ftz`)."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def odd_sum(a: Array, b: Array) -> Array:
    """The f64 sum a + b, rounded to odd: rounding that again to a shorter format gives the correctly rounded sum.

    (Boldo, Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.)
    """
    total = np.asarray(a + b, np.float64)
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    return np.where(inexact, bits + np.where((error > 0) == (total > 0), 1, -1), bits).view(np.float64)


def fused(a: Array, b: Array, c: Array, dtype: npt.DTypeLike, mode: str = "rn") -> Array:
    """a * b + c with one rounding."""
    if np.dtype(dtype) == np.float64:
        return fma64(a, b, c, mode)
    # Other formats have up to 24 significand bits: their products are exact in f64.
    product = a.astype(np.float64) * b.astype(np.float64)
    return rounded(odd_sum(product, c.astype(np.float64)), dtype, mode)


def rounded(x: Array, dtype: npt.DTypeLike, mode: str = "rn") -> Array:
    """Round f64 values to a shorter format. They must be exact results, or rounded to odd."""
    dtype = np.dtype(dtype)
    x = np.asarray(x, np.float64)
    if dtype == np.float64:
        return x
    if dtype.itemsize < 4 and dtype != np.float16:
        # ml_dtypes converts by way of f32: round to odd there, because rounding to nearest twice is wrong.
        near = x.astype(np.float32)
        bits = near.view(np.int32)
        wrong = (near.astype(np.float64) != x) & np.isfinite(near) & (bits & 1 == 0)
        outward = (x > near) == (near > 0)
        x32 = np.where(wrong, bits + np.where(outward, 1, -1), bits).astype(np.int32).view(np.float32)
        y = x32.astype(dtype)
    else:
        y = x.astype(dtype)
    return y if mode in ("rn", "rna") else _directed(x, y, mode)


def _directed(x: Array, y: Array, mode: str) -> Array:
    """`y`, which is `x` rounded to nearest, moved to the neighbour that the rounding mode demands."""
    back = y.astype(np.float64)
    bits = y.view(unsigned(y.dtype))
    one = bits.dtype.type(1)
    toward_zero = np.abs(back) > np.abs(x)
    if mode == "rz":
        made: Array = np.where(toward_zero, bits - one, bits).astype(bits.dtype).view(y.dtype)
        return made
    wrong = back > x if mode == "rm" else back < x
    smaller = (back > 0) == (mode == "rm")
    moved = np.where(smaller, bits - one, bits + one)
    made = np.where(wrong, moved, bits).astype(bits.dtype).view(y.dtype)
    return made


def to_integer(x: Array, dtype: npt.DTypeLike, mode: str) -> Array:
    """Convert floats to integers with saturation; NaN becomes 0."""
    dtype = np.dtype(dtype)
    info = np.iinfo(dtype)
    y = _TO_INTEGER[mode if mode in _TO_INTEGER else "rzi"](np.nan_to_num(x.astype(np.float64), nan=0.0))
    low, high = float(info.min), float(info.max)  # for 64 bits, `high` is rounded up to a power of two
    inside = np.clip(y, low, np.nextafter(high, 0) if dtype.itemsize == 8 else high).astype(dtype)
    return np.where(y >= high, info.max, np.where(y <= low, info.min, inside)).astype(dtype)


def saturated(x: Array, dtype: npt.DTypeLike) -> Array:
    """Integers clamped to the range of a shorter type."""
    info = np.iinfo(dtype)
    if x.dtype == np.uint64:
        return np.minimum(x, np.uint64(info.max)).astype(dtype)
    return np.clip(x.astype(np.int64), int(info.min), min(int(info.max), 2**63 - 1)).astype(dtype)


def saturated_small(x: Array, dtype: npt.DTypeLike) -> Array:
    """Convert floats to 8-bit floats with `.satfinite`: larger values become the largest one, with their sign."""
    largest = FORMATS[from_numpy(np.dtype(dtype))].largest
    y = rounded(np.clip(x.astype(np.float64), -largest, largest), dtype)
    return np.where(np.isnan(x), np.array(np.nan, dtype), y)
