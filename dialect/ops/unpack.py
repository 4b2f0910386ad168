"""qmlir.unpack: bytes to sub-byte codes."""

from __future__ import annotations

from ..dtypes import CODES, DTYPES
from ..enums import PACKING
from ..ods import CODE, Enum, Op, Sizes, attr, fail, operand, result
from .common import check_result, logical_shape, packed_axes, shape_of


class UnpackOp(Op, name="unpack"):
    """Bytes `[.., ceil(L * bits / 8)]` to codes `[.., L]`, one a byte; L is carried by the result's type."""

    input = operand(CODE)
    dtype = attr(Enum(CODES[2:]), required=True)
    packing = attr(Enum(PACKING[1:]), default="low_first")
    result = result(CODE)

    def sizes(self) -> Sizes:
        axes = tuple(f"D{i}" for i in range(len(shape_of(self.result))))
        return {"input": packed_axes(axes, DTYPES[self.dtype], self.packing), "result": axes}

    def verify_semantics(self) -> None:
        own = shape_of(self.result)
        if not own or not shape_of(self.input):
            fail("'input' and the result must have at least one axis")
        shape = logical_shape(shape_of(self.input), DTYPES[self.dtype], self.packing, own[-1], "input")
        check_result(self.result, shape)
