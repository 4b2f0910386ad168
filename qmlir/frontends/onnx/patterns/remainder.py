"""ONNX's Mod of floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.faults import Fault
from ....core.mlir import arith, math
from ....ir import build
from ...raising import NotQuantised, Tensor, raises
from ...tensors import elementwise
from ..model import refuse
from ..node import Node

if TYPE_CHECKING:
    from ....core.mlir import ir

FAULTS = (
    Fault(
        "On CPUs, IREE compiles the remainder of f64 numbers to a call of `fmod`, which is never linked.",
        canary="remainder_of_f64",
    ),
)


@raises("onnx.Mod")
def mod(op: Node) -> Tensor:
    """C's fmod for floats, which is exact; with `fmod=0` its result has the divisor's sign, as in numpy's `mod`.
    torch-mlir's `x - trunc(x / y) y` is off by `y` for large quotients. f64 is refused: IREE links no fmod for it."""
    dtype = op.operand(0).dtype
    if dtype == "f64":
        raise refuse("Mod of float64 is not imported; cast to float32", op.where)
    if dtype not in ("f32", "f16", "bf16"):
        raise NotQuantised
    op.plain = True
    made = arith.remf if op.attributes.get("fmod", 0) else _floored

    def body(x: ir.Value, y: ir.Value) -> ir.Value:
        if dtype == "f32":
            return made(x, y)
        wide = build.element("f32")
        return arith.truncf(x.type, made(arith.extf(wide, x), arith.extf(wide, y)))

    return elementwise(body, [op.operand(0), op.operand(1)], dtype)


def _floored(x: ir.Value, y: ir.Value) -> ir.Value:
    """`x - floor(x / y) y` of two f32: C's remainder, plus the divisor if their signs differ and the remainder is not
    0. A subnormal remainder counts as 0, because devices treat such numbers as 0."""
    zero, bits = build.scalar(0.0, x.type), build.element("i32")
    rest = arith.remf(x, y)
    signs = arith.xori(arith.bitcast(bits, rest), arith.bitcast(bits, y))
    differ = arith.cmpi(arith.CmpIPredicate.slt, signs, build.scalar(0, bits))
    is_whole = arith.cmpf(arith.CmpFPredicate.OEQ, rest, zero)
    moved = arith.select(is_whole, math.copysign(zero, y), arith.addf(rest, y))
    return arith.select(differ, moved, rest)
