"""The functions of scalar instructions, by name: of one or two operands, and for some of SCC."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...dialect.dtypes import NumpyType
from .arithmetic import leading_signs, leading_zeros, reversed_bits
from .waves import Array

U32, U64, I64 = np.uint32, np.uint64, np.int64
# From two operands and SCC to the result and the new SCC (None: unchanged).
Two: TypeAlias = "Callable[[Array, Array, Array], tuple[Array, Array | None]]"


def as_signed(x: Array) -> Array:
    return np.asarray(x).astype(U32).view(np.int32).astype(I64)


def _add(carry: bool, sign: int) -> Two:
    def function(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        total = np.asarray(a).astype(I64) + sign * (np.asarray(b).astype(I64) + (scc if carry else 0))
        return total.astype(U32), (total < 0) | (total >= 1 << 32)

    return function


def add_signed(sign: int) -> Two:
    def function(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        total = as_signed(a) + sign * as_signed(b)
        return total.astype(U32), (total < -(1 << 31)) | (total >= 1 << 31)

    return function


def _logic(function: Callable[[Array, Array], Array]) -> Two:
    def run(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        found = function(a, b)
        return found, found != 0

    return run


def _plain(function: Callable[[Array, Array], Array]) -> Two:
    return lambda a, b, scc: (function(a, b), None)


def _extreme(function: Callable[[Array, Array], Array], signed: bool) -> Two:
    def run(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        x, y = (as_signed(a), as_signed(b)) if signed else (np.asarray(a), np.asarray(b))
        found = function(x, y)
        return found.astype(U32), found == x

    return run


def _field(signed: bool, bits: int) -> Two:
    def run(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        offset = (np.asarray(b).astype(U64) & U64(bits - 1)).astype(U64)
        width = (np.asarray(b).astype(U64) >> U64(16)) & U64(127)
        mask = np.where(width >= 64, ~U64(0), (U64(1) << np.minimum(width, U64(63))) - U64(1))
        value = np.asarray(a).astype(U32).view(np.int32).astype(I64).view(U64) if signed and bits == 32 else a
        found = (np.asarray(value).astype(U64) >> offset) & mask
        if signed:
            sign = (found >> np.maximum(width, U64(1)) - U64(1)) & U64(1)
            found = np.where((width > 0) & (sign == 1), found | ~mask, found)
        found = found.astype(U32) if bits == 32 else found
        return found, found != 0

    return run


def _shift(function: Callable[[Array, Array], Array], bits: int) -> Two:
    kind: NumpyType = np.dtype(U32 if bits == 32 else U64)
    last = kind.type(bits - 1)
    return _logic(lambda a, b: function(np.asarray(a).astype(kind), np.asarray(b).astype(kind) & last))


def _arithmetic_right(a: Array, s: Array) -> Array:
    kind = np.int32 if a.dtype == U32 else np.int64
    return (a.view(kind) >> s.astype(kind)).view(a.dtype)


def _wide(shift: int, signed: bool) -> Two:
    def run(a: Array, b: Array) -> Array:
        x, y = (as_signed(a), as_signed(b)) if signed else (np.asarray(a).astype(U64), np.asarray(b).astype(U64))
        return ((x * y) >> x.dtype.type(shift)).astype(U32)

    return _plain(run)


TWO: dict[str, Two] = {
    "add_u32": _add(False, 1), "addc_u32": _add(True, 1), "sub_u32": _add(False, -1), "subb_u32": _add(True, -1),
    "add_i32": add_signed(1), "sub_i32": add_signed(-1), "mul_i32": _plain(lambda a, b: a * b),
    "mul_hi_u32": _wide(32, False), "mul_hi_i32": _wide(32, True),
    "min_u32": _extreme(np.minimum, False), "max_u32": _extreme(np.maximum, False),
    "min_i32": _extreme(np.minimum, True), "max_i32": _extreme(np.maximum, True),
    "bfe_u32": _field(False, 32), "bfe_i32": _field(True, 32), "bfe_u64": _field(False, 64),
    "bfe_i64": _field(True, 64),
    "bfm_b32": _plain(lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31))),
    "pack_ll_b32_b16": _plain(lambda a, b: (a & U32(65535)) | (b << U32(16))),
    "pack_lh_b32_b16": _plain(lambda a, b: (a & U32(65535)) | (b & U32(0xFFFF0000))),
    "pack_hh_b32_b16": _plain(lambda a, b: (a >> U32(16)) | (b & U32(0xFFFF0000))),
    "add_nc_u64": _plain(lambda a, b: a + b), "sub_nc_u64": _plain(lambda a, b: a - b),
    "add_u64": _plain(lambda a, b: a + b), "sub_u64": _plain(lambda a, b: a - b), "mul_u64": _plain(lambda a, b: a * b),
    "lshl1_add_u32": lambda a, b, scc: _add(False, 1)(np.asarray(a).astype(U64) << U64(1), b, scc),
    "lshl2_add_u32": lambda a, b, scc: _add(False, 1)(np.asarray(a).astype(U64) << U64(2), b, scc),
    "lshl3_add_u32": lambda a, b, scc: _add(False, 1)(np.asarray(a).astype(U64) << U64(3), b, scc),
    "lshl4_add_u32": lambda a, b, scc: _add(False, 1)(np.asarray(a).astype(U64) << U64(4), b, scc),
    "absdiff_i32": _logic(lambda a, b: np.abs(as_signed(a) - as_signed(b)).astype(U32)),
}  # fmt: skip
LOGIC: dict[str, Callable[[Array, Array], Array]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b, "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}  # fmt: skip
for _name, _function in LOGIC.items():
    for _bits in (32, 64):
        TWO[f"{_name}_b{_bits}"] = _logic(_function)
for _bits in (32, 64):
    TWO[f"lshl_b{_bits}"] = _shift(lambda a, s: a << s, _bits)
    TWO[f"lshr_b{_bits}"] = _shift(lambda a, s: a >> s, _bits)
    TWO[f"ashr_i{_bits}"] = _shift(_arithmetic_right, _bits)


def _first_one(a: Array) -> Array:
    a = np.asarray(a).astype(U64)
    low = a & (~a + U64(1))
    return np.where(a == 0, -1, np.log2(np.maximum(low, U64(1)).astype(np.float64)).astype(I64)).astype(U32)


def _ones(a: Array) -> Array:
    a = np.asarray(a)
    return sum((a >> a.dtype.type(i)) & a.dtype.type(1) for i in range(8 * a.dtype.itemsize)).astype(U32)


# name: (bits of the operand, bits of the result, function, whether SCC becomes `result != 0`)
ONE: dict[str, tuple[int, int, Callable[[Array], Array], bool]] = {
    "mov_b32": (32, 32, lambda a: a, False), "mov_b64": (64, 64, lambda a: a, False),
    "not_b32": (32, 32, lambda a: ~a, True), "not_b64": (64, 64, lambda a: ~a, True),
    "brev_b32": (32, 32, reversed_bits, False), "abs_i32": (32, 32, lambda a: np.abs(as_signed(a)).astype(U32), True),
    "sext_i32_i8": (32, 32, lambda a: np.asarray(a).astype(np.uint8).view(np.int8).astype(U32), False),
    "sext_i32_i16": (32, 32, lambda a: np.asarray(a).astype(np.uint16).view(np.int16).astype(U32), False),
    "ctz_i32_b32": (32, 32, _first_one, False), "ctz_i32_b64": (64, 32, _first_one, False),
    "clz_i32_u32": (32, 32, lambda a: leading_zeros(a).astype(U32), False),
    "clz_i32_u64": (64, 32, lambda a: leading_zeros(a, 64).astype(U32), False),
    "cls_i32": (32, 32, lambda a: leading_signs(a).astype(U32), False),
    "cls_i32_i64": (64, 32, lambda a: leading_signs(a, 64).astype(U32), False),
    "bcnt1_i32_b32": (32, 32, _ones, True), "bcnt1_i32_b64": (64, 32, _ones, True),
}  # fmt: skip
FLOAT: dict[str, Callable[..., Array]] = {  # gfx11.5 and gfx12 have scalar floats
    "add_f32": lambda a, b: a + b, "sub_f32": lambda a, b: a - b, "mul_f32": lambda a, b: a * b,
    "min_f32": np.fmin, "max_f32": np.fmax, "min_num_f32": np.fmin, "max_num_f32": np.fmax,
    "minimum_f32": np.minimum, "maximum_f32": np.maximum,
}  # fmt: skip

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}  # fmt: skip
