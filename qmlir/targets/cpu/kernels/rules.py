"""Scalar ops that vectors have a better form for than the one that IREE's lowering gives them."""

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
    """A product that LLVM may not contract with a following sum: the epilogues of docs/semantics.md round both."""
    return llvm.ArithmeticFenceOp(arith.mulf(*operands)).result


def _bounded(predicate: str) -> Rule:
    """The larger or smaller of a value and a constant, a comparison and a blend: a NaN stays, and of zeros the
    constant's sign; LLVM's general form has steps for a constant that is NaN too."""

    def rule(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
        bound = scalar_constant(op.operands[1])
        if bound is None or not math.isfinite(float(bound.value)):
            return None
        value, limit = operands
        return arith.select(arith.cmpf(getattr(arith.CmpFPredicate, predicate), value, limit), limit, value)

    return rule


def _truncf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """A rounding that counts: IREE 3.13 takes a conversion to bf16 and back for none."""
    t = cloner.widen(op.results[0].type)
    return llvm.ArithmeticFenceOp(arith.truncf(t, operands[0])).result


def _fptosi(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
    """Requantisation. Clamped first, where the number may not fit i32, then converted with the conversion's own
    rounding, which is to even. A NaN passes both comparisons and converts to the least i32, whose low byte is 0; with a
    zero point it is replaced by 0 first."""
    form = requantised(op.operands[0]) if str(op.results[0].type) == "i32" else None
    if form is None:
        return None
    value, zero, lo, hi = form
    if _convertible(cloner.bound(value)) and (zero is None or _convertible(cloner.bound(zero))):
        return _clamped_behind(cloner, value, zero, lo, hi)
    whole = (lo, hi) in ((-128.0, 127.0), (0.0, 255.0))
    if not whole and (zero is not None or lo > 0 or hi < 0):
        return None  # the 0 of a NaN would have to be clamped too
    x = cloner.value(value, cloner.known)
    bounds = [cloner.splat(ir.FloatAttr.get(ir.F32Type.get(), bound)) for bound in (lo, hi)]
    offset = None
    if zero is not None:
        zeros = cloner.value(zero, cloner.known)
        bounds = [arith.subf(bound, zeros) for bound in bounds]  # integers: exact
        # What a NaN stands for is clamped too: a zero point may be outside of the range.
        none = arith.cmpf(arith.CmpFPredicate.UNO, x, x)
        x = arith.select(none, cloner.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0)), x)
        offset = arith.fptosi(cloner.widen(op.results[0].type), zeros)
    x = arith.select(arith.cmpf(arith.CmpFPredicate.OLT, x, bounds[0]), bounds[0], x)
    x = arith.select(arith.cmpf(arith.CmpFPredicate.OGT, x, bounds[1]), bounds[1], x)
    codes = _converted(cloner, x)
    return codes if offset is None else arith.addi(codes, offset)


def _convertible(bound: float | None) -> bool:
    """Whether a number, and its sum with another such one, fits i32."""
    return bound is not None and bound < 2.0**30


def _clamped_behind(cloner: BodyCloner, value: ir.Value, zero: ir.Value | None, lo: float, hi: float) -> ir.Value:
    """Requantisation of a number that is known to fit i32: clamped as an integer, which a saturating narrowing of the
    ops behind it does on the way."""
    i32 = e.integer(32)
    codes = _converted(cloner, cloner.value(value, cloner.known))
    if zero is not None:
        codes = arith.addi(codes, arith.fptosi(cloner.widen(i32), cloner.value(zero, cloner.known)))
    codes = arith.maxsi(codes, e.splat(int(lo), cloner.lanes, i32))
    return arith.minsi(codes, e.splat(int(hi), cloner.lanes, i32))


def _converted(cloner: BodyCloner, x: ir.Value) -> ir.Value:
    """f32 to i32, rounded to even. Vectors of four are Arm's, whose conversion makes 0 of a NaN."""
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
