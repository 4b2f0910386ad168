"""Codes, scales and zero points: dequant and quantize (docs/semantics.md, sections 1 and 2)."""

from __future__ import annotations

import numpy as np

from ..dtypes import DTYPES, Array, DType, from_numpy, is_sub_byte, table
from ..ops.dequant import DequantOp
from ..ops.quantize import QuantizeOp
from ..packing import unpack
from ..shapes import blocks

F32 = np.float32
_QUANTIZE, _DEQUANT = QuantizeOp.DEFAULTS, DequantOp.DEFAULTS


def expand(x: Array, shape: tuple[int, ...], name: str, of: str) -> Array:
    """A scale or zero point, repeated in blocks so that it broadcasts against `shape` element by element."""
    b = blocks(x.shape, shape, name, of)
    x = x.reshape((1,) * (len(shape) - x.ndim) + x.shape)
    for axis, size in enumerate(b):
        if size is not None and size > 1:
            x = np.repeat(x, size, axis)
    return x


def code_dtype(q: Array, dtype: str | None) -> DType:
    """The dtype of codes: the stated one, else that of the array."""
    return DTYPES[dtype if dtype is not None else from_numpy(q.dtype)]


def decode(q: Array, d: DType, codebook: Array | None = None) -> Array:
    """Decode stored codes to their values, before scale and zero point: int64, or f32 for table types and floats."""
    if d.kind == "table":
        return table(d.name, codebook)[q.astype(np.int64) & 15]
    if d.kind == "float":
        return q.astype(F32)
    if d.name == "i1":
        return 2 * (q.astype(np.int64) & 1) - 1
    return as_stated(q, d.signed).astype(np.int64)


def as_stated(x: Array, signed: bool) -> Array:
    """Reinterpret 8-bit integers as signed or unsigned; others are unchanged."""
    return x.view(np.int8 if signed else np.uint8) if x.dtype in (np.int8, np.uint8) else x


def zero_mode_of(mode: str | None, zero_point: Array | np.generic | int | None) -> str:
    """The zero mode: the stated one, else `int` if a zero point is given, else `none`."""
    return mode if mode is not None else ("none" if zero_point is None else "int")


def offset_of(mode: str, d: DType) -> int:
    """The offset that the `offset_*` modes subtract from the unsigned code."""
    return 1 << (d.bits - 1) if mode.startswith("offset") else 0


def dequant(
    input: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    dtype: str | None = None,
    zero_mode: str | None = None,
    packing: str = _DEQUANT["packing"],
    length: int | None = None,
    codebook: Array | None = None,
    out_dtype: str = _DEQUANT["out_dtype"],
) -> Array:
    """The float value of quantised codes: `(q - z) * s` and its variants, in f32, rounded once to `out_dtype`.

    Args:
        input: `[.., L]` codes, or packed bytes along the last axis (`length` gives the true L).
        scale: broadcasts in blocks against `input`.
        zero_point: shape of its scale.
    """
    d = code_dtype(np.asarray(input), dtype)
    q = unpack(np.asarray(input), d.name, packing, length)
    mode = zero_mode_of(zero_mode, zero_point)
    value = decode(q, d, codebook) - offset_of(mode, d) if d.is_int else decode(q, d, codebook)
    s = expand(np.asarray(scale).astype(F32), q.shape, "scale", "input")
    if zero_point is None or mode == "none":
        y = value.astype(F32) * s
    elif mode in ("int", "offset_int", "packed_int"):
        z = zero_points(zero_point, np.shape(scale), d, mode, packing)
        y = wrap32(value - expand(z, q.shape, "zero_point", "input")).astype(F32) * s
    else:
        z = expand(np.asarray(zero_point).astype(F32), q.shape, "zero_point", "input")
        y = value.astype(F32) * s + z if mode == "offset_float" else value.astype(F32) * s - z
    return y.astype(DTYPES[out_dtype].numpy)


def zero_points(zero_point: Array, scale_shape: tuple[int, ...], d: DType, mode: str, packing: str) -> Array:
    """Zero points as int64; those of mode `packed_int` are unpacked to the shape of their scale. An 8-bit zero point
    has the signedness of its codes; it is signed in the `offset_*` modes."""
    z = integers(zero_point, f"a zero point of mode '{mode}'")
    if mode == "packed_int":
        z = unpack(z, d.name, packing, scale_shape[-1])
    else:
        z = as_stated(z, d.signed or mode.startswith("offset"))
    return z.astype(np.int64)


def integers(value: Array | np.generic | int, what: str) -> Array:
    """A value as an array of integers. Raises ValueError for other types: their fractions would be truncated."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu" and not is_sub_byte(array.dtype):
        raise ValueError(f"{what} holds integers, but is {array.dtype}")
    return array


def wrap32(x: Array) -> Array:
    """Integers wrapped modulo 2^32 to the range of i32, as int64."""
    return x.astype(np.int32).astype(np.int64)


def round_to(x: Array, mode: str) -> Array:
    """Round f32 to integers, still f32."""
    if mode == "half_even":
        return np.rint(x)
    if mode == "trunc":
        return np.trunc(x)
    # trunc(x) and x - trunc(x) are exact in f32, so this is the rounding of the real number: the formula
    # floor(|x| + 0.5) evaluated in f32 would send 0.49999997 to 1.
    t = np.trunc(x)
    return t + np.copysign((np.abs(x - t) >= 0.5).astype(x.dtype), x)


def requantize(y: Array, factor: Array, zero_point: Array | None, d: DType, rounding: str, lo: int, hi: int) -> Array:
    """`clamp(round(y * factor) + z, lo, hi)`; NaN becomes `z` clamped, infinities saturate."""
    with np.errstate(invalid="ignore", over="ignore"):
        t = round_to((y * factor).astype(F32), rounding)
        z = (
            F32(0)
            if zero_point is None
            else as_stated(integers(zero_point, "a zero point of codes"), d.signed).astype(F32)
        )
        t = np.where(np.isnan(t), F32(0), t) + z
        return np.clip(t, F32(lo), F32(hi)).astype(np.int64).astype(d.numpy)


def reciprocal(scale: Array) -> Array:
    """`1 / s` in f32."""
    with np.errstate(divide="ignore"):
        return (F32(1) / np.asarray(scale).astype(F32)).astype(F32)


def quantize(
    input: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    out_dtype: str = _QUANTIZE["out_dtype"],
    rounding: str = _QUANTIZE["rounding"],
    clamp: tuple[int, int] | None = None,
) -> Array:
    """`clamp(round(x * (1/s)) + z, lo, hi)`: floats `[..]` to 8-bit or sub-byte codes, one per element."""
    d = DTYPES[out_dtype]
    if out_dtype == "i1":
        raise ValueError("out_dtype 'i1' has only the values -1 and 1, so that no value rounds to 0; use u1")
    x = np.asarray(input).astype(F32)
    lo, hi = clamp or (d.lo, d.hi)
    s = expand(reciprocal(scale), x.shape, "scale", "input")
    z = None if zero_point is None else expand(np.asarray(zero_point), x.shape, "zero_point", "input")
    return requantize(x, s, z, d, rounding, lo, hi)
