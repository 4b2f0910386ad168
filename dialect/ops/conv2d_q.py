"""qmlir.conv2d_q: a two-dimensional convolution of quantised operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..constants import constant_array
from ..enums import FILTER_LAYOUT, INPUT_LAYOUT
from ..ods import (
    ANY,
    BOOL,
    I64,
    RESULT,
    Attributes,
    AxisSizes,
    Enum,
    I64s,
    Operands,
    Sizes,
    Spec,
    attr,
    fail,
    operand,
    product_sides,
    result,
)
from ..shapes import Shape, conv_extent, show, transposed_extent
from ..sizes import Size
from .common import (
    check_exact,
    check_result,
    check_zero_point,
    element_of,
    logical_shape,
    magnitude,
    same,
    scale_blocks,
    shape_of,
)
from .product import ProductOp, gated_width

if TYPE_CHECKING:
    from ...core.mlir import ir

# The positions of the axes (F, KH, KW, C) in each filter layout.
FILTER_AXES = {"FHWC": (0, 1, 2, 3), "HWCF": (3, 0, 1, 2), "FCHW": (0, 2, 3, 1)}


def _fhwc_indices(layout: str) -> tuple[int, ...]:
    """For each axis of a filter, its index in (F, KH, KW, C)."""
    return tuple(FILTER_AXES[layout].index(i) for i in range(4))


class Conv2dQOp(ProductOp, name="conv2d_q", sides={"lhs": "input", "rhs": "weight"}):
    """A quantised convolution: `input [N, H, W, C]` (or NCHW), `weight [F, KH, KW, C/groups]` (or HWCF, FCHW), result
    in the input's layout.

    `padding` is `(top, left, bottom, right)`; it adds the real value 0, which is the code `input_zero_point`.
    """

    SIDES = product_sides("input", "weight", "input", "weight")

    input = operand(ANY, doc="codes or floats `[N, H, W, C]`, or `[N, C, H, W]` by `input_layout`")
    weight = operand(ANY, doc="codes or floats `[F, KH, KW, C/groups]`, or as `weight_layout` states")
    input_layout = attr(Enum(INPUT_LAYOUT), default="NHWC", doc="order of the axes of `input` and of the result")
    weight_layout = attr(Enum(FILTER_LAYOUT), default="FHWC", doc="order of the axes of `weight`")
    strides = attr(I64s(2), default=(1, 1), doc="steps (down, across), in pixels")
    dilations = attr(I64s(2), default=(1, 1), doc="distances of the filter's taps (down, across), in pixels")
    padding = attr(I64s(4), default=(0, 0, 0, 0), doc="(top, left, bottom, right), in pixels of the real value 0")
    groups = attr(I64, default=1, doc="groups of channels; as many as channels for a depthwise convolution")
    transposed = attr(BOOL, default=False, doc="whether it is a transposed convolution")
    output_padding = attr(
        I64s(2), default=(0, 0), doc="rows and columns added to the result of a transposed convolution"
    )
    result = result(RESULT, doc="`[N, OH, OW, F]`, or `[N, F, OH, OW]` by `input_layout`")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        """Raises ValueError if the operands have no result shape."""
        for name in ("input", "weight"):
            if len(shape := operands[name][0]) != 4:
                raise ValueError(f"{name!r} must have four axes, but has shape {show(shape)}")
        for name in ("strides", "dilations"):
            if min(attributes[name]) < 1:
                raise ValueError(f"{name!r} {list(attributes[name])} must be at least 1")
        s = operands["input"][0]
        nchw = attributes["input_layout"] == "NCHW"
        n, h, w = (s[0], s[2], s[3]) if nchw else s[:3]
        f, kh, kw = (operands["weight"][0][i] for i in FILTER_AXES[attributes["weight_layout"]][:3])
        if kh is None or kw is None:
            raise ValueError("the size of the filters, 'weight', must be static")
        top, left, bottom, right = attributes["padding"]
        strides, dilations = attributes["strides"], attributes["dilations"]
        extra = attributes["output_padding"]
        spatial = []
        for i, (size, k, before, after) in enumerate(((h, kh, top, bottom), (w, kw, left, right))):
            if attributes["transposed"]:
                spatial.append(transposed_extent(size, k, strides[i], dilations[i], before, after, extra[i]))
            else:
                spatial.append(conv_extent(size, k, strides[i], dilations[i], before, after))
        if any(size is not None and size < 0 for size in spatial):
            raise ValueError(_no_convolution(operands, attributes, kh, kw))
        f = gated_width(f, attributes)
        shape = (n, f, *spatial) if nchw else (n, *spatial, f)
        return [(shape, attributes["out_dtype"])]

    @property
    def sides(self) -> tuple[ir.Value, ir.Value]:
        return self.input, self.weight

    def input_nhwc(self) -> Shape:
        s = shape_of(self.input)
        return s if self.input_layout == "NHWC" else (s[0], s[2], s[3], s[1])

    def epilogue_shape(self, value: ir.Value) -> Shape:
        """The shape in NHWC order: `[F]` is one value per filter in any layout, more axes have the result's layout."""
        s = shape_of(value)
        if self.input_layout == "NHWC" or len(s) < 2 or len(s) > 4:
            return s
        n, c, h, w = (1,) * (4 - len(s)) + s
        return (n, h, w, c)

    def filter_codes_shape(self) -> Shape:
        """The shape of the weight in codes, in its own layout."""
        last = None
        if self.rhs_packing != "none":
            if self.weight_layout != "FHWC":
                fail("packed weights must be in layout 'FHWC', packed along C")
            c = self.input_nhwc()[3]
            last = None if c is None else c // self.groups
        return logical_shape(shape_of(self.weight), self.rhs_code, self.rhs_packing, last, "weight")

    def filter_fhwc(self) -> Shape:
        s = self.filter_codes_shape()
        return tuple(s[i] for i in FILTER_AXES[self.weight_layout])

    def result_axes(self, axes: AxisSizes) -> AxisSizes:
        return axes if self.input_layout == "NHWC" or len(axes) != 4 else (axes[0], axes[3], axes[1], axes[2])

    def sizes(self) -> Sizes:
        _, kh, kw, _ = self.filter_fhwc()
        (sh, sw), (dh, dw), (top, left, bottom, right) = self.strides, self.dilations, self.padding
        spatial = []
        for name, k, stride, dilation, pads, extra in (
            ("H", kh, sh, dh, top + bottom, self.output_padding[0]),
            ("W", kw, sw, dw, left + right, self.output_padding[1]),
        ):
            reach = dilation * ((k or 1) - 1) + 1
            forward, back = (
                Size(name, 1, pads - reach + stride, stride),
                Size(name, stride, reach + extra - pads - stride),
            )
            spatial.append(back if self.transposed else forward)
        filters = tuple("N" if axis == 0 else None for axis in _fhwc_indices(self.weight_layout))
        found = self.epilogue_sizes(("B", *spatial, "N"))
        scales = {self.ROLES[n]: ("N",) for n in ("rhs_scale", "rhs_zero_point")
                  if getattr(self, n) is not None and len(shape_of(getattr(self, n))) == 1}  # fmt: skip
        return {**found, **scales, "input": self.result_axes(("B", "H", "W", None)), "weight": filters}

    def verify_semantics(self) -> None:
        if len(shape_of(self.input)) != 4 or len(shape_of(self.weight)) != 4:
            fail(f"'input' and 'weight' must have four axes, but are {self.input.type} and {self.weight.type}")
        n, h, w, c = self.input_nhwc()
        f, kh, kw, cg = self.filter_fhwc()
        if kh is None or kw is None or f is None or cg is None or c is None:
            fail("the weight's shape and the input's channels must be static")
        for name in ("strides", "dilations"):
            if min(getattr(self, name)) < 1:
                fail(f"'{name}' {list(getattr(self, name))} must be at least 1")
        if min(self.padding) < 0 or min(self.output_padding) < 0:
            fail("'padding' and 'output_padding' must not be negative")
        if self.groups < 1 or c != cg * self.groups or f % self.groups:
            fail(f"'groups' = {self.groups} needs C = groups * {cg} (C is {c}) and F = {f} divisible by it")
        top, left, bottom, right = self.padding
        (sh, sw), (dh, dw) = self.strides, self.dilations
        if self.transposed:
            if any(p >= max(s, d) for p, s, d in zip(self.output_padding, self.strides, self.dilations, strict=True)):
                fail(f"'output_padding' {list(self.output_padding)} must be smaller than the stride or the dilation")
            oh = transposed_extent(h, kh, sh, dh, top, bottom, self.output_padding[0])
            ow = transposed_extent(w, kw, sw, dw, left, right, self.output_padding[1])
        else:
            if self.output_padding != (0, 0):
                fail("'output_padding' belongs to transposed convolutions")
            oh, ow = conv_extent(h, kh, sh, dh, top, bottom), conv_extent(w, kw, sw, dw, left, right)
            for size, reach, pads in ((h, dh * (kh - 1) + 1, top + bottom), (w, dw * (kw - 1) + 1, left + right)):
                if size is not None and size + pads < reach:
                    fail(f"a kernel {kh}x{kw} with dilations {list(self.dilations)} is larger than the padded input: "
                         f"it needs {reach} elements, but there are {size} + {pads}")  # fmt: skip
        for size, axis in ((oh, "height"), (ow, "width")):
            if size is not None and size < 0:
                fail(f"'padding' {list(self.padding)} leaves a negative {axis} of the result")
        self._verify_values(kh * kw * cg)
        self.verify_shared(("input", "weight"))
        nhwc = (n, oh, ow, f)
        self.verify_epilogue(nhwc, f)
        out = (n, oh, ow, f // 2 if self.gated else f)
        check_result(self.result, out if self.input_layout == "NHWC" else (out[0], out[3], out[1], out[2]))

    def _verify_values(self, k: int) -> None:
        """Check scales and zero points: per tensor for the input; per tensor or per filter for the weight."""
        a, b = self.lhs_code, self.rhs_code
        weight_shape = self.filter_codes_shape()
        f_axis = FILTER_AXES[self.weight_layout][0]
        for side, d, mode in (("lhs", a, self.lhs_zero_mode), ("rhs", b, self.rhs_zero_mode)):
            check_zero_point(getattr(self, f"{side}_zero_point"), mode, d, side, "none")
            for what in ("scale", "zero_point"):
                value = getattr(self, f"{side}_{what}")
                if value is None:
                    continue
                own = shape_of(value)
                if side == "lhs":
                    if any(s != 1 for s in own):
                        fail(f"'lhs_{what}' of a convolution must be per tensor, but has shape {show(own)}")
                elif len(own) != 1:
                    covers = scale_blocks(value, weight_shape, f"rhs_{what}", "weight")
                    if any(x is not None for i, x in enumerate(covers) if i != f_axis):
                        fail(
                            f"'rhs_{what}' has shape {show(own)}; weights of a convolution are scaled per tensor or "
                            "per filter"
                        )
                elif not same(own[0], weight_shape[f_axis]) and own[0] != 1:
                    fail(f"'rhs_{what}' has {own[0]} values, but the weight has {weight_shape[f_axis]} filters")
        if self.rhs_zero_mode in ("offset_float", "rescale", "packed_int"):
            fail(f"attribute 'rhs_zero_mode' is '{self.rhs_zero_mode}', which a convolution does not support; use 'int'"
                 " or 'offset_int'")  # fmt: skip
        if self.group_size is not None:
            fail("'group_size' states groups along K; weights of a convolution are scaled per tensor or per filter")
        self._grouped = False
        if a.is_int and b.is_int:
            check_exact(k, magnitude(a, self.lhs_zero_mode, self.lhs_zero_point),
                        magnitude(b, self.rhs_zero_mode, self.rhs_zero_point), False)  # fmt: skip
            self._verify_padding_code()

    def padding_zero_range(self) -> tuple[int, int] | None:
        """The smallest and the largest `lhs_zero_point` for which the value 0 has a code: padding is filled with this
        code. None if there is no zero point or no padding, or if the zero point's type has no other values."""
        d, zero = self.lhs_code, self.lhs_zero_point
        if zero is None or not (any(self.padding) or self.transposed):
            return None
        offset = 1 << (d.bits - 1) if self.lhs_zero_mode == "offset_int" else 0
        if d.bits == 8 and not offset and element_of(zero).bits == 8:
            return None
        return d.lo - offset, d.hi - offset

    def _verify_padding_code(self) -> None:
        """Check a constant zero point against `padding_zero_range`; others are checked at run time."""
        span = self.padding_zero_range()
        given = self.lhs_zero_point
        known = None if span is None or given is None else constant_array(given)
        if span is None or known is None:
            return
        zero = int(known.flat[0])
        if not span[0] <= zero <= span[1]:
            fail(f"'lhs_zero_point' is {zero}, but padding is filled with the code of 0, which {self.lhs_code.name} "
                 f"codes have for zero points in [{span[0]}, {span[1]}]; convolve without padding")  # fmt: skip


def _no_convolution(operands: Operands, attributes: Attributes, kh: int, kw: int) -> str:
    """The message for a convolution whose result would have a negative size."""
    layouts = attributes["input_layout"], attributes["weight_layout"]
    sides = [f"{name!r} {show(operands[name][0])} ({layout})"
             for name, layout in zip(("input", "weight"), layouts, strict=True)]  # fmt: skip
    padding, dilations = list(attributes["padding"]), list(attributes["dilations"])
    if attributes["transposed"]:
        return f"{' and '.join(sides)}: 'padding' {padding} takes away more than the result has"
    others = ", ".join(repr(name) for name in FILTER_AXES if name != layouts[1])
    return (
        f"{sides[1]} has filters of {kh}x{kw}, which with dilations {dilations} do not fit {sides[0]} with padding "
        f"{padding}; 'weight_layout' {others} reads the weight's axes in another order"
    )
