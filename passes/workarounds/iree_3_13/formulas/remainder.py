"""The remainder of a division."""

from __future__ import annotations

from .....core.mlir import arith, ir
from .....ir.scalars import const, i32
from .scalars import bits_of, div, float_of, int32, mul, select


def remainder(x: ir.Value, y: ir.Value) -> ir.Value:
    """C's fmod (C11, F.10.7.1) by long division of the mantissas, seven bits per step, in integers and exact. Only the
    estimate of a digit, which may be off by one, is computed in floats: IREE has no integer division for one element
    per thread."""
    size_x, size_y = (arith.andi(bits_of(v), int32(0x7FFFFFFF)) for v in (x, y))
    (exponent_x, rest), (exponent_y, divisor) = _parts(size_x), _parts(size_y)
    f32, zero = ir.F32Type.get(), int32(0)
    reciprocal = div(const(1.0), arith.sitofp(f32, divisor))

    def reduced(rest: ir.Value) -> ir.Value:
        """A rest in [-divisor, 2 divisor) brought into [0, divisor)."""
        rest = select(arith.cmpi(arith.CmpIPredicate.slt, rest, zero), arith.addi(rest, divisor), rest)
        return select(arith.cmpi(arith.CmpIPredicate.sge, rest, divisor), arith.subi(rest, divisor), rest)

    rest, left = reduced(rest), arith.subi(exponent_x, exponent_y)
    for _ in range(-(-(254 + 22) // 7)):
        step = arith.minsi(arith.maxsi(left, zero), int32(7))
        rest, left = arith.shli(rest, step), arith.subi(left, step)
        digit = arith.fptosi(i32(), mul(arith.sitofp(f32, rest), reciprocal))
        rest = reduced(arith.subi(rest, arith.muli(digit, divisor)))
    # the bits of rest * 2^(exponent_y - 150)
    near = bits_of(arith.sitofp(f32, rest))
    scale = arith.subi(exponent_y, int32(150))
    normal = arith.cmpi(arith.CmpIPredicate.sgt, arith.addi(arith.shrui(near, int32(23)), scale), zero)
    normal = arith.andi(normal, arith.cmpi(arith.CmpIPredicate.ne, rest, zero))
    up = arith.subi(exponent_y, int32(1))
    small = arith.shli(rest, arith.minsi(arith.maxsi(up, zero), int32(24)))
    small = arith.shrui(small, arith.maxsi(arith.subi(zero, up), zero))
    found = select(normal, arith.addi(near, arith.shli(scale, int32(23))), small)
    found = select(arith.cmpi(arith.CmpIPredicate.ult, size_x, size_y), size_x, found)
    is_nan = arith.cmpi(arith.CmpIPredicate.uge, size_x, int32(0x7F800000))
    is_nan = arith.ori(is_nan, arith.cmpi(arith.CmpIPredicate.ugt, size_y, int32(0x7F800000)))
    is_nan = arith.ori(is_nan, arith.cmpi(arith.CmpIPredicate.eq, size_y, zero))
    sign = arith.andi(bits_of(x), int32(0x80000000))
    return float_of(select(is_nan, int32(0x7FC00000), arith.ori(found, sign)))


def _parts(bits: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The biased exponent and the mantissa of 24 bits of a float >= 0, given by its bits."""
    below = arith.cmpi(arith.CmpIPredicate.ult, bits, int32(0x00800000))
    bits = select(below, bits_of(arith.sitofp(ir.F32Type.get(), bits)), bits)  # a subnormal, in units of 2^-149
    exponent = arith.subi(arith.shrui(bits, int32(23)), select(below, int32(149), int32(0)))
    return exponent, arith.ori(arith.andi(bits, int32(0x007FFFFF)), int32(0x00800000))
