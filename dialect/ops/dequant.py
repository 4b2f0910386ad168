"""qmlir.dequant: codes to floats."""

from __future__ import annotations

from ..dtypes import CODES
from ..enums import PACKING, ZERO_MODE
from ..ods import (
    ANY,
    FLOAT,
    I64,
    ZERO,
    Attributes,
    AxisSizes,
    CodedOperand,
    Enum,
    Op,
    Operands,
    Sizes,
    Spec,
    attr,
    fail,
    operand,
    parameter,
    result,
)
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
    unpacked,
)


class DequantOp(Op, name="dequant", function="dequantize"):
    """Dequantise codes `[.., L]` (or packed bytes) to floats `[.., L]`: `(input - zero_point) * scale` for `zero_mode`
    `int`; the numerics contract defines the other modes.

    `length` is L if the packed bytes do not determine it; `out_dtype` is the float type, f32 by default.
    Raises UsageError and VerifyError for arguments that do not fit. Source: docs/semantics.md, section 1.
    """

    POSITIONAL = ("zero_point",)

    SIDES = (CodedOperand("input", "dtype", "scale", ("zero_point",), "zero_mode", "packing"),)

    input = operand(ANY, doc="codes `[.., L]`, or packed bytes")
    scale = operand(FLOAT, doc="scale, broadcast in blocks against `[.., L]`")
    zero_point = operand(ZERO, optional=True, doc="zero point, of a shape that the scale may have")
    codebook = operand(FLOAT, optional=True, doc="f32 `[16]`, the values of codes of dtype 'codebook'")
    dtype = attr(Enum((*CODES, "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")), doc="dtype of the codes, if not the array's")
    zero_mode = attr(Enum(ZERO_MODE), default="none", implied=True, doc="how codes are dequantised with the zero point")
    packing = attr(Enum(PACKING), default="none", doc="how codes below a byte are packed along the last axis")
    length = parameter(I64, doc="L, if the number of packed bytes does not determine it")
    out_dtype = parameter(Enum(("f32", "f16", "bf16")), default="f32", doc="dtype of the result")
    result = result(FLOAT, doc="floats `[.., L]`")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        return [(unpacked(operands, attributes, attributes["dtype"]), attributes["out_dtype"])]

    def sizes(self) -> Sizes:
        shape, d = shape_of(self.result), code_dtype(self.input, self.dtype, "input")
        axes: AxisSizes = tuple(f"D{i}" for i in range(len(shape)))
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
