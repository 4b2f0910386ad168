"""qmlir.dequant: codes to floats."""

from __future__ import annotations

from ..dtypes import CODES
from ..enums import PACKING, ZERO_MODE
from ..ods import ANY, FLOAT, ZERO, Enum, Op, attr, fail, operand, result
from .common import (
    check_codebook,
    check_result,
    check_zero_point,
    code_dtype,
    logical_shape,
    packed_zero_shape,
    scale_blocks,
    shape_blocks,
    shape_of,
)


class DequantOp(Op, name="dequant"):
    """`(input - zero_point) * scale` and its kin, `[..] -> [..]`; see `zero_mode`."""

    input = operand(ANY)
    scale = operand(FLOAT)
    zero_point = operand(ZERO, optional=True)
    codebook = operand(FLOAT, optional=True)
    dtype = attr(Enum((*CODES, "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")))
    zero_mode = attr(Enum(ZERO_MODE), default="none")
    packing = attr(Enum(PACKING), default="none")
    result = result(FLOAT)

    def verify_semantics(self) -> None:
        d = code_dtype(self.input, self.dtype, "input")
        if d.kind == "float" and self.dtype is None and d.bits > 8:
            fail(f"'input' is {self.input.type}, which is not quantised")
        own = shape_of(self.result)
        shape = logical_shape(shape_of(self.input), d, self.packing, own[-1] if own else None, "input")
        check_zero_point(self.zero_point, self.zero_mode, d, "", self.packing)
        scale_blocks(self.scale, shape, "scale", "input")
        if self.zero_point is not None and self.zero_mode != "packed_int":
            scale_blocks(self.zero_point, shape, "zero_point", "input")
        elif self.zero_point is not None:
            zero = packed_zero_shape(self.zero_point, self.scale, d, self.packing, "zero_point")
            shape_blocks(zero, shape, "zero_point", "input")
        check_codebook(self.codebook, d, "input")
        check_result(self.result, shape)
