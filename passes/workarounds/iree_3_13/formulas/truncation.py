"""Truncation to a whole number."""

from __future__ import annotations

from .....core.mlir import arith, ir
from .....ir.scalars import i32
from .scalars import bits_of, float_of, int32, select


def truncated(x: ir.Value) -> ir.Value:
    """C's trunc (C11, F.10.6.8), by conversion to i32 and back if |x| is below 2^23; from there on every f32 is whole.
    The result has the sign of x, even if it is zero."""
    bits = bits_of(x)
    size = arith.andi(bits, int32(0x7FFFFFFF))
    whole = bits_of(arith.sitofp(ir.F32Type.get(), arith.fptosi(i32(), float_of(size))))
    short = arith.cmpi(arith.CmpIPredicate.ult, size, int32((127 + 23) << 23))
    return float_of(arith.ori(select(short, whole, size), arith.andi(bits, int32(0x80000000))))
