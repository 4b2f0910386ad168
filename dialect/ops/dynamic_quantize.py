"""qmlir.dynamic_quantize: floats to codes with scales from the data."""

from __future__ import annotations

from ..dtypes import CODES, DTYPES, SMALL_FLOATS
from ..enums import GRANULARITY, RECIPE, ROUNDING, SYMMETRIC_RECIPES
from ..ods import (
    ANY,
    BOOL,
    F32,
    FLOAT,
    I64,
    NUMBER,
    Attributes,
    AxisSizes,
    Enum,
    I64s,
    Op,
    Operands,
    Sizes,
    Spec,
    attr,
    fail,
    operand,
    result,
)
from ..shapes import Shape, show
from .common import check_clamp, check_result, element_of, shape_of
from .quantize import QuantizeOp


class DynamicQuantizeOp(Op, name="dynamic_quantize"):
    """Quantise floats `input [.., M, K]` by scales computed from them. Results: `codes [.., M, K]`, `scale` (f32) and,
    when not symmetric, `zero_point` (i32).

    The scale is `[]` per tensor, `[.., M, 1]` per token, `[.., M, K/group_size]` per group. Codes of an 8-bit float are
    `input * (1/scale)` (recipe `aiter`: `input / scale`) rounded half to even, saturated at the largest finite number.
    `clamp` is the range of the codes, by default their type's; `eps` is the smallest scale, for recipe `torchao` only.
    """

    input = operand(FLOAT, doc="floats `[.., M, K]`")
    granularity = attr(Enum(GRANULARITY), default="token", doc="elements that share a scale")
    group_size = attr(I64, doc="elements of a group along K; for granularity 'group'")
    symmetric = attr(BOOL, default=True, doc="whether codes have no zero point")
    rounding = attr(Enum(ROUNDING), default="half_even", doc="how quotients are rounded to codes")
    recipe = attr(Enum(RECIPE), default="torchao", doc="formula of scale and zero point")
    out_dtype = attr(Enum((*CODES[:6], *SMALL_FLOATS)), default="i8", doc="dtype of the codes")
    clamp = attr(I64s(2), doc="bounds (low, high) of the codes, by default their type's")
    eps = attr(F32, default=0.0, doc="the smallest scale, for recipe 'torchao'")
    codes = result(ANY, doc="codes `[.., M, K]`, one per byte")
    scale = result(FLOAT, doc="f32 scales `[]`, `[.., M, 1]` or `[.., M, K/group_size]`")
    zero_point = result(NUMBER, optional=True, doc="i32 zero points of the scales' shape, if not symmetric")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        shape = operands["input"][0]
        granularity = attributes["granularity"]
        if granularity == "tensor":
            scale: Shape = ()
        else:
            k = shape[-1]
            groups = 1 if granularity == "token" else None if k is None else k // (attributes["group_size"] or 1)
            scale = (*shape[:-1], groups)
        codes = QuantizeOp.infer(operands, attributes)
        symmetric = attributes["symmetric"]
        return [*codes, (scale, "f32"), *([] if symmetric else [(scale, "i32")])]

    def scale_shape(self) -> Shape:
        """Shape of `scale` and `zero_point`."""
        shape = shape_of(self.input)
        if self.granularity == "tensor":
            return ()
        if self.granularity == "token":
            return (*shape[:-1], 1)
        k, size = shape[-1], self.group_size
        return (*shape[:-1], None if k is None or size is None else k // size)

    def _verify_float_codes(self) -> None:
        if not self.symmetric:
            fail(f"{self.out_dtype} codes have no zero point; state symmetric = true, or use integer codes")
        if self.clamp is not None:
            fail(f"'clamp' bounds integer codes, but the codes are {self.out_dtype}")
        if self.rounding != "half_even":
            fail(f"{self.out_dtype} codes are rounded half to even, but 'rounding' is '{self.rounding}'")

    def sizes(self) -> Sizes:
        axes: AxisSizes = tuple(f"D{i}" for i in range(len(shape_of(self.input))))
        scale: AxisSizes = () if self.granularity == "tensor" else (*axes[:-1], None)
        found: Sizes = {"input": axes, "codes": axes, "scale": scale}
        return found if self.zero_point is None else {**found, "zero_point": scale}

    def verify_semantics(self) -> None:
        shape = shape_of(self.input)
        if self.granularity != "tensor" and not shape:
            fail("'input' is a scalar; use granularity 'tensor'")
        if (self.granularity == "group") != (self.group_size is not None):
            fail("granularity 'group' and attribute 'group_size' go together")
        if self.group_size is not None:
            k = shape[-1]
            if k is None or self.group_size < 1 or k % self.group_size:
                fail(f"'group_size' {self.group_size} does not divide the last axis of 'input' {show(shape)}")
        if str(self.codes.type.element_type) != DTYPES[self.out_dtype].mlir:
            fail(f"attribute 'out_dtype' says '{self.out_dtype}', but result 'codes' is {self.codes.type}")
        if self.out_dtype in SMALL_FLOATS:
            self._verify_float_codes()
        if self.recipe in ("onnx", "fbgemm") and self.symmetric:
            fail(f"recipe '{self.recipe}' is asymmetric; state symmetric = false, or use 'torchao' or 'amax'")
        if self.recipe in SYMMETRIC_RECIPES and not self.symmetric:
            fail(f"recipe '{self.recipe}' is symmetric; state symmetric = true, or use 'torchao', 'onnx' or 'fbgemm'")
        check_clamp(self.clamp, DTYPES[self.out_dtype], least=2)
        if self.eps and self.recipe != "torchao":
            fail(f"'eps' is the smallest scale of recipe 'torchao', but 'recipe' is '{self.recipe}'")
        if not 0.0 <= self.eps < float("inf"):
            fail(f"'eps' is {self.eps}, but must be finite and not negative")
        if (self.zero_point is None) != self.symmetric:
            fail("an asymmetric quantisation has three results (codes, scale, zero_point), a symmetric one two")
        for name, dtype in (("scale", "f32"), ("zero_point", "i32")):
            value = getattr(self, name)
            if value is not None and element_of(value).name != dtype:
                fail(f"result '{name}' must be a tensor of {dtype}, but is {value.type}")
        check_result(self.codes, shape, "result 'codes'")
        check_result(self.scale, self.scale_shape(), "result 'scale'")
        if self.zero_point is not None:
            check_result(self.zero_point, self.scale_shape(), "result 'zero_point'")
