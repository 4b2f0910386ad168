"""qmlir.unpack: bytes to sub-byte codes."""

from __future__ import annotations

from ..dtypes import CODES, DTYPES
from ..enums import PACKING
from ..ods import CODE, I64, Attributes, Enum, Op, Operands, Sizes, Spec, attr, fail, operand, parameter, result
from .common import check_result, logical_shape, packed_axes, shape_of, unpacked


class UnpackOp(Op, name="unpack"):
    """Unpack bytes `[.., ceil(L * bits / 8)]` to codes `[.., L]`, one per byte.

    `length` is L if the last byte is not full.
    """

    input = operand(CODE, doc="bytes `[.., ceil(L * bits / 8)]`")
    dtype = attr(Enum(CODES[2:]), required=True, doc="dtype of the codes")
    packing = attr(Enum(PACKING[1:]), default="low_first", doc="order of the codes in a byte or word")
    length = parameter(I64, doc="L, if the last byte is not full")
    result = result(CODE, doc="codes `[.., L]`, one per byte")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        d = DTYPES[attributes["dtype"]]
        signed = d.is_int and d.signed and d.bits > 1
        return [(unpacked(operands, attributes, d.name), "i8" if signed else "u8")]

    def sizes(self) -> Sizes:
        axes = tuple(f"D{i}" for i in range(len(shape_of(self.result))))
        return {"input": packed_axes(axes, DTYPES[self.dtype], self.packing), "result": axes}

    def verify_semantics(self) -> None:
        own = shape_of(self.result)
        if not own or not shape_of(self.input):
            fail("'input' and the result must have at least one axis")
        shape = logical_shape(shape_of(self.input), DTYPES[self.dtype], self.packing, own[-1], "input")
        check_result(self.result, shape)
