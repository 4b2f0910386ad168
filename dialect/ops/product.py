"""The base class of all products: quantised operands and the epilogue (docs/semantics.md, sections 1 and 4)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..dtypes import CODES, DTYPES, OUT, DType
from ..enums import ACTIVATION, BIAS_STAGE, GATE_LAYOUT, GATED, PACKING, ROUNDING, ZERO_MODE
from ..ods import (
    F32,
    FLOAT,
    I64,
    INT as INT_TENSOR,
    NUMBER,
    ZERO,
    Attributes,
    AxisSizes,
    Enum,
    F64s,
    I64s,
    Op,
    Operands,
    Sizes,
    attr,
    fail,
    operand,
)
from ..shapes import Shape, show
from ..sizes import Size
from .common import (
    Intermediate,
    axes_along,
    check_broadcast,
    check_clamp,
    check_codebook,
    check_exact,
    check_zero_point,
    code_dtype,
    element_of,
    magnitude,
    packed_axes,
    packed_zero_shape,
    scale_blocks,
    shape_blocks,
    shape_of,
)

if TYPE_CHECKING:
    from ...core.mlir import ir

_PLAIN = ("f32", "f16", "bf16", "f64")
# Groups along K of fewer elements must be stated (docs/semantics.md, section 6). The second bound is for a scale with
# as many groups as channels or tokens, which is most likely a transposed per-channel or per-token scale.
LEAST_GROUP, COMMON_GROUP = 8, 32


# Dtypes of activations and of weights; sub-byte codes of activations are not included.
_FLOATS = ("f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")
ROW_TYPES, WEIGHT_TYPES = ("i8", "u8", *_FLOATS), (*CODES, *_FLOATS)


def activation_fields() -> tuple[str, tuple[float, ...] | None, str]:
    """Declare the attributes of an activation (of a product, or of `moe` between its two products): its name, the
    bounds of `clamp`, and the layout of the gates."""
    return (
        attr(Enum(ACTIVATION), default="none", doc="the activation; a gated one halves N"),
        attr(F64s(2), doc="bounds (low, high) of activation 'clamp'"),
        attr(Enum(GATE_LAYOUT), default="halves", doc="gates: the first half, or even columns"),
    )


class ProductOp(Op):
    """Base class of the products. Subclasses declare `lhs`, `rhs` (or `input`, `weight`) and `result`."""

    result: ir.Value
    lhs_scale = operand(FLOAT, optional=True, doc="scale of `{lhs}`, broadcast in blocks against its shape")
    rhs_scale = operand(FLOAT, optional=True, doc="scale of `{rhs}`, broadcast in blocks against its shape")
    lhs_zero_point = operand(ZERO, optional=True, doc="zero point of `{lhs}`, of a shape that its scale may have")
    rhs_zero_point = operand(ZERO, optional=True, doc="zero point of `{rhs}`, of a shape that its scale may have")
    bias = operand(
        NUMBER, optional=True, doc="one value per output channel `[N]`, or a shape that broadcasts to the result"
    )
    c = operand(FLOAT, optional=True, doc="added after the scales, times `beta`; broadcast")
    act_scale = operand(FLOAT, optional=True, doc="factor after the activation; broadcast")
    out_scale = operand(FLOAT, optional=True, doc="scale of the result's codes, broadcast in blocks")
    out_multiplier = operand(FLOAT, optional=True, doc="factor to the result's codes, in place of `1 / out_scale`")
    out_zero_point = operand(INT_TENSOR, optional=True, doc="zero point of the result's codes")
    codebook = operand(FLOAT, optional=True, doc="f32 `[16]`, the values of codes of dtype 'codebook'")
    lhs_global_scale = operand(FLOAT, optional=True, doc="second scale, of the whole `{lhs}` (NVFP4), `[]`")
    rhs_global_scale = operand(FLOAT, optional=True, doc="second scale, of the whole `{rhs}` (NVFP4), `[]`")

    lhs_dtype = attr(Enum((*ROW_TYPES, *CODES[2:])), doc="dtype of `{lhs}`, if it is not its array's")
    rhs_dtype = attr(Enum(WEIGHT_TYPES), doc="dtype of `{rhs}`, if it is not its array's")
    rhs_packing = attr(Enum(PACKING), default="none", doc="packing of `{rhs}` along its last axis")
    rhs_zero_mode = attr(Enum(ZERO_MODE), default="none", implied=True, doc="meaning of the zero point")
    lhs_zero_mode = attr(
        Enum(("none", "int", "offset_int")), default="none", implied=True, doc="meaning of the zero point"
    )
    compute_dtype = attr(Enum(("f32", "f16", "bf16")), doc="compute type of a product of floats by dequantised codes")
    bias_stage = attr(Enum(BIAS_STAGE), default="scaled", implied=True, doc="where `bias` is added")
    alpha = attr(F32, default=1.0, doc="factor of the scaled product, in `alpha * y + beta * c`")
    beta = attr(F32, default=0.0, doc="factor of `c`")
    activation, act_clamp, gate_layout = activation_fields()
    out_dtype = attr(Enum(OUT), function_default="f32", doc="dtype of the result; 'i32' is the raw accumulator")
    rounding = attr(Enum(ROUNDING), default="half_even", doc="how the result is rounded to codes")
    clamp = attr(I64s(2), doc="bounds (low, high) of the result's codes, by default their type's")
    # The shapes already determine it; it is required where they are most likely a mistake.
    group_size = attr(I64, doc="least elements along K per scale, if below 8")

    # ---- for the lowering and the verifier

    @property
    def sides(self) -> tuple[Intermediate | ir.Value, ir.Value]:
        """The two contracted operands."""
        raise NotImplementedError

    def rhs_codes_shape(self) -> Shape:
        """Shape of the weight in codes, packed or not."""
        raise NotImplementedError

    @property
    def lhs_code(self) -> DType:
        return code_dtype(self.sides[0], self.lhs_dtype, "lhs")

    @property
    def rhs_code(self) -> DType:
        return code_dtype(self.sides[1], self.rhs_dtype, "rhs")

    @property
    def out_code(self) -> DType:
        """The dtype of the result: stated, or its element type's."""
        return DTYPES[self.out_dtype] if self.out_dtype else element_of(self.results[0])

    @property
    def lhs_plain(self) -> bool:
        """Whether `lhs` is a float operand without a scale."""
        return self.lhs_code.name in _PLAIN and self.lhs_scale is None

    @property
    def rhs_plain(self) -> bool:
        return self.rhs_code.name in _PLAIN and self.rhs_scale is None

    @property
    def gated(self) -> bool:
        return self.activation in GATED

    def epilogue_shape(self, value: ir.Value) -> Shape:
        """Shape of an epilogue operand, in the axis order of the rules."""
        return shape_of(value)

    # ---- sizes

    def side_sizes(self, names: tuple[str, str], lhs: AxisSizes, rhs: AxisSizes, shapes: tuple[Shape, Shape]) -> Sizes:
        """The sizes of both sides (named `names`), their scales and zero points; `shapes` are in codes."""
        found: Sizes = {names[0]: lhs, names[1]: packed_axes(rhs, self.rhs_code, self.rhs_packing)}
        for side, axes, shape in (("lhs", lhs, shapes[0]), ("rhs", rhs, shapes[1])):
            packed = side == "rhs" and self.rhs_zero_mode == "packed_int"
            scale, zero = getattr(self, f"{side}_scale"), getattr(self, f"{side}_zero_point")
            if scale is not None:
                found[f"{side}_scale"] = axes_along(shape_of(scale), axes, shape)
            if zero is not None and not packed:
                found[f"{side}_zero_point"] = axes_along(shape_of(zero), axes, shape)
            elif zero is not None and scale is not None:
                codes = axes_along((*shape_of(zero)[:-1], shape_of(scale)[-1]), axes, shape)
                found[f"{side}_zero_point"] = packed_axes(codes, self.rhs_code, self.rhs_packing)
        return found

    def epilogue_sizes(self, axes: AxisSizes, bias: AxisSizes | None = None) -> Sizes:
        """The sizes of the epilogue's operands and of the result. `axes` are the sizes of the product, `N` last;
        `bias` replaces them for the bias."""
        result: AxisSizes = (*axes[:-1], Size("N", div=2)) if self.gated else axes
        found: Sizes = {"result": self.result_axes(result)}
        for name in ("bias", "c", "act_scale", "out_scale", "out_multiplier", "out_zero_point"):
            value = getattr(self, name)
            if value is None:
                continue
            to = axes if name == "c" or (name == "bias" and self.bias_stage != "out") else result
            own, shape = shape_of(value), shape_of(self.result)
            if name == "bias" and bias is not None:
                to = bias
            elif len(own) > 1:
                to = self.result_axes(to)
            # Scales of a result may be given in blocks; axes of other operands have the result's size or one element.
            blocked = name not in ("bias", "c") and 1 < len(own) <= len(shape)
            found[name] = axes_along(own, to, shape if blocked else own) if len(own) <= len(to) else (None,) * len(own)
        return found

    def result_axes(self, axes: AxisSizes) -> AxisSizes:
        """Permute axes from the order of the rules to the order of the result's axes."""
        return axes

    # ---- rules

    def verify_sides(
        self,
        lhs_shape: Shape,
        rhs_shape: Shape,
        lhs_k: int,
        rhs_k: int,
        k: int | None,
        of: tuple[str, str],
        terms: int | None = None,
    ) -> None:
        """Check codes, scales and zero points. `lhs_k`, `rhs_k`: the axes of K; `of`: the operands' names; `terms`: the
        largest number of terms of one sum, if it is less than K."""
        a, b = self.lhs_code, self.rhs_code
        blocks_k: list[int | None] = []
        for side, d, shape, axis, name in (
            ("lhs", a, lhs_shape, lhs_k, of[0]),
            ("rhs", b, rhs_shape, rhs_k, of[1]),
        ):
            scale, zero = getattr(self, f"{side}_scale"), getattr(self, f"{side}_zero_point")
            mode = self.lhs_zero_mode if side == "lhs" else self.rhs_zero_mode
            check_zero_point(zero, mode, d, side, self.rhs_packing if side == "rhs" else "none")
            block: int | None = None
            if scale is not None:
                self._verify_rank(scale, shape, axis, f"{side}_scale")
                block = scale_blocks(scale, shape, f"{side}_scale", name)[axis]
                self._verify_group(shape_of(scale), shape, axis, f"{side}_scale", name, block)
            if zero is not None and mode != "packed_int":
                self._verify_rank(zero, shape, axis, f"{side}_zero_point")
                zero_block = scale_blocks(zero, shape, f"{side}_zero_point", name)[axis]
                self._verify_group(shape_of(zero), shape, axis, f"{side}_zero_point", name, zero_block)
                block = zero_block if block is None else block if zero_block is None else math.gcd(block, zero_block)
            elif zero is not None:
                zero_shape = packed_zero_shape(zero, scale, d, self.rhs_packing, f"{side}_zero_point")
                shape_blocks(zero_shape, shape, f"{side}_zero_point", name)
            blocks_k.append(block)
        self.verify_shared(of)
        grouped = any(x is not None for x in blocks_k)
        size = k if terms is None else terms
        if grouped and k is not None:
            size = math.gcd(*(x if x is not None else k for x in blocks_k))
        if a.is_int and b.is_int and not (self.lhs_plain or self.rhs_plain):
            check_exact(
                size,
                magnitude(a, self.lhs_zero_mode, self.lhs_zero_point),
                magnitude(b, self.rhs_zero_mode, self.rhs_zero_point),
                grouped,
            )
        self._grouped = grouped

    def verify_shared(self, of: tuple[str, str]) -> None:
        """Check dtypes, codebook, `compute_dtype` and global scales. `of`: the operands' names."""
        for d, name in ((self.lhs_code, of[0]), (self.rhs_code, of[1])):
            if d.name == "f64":
                fail(f"'{name}' is f64, which a product does not take; use f32, f16 or bf16")
        if self.lhs_code.name == "codebook":
            fail(f"'{of[0]}' has dtype 'codebook', which is for '{of[1]}'")
        check_codebook(self.codebook, self.rhs_code, of[1])
        if self.compute_dtype is not None and not (self.lhs_plain or self.rhs_plain):
            fail("'compute_dtype' belongs to products with a plain float side; both sides of this one are quantised")
        for name in ("lhs_global_scale", "rhs_global_scale"):
            value = getattr(self, name)
            if value is not None and any(s != 1 for s in shape_of(value)):
                fail(f"'{name}' is one value per tensor, but has shape {show(shape_of(value))}")

    def _verify_rank(self, value: Intermediate | ir.Value, shape: Shape, axis: int, name: str) -> None:
        """Refuse a one-axis scale that aligns with K, the last axis: most likely it is meant for the other axis."""
        own = shape_of(value)
        if len(own) == 1 and len(shape) > 1 and axis == len(shape) - 1 and own[0] != 1:
            rows = "[N, 1] for one value per channel" if name.startswith("rhs") else "[M, 1] for one value per token"
            fail(
                f"'{name}' has shape {show(own)}, which would align with K; write {rows}, or [1, G] for groups along K"
            )

    def _verify_group(self, own: Shape, shape: Shape, axis: int, name: str, of: str, group: int | None) -> None:
        """Check that groups along K are multiples of `group_size`. If it is not stated, refuse groups so short that the
        scale is most likely meant per channel or per token."""
        stated = self.group_size
        if group is None or shape[axis] == 0:
            return
        if stated is not None and (stated < 1 or group % stated):
            fail(f"'{name}' {show(own)} makes groups of {group} along K of '{of}' {show(shape)}, but 'group_size' is "
                 f"{stated}")  # fmt: skip
        if stated is not None or len(shape) < 2:
            return
        other = len(shape) - 1 if axis == len(shape) - 2 else len(shape) - 2
        place = {axis: axis - len(shape), other: other - len(shape)}
        rows = own[place[other]] if len(own) >= -place[other] else 1
        swapped = rows == 1 != shape[other] and own[place[axis]] == shape[other]
        if group >= (COMMON_GROUP if swapped else LEAST_GROUP):
            return
        hint = f"groups of fewer than {LEAST_GROUP} have to be stated: group_size = {group}"
        if swapped:
            wanted = [*own] if len(own) > 1 else [1, *own]
            wanted[place[axis]], wanted[place[other]] = 1, shape[other]
            what = "channel" if name.startswith("rhs") else "token"
            hint = (
                f"did you mean {show(wanted)}, one value per {what}? For groups of {group} state group_size = {group}"
            )
        fail(f"'{name}' {show(own)} makes groups of {group} along K of '{of}' {show(shape)}; {hint}")

    def verify_epilogue(self, shape: Shape, columns: int | None, bias_rows: Shape | None = None) -> None:
        """Check everything after the contraction. `shape` is the product's shape (before a gated activation);
        `bias_rows` replaces its leading axes for the bias."""
        out = self.out_code
        integer = self.lhs_code.is_int and self.rhs_code.is_int
        if str(self.results[0].type.element_type) != out.mlir:
            fail(f"attribute 'out_dtype' says '{out.name}', but the result is {self.results[0].type}")
        result = (*shape[:-1], None if columns is None else columns // 2) if self.gated else shape
        self._verify_bias(result if self.bias_stage == "out" else shape, bias_rows, out, integer)
        if self.gated and columns is not None and columns % 2:
            fail(f"activation '{self.activation}' pairs columns, but N = {columns} is odd")
        if (self.activation == "clamp") != (self.act_clamp is not None):
            fail("activation 'clamp' and attribute 'act_clamp' go together")
        if self.act_clamp is not None and not self.act_clamp[0] <= self.act_clamp[1]:
            fail(f"'act_clamp' {list(self.act_clamp)} is an empty range")
        if (self.c is None) != (self.beta == 0.0):
            fail("operand 'c' and attribute 'beta' go together")
        if self.c is not None:
            check_broadcast(self.epilogue_shape(self.c), shape, "c")
        if out.name == "i32":
            if not integer:
                fail(
                    "result i32 is the raw accumulator, but the operands are "
                    f"{self.lhs_code.name} x {self.rhs_code.name}"
                )
            extra = [n for n in ("lhs_scale", "rhs_scale", "c", "act_scale", "out_scale", "out_multiplier",
                                 "out_zero_point") if getattr(self, n) is not None]  # fmt: skip
            if extra or self.activation != "none" or self.alpha != 1.0:
                fail(f"result i32 is the raw accumulator; it takes no {extra[0] if extra else 'activation or alpha'}")
            if self._grouped or self.rhs_zero_mode in ("offset_float", "rescale"):
                fail("result i32 is the raw accumulator; it takes no groups along K and no float zero points")
        requantised = out.name in ("i8", "u8")
        for name in ("out_scale", "out_multiplier", "out_zero_point"):
            value = getattr(self, name)
            if value is None:
                continue
            if not requantised:
                fail(f"operand '{name}' requantises, but the result is {out.name}; use an i8 result")
            shape_blocks(self.epilogue_shape(value), result, name, "result")
        if self.out_scale is not None and self.out_multiplier is not None:
            fail(
                "'out_scale' and 'out_multiplier' cannot both be given: the result is multiplied by 1/out_scale or by "
                "out_multiplier"
            )
        if self.act_scale is not None:
            shape_blocks(self.epilogue_shape(self.act_scale), result, "act_scale", "result")
        if self.clamp is not None:
            if not requantised:
                fail(
                    f"'clamp' bounds requantised codes, but the result is {out.name}; use activation 'clamp' for floats"
                )
            check_clamp(self.clamp, out)

    def _verify_bias(self, shape: Shape, rows: Shape | None, out: DType, integer: bool) -> None:
        if self.bias is None:
            return
        stage, d = self.bias_stage, element_of(self.bias)
        check_broadcast(self.epilogue_shape(self.bias), shape if rows is None else (*rows, shape[-1]), "bias")
        if stage == "acc":
            if d.name != "i32":
                fail(f"'bias' is added to the i32 accumulator (bias_stage 'acc'), but is {self.bias.type}")
            if not integer or self._grouped:
                fail("bias_stage 'acc' needs an integer product with scales constant along K; use 'scaled'")
        elif stage == "scaled":
            if d.kind != "float" or out.name == "i32":
                fail(
                    f"'bias' with bias_stage 'scaled' must be float, and the result must not be the raw i32 "
                    f"accumulator, but is {self.bias.type}"
                )
        elif out.name in ("i8", "u8"):
            fail("bias_stage 'out' adds after the cast, but the result is requantised; use 'scaled' or 'acc'")
        elif (d.kind == "float") != (out.kind == "float"):
            fail(f"'bias' with bias_stage 'out' is added in the result's type {out.name}, but is {self.bias.type}")


def columns(operands: Operands, attributes: Attributes, axis: int) -> int | None:
    """The size in codes of `rhs` along `axis`, which is N."""
    shape = operands["rhs"][0]
    n = shape[axis]
    if attributes["rhs_packing"] == "none" or axis != len(shape) - 1 or n is None:
        return n
    # Packed along N: the scale or the bias shows an N that does not fill the last byte.
    per = DTYPES[attributes["rhs_dtype"]].per_byte
    for name in ("rhs_scale", "bias"):
        if name in operands and operands[name][0]:
            width = operands[name][0][-1]
            if width is not None and width > 1 and -(-width // per) == n:
                return width
    return n * per


def gated_width(n: int | None, attributes: Attributes) -> int | None:
    """N of the result: a gated activation halves it."""
    return n // 2 if n is not None and attributes["activation"] in GATED else n
