"""Bit-exact decoding of one-byte floats: f32 represents every code of e4m3 and e5m2, OCP and FNUZ."""

from __future__ import annotations

from ..core.mlir import arith, ir
from ..dialect.dtypes import DTYPES, SMALL_FLOATS
from . import emit as e

FORMATS = {DTYPES[name].mlir: form for name, form in SMALL_FLOATS.items()}
SCALE = "f8E8M0FNU"  # an exponent and nothing else


def decoded(codes: ir.Value, kind: str) -> ir.Value:
    """Decode codes to f32; `codes` is an i32 or a vector of i32, each with a code in its low byte and zeros above."""
    i32 = codes.type
    lanes = i32.shape[0] if isinstance(i32, ir.VectorType) else 0
    f32 = e.vector_of(lanes, ir.F32Type.get()) if lanes else ir.F32Type.get()

    def of(value: float, t: ir.Type) -> ir.Value:
        return e.splat(value, lanes, t.element_type) if lanes else e.constant(value, t)

    def c(value: int) -> ir.Value:
        return of(value, i32)

    def when(predicate: str, a: ir.Value, b: int, yes: ir.Value, no: ir.Value) -> ir.Value:
        return arith.select(arith.cmpi(getattr(arith.CmpIPredicate, predicate), a, c(b)), yes, no)

    nan = c(0x7FC00000)
    if kind == SCALE:
        bits = when("eq", codes, 0, c(1 << 22), arith.shli(codes, c(23)))  # 2^-127 is subnormal
        return arith.bitcast(f32, when("eq", codes, 255, nan, bits))
    form = FORMATS[kind]
    size = arith.andi(codes, c(0x7F))
    normal = arith.addi(arith.shli(size, c(23 - form.mantissa)), c((127 - form.bias) << 23))
    # Converted from an integer, because devices may flush subnormals to zero.
    step = of(2.0 ** (1 - form.bias - form.mantissa), f32)
    subnormal = arith.bitcast(i32, arith.mulf(arith.uitofp(f32, size), step))
    bits = when("ult", size, 1 << form.mantissa, subnormal, normal)
    if form.special == "fn":
        bits = when("eq", size, 0x7F, nan, bits)
    elif form.special == "inf":
        bits = when("ugt", size, 0x7C, nan, when("eq", size, 0x7C, c(0x7F800000), bits))
    bits = arith.ori(bits, arith.shli(arith.andi(codes, c(0x80)), c(24)))
    if form.special == "fnuz":
        bits = when("eq", codes, 0x80, nan, bits)
    return arith.bitcast(f32, bits)
