"""dynamic_quantize: codes, scales and zero points from the data (docs/semantics.md, section 4)."""

from __future__ import annotations

import math

import numpy as np

from ..dtypes import DTYPES, Array
from ..enums import DIVIDING_RECIPES, SYMMETRIC_RECIPES
from ..ops.dynamic_quantize import DynamicQuantizeOp
from .values import F32, reciprocal, requantize

_DEFAULTS = DynamicQuantizeOp.DEFAULTS


def dynamic_quantize(
    input: Array,
    *,
    out_dtype: str = _DEFAULTS["out_dtype"],
    granularity: str = _DEFAULTS["granularity"],
    group_size: int | None = None,
    symmetric: bool = _DEFAULTS["symmetric"],
    rounding: str = _DEFAULTS["rounding"],
    recipe: str = _DEFAULTS["recipe"],
    clamp: tuple[int, int] | None = None,
    eps: float = _DEFAULTS["eps"],
) -> tuple[Array, Array, Array | None]:
    """Quantise float `input [.., M, K]` to `(q, s, z)`; `z` (i32) is None when symmetric.

    The scale's shape is `[]` per tensor, `[.., M, 1]` per token, `[.., M, K/group_size]` per group. Recipes:
    `torchao` (choose_qparams_affine), `onnx` (DynamicQuantizeLinear, operator set 11), `fbgemm`
    (ChooseQuantizationParams), `amax` (symmetric), `aiter` (pertoken_quant: `amax`, but divides by the scale). Codes
    of an 8-bit float are symmetric, rounded half to even and saturated at the largest finite number. `clamp` narrows
    the range of the codes; `eps` is the smallest scale.
    """
    d = DTYPES[out_dtype]
    lo, hi = clamp if clamp is not None else (d.lo, d.hi)
    x = np.asarray(input).astype(F32)
    k = x.shape[-1] if x.ndim else 1
    if granularity == "tensor":
        rows = x.reshape(1, -1)
        scale_shape: tuple[int, ...] = ()
    else:
        g = k if granularity == "token" else int(group_size or k)
        scale_shape = (*x.shape[:-1], 1 if granularity == "token" else k // g if g else 1)
        rows = x.reshape(math.prod(scale_shape), g)
    empty = rows.shape[1] == 0
    finite = rows if not empty else np.zeros((rows.shape[0], 1), F32)
    is_float = d.kind == "float"
    half = F32(d.largest) if is_float else F32(hi - lo) / F32(2)
    with np.errstate(all="ignore"):
        if symmetric:
            amax = np.abs(finite).max(1)
            largest = F32(d.largest) if is_float else F32(hi)
            s = amax / largest if recipe in SYMMETRIC_RECIPES else np.maximum(amax / half, F32(eps))
            if recipe in SYMMETRIC_RECIPES:
                s = np.where(amax == 0, F32(1), s)
            z = None
        else:
            mn, mx = np.minimum(finite.min(1), F32(0)), np.maximum(finite.max(1), F32(0))
            s, z = _affine(mn, mx, lo, hi, recipe, eps)
        s = s.astype(F32)
        t = rows / s[:, None] if recipe in DIVIDING_RECIPES else rows * reciprocal(s)[:, None]
        if is_float:
            # NaN quantises to 0, as it does to integer codes.
            t = np.clip(np.where(np.isnan(t), F32(0), t), F32(-d.largest), F32(d.largest))
            return t.astype(d.numpy).reshape(x.shape), s.reshape(scale_shape), None
        q = requantize(t, np.ones((), F32), None if z is None else z[:, None], d, rounding, lo, hi)
    q = q.reshape(x.shape)
    return q, s.reshape(scale_shape), None if z is None else z.astype(np.int32).reshape(scale_shape)


def _affine(mn: Array, mx: Array, lo: int, hi: int, recipe: str, eps: float = 0.0) -> tuple[Array, Array]:
    """Scale (f32) and zero point (integer) of the asymmetric range `mn` to `mx`, which contains 0."""
    if recipe == "fbgemm":
        lo64, hi64, m, x = float(lo), float(hi), mn.astype(np.float64), mx.astype(np.float64)
        s64 = (x - m) / (hi64 - lo64)
        s64 = np.where(s64 == 0, 0.1, s64)
        from_min, from_max = lo64 - m / s64, hi64 - x / s64
        err_min, err_max = abs(lo64) + np.abs(m / s64), abs(hi64) + np.abs(x / s64)
        z = np.rint(np.where(err_min < err_max, from_min, from_max))
        return s64.astype(F32), _zero_point(z, lo, hi)
    s = (mx - mn) / F32(hi - lo)
    if recipe == "onnx":
        s = np.where(s == 0, F32(1), s)
        z = np.rint(F32(lo) - mn / s)
    else:
        s = np.maximum(s, F32(eps))
        z = F32(lo) - np.rint(mn / s)
    return s, _zero_point(z, lo, hi)


def _zero_point(z: Array, lo: int, hi: int) -> Array:
    """A zero point as a code; `lo` if it is NaN: the range holds NaN, or its scale is infinite or 0."""
    return np.clip(np.where(np.isnan(z), lo, z), lo, hi).astype(np.int64)
