"""The definition of the operation: its operands, attributes and rules. The builder, the verifier, the Python function
and its signature are derived from this class."""

from __future__ import annotations

from qmlir.dialect.enums import ROUNDING
from qmlir.dialect.ods import CODE, FLOAT, NUMBER, Attributes, Enum, Op, Operands, Sizes, Spec, attr, operand, result
from qmlir.dialect.ops.common import check_broadcast, check_result, shape_of


class RequantizeOp(Op, name="requantize"):
    """Converts the sums of a product to codes: `clamp(round(input * scale), -128, 127)`.

    input: [M, N], i32 or floats; scale: [N]. Result: [M, N] i8.
    """

    input = operand(NUMBER)
    scale = operand(FLOAT)
    rounding = attr(Enum(ROUNDING), default="half_even")
    result = result(CODE)

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        return [(operands["input"][0], "i8")]

    def sizes(self) -> Sizes:
        return {"input": ("M", "N"), "scale": ("N",), "result": ("M", "N")}

    def verify_semantics(self) -> None:
        check_broadcast(shape_of(self.scale), shape_of(self.input), "scale")
        check_result(self.result, shape_of(self.input))
