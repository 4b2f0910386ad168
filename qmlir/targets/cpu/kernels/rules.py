"""Rules that give scalar ops of bodies a better form on vectors than IREE's lowering does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ....core.mlir import arith, ir, llvm
from ....kernels.bodies import BodyCloner, Rule, scalar_constant
from ....kernels.requantised import requantised
from . import emit as e

if TYPE_CHECKING:
    from ....core.mlir import OpLike


def _roundeven(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """IREE 3.13 expands `math.roundeven` to about 35 instructions; LLVM's intrinsic is one."""
    return llvm.RoundEvenOp(operands[0]).result


def _mulf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """A product that LLVM must not contract with a following sum: the epilogues of docs/semantics.md round both."""
    return llvm.ArithmeticFenceOp(arith.mulf(*operands)).result


def _bounded(predicate: str) -> Rule:
    """A rule for the maximum or minimum of a value and a finite constant: a comparison and a blend. A NaN stays NaN; of
    two zeros the result is the constant. LLVM's general form takes more steps, for a constant that may be NaN."""

    def rule(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
        bound = scalar_constant(op.operands[1])
        if bound is None or not math.isfinite(float(bound.value)):
            return None
        value, limit = operands
        return arith.select(arith.cmpf(getattr(arith.CmpFPredicate, predicate), value, limit), limit, value)

    return rule


def _truncf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """A conversion whose rounding is kept: IREE 3.13 removes a conversion to bf16 and back."""
    t = cloner.widen(op.results[0].type)
    return llvm.ArithmeticFenceOp(arith.truncf(t, operands[0])).result


def _fptosi(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
    """Requantisation: the value is clamped first if it may not fit i32, then converted; the conversion itself rounds to
    even. A NaN passes both comparisons and is converted to the smallest i32, whose low byte is 0; with a zero point it
    is replaced by 0 first."""
    form = requantised(op.operands[0]) if str(op.results[0].type) == "i32" else None
    if form is None:
        return None
    value, zero, lo, hi = form
    if _convertible(cloner.bound(value)) and (zero is None or _convertible(cloner.bound(zero))):
        return _clamped_as_integer(cloner, value, zero, lo, hi)
    whole = (lo, hi) in ((-128.0, 127.0), (0.0, 255.0))
    if not whole and (zero is not None or lo > 0 or hi < 0):
        return None  # the 0 that a NaN becomes would have to be clamped too
    x = cloner.value(value, cloner.known)
    bounds = [cloner.splat(ir.FloatAttr.get(ir.F32Type.get(), bound)) for bound in (lo, hi)]
    offset = None
    if zero is not None:
        zeros = cloner.value(zero, cloner.known)
        bounds = [arith.subf(bound, zeros) for bound in bounds]  # integers: exact
        # The 0 that replaces a NaN is clamped too: a zero point may be outside of the range.
        none = arith.cmpf(arith.CmpFPredicate.UNO, x, x)
        x = arith.select(none, cloner.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0)), x)
        offset = arith.fptosi(cloner.widen(op.results[0].type), zeros)
    x = arith.select(arith.cmpf(arith.CmpFPredicate.OLT, x, bounds[0]), bounds[0], x)
    x = arith.select(arith.cmpf(arith.CmpFPredicate.OGT, x, bounds[1]), bounds[1], x)
    codes = _converted(cloner, x)
    return codes if offset is None else arith.addi(codes, offset)


def _convertible(bound: float | None) -> bool:
    """Whether a value with this bound, and the sum of two such values, fits i32."""
    return bound is not None and bound < 2.0**30


def _clamped_as_integer(cloner: BodyCloner, value: ir.Value, zero: ir.Value | None, lo: float, hi: float) -> ir.Value:
    """Requantisation of a value that is known to fit i32: converted, then clamped as an integer. A consumer that
    narrows with saturation does this clamp itself."""
    i32 = e.integer(32)
    codes = _converted(cloner, cloner.value(value, cloner.known))
    if zero is not None:
        codes = arith.addi(codes, arith.fptosi(cloner.widen(i32), cloner.value(zero, cloner.known)))
    codes = arith.maxsi(codes, e.splat(int(lo), cloner.lanes, i32))
    return arith.minsi(codes, e.splat(int(hi), cloner.lanes, i32))


def _converted(cloner: BodyCloner, x: ir.Value) -> ir.Value:
    """f32 to i32, rounded to even. Vectors of four lanes are Arm's, whose conversion turns a NaN into 0."""
    words = cloner.widen(e.integer(32))
    if cloner.lanes == 16:
        none, all_, current = e.splat(0, 16, e.integer(32)), e.constant(-1, 16), e.constant(4, 32)
        return e.intrinsic("llvm.x86.avx512.mask.cvtps2dq.512", [x, none, all_, current], words)
    if cloner.lanes == 4:
        return e.intrinsic("llvm.aarch64.neon.fcvtns.v4i32.v4f32", [x], words)
    return e.intrinsic("llvm.x86.avx.cvt.ps2dq.256", [x], words)


RULES: dict[str, Rule] = {
    "math.roundeven": _roundeven,
    "arith.mulf": _mulf,
    "arith.truncf": _truncf,
    "arith.fptosi": _fptosi,
    "arith.maximumf": _bounded("OLE"),
    "arith.minimumf": _bounded("OGE"),
}
