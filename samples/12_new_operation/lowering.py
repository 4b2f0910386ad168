"""The lowering of the operation to linalg on tensors, the same for every target."""

from __future__ import annotations

from typing import Any

from definition import RequantizeOp

from qmlir.ir.build import Arg, dims, element, elementwise
from qmlir.ir.scalars import requantize, to_f32
from qmlir.passes.core.lower import RULES


def lower(op: RequantizeOp) -> list[Any]:
    """The values that replace the operation's results."""
    i8 = element("i8")

    def body(x: Any, scale: Any) -> Any:
        return requantize(to_f32(x), to_f32(scale), None, op.rounding, -128, 127, i8)

    return [elementwise([Arg(op.input, (0, 1)), Arg(op.scale, (1,))], dims(op.input), i8, body)]


RULES[RequantizeOp.OPERATION_NAME] = lower
