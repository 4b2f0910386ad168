"""qmlir.quantize: floats to codes with given scales."""

from __future__ import annotations

from ..dtypes import CODES, DTYPES
from ..enums import ROUNDING
from ..ods import (
    CODE,
    FLOAT,
    INT,
    Attributes,
    AxisSizes,
    Enum,
    I64s,
    Op,
    Operands,
    Sizes,
    Spec,
    attr,
    operand,
    result,
)
from .common import axes_along, check_clamp, check_result, scale_blocks, shape_of


class QuantizeOp(Op, name="quantize"):
    """Quantise floats `[..]` to codes `[..]`: `clamp(round(input * (1/scale)) + zero_point, lo, hi)`."""

    POSITIONAL = ("zero_point",)

    input = operand(FLOAT, doc="floats `[..]`")
    scale = operand(FLOAT, doc="scale, broadcast in blocks against `input`'s shape")
    zero_point = operand(INT, optional=True, doc="zero point, of a shape that the scale may have")
    out_dtype = attr(
        Enum((*CODES[:6], "u1")), default="i8", doc="dtype of the codes"
    )  # an i1 code has no 0 to round to
    rounding = attr(Enum(ROUNDING), default="half_even", doc="how quotients are rounded to codes")
    clamp = attr(I64s(2), doc="bounds (low, high) of the codes, by default their type's")
    result = result(CODE, doc="codes `[..]`, one per byte")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        out = DTYPES[attributes["out_dtype"]]
        if out.kind == "float":
            return [(operands["input"][0], out.name)]
        return [(operands["input"][0], "i8" if out.signed else "u8")]

    def sizes(self) -> Sizes:
        shape = shape_of(self.input)
        axes: AxisSizes = tuple(f"D{i}" for i in range(len(shape)))
        others = {n: axes_along(shape_of(v), axes, shape) for n, v in self.operands_by_name().items() if n != "input"}
        return {"input": axes, "result": axes, **others}

    def verify_semantics(self) -> None:
        shape = shape_of(self.input)
        scale_blocks(self.scale, shape, "scale", "input")
        if self.zero_point is not None:
            scale_blocks(self.zero_point, shape, "zero_point", "input")
        check_clamp(self.clamp, DTYPES[self.out_dtype])
        check_result(self.result, shape)
