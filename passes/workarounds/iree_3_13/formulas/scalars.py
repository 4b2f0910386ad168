"""Short names for the operations on f32 and i32 scalars that the formulas use."""

from __future__ import annotations

import math as numbers

from .....core.mlir import arith, ir, math
from .....ir.build import scalar
from .....ir.scalars import i32
from .....ir.walk import made_by

NAN = float("nan")
INF = float("inf")
LN2 = numbers.log(2)


def int32(value: int) -> ir.Value:
    """An i32 constant, given as a signed integer or as the bits of a word."""
    return scalar(value if value < 1 << 31 else value - (1 << 32), i32())


def constant_of(value: ir.Value) -> float | None:
    """The value of a float constant; None for any other value."""
    op = made_by(value, "arith.constant")
    constant = None if op is None else op.attributes["value"]
    return constant.value if isinstance(constant, ir.FloatAttr) else None


def compare(predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.cmpf(getattr(arith.CmpFPredicate, predicate), a, b)


def bits_of(x: ir.Value) -> ir.Value:
    return arith.bitcast(i32(), x)


def float_of(bits: ir.Value) -> ir.Value:
    return arith.bitcast(ir.F32Type.get(), bits)


def add(a: ir.Value, *rest: ir.Value) -> ir.Value:
    for b in rest:
        a = arith.addf(a, b)
    return a


def sub(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.subf(a, b)


def mul(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.mulf(a, b)


def div(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.divf(a, b)


def select(condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
    return arith.select(condition, yes, no)


def leading_bits(x: ir.Value) -> ir.Value:
    """`x` with the leading 12 of its 24 mantissa bits: products of two such values are exact."""
    return float_of(arith.andi(bits_of(x), int32(0xFFFFF000)))


def with_sign(magnitude: ir.Value, sign: ir.Value) -> ir.Value:
    return math.copysign(magnitude, sign)
