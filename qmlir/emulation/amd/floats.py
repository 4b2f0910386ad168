"""Arithmetic on small floats and fused multiply-adds, rounded as IEEE 754 requires."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ...dialect.dtypes import Array as Array
from ..fma import fma64 as fma64


def fma32(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of f32 with one rounding.

    The product is exact in f64, the sum is rounded. Rounding the sum again to f32 is wrong only if it lies halfway
    between two f32 values or is subnormal in f32: such sums are rounded to odd in f64 first (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd").
    """
    product = np.multiply(a, b, dtype=np.float64)
    added = np.asarray(c, np.float64)
    total = np.asarray(product + added)
    bits = total.view(np.int64)
    magnitude = np.abs(total)
    doubtful = ((bits & 0x1FFFFFFF) == 0x10000000) | ((magnitude < 2.0**-126) & (magnitude > 0))
    if doubtful.any():
        part = total - product
        error = (product - (total - part)) + (added - part)
        toward = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        total = np.where((error != 0) & np.isfinite(total) & ((bits & 1) == 0), toward, total)
    return total.astype(np.float32)


def mad32(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of f32 as `v_mad_f32` and its variants compute it: the product is rounded as well, and denormals are
    flushed to 0 whatever the mode says (LLVM's `llvm.amdgcn.fmad.ftz`)."""
    return _flushed(_flushed(_flushed(a) * _flushed(b)) + _flushed(c))


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def fma16(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of f16: f64 is precise enough that rounding there does not change the f16 result."""
    return (np.multiply(a, b, dtype=np.float64) + c).astype(np.float16)


def to_f16_toward_zero(x: Array) -> Array:
    near = np.asarray(x).astype(np.float16)
    away = np.abs(near.astype(np.float32)) > np.abs(x)
    return (near.view(np.uint16) - away.astype(np.uint16)).view(np.float16)


def bf16_bits(x: Array) -> Array:
    """The bits of f32 values rounded to bf16, to nearest even."""
    return np.ascontiguousarray(x, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)


def from_bf16(bits: Array) -> Array:
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def _table(kind: npt.DTypeLike) -> Array:
    found: Array = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    return found


# Values of the one-byte codes: CDNA 3 has the types with an unsigned zero, later chips those of the OCP.
FP8 = {"fnuz": _table(ml_dtypes.float8_e4m3fnuz), "ocp": _table(ml_dtypes.float8_e4m3fn)}
BF8 = {"fnuz": _table(ml_dtypes.float8_e5m2fnuz), "ocp": _table(ml_dtypes.float8_e5m2)}
_FP8_TYPES = {("fp8", "fnuz"): ml_dtypes.float8_e4m3fnuz, ("fp8", "ocp"): ml_dtypes.float8_e4m3fn,
              ("bf8", "fnuz"): ml_dtypes.float8_e5m2fnuz, ("bf8", "ocp"): ml_dtypes.float8_e5m2}  # fmt: skip
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
FP6 = np.arange(64, dtype=np.uint8).view(ml_dtypes.float6_e2m3fn).astype(np.float32)
BF6 = np.arange(64, dtype=np.uint8).view(ml_dtypes.float6_e3m2fn).astype(np.float32)


def fp8_table(name: str, fnuz: bool) -> Array:
    """The f32 values of the 256 codes of "fp8" (e4m3) or "bf8" (e5m2); `fnuz`: the types with an unsigned zero."""
    return {"fp8": FP8, "bf8": BF8}[name]["fnuz" if fnuz else "ocp"]


def to_fp8(x: Array, name: str, fnuz: bool) -> Array:
    kind = _FP8_TYPES[name, "fnuz" if fnuz else "ocp"]
    return np.ascontiguousarray(x, np.float32).astype(kind).view(np.uint8)


@dataclass(frozen=True)
class _Division:
    """Constants of one type in AMD's pseudocode of `v_div_scale`, `v_div_fmas` and `v_div_fixup`, as exponents of 2."""

    kind: npt.DTypeLike
    fma: Callable[[Array, Array, Array], Array]
    scale: int  # factor of an operand that is near an end of the range
    apart: int  # difference of the exponents of numerator and denominator from which on operands are scaled
    small: int  # greatest biased exponent of a tiny numerator
    below: int  # smallest normal value
    underflow: int  # difference of the exponents below which the quotient is 0


DIVISIONS = {
    "f16": _Division(np.float16, fma16, 0, 0, 0, -14, -100),  # only `v_div_fixup` exists
    "f32": _Division(np.float32, fma32, 64, 96, 23, -126, -150),
    "f64": _Division(np.float64, fma64, 128, 768, 53, -1022, -1075),
}


def exponent(x: Array) -> Array:
    """The biased exponent of f32 or f64."""
    x = np.asarray(x)
    if x.dtype == np.float64:
        return (x.view(np.uint64) >> np.uint64(52) & np.uint64(2047)).astype(np.int32)
    return (np.asarray(x, np.float32).view(np.uint32) >> 23 & 255).astype(np.int32)


def div_scale(s0: Array, s1: Array, s2: Array, kind: str = "f32") -> tuple[Array, Array]:
    """`v_div_scale`: the scaled operand, and the lanes for which `v_div_fmas` undoes the scaling."""
    of = DIVISIONS[kind]
    s0, s1, s2 = np.broadcast_arrays(*(np.asarray(x, of.kind) for x in (s0, s1, s2)))
    up, down = np.ldexp(s0, of.scale), np.ldexp(s0, -of.scale)
    e1, e2 = exponent(s1), exponent(s2)
    zero = (s1 == 0) | (s2 == 0)
    # The pseudocode tests both for f64 denormals. No inverse of an f32 is one; quotients of f32 are compared as f32.
    inverse = 1 / np.abs(s1.astype(np.float64))
    flat = (inverse < 2.0**-1022) & (inverse > 0)
    quotient = np.abs(s2.astype(np.float64) / s1)
    tiny = (quotient < 2.0**of.below) & (quotient > 0)
    steps = [
        (zero, np.full_like(s0, np.nan), False),
        (e2 - e1 >= of.apart, np.where(s0 == s1, up, s0), True),
        ((e1 == 0), up, False),
        # The pseudocode scales the denominator up here, which overflows; this is taken as a misprint.
        (flat & tiny, np.where(s0 == s1, down, s0), True),
        (flat, down, False),
        (tiny, np.where(s0 == s2, up, s0), True),
        (e2 <= of.small, up, False),
    ]
    conditions = [c for c, _, _ in steps]
    value = np.select(conditions, [v for _, v, _ in steps], s0).astype(of.kind)
    flag = np.select(conditions, [np.full(s0.shape, f) for _, _, f in steps], False)
    return value, flag


def div_fmas(a: Array, b: Array, c: Array, scale: Array, kind: str = "f32") -> Array:
    of = DIVISIONS[kind]
    found = of.fma(a, b, c)
    middle = 1 - of.below
    scaled = np.where(scale, np.ldexp(found, np.where(exponent(c) > middle, of.scale, -of.scale)), found)
    return np.asarray(scaled, of.kind)


def div_fixup(s0: Array, s1: Array, s2: Array, kind: str = "f32") -> Array:
    """`v_div_fixup`: `s2 / s1` from the quotient s0 of the earlier steps, with the special cases."""
    of = DIVISIONS[kind]
    s0, s1, s2 = np.broadcast_arrays(*(np.asarray(x, of.kind) for x in (s0, s1, s2)))
    sign = np.signbit(s1) ^ np.signbit(s2)

    def signed(value: float) -> Array:
        return np.asarray(np.where(sign, -value, value), of.kind)

    gap = exponent(s2) - exponent(s1)
    conditions = [
        np.isnan(s2), np.isnan(s1), (s1 == 0) & (s2 == 0), np.isinf(s1) & np.isinf(s2), (s1 == 0) | np.isinf(s2),
        np.isinf(s1) | (s2 == 0), gap < of.underflow, np.isinf(s1),
    ]  # fmt: skip
    nan = np.full_like(s0, np.nan)
    values = [s2, s1, nan, nan, signed(np.inf), signed(0.0), signed(0.0), signed(np.inf)]
    return np.select(conditions, values, np.where(sign, -np.abs(s0), np.abs(s0))).astype(of.kind)
