"""The per-lane function of each vector instruction, one row each: `name: (result type, operand types, function)`.

AMD's instruction set guides define them (chapter "Instructions"); test/emulation compares each with AMD's pseudocode.
"""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TypeAlias

import numpy as np

from ...dialect.dtypes import Array
from . import floats
from .floats import fma16, fma32

LaneFunction: TypeAlias = "Callable[..., Array]"
U32, I32, U64, I64, F32, F64 = np.uint32, np.int32, np.uint64, np.int64, np.float32, np.float64


def _shift(bits: int) -> Callable[[Array], Array]:
    return lambda s: np.asarray(s) & np.asarray(s).dtype.type(bits - 1)


def _fmin(a: Array, b: Array) -> Array:
    """IEEE minNum; -0.0 counts as smaller than 0.0."""
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.fmin(a, b))


def _fmax(a: Array, b: Array) -> Array:
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b))


def _med3(a: Array, b: Array, c: Array) -> Array:
    """The median: the maximum of the operands without the first largest one; -0.0 and 0.0 tie for largest."""
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    most = _fmax(_fmax(a, b), c)
    middle = np.where(most == a, _fmax(b, c), np.where(most == b, _fmax(a, c), _fmax(a, b)))
    return np.where(nan, _fmin(_fmin(a, b), c), middle)


def _med3i(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _to_int(low: int, high: int, rounding: Callable[[Array], Array] = np.trunc) -> LaneFunction:
    def convert(x: Array) -> Array:
        y = np.nan_to_num(rounding(np.asarray(x, F64)), nan=0.0, posinf=high, neginf=low)
        return np.clip(y, low, high).astype(I64)

    return convert


def _perm(a: Array, b: Array, select: Array) -> Array:
    """Select four bytes: 0-3 from b, 4-7 from a; 8-11 repeat the sign of bytes 1, 3, 5, 7; 12 is 0, 13 and up 255."""
    shape = np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(select))
    table = np.empty((*shape, 16), np.uint8)
    table[..., 0:4] = np.ascontiguousarray(np.broadcast_to(b, shape))[..., None].view(np.uint8).reshape(*shape, 4)
    table[..., 4:8] = np.ascontiguousarray(np.broadcast_to(a, shape))[..., None].view(np.uint8).reshape(*shape, 4)
    for i, octet in enumerate((1, 3, 5, 7)):
        table[..., 8 + i] = (table[..., octet] >> 7) * 255
    table[..., 12] = 0
    table[..., 13:] = 255
    chosen = np.ascontiguousarray(np.broadcast_to(select, shape))[..., None].view(np.uint8).reshape(*shape, 4)
    out = np.take_along_axis(table, np.minimum(chosen, 13).astype(np.intp), axis=-1)
    return np.ascontiguousarray(out).view(U32)[..., 0]


def _bitfield(value: Array, offset: Array, width: Array) -> Array:
    offset, width = offset & 31, width & 31
    return (value >> offset) & ((U32(1) << width) - U32(1))


def _signed_bitfield(value: Array, offset: Array, width: Array) -> Array:
    offset, width = np.asarray(offset & 31, I32), np.asarray(width & 31, I32)
    kept = (value >> offset) & ((1 << width.astype(I64)) - 1)
    sign = (kept >> np.maximum(width - 1, 0)) & 1
    return np.where((width > 0) & (sign == 1), kept - (1 << width.astype(I64)), kept).astype(I32)


def reversed_bits(a: Array) -> Array:
    """Reverse the order of the 32 bits of a word."""
    word = np.asarray(a)
    return reduce(np.add, [((word >> U32(i)) & U32(1)) << U32(31 - i) for i in range(32)])


def _saturated_pair(a: Array) -> Array:
    """Clamp both i16 of a word to unsigned bytes and pack these into 16 bits."""
    halves = [(np.asarray(a) >> U32(16 * i)).astype(np.uint16).view(np.int16) for i in range(2)]
    low, high = (np.clip(half, 0, 255).astype(np.uint16) for half in halves)
    return low + (high << np.uint16(8))


def leading_zeros(a: Array, bits: int = 32) -> Array:
    """Number of zeros above the highest set bit of values of `bits` bits; -1 if no bit is set."""
    a = np.asarray(a).astype(U64)
    position = np.zeros(a.shape, I64)
    for step in (32, 16, 8, 4, 2, 1):
        more = (a >> U64(step)) > 0
        position = position + np.where(more, step, 0)
        a = np.where(more, a >> U64(step), a)
    return np.where(a == 0, -1, bits - 1 - position).astype(I32)


def leading_signs(a: Array, bits: int = 32) -> Array:
    """Number of leading bits that equal the sign bit, including it; -1 if all bits do."""
    a = np.asarray(a).astype(U32 if bits == 32 else U64)
    return leading_zeros(np.where(a >> a.dtype.type(bits - 1) > 0, ~a, a), bits)


def _dot4(a: Array, b: Array, c: Array, a_signed: bool = True, b_signed: bool = True) -> Array:
    total = np.asarray(c).astype(I64)
    for i in range(4):
        x, y = ((np.asarray(v) >> U32(8 * i)).astype(np.uint8) for v in (a, b))
        x = x.view(np.int8) if a_signed else x
        y = y.view(np.int8) if b_signed else y
        total = total + x.astype(I64) * y.astype(I64)
    return total.astype(U32)


def _signed24(x: Array) -> Array:
    return (np.asarray(x).astype(I32) << 8) >> 8


def _ldexp(x: Array, e: Array) -> Array:
    return np.ldexp(x, np.clip(np.asarray(e, I32), -400, 400)).astype(np.asarray(x).dtype)


def _ubyte(i: int) -> LaneFunction:
    return lambda x: ((np.asarray(x) >> U32(8 * i)) & U32(255)).astype(F32)


def _through_f64(function: LaneFunction) -> LaneFunction:
    return lambda x: function(np.asarray(x, F64)).astype(np.asarray(x).dtype)


def _quiet16(x: Array) -> Array:
    """The bits of f16 values as float instructions forward them: signalling NaNs become quiet."""
    bits = np.asarray(x).view(np.uint16)
    return np.where(np.isnan(x), bits | np.uint16(1 << 9), bits)


def _pack16(low: Array, high: Array) -> Array:
    return np.asarray(low).view(np.uint16).astype(U32) | (np.asarray(high).view(np.uint16).astype(U32) << U32(16))


def _wide_mul(shift: int, kind: type[np.uint64] | type[np.int64]) -> LaneFunction:
    return lambda a, b: (np.asarray(a).astype(kind) * np.asarray(b).astype(kind)) >> kind(shift)


_bfi = lambda m, a, b: (m & a) | (~m & b)  # noqa: E731
_24 = U32(0xFFFFFF)
s5, s4, s6 = _shift(32), _shift(16), _shift(64)

LANES: dict[str, tuple[str, str, LaneFunction]] = {
    # moves and bits
    "v_mov_b32": ("u32", "u32", lambda a: a),
    "v_mov_b16": ("u16", "u16", lambda a: a),
    "v_mov_b64": ("u64", "u64", lambda a: a),
    "v_not_b32": ("u32", "u32", lambda a: ~a),
    "v_not_b16": ("u16", "u16", lambda a: ~a),
    "v_and_b32": ("u32", "u32 u32", lambda a, b: a & b),
    "v_or_b32": ("u32", "u32 u32", lambda a, b: a | b),
    "v_xor_b32": ("u32", "u32 u32", lambda a, b: a ^ b),
    "v_xnor_b32": ("u32", "u32 u32", lambda a, b: ~(a ^ b)),
    "v_and_b16": ("u16", "u16 u16", lambda a, b: a & b),
    "v_or_b16": ("u16", "u16 u16", lambda a, b: a | b),
    "v_xor_b16": ("u16", "u16 u16", lambda a, b: a ^ b),
    "v_or3_b32": ("u32", "u32 u32 u32", lambda a, b, c: a | b | c),
    "v_xor3_b32": ("u32", "u32 u32 u32", lambda a, b, c: a ^ b ^ c),
    "v_and_or_b32": ("u32", "u32 u32 u32", lambda a, b, c: (a & b) | c),
    "v_bfi_b32": ("u32", "u32 u32 u32", _bfi),
    "v_bfe_u32": ("u32", "u32 u32 u32", _bitfield),
    "v_bfe_i32": ("i32", "i32 u32 u32", _signed_bitfield),
    "v_bfrev_b32": ("u32", "u32", reversed_bits),
    "v_perm_b32": ("u32", "u32 u32 u32", _perm),
    "v_alignbit_b32": ("u32", "u32 u32 u32", lambda a, b, c: (
        ((np.asarray(a).astype(U64) << U64(32)) | b) >> (np.asarray(c).astype(U64) & U64(31))).astype(U32)),
    "v_alignbyte_b32": ("u32", "u32 u32 u32", lambda a, b, c: (
        ((np.asarray(a).astype(U64) << U64(32)) | b) >> ((np.asarray(c).astype(U64) & U64(3)) << U64(3))).astype(U32)),
    "v_cls_i32": ("i32", "i32", leading_signs),
    "v_clz_i32_u32": ("i32", "u32", leading_zeros),
    "v_ctz_i32_b32": ("i32", "u32", lambda a: np.where(a == 0, -1, 31 - leading_zeros(np.asarray(a) & (~a + U32(1))))),
    "v_bcnt_u32_b32": ("u32", "u32 u32", lambda a, b: b + sum((np.asarray(a) >> U32(i)) & U32(1) for i in range(32))),
    # shifts: the first operand is the distance
    "v_lshlrev_b32": ("u32", "u32 u32", lambda s, a: a << s5(s)),
    "v_lshrrev_b32": ("u32", "u32 u32", lambda s, a: a >> s5(s)),
    "v_ashrrev_i32": ("i32", "i32 i32", lambda s, a: a >> s5(s)),
    "v_lshlrev_b16": ("u16", "u16 u16", lambda s, a: a << s4(s)),
    "v_lshrrev_b16": ("u16", "u16 u16", lambda s, a: a >> s4(s)),
    "v_ashrrev_i16": ("i16", "i16 i16", lambda s, a: a >> s4(s)),
    "v_lshlrev_b64": ("u64", "u32 u64", lambda s, a: a << s6(np.asarray(s).astype(U64))),
    "v_lshrrev_b64": ("u64", "u32 u64", lambda s, a: a >> s6(np.asarray(s).astype(U64))),
    "v_ashrrev_i64": ("i64", "u32 i64", lambda s, a: a >> s6(np.asarray(s).astype(I64))),
    "v_lshl_add_u32": ("u32", "u32 u32 u32", lambda a, s, b: (a << s5(s)) + b),
    "v_add_lshl_u32": ("u32", "u32 u32 u32", lambda a, b, s: (a + b) << s5(s)),
    "v_lshl_or_b32": ("u32", "u32 u32 u32", lambda a, s, b: (a << s5(s)) | b),
    "v_lshl_add_u64": ("u64", "u64 u32 u64", lambda a, s, b: (a << (np.asarray(s).astype(U64) & U64(7))) + b),
    # integers
    "v_add_nc_u32": ("u32", "u32 u32", lambda a, b: a + b),
    "v_sub_nc_u32": ("u32", "u32 u32", lambda a, b: a - b),
    "v_subrev_nc_u32": ("u32", "u32 u32", lambda a, b: b - a),
    "v_add_nc_i32": ("u32", "u32 u32", lambda a, b: a + b),
    "v_sub_nc_i32": ("u32", "u32 u32", lambda a, b: a - b),
    "v_add_nc_u16": ("u16", "u16 u16", lambda a, b: a + b),
    "v_sub_nc_u16": ("u16", "u16 u16", lambda a, b: a - b),
    "v_subrev_nc_u16": ("u16", "u16 u16", lambda a, b: b - a),
    "v_add_nc_i16": ("u16", "u16 u16", lambda a, b: a + b),
    "v_sub_nc_i16": ("u16", "u16 u16", lambda a, b: a - b),
    "v_add3_u32": ("u32", "u32 u32 u32", lambda a, b, c: a + b + c),
    "v_xad_u32": ("u32", "u32 u32 u32", lambda a, b, c: (a ^ b) + c),
    "v_mul_lo_u32": ("u32", "u32 u32", lambda a, b: a * b),
    "v_mul_lo_u16": ("u16", "u16 u16", lambda a, b: a * b),
    "v_mad_u16": ("u16", "u16 u16 u16", lambda a, b, c: a * b + c),
    "v_mad_legacy_u16": ("u16", "u16 u16 u16", lambda a, b, c: a * b + c),
    "v_mul_hi_u32": ("u32", "u32 u32", _wide_mul(32, U64)),
    "v_mul_hi_i32": ("i32", "i32 i32", _wide_mul(32, I64)),
    "v_mul_u32_u24": ("u32", "u32 u32", lambda a, b: (a & _24) * (b & _24)),
    "v_mul_i32_i24": ("i32", "u32 u32", lambda a, b: _signed24(a) * _signed24(b)),
    "v_mul_hi_u32_u24": ("u32", "u32 u32", lambda a, b: _wide_mul(32, U64)(a & _24, b & _24)),
    "v_mul_hi_i32_i24": ("i32", "u32 u32", lambda a, b: _wide_mul(32, I64)(_signed24(a), _signed24(b))),
    "v_mad_u32_u24": ("u32", "u32 u32 u32", lambda a, b, c: (a & _24) * (b & _24) + c),
    "v_mad_i32_i24": ("i32", "u32 u32 i32", lambda a, b, c: _signed24(a) * _signed24(b) + c),
    "v_mad_u32_u16": ("u32", "u16 u16 u32", lambda a, b, c: np.asarray(a).astype(U32) * np.asarray(b).astype(U32) + c),
    "v_mad_i32_i16": ("i32", "i16 i16 i32", lambda a, b, c: np.asarray(a).astype(I32) * np.asarray(b).astype(I32) + c),
    "v_sad_u8": ("u32", "u32 u32 u32", lambda a, b, c: c + sum(
        np.abs(((np.asarray(a) >> U32(8 * i)) & U32(255)).astype(I32) - ((np.asarray(b) >> U32(8 * i)) & U32(255)).astype(I32))
        .astype(U32) for i in range(4))),
    "v_dot4_i32_i8": ("u32", "u32 u32 u32", _dot4),
    "v_dot4_u32_u8": ("u32", "u32 u32 u32", lambda a, b, c: _dot4(a, b, c, False, False)),
    "v_cvt_pk_i16_i32": ("u32", "i32 i32", lambda a, b: _pack16(
        *(np.asarray(np.clip(x, -32768, 32767)).astype(np.int16) for x in (a, b)))),
    "v_cvt_pk_u16_u32": ("u32", "u32 u32", lambda a, b: _pack16(
        *(np.asarray(np.minimum(x, U32(65535))).astype(np.uint16) for x in (a, b)))),
    "v_sat_pk_u8_i16": ("u16", "u32", _saturated_pair),
    "v_pack_b32_f16": ("u32", "f16 f16", lambda a, b: _pack16(_quiet16(a), _quiet16(b))),
    # floats
    "v_add_f32": ("f32", "f32 f32", lambda a, b: a + b),
    "v_sub_f32": ("f32", "f32 f32", lambda a, b: a - b),
    "v_subrev_f32": ("f32", "f32 f32", lambda a, b: b - a),
    "v_mul_f32": ("f32", "f32 f32", lambda a, b: a * b),
    "v_mul_legacy_f32": ("f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b)),
    "v_mul_dx9_zero_f32": ("f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b)),
    "v_fma_f32": ("f32", "f32 f32 f32", fma32),
    "v_mad_f32": ("f32", "f32 f32 f32", floats.mad32),
    "v_ldexp_f32": ("f32", "f32 i32", _ldexp),
    "v_div_fixup_f32": ("f32", "f32 f32 f32", floats.div_fixup),
    "v_rcp_f32": ("f32", "f32", lambda a: F32(1) / a),
    "v_rcp_iflag_f32": ("f32", "f32", lambda a: F32(1) / a),
    "v_rsq_f32": ("f32", "f32", _through_f64(lambda x: 1 / np.sqrt(x))),
    "v_sqrt_f32": ("f32", "f32", _through_f64(np.sqrt)),
    "v_exp_f32": ("f32", "f32", _through_f64(np.exp2)),
    "v_log_f32": ("f32", "f32", _through_f64(np.log2)),
    "v_sin_f32": ("f32", "f32", _through_f64(lambda x: np.sin(2 * np.pi * x))),
    "v_cos_f32": ("f32", "f32", _through_f64(lambda x: np.cos(2 * np.pi * x))),
    "v_rndne_f32": ("f32", "f32", np.rint),
    "v_floor_f32": ("f32", "f32", np.floor),
    "v_ceil_f32": ("f32", "f32", np.ceil),
    "v_trunc_f32": ("f32", "f32", np.trunc),
    "v_fract_f32": ("f32", "f32", lambda a: a - np.floor(a)),
    "v_frexp_mant_f32": ("f32", "f32", lambda a: np.frexp(a)[0]),
    "v_frexp_exp_i32_f32": ("i32", "f32", lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0)),
    "v_add_f64": ("f64", "f64 f64", lambda a, b: a + b),
    "v_mul_f64": ("f64", "f64 f64", lambda a, b: a * b),
    "v_fma_f64": ("f64", "f64 f64 f64", floats.fma64),
    "v_rcp_f64": ("f64", "f64", lambda a: F64(1) / a),
    "v_rsq_f64": ("f64", "f64", lambda a: F64(1) / np.sqrt(a)),
    "v_sqrt_f64": ("f64", "f64", np.sqrt),
    "v_div_fixup_f64": ("f64", "f64 f64 f64", lambda a, b, c: floats.div_fixup(a, b, c, "f64")),
    "v_frexp_mant_f64": ("f64", "f64", lambda a: np.frexp(a)[0]),
    "v_frexp_exp_i32_f64": ("i32", "f64", lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0)),
    "v_fract_f64": ("f64", "f64", lambda a: a - np.floor(a)),
    "v_cvt_i32_f64": ("i32", "f64", _to_int(-(2**31), 2**31 - 1)),
    "v_cvt_u32_f64": ("u32", "f64", _to_int(0, 2**32 - 1)),
    "v_cvt_f64_f32": ("f64", "f32", lambda a: np.asarray(a).astype(F64)),
    "v_cvt_f32_f64": ("f32", "f64", lambda a: np.asarray(a).astype(F32)),
    "v_cvt_f64_i32": ("f64", "i32", lambda a: np.asarray(a).astype(F64)),
    "v_cvt_f64_u32": ("f64", "u32", lambda a: np.asarray(a).astype(F64)),
    "v_ldexp_f64": ("f64", "f64 i32", lambda a, e: np.ldexp(a, np.clip(np.asarray(e, I32), -2300, 2300))),
    # conversions
    "v_cvt_f32_i32": ("f32", "i32", lambda a: np.asarray(a).astype(F32)),
    "v_cvt_f32_u32": ("f32", "u32", lambda a: np.asarray(a).astype(F32)),
    "v_cvt_i32_f32": ("i32", "f32", _to_int(-(2**31), 2**31 - 1)),
    "v_cvt_u32_f32": ("u32", "f32", _to_int(0, 2**32 - 1)),
    "v_cvt_nearest_i32_f32": ("i32", "f32", _to_int(-(2**31), 2**31 - 1, lambda x: np.floor(x + 0.5))),
    "v_cvt_floor_i32_f32": ("i32", "f32", _to_int(-(2**31), 2**31 - 1, np.floor)),
    "v_cvt_i32_i16": ("i32", "i16", lambda a: np.asarray(a).astype(I32)),
    "v_cvt_u32_u16": ("u32", "u16", lambda a: np.asarray(a).astype(U32)),
    "v_cvt_f32_ubyte0": ("f32", "u32", _ubyte(0)),
    "v_cvt_f32_ubyte1": ("f32", "u32", _ubyte(1)),
    "v_cvt_f32_ubyte2": ("f32", "u32", _ubyte(2)),
    "v_cvt_f32_ubyte3": ("f32", "u32", _ubyte(3)),
    "v_cvt_f16_f32": ("f16", "f32", lambda a: np.asarray(a).astype(np.float16)),
    "v_cvt_f32_f16": ("f32", "f16", lambda a: np.asarray(a).astype(F32)),
    "v_cvt_f16_u16": ("f16", "u16", lambda a: np.asarray(a).astype(np.float16)),
    "v_cvt_f16_i16": ("f16", "i16", lambda a: np.asarray(a).astype(np.float16)),
    "v_cvt_u16_f16": ("u16", "f16", _to_int(0, 65535)),
    "v_cvt_i16_f16": ("i16", "f16", _to_int(-32768, 32767)),
    "v_cvt_pk_rtz_f16_f32": ("u32", "f32 f32", lambda a, b: _pack16(
        *(floats.to_f16_toward_zero(np.asarray(x)) for x in (a, b)))),
    "v_cvt_pk_f16_f32": ("u32", "f32 f32", lambda a, b: _pack16(*(np.asarray(x).astype(np.float16) for x in (a, b)))),
    "v_cvt_pk_bf16_f32": ("u32", "f32 f32", lambda a, b: _pack16(*(floats.bf16_bits(x) for x in (a, b)))),
}  # fmt: skip

for _name, _function in {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "subrev": lambda a, b: b - a, "mul": lambda a, b: a * b,
}.items():  # fmt: skip
    LANES[f"v_{_name}_f16"] = ("f16", "f16 f16", _function)
for _kind in ("f32", "f16", "f64"):
    LANES[f"v_min_{_kind}"] = (_kind, f"{_kind} {_kind}", _fmin)
    LANES[f"v_max_{_kind}"] = (_kind, f"{_kind} {_kind}", _fmax)
for _kind in ("f32", "f16"):
    _three = f"{_kind} {_kind} {_kind}"
    LANES[f"v_min3_{_kind}"] = (_kind, _three, lambda a, b, c: _fmin(_fmin(a, b), c))
    LANES[f"v_max3_{_kind}"] = (_kind, _three, lambda a, b, c: _fmax(_fmax(a, b), c))
    LANES[f"v_med3_{_kind}"] = (_kind, _three, _med3)
    LANES[f"v_minmax_{_kind}"] = (_kind, _three, lambda a, b, c: _fmax(_fmin(a, b), c))
    LANES[f"v_maxmin_{_kind}"] = (_kind, _three, lambda a, b, c: _fmin(_fmax(a, b), c))
for _kind in ("i32", "u32", "i16", "u16"):
    _three = f"{_kind} {_kind} {_kind}"
    LANES[f"v_min_{_kind}"] = (_kind, f"{_kind} {_kind}", np.minimum)
    LANES[f"v_max_{_kind}"] = (_kind, f"{_kind} {_kind}", np.maximum)
    LANES[f"v_min3_{_kind}"] = (_kind, _three, lambda a, b, c: np.minimum(np.minimum(a, b), c))
    LANES[f"v_max3_{_kind}"] = (_kind, _three, lambda a, b, c: np.maximum(np.maximum(a, b), c))
    LANES[f"v_med3_{_kind}"] = (_kind, _three, _med3i)
    LANES[f"v_minmax_{_kind}"] = (_kind, _three, lambda a, b, c: np.maximum(np.minimum(a, b), c))
    LANES[f"v_maxmin_{_kind}"] = (_kind, _three, lambda a, b, c: np.minimum(np.maximum(a, b), c))
_UNARY_F16: dict[str, LaneFunction] = {
    "rcp": lambda x: 1 / x, "rsq": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt, "exp": np.exp2, "log": np.log2,
    "rndne": np.rint, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
}  # fmt: skip
for _name, _exact in _UNARY_F16.items():
    LANES[f"v_{_name}_f16"] = ("f16", "f16", _through_f64(_exact))
for _name in ("rndne", "floor", "ceil", "trunc"):
    LANES[f"v_{_name}_f64"] = ("f64", "f64", {"rndne": np.rint}.get(_name) or getattr(np, _name))
LANES["v_div_fixup_f16"] = ("f16", "f16 f16 f16", lambda a, b, c: floats.div_fixup(a, b, c, "f16"))
LANES["v_frexp_mant_f16"] = ("f16", "f16", lambda a: np.frexp(a)[0])
LANES["v_frexp_exp_i16_f16"] = ("i16", "f16", lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0))
LANES["v_fma_f16"] = ("f16", "f16 f16 f16", fma16)
LANES["v_mad_f16"] = ("f16", "f16 f16 f16", lambda a, b, c: a * b + c)
LANES["v_ldexp_f16"] = ("f16", "f16 i16", _ldexp)

# With the clamp bit set, these saturate to the range of their type.
SATURATING: dict[str, tuple[int, int, LaneFunction]] = {
    f"v_{name}_nc_{kind}": (low, high, function)
    for name, function in (("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("subrev", lambda a, b: b - a))
    for kind, low, high in (
        ("u32", 0, 2**32 - 1),
        ("i32", -(2**31), 2**31 - 1),
        ("u16", 0, 65535),
        ("i16", -32768, 32767),
    )
}


def saturated(name: str, kind: str) -> LaneFunction:
    """An addition or subtraction that saturates to the range of its type."""
    low, high, function = SATURATING[name]
    wide = {"u32": U32, "i32": I32, "u16": np.uint16, "i16": np.int16}[kind]

    def run(a: Array, b: Array) -> Array:
        x, y = (np.asarray(v).astype(np.dtype(wide).str.replace("i", "u")).view(wide).astype(I64) for v in (a, b))
        return np.clip(function(x, y), low, high)

    return run


COMPARISONS: dict[str, LaneFunction] = {
    "f": lambda a, b: np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)), np.bool_),
    "t": lambda a, b: np.ones(np.broadcast_shapes(np.shape(a), np.shape(b)), np.bool_),
    "tru": lambda a, b: np.ones(np.broadcast_shapes(np.shape(a), np.shape(b)), np.bool_),
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b, "ge": lambda a, b: a >= b, "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b), "nlg": lambda a, b: ~((a < b) | (a > b)), "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b), "neq": lambda a, b: ~(a == b), "nlt": lambda a, b: ~(a < b),
}  # fmt: skip


def classify(x: Array, mask: Array) -> Array:
    """`v_cmp_class`: whether x belongs to one of the float classes whose bits are set in the mask."""
    x = np.asarray(x)
    bits = np.dtype(f"u{x.itemsize}").type
    quiet = x.view(bits) >> bits(np.finfo(x.dtype).nmant - 1) & bits(1)
    tiny = np.finfo(x.dtype).smallest_normal
    negative, magnitude = np.signbit(x), np.abs(x)
    kinds = [
        np.isnan(x) & (quiet == 0), np.isnan(x) & (quiet == 1), np.isinf(x) & negative,
        np.isfinite(x) & (magnitude >= tiny) & negative, (magnitude < tiny) & (x != 0) & negative,
        (x == 0) & negative, (x == 0) & ~negative, (magnitude < tiny) & (x != 0) & ~negative,
        np.isfinite(x) & (magnitude >= tiny) & ~negative, np.isinf(x) & ~negative,
    ]  # fmt: skip
    found = np.zeros(np.broadcast_shapes(x.shape, np.shape(mask)), np.bool_)
    for i, kind in enumerate(kinds):
        found |= kind & ((np.asarray(mask) >> U32(i)) & U32(1)).astype(np.bool_)
    return found
