"""ONNX's Mod of floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.faults import Fault
from ....core.mlir import arith
from ....ir import build
from ...raising import NotQuantised, Tensor, raises
from ...tensors import elementwise
from ..model import refuse
from ..node import Node

if TYPE_CHECKING:
    from ....core.mlir import ir

FAULTS = (
    Fault(
        "On CPUs IREE makes the remainder of f64 numbers a call of `fmod`, which nothing links.",
        canary="remainder_of_f64",
    ),
)


@raises("onnx.Mod")
def mod(op: Node) -> Tensor:
    """For floats C's fmod, exact; torch-mlir's `x - trunc(x / y) y` is off by `y` for large quotients. Refused for f64,
    for which IREE links no fmod."""
    dtype = op.operand(0).dtype
    if dtype == "f64":
        raise refuse("Mod of float64 is not imported; cast to float32", op.where)
    if dtype not in ("f32", "f16", "bf16"):
        raise NotQuantised("as it is")
    op.plain = True

    def body(x: ir.Value, y: ir.Value) -> ir.Value:
        if dtype == "f32":
            return arith.remf(x, y)
        wide = build.element("f32")
        return arith.truncf(x.type, arith.remf(arith.extf(wide, x), arith.extf(wide, y)))

    return elementwise(body, [op.operand(0), op.operand(1)], dtype)
