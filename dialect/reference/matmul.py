"""scaled_matmul (docs/semantics.md, section 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..dtypes import DTYPES, Array, DType
from ..enums import GATED
from ..ops.common import with_bounds
from ..ops.scaled_matmul import ScaledMatmulOp
from ..packing import unpack
from ..shapes import blocks
from .epilogue import ReferenceEpilogue
from .values import F32, code_dtype, decode, expand, offset_of, wrap32, zero_mode_of, zero_points

_DEFAULTS = ScaledMatmulOp.DEFAULTS
_FLOATS = ("f32", "f16", "bf16", "f64")


@dataclass(frozen=True)
class ReferenceSide:
    """One operand of a product in row-major `[.., R, K]` form (rows are M for lhs, N for rhs)."""

    name: str
    dtype: DType
    values: Array  # decoded values less the mode's offset, int64 or f32, [.., R, K]
    scale: Array | None  # f32, one per element after `expand`, broadcastable to `values`
    zero: Array | None  # int64 (integer modes) or f32 (float modes), one per element like `scale`
    mode: str
    k_block: int | None  # elements along K that share scale and zero point; None: all
    global_scale: Array | None = None

    @property
    def plain(self) -> bool:
        """A float operand without a scale: the float side of a weight-only product."""
        return self.dtype.name in _FLOATS and self.scale is None

    @property
    def integer(self) -> bool:
        return self.dtype.is_int

    @property
    def float_zero(self) -> bool:
        return self.mode in ("offset_float", "rescale") and self.zero is not None

    @property
    def numbers(self) -> Array:
        """The values less an integer zero point."""
        return self.values if self.zero is None or self.float_zero else wrap32(self.values - self.zero)

    def real(self, dtype: str) -> Array:
        """The values, dequantised in f32 and rounded to `dtype`."""
        s = F32(1) if self.scale is None else self.scale
        y = self.numbers.astype(F32) * s
        if self.zero is not None and self.float_zero:
            y = y + (self.zero if self.mode == "offset_float" else -self.zero)
        if self.global_scale is not None:
            y = y * np.asarray(self.global_scale).astype(F32)
        return y.astype(DTYPES[dtype].numpy)


def make_side(
    name: str,
    q: Array,
    dtype: str | None,
    scale: Array | None,
    zero_point: Array | None,
    zero_mode: str | None,
    packing: str,
    transposed: bool,
    length: int | None,
    codebook: Array | None = None,
    global_scale: Array | None = None,
) -> ReferenceSide:
    """Decode an operand. `transposed` says that K is the second-to-last axis of `q`."""
    d = code_dtype(q, dtype)
    q = unpack(q, d.name, packing, length)
    mode = zero_mode_of(zero_mode, zero_point)
    values = decode(q, d, codebook)
    if d.is_int:
        values = values - offset_of(mode, d)
    k_axis = q.ndim - 2 if transposed else q.ndim - 1
    s = z = None
    k_block: int | None = None
    if scale is not None:
        scale = np.asarray(scale)
        k_block = blocks(scale.shape, q.shape, f"{name}_scale", name)[k_axis]
        s = expand(scale.astype(F32), q.shape, f"{name}_scale", name)
    if zero_point is not None and mode != "none":
        if mode in ("offset_float", "rescale"):
            z = np.asarray(zero_point).astype(F32)
        else:
            z = zero_points(zero_point, () if scale is None else scale.shape, d, mode, packing)
        zb = blocks(z.shape, q.shape, f"{name}_zero_point", name)[k_axis]
        k_block = zb if k_block is None else k_block if zb is None else math.gcd(k_block, zb)
        z = expand(z, q.shape, f"{name}_zero_point", name)
    if transposed:
        values = np.swapaxes(values, -1, -2)
        s = None if s is None else np.swapaxes(s, -1, -2)
        z = None if z is None else np.swapaxes(z, -1, -2)
    return ReferenceSide(name, d, values, s, z, mode, k_block, global_scale)


def _columns(x: Array | None, start: int, length: int) -> Array | None:
    """The part of a per-element scale for one group, as one column `[.., R, 1]` because it is constant in the group."""
    if x is None:
        return None
    return x if x.shape[-1] == 1 else x[..., start : start + 1]


def _dot(a: Array, b: Array) -> Array:
    """`a [.., M, K] @ b [.., N, K]^T`; see `sums`."""
    return sums(lambda x, y: np.matmul(x, np.swapaxes(y, -1, -2)), a, b, a.shape[-1])


def sums(multiply: Callable[[Array, Array], Array], a: Array, b: Array, terms: int) -> Array:
    """`multiply(a, b)` in float64; of two integer arrays modulo 2^32, as int64. `terms`: the number of products in one
    of its sums."""
    if a.dtype.kind != "i" or b.dtype.kind != "i":
        return multiply(a.astype(np.float64), b.astype(np.float64))
    worst = terms * int(np.abs(a).max(initial=0)) * int(np.abs(b).max(initial=0))
    exact = np.float64 if worst < 2**53 else np.int64  # float64 uses BLAS; int64 wraps at 2^64
    return wrap32(multiply(a.astype(exact), b.astype(exact)).astype(np.int64))


def contract(
    a: ReferenceSide, b: ReferenceSide, epilogue: ReferenceEpilogue, compute_dtype: str | None = None
) -> Array:
    """Steps 1 and 2: the contraction and its scales; int64 when the result is raw i32, else f32 `[.., M, N]`."""
    k = a.values.shape[-1]
    if a.plain or b.plain:
        side = a if a.plain else b
        to = compute_dtype or side.dtype.name
        return _dot(a.real(to), b.real(to)).astype(F32)
    group = math.gcd(a.k_block or k, b.k_block or k)
    if epilogue.out_dtype == "i32" or (group == k and not b.float_zero):
        acc = _dot(a.numbers, b.numbers)
        if a.integer and b.integer:
            acc = epilogue.acc_bias(acc)
            if epilogue.out_dtype == "i32":
                return acc
        y = acc.astype(F32)
        return y * _scales(a.scale, b.scale) if a.scale is not None or b.scale is not None else y
    shape = np.broadcast_shapes(a.values.shape[:-2], b.values.shape[:-2])
    total = np.zeros((*shape, a.values.shape[-2], b.values.shape[-2]), F32)
    for start in range(0, k, max(group, 1)):
        part = slice(start, start + group)
        sa, sb = _columns(a.scale, start, group), _columns(b.scale, start, group)
        av, bv = a.numbers[..., part], b.numbers[..., part]
        acc = _dot(av, bv)
        if group == k and a.integer and b.integer:
            acc = epilogue.acc_bias(acc)
        term = acc.astype(F32) * _scales(sa, sb)
        if b.float_zero:
            row = _dot(av, np.ones((1, av.shape[-1]), np.int64)).astype(F32)
            fix = row * _scales(sa, _columns(b.zero, start, group))
            term = term + fix if b.mode == "offset_float" else term - fix
        total = total + term
    return total


def _scales(sa: Array | None, sb: Array | None) -> Array | np.float32:
    """`s_a * s_b`, formed first, in f32: `[.., M|1, N|1]`."""
    left = F32(1) if sa is None else sa[..., :1]
    right = F32(1) if sb is None else np.swapaxes(sb[..., :1], -1, -2)
    return left * right


def scaled_matmul(
    lhs: Array,
    rhs: Array,
    *,
    lhs_scale: Array | None = None,
    rhs_scale: Array | None = None,
    lhs_zero_point: Array | None = None,
    rhs_zero_point: Array | None = None,
    lhs_dtype: str | None = None,
    rhs_dtype: str | None = None,
    lhs_transposed: bool = _DEFAULTS["lhs_transposed"],
    rhs_transposed: bool = _DEFAULTS["rhs_transposed"],
    rhs_packing: str = _DEFAULTS["rhs_packing"],
    rhs_zero_mode: str | None = None,
    lhs_zero_mode: str | None = None,
    codebook: Array | None = None,
    lhs_global_scale: Array | None = None,
    rhs_global_scale: Array | None = None,
    compute_dtype: str | None = None,
    group_size: int | None = None,
    **epilogue: Array | np.generic | float | str,
) -> Array:
    """`epilogue(sum_k A[m,k] * B[k,n])`, A `[B.., M, K]`, B `[B.., K, N]` (or `[.., N, K]` transposed).

    `rhs_packing` is the packing of sub-byte codes along the last axis of `rhs`. Epilogue keywords are those of
    `qmlir.reference.epilogue.ReferenceEpilogue`; `group_size` has no effect: the shapes of the scales determine it.
    """
    e = ReferenceEpilogue(**with_bounds(epilogue))
    lhs, rhs = np.asarray(lhs), np.asarray(rhs)
    k = lhs.shape[-2 if lhs_transposed else -1]
    # A bias that is added after a gated activation has only half of the columns.
    bias = None if e.activation in GATED and e.bias_stage == "out" else e.bias
    n_hint = columns_hint(rhs, rhs_dtype, rhs_packing, rhs_scale, bias)
    a = make_side("lhs", lhs, lhs_dtype, lhs_scale, lhs_zero_point, lhs_zero_mode, "none", lhs_transposed, None,
                  global_scale=lhs_global_scale)  # fmt: skip
    b = make_side("rhs", rhs, rhs_dtype, rhs_scale, rhs_zero_point, rhs_zero_mode, rhs_packing, not rhs_transposed,
                  k if rhs_transposed else n_hint, codebook, rhs_global_scale)  # fmt: skip
    y = contract(a, b, e, compute_dtype)
    if e.out_dtype == "i32":
        return e.raw(y)
    if not (a.plain or b.plain):
        for g in (lhs_global_scale, rhs_global_scale):
            if g is not None:
                y = y * np.asarray(g).astype(F32)
    return e.finish(y)


def columns_hint(rhs: Array, dtype: str | None, packing: str, *others: Array | None) -> int | None:
    """True N of a packed `[K, N]` operand: the width of a scale or bias that fits; None for all codes of the bytes."""
    if packing == "none" or dtype is None:
        return None
    per = DTYPES[dtype].per_byte
    for x in others:
        width = np.shape(x)[-1] if x is not None and np.ndim(x) else 1
        if width > 1 and -(-width // per) == rhs.shape[-1]:
            return int(width)
    return None
