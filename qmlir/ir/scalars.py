"""Scalar arithmetic inside linalg bodies: conversions, rounding, activations.

Every function takes and returns scalar `ir.Value`s; f32 unless said otherwise.
"""

from __future__ import annotations

import math as _math
from collections.abc import Callable, Sequence
from contextvars import ContextVar

from ..core.faults import Fault
from ..core.mlir import arith, ir, math
from ..dialect.dtypes import SMALL_FLOATS, DType
from .build import scalar

FAULTS = (
    Fault(
        "IREE's conversion of floats to one byte converts values that round up to the smallest normal number to zero.",
        canary="float8_rounding",
    ),
)


def f32() -> ir.Type:
    return ir.F32Type.get()


def i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def _cmp_f(predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.cmpf(getattr(arith.CmpFPredicate, predicate), a, b)


def const(value: float) -> ir.Value:
    """An f32 constant."""
    return scalar(value, f32())


def polynomial(x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """A polynomial of `x` in f32, by Horner's rule; the coefficient of the highest power is the first."""
    value = const(coefficients[0])
    for c in coefficients[1:]:
        value = arith.addf(arith.mulf(value, x), const(c))
    return value


def to_f32(x: ir.Value, *, unsigned: bool = False) -> ir.Value:
    """Convert any number to f32."""
    t = x.type
    if isinstance(t, ir.FloatType):
        if t == f32():
            return x
        return arith.truncf(f32(), x) if t.width > 32 else arith.extf(f32(), x)
    return arith.uitofp(f32(), x) if unsigned else arith.sitofp(f32(), x)


def to_i32(x: ir.Value, *, unsigned: bool = False) -> ir.Value:
    """Convert an integer of up to 64 bits to i32."""
    if x.type == i32():
        return x
    if x.type.width > 32:
        return arith.trunci(i32(), x)
    return arith.extui(i32(), x) if unsigned else arith.extsi(i32(), x)


def cast_f(x: ir.Value, t: ir.Type) -> ir.Value:
    """Convert f32 to another float type, with one rounding."""
    if x.type == t:
        return x
    return arith.truncf(t, x) if t.width < x.type.width else arith.extf(t, x)


# The value 0 : i32 of the function that is being lowered, behind a barrier: no compiler knows that it is 0.
OPAQUE_ZERO: ContextVar[Callable[[], ir.Value]] = ContextVar("OPAQUE_ZERO")


def no_contract(x: ir.Value) -> ir.Value:
    """The same f32 value, which no compiler recognises as a product.

    LLVM contracts `mulf` + `addf` into a fused multiply-add on every target, which moves the last bit, and no flag of
    IREE turns that off. An exclusive or with a zero that is known only at run time keeps the rounding of the product.
    """
    if getattr(x.owner, "name", "") != "arith.mulf":
        return x
    bits = arith.xori(arith.bitcast(i32(), x), OPAQUE_ZERO.get()())
    return arith.bitcast(x.type, bits)


def shaped_like(x: ir.Value, t: ir.Type) -> ir.Type:
    """The type `t`, or vectors of it where `x` is a vector."""
    return ir.VectorType.get(x.type.shape, t) if isinstance(x.type, ir.VectorType) else t


def bf16_bits(x: ir.Value) -> ir.Value:
    """The i16 bits of f32 `x`, a scalar or a vector, rounded to bf16: to nearest, ties to even, and NaN stays one."""
    words = shaped_like(x, i32())

    def c(value: int) -> ir.Value:
        number = ir.IntegerAttr.get(i32(), value)
        return arith.constant(words, number if words == i32() else ir.DenseElementsAttr.get_splat(words, number))

    bits = arith.bitcast(words, x)
    odd = arith.andi(arith.shrui(bits, c(16)), c(1))
    rounded = arith.shrui(arith.addi(arith.addi(bits, c(0x7FFF)), odd), c(16))
    quiet = arith.ori(arith.shrui(bits, c(16)), c(0x0040))
    halves = shaped_like(x, ir.IntegerType.get_signless(16))
    return arith.trunci(halves, arith.select(_cmp_f("UNO", x, x), quiet, rounded))


def rounded(x: ir.Value, t: ir.Type) -> ir.Value:
    """f32 `x`, rounded to the precision of float type `t`, still as f32.

    IREE removes a cast to `t` and back, at least on the CPU, and with it the rounding.
    """
    if t == f32():
        return x
    if isinstance(t, ir.BF16Type):
        wide = arith.extui(i32(), bf16_bits(x))
        return arith.bitcast(f32(), arith.shli(wide, scalar(16, i32())))
    i16 = ir.IntegerType.get_signless(16)
    bits = arith.xori(arith.bitcast(i16, arith.truncf(t, x)), arith.trunci(i16, OPAQUE_ZERO.get()()))
    return arith.extf(f32(), arith.bitcast(t, bits))


def to_small_float(x: ir.Value, d: DType) -> ir.Value:
    """f32 `x` as an 8-bit float: half to even, saturated, NaN as 0.

    The rounding is done in f32, where it is exact (`FAULTS`).
    """
    small = SMALL_FLOATS[d.name]
    x = clamp(arith.select(_cmp_f("UNO", x, x), const(0.0), x), -d.largest, d.largest)
    power = arith.bitcast(f32(), arith.andi(arith.bitcast(i32(), x), scalar(0x7F800000, i32())))
    step = arith.mulf(maximum(power, const(2.0**small.min_exponent)), const(2.0**-small.mantissa))
    exact = arith.mulf(math.roundeven(arith.divf(x, step)), step)
    if "fnuz" in d.name:
        exact = arith.addf(exact, const(0.0))  # the code of -0 is NaN
    return arith.truncf(ir.Type.parse(d.mlir), exact)


def cubic_weight(away: ir.Value, a: float) -> ir.Value:
    """The kernel of cubic convolution at a distance in [0, 2] (Keys 1981, equation 4)."""
    near = _cmp_f("OLE", away, const(1.0))
    inner, outer = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    return arith.select(near, polynomial(away, inner), polynomial(away, outer))


def add(a: ir.Value, b: ir.Value) -> ir.Value:
    """`a + b`; an operand that is a product is rounded before the addition."""
    return arith.addf(no_contract(a), no_contract(b))


def sub(a: ir.Value, b: ir.Value) -> ir.Value:
    """`a - b`, likewise."""
    return arith.subf(no_contract(a), no_contract(b))


def maximum(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.maximumf(a, b)


def minimum(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.minimumf(a, b)


def clamp(x: ir.Value, lo: float, hi: float) -> ir.Value:
    return minimum(maximum(x, const(lo)), const(hi))


def round_to(x: ir.Value, mode: str) -> ir.Value:
    """Round to integers, still f32 (docs/semantics.md, section 2)."""
    if mode == "half_even":
        return math.roundeven(x)
    whole = math.trunc(x)
    if mode == "trunc":
        return whole
    # Round half away from zero, in exact steps: targets disagree about their own `round`.
    rest = math.absf(arith.subf(x, whole))
    up = math.copysign(const(1.0), x)
    return arith.select(_cmp_f("OGE", rest, const(0.5)), arith.addf(whole, up), whole)


def requantize(
    y: ir.Value, factor: ir.Value | None, zero: ir.Value | None, rounding: str, lo: int, hi: int, t: ir.Type
) -> ir.Value:
    """`clamp(round(y * factor) + zero, lo, hi)` as an integer of type `t`; NaN gives `zero` clamped."""
    x = y if factor is None else arith.mulf(y, factor)
    rounded = round_to(x, rounding)
    rounded = arith.select(_cmp_f("UNO", x, x), const(0.0), rounded)
    if zero is not None:
        rounded = arith.addf(rounded, zero)
    bounded = clamp(rounded, lo, hi)
    # Through i32: every target converts f32 to i32, and i32 holds u8 codes too.
    return arith.trunci(t, arith.fptosi(i32(), bounded))


def sigmoid(x: ir.Value) -> ir.Value:
    """`1 / (1 + exp(-x))`."""
    return arith.divf(const(1.0), arith.addf(const(1.0), math.exp(arith.negf(x))))


def gelu(x: ir.Value) -> ir.Value:
    """`x/2 * (1 + erf(x / sqrt 2))`."""
    inner = math.erf(arith.mulf(x, const(1 / _math.sqrt(2))))
    return arith.mulf(arith.mulf(const(0.5), x), arith.addf(const(1.0), inner))


def gelu_tanh(x: ir.Value) -> ir.Value:
    """The tanh form (Hendrycks and Gimpel 2016)."""
    cube = arith.mulf(arith.mulf(x, x), x)
    inner = arith.mulf(const(_math.sqrt(2 / _math.pi)), arith.addf(x, arith.mulf(const(0.044715), cube)))
    return arith.mulf(arith.mulf(const(0.5), x), arith.addf(const(1.0), math.tanh(inner)))


def gelu_by_sigmoid(x: ir.Value) -> ir.Value:
    """The tanh form as `x * sigmoid(2 u)`, because `1 + tanh(u)` cancels for large negative u."""
    inner = arith.addf(x, arith.mulf(arith.mulf(arith.mulf(x, x), x), const(0.044715)))
    return arith.mulf(x, sigmoid(arith.mulf(inner, const(2 * 0.7978845608028654))))


def activate(x: ir.Value, name: str, bounds: tuple[float, ...] | None) -> ir.Value:
    """An activation that keeps the shape."""
    if name == "none":
        return x
    if name == "relu":
        return maximum(x, const(0.0))
    if name == "relu6":
        return clamp(x, 0.0, 6.0)
    if name == "clamp":
        assert bounds is not None
        return clamp(x, *bounds)
    if name == "silu":
        return arith.mulf(x, sigmoid(x))
    if name == "tanh":
        return math.tanh(x)
    return {"gelu": gelu, "gelu_tanh": gelu_tanh}[name](x)
