"""qmlir.dequant: codes to floats."""

from __future__ import annotations

from ..dtypes import CODES
from ..enums import PACKING, ZERO_MODE
from ..ods import ANY, FLOAT, ZERO, Axes, Enum, Op, Sizes, attr, fail, operand, result
from .common import (
    axes_along,
    check_codebook,
    check_result,
    check_zero_point,
    code_dtype,
    logical_shape,
    packed_axes,
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

    def sizes(self) -> Sizes:
        shape, d = shape_of(self.result), code_dtype(self.input, self.dtype, "input")
        axes: Axes = tuple(f"D{i}" for i in range(len(shape)))
        found: Sizes = {"input": packed_axes(axes, d, self.packing), "result": axes}
        found["scale"] = axes_along(shape_of(self.scale), axes, shape)
        if self.zero_point is not None and self.zero_mode != "packed_int":
            found["zero_point"] = axes_along(shape_of(self.zero_point), axes, shape)
        elif self.zero_point is not None:
            codes = axes_along((*shape_of(self.zero_point)[:-1], shape_of(self.scale)[-1]), axes, shape)
            found["zero_point"] = packed_axes(codes, d, self.packing)
        return found

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
