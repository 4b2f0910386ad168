"""conv2d_q to linalg: an implicit GEMM, with zero points as integer corrections.

The padding is the code of the real value 0, so that the correction terms are sums over whole windows. All layouts
are lowered to one form: input NHWC, weight FHWC (a constant weight is transposed at compile time).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ....core.mlir import arith, ir, linalg, tensor
from ....dialect.constants import constant_array
from ....dialect.ods import OpError
from ....dialect.ops.common import shape_of
from ....dialect.ops.conv2d_q import FILTER_AXES, Conv2dQOp
from ....ir.build import (
    Arg,
    Extent,
    as_index,
    collapse,
    crop,
    dense,
    dense_like,
    dims,
    element,
    expand,
    filled,
    generic,
    loop_index,
    pad,
    scalar,
    transpose,
)
from ....ir.checks import assert_that
from ....ir.facts import MAGNITUDES, note
from ....ir.scalars import i32, to_f32, to_i32
from ....ir.walk import defining_op
from ....kernels.computes import is_within
from .corrections import correction_body
from .epilogue import Inputs, Named, finish
from .matmul import apply_globals, number_type, scaled
from .unpacked import unpack_stored
from .values import Side, constant_sums, dequantized, full_rank, make_side


def lower_conv2d_q(op: Conv2dQOp) -> list[ir.Value]:
    """The lowering rule of the op."""
    nchw = op.input_layout == "NCHW"
    x = transpose(op.input, (0, 2, 3, 1)) if nchw else op.input
    a = make_side("lhs", x, op.lhs_code, dims(x), 0, 3, scale=_scalar(op.lhs_scale), zero=_scalar(op.lhs_zero_point),
                  mode=op.lhs_zero_mode, packing="none", global_scale=op.lhs_global_scale)  # fmt: skip
    shape: list[Extent] = [s for s in op.filter_codes_shape() if s is not None]
    packed = op.rhs_packing != "none"
    codes = unpack_stored(op.weight, op.rhs_code, op.rhs_packing, shape[-1]) if packed else op.weight
    w = _to_fhwc(codes, op.weight_layout)
    b = make_side("rhs", w, op.rhs_code, dims(w), 0, 3, scale=_per_filter(op.rhs_scale, op.weight_layout),
                  zero=_per_filter(op.rhs_zero_point, op.weight_layout), mode=op.rhs_zero_mode, packing="none",
                  codebook=op.codebook, global_scale=op.rhs_global_scale)  # fmt: skip
    taps = FILTER_AXES[op.weight_layout][1:]
    b = replace(b, sum=constant_sums(a, b, op.weight, op.rhs_code, op.rhs_packing, taps))
    y = _convolution(op, a, b)
    return [transpose(y, (0, 3, 1, 2)) if nchw else y]


def _scalar(value: ir.Value | None) -> ir.Value | None:
    """A per-tensor parameter `[]` or `[1, ..]` as `[]`."""
    if value is None or value.type.rank == 0:
        return value
    known = constant_array(value)
    if known is not None:
        return dense_like(known.reshape(()), value)
    return tensor.collapse_shape(ir.RankedTensorType.get([], value.type.element_type), value, [])


def _to_fhwc(value: ir.Value, layout: str) -> ir.Value:
    order = FILTER_AXES[layout]
    known = constant_array(value)
    if known is not None and order != (0, 1, 2, 3):
        return dense_like(np.transpose(known, order), value)
    return transpose(value, order)


def _per_filter(value: ir.Value | None, layout: str) -> ir.Value | None:
    """Weight parameters as `[]` or `[F, 1, 1, 1]`."""
    if value is None or value.type.rank == 0:
        return value
    if all(s == 1 for s in shape_of(value)):
        return _scalar(value)
    if value.type.rank == 1:
        known = constant_array(value)
        if known is not None:
            return dense_like(known.reshape(-1, 1, 1, 1), value)
        return expand(value, [[dims(value)[0], 1, 1, 1]])
    return _to_fhwc(value, layout)


def _convolution(op: Conv2dQOp, a: Side, b: Side) -> ir.Value:
    weight_only = a.plain or b.plain
    integer = a.integer and b.integer and not weight_only
    if weight_only:
        to = op.compute_dtype or (a if a.plain else b).d.name
        x, w = dequantized(a, to), dequantized(b, to)
        pad_code = scalar(0.0, x.type.element_type)
    elif integer:
        x, w = a.codes, b.codes
        pad_code = _zero_code(op, a)
    else:
        if b.float_zero:
            raise OpError(f"weight_zero_mode '{b.mode}' needs integer codes on both sides, or a plain float 'input'")
        to = number_type(a, b)
        x, w = (dequantized(replace(side, scale=None, global_scale=None), to) for side in (a, b))
        pad_code = scalar(0.0, element(to))
    x = _prepare_input(op, x, pad_code)
    w = _rotate180(w) if op.transposed else w
    strides = (1, 1) if op.transposed else op.strides
    acc = _convolve(x, w, strides, op.dilations, op.groups, i32() if integer else element("f32"),
                    (a.magnitude(), b.magnitude()) if integer else None)  # fmt: skip
    sizes = [dims(x)[0], *dims(acc)[1:]]  # so that the product has no use that only asks for its size
    inputs = Inputs()
    inputs.add("acc", acc, range(4))
    correction = _corrections(op, inputs, a, b, x, w, strides) if integer else None
    nchw = op.input_layout == "NCHW"
    if op.bias is not None and op.bias_stage == "acc":
        inputs.aligned("acc_bias", _from_nchw(op.bias) if nchw else op.bias, sizes)
    raw = op.out_code.name == "i32"
    if not weight_only and not raw:
        for side in (a, b):
            if side.scale is not None:
                inputs.add(f"{side.name}_scale", side.scale, _filter_axes(side.scale))
            if side.global_scale is not None:
                inputs.add(f"{side.name}_global", side.global_scale, (None,) * side.global_scale.type.rank)

    def start(named: Named) -> ir.Value:
        value = correction(named) if correction is not None else named["acc"]
        if "acc_bias" in named:
            value = arith.addi(value, named["acc_bias"])
        return value if raw or weight_only else apply_globals(scaled(to_f32(value), named), named)

    fit = _from_nchw if nchw else None
    return finish(op, sizes, inputs, start, fit)


def _from_nchw(value: ir.Value) -> ir.Value:
    """An epilogue operand in the result's layout NCHW as NHWC; `[F]` and `[]` stay unchanged."""
    return value if value.type.rank < 2 else transpose(full_rank(value, 4), (0, 2, 3, 1))


def _filter_axes(value: ir.Value) -> tuple[int | None, ...]:
    """Result axes of a parameter `[]` (per tensor) or `[F, 1, 1, 1]`."""
    if value.type.rank == 0:
        return ()
    return (None if shape_of(value)[0] == 1 else 3, None, None, None)


def _zero_code(op: Conv2dQOp, a: Side) -> ir.Value:
    """The stored i8 code of the real value 0."""
    if a.zero is None:
        return scalar(-a.offset, element("i8"))
    zero = _scalar(a.zero)
    assert zero is not None
    z = tensor.extract(zero, [])
    value = a.whole_zero(z)
    span = op.padding_zero_range()
    given = op.lhs_zero_point
    if span is not None and given is not None and constant_array(given) is None and not is_within(given, *span):
        inside = arith.andi(arith.cmpi(arith.CmpIPredicate.sge, value, scalar(span[0], i32())),
                            arith.cmpi(arith.CmpIPredicate.sle, value, scalar(span[1], i32())))  # fmt: skip
        assert_that(inside, f"'input_zero_point' of a padded convolution is outside [{span[0]}, {span[1]}]")
    if a.offset:
        value = arith.subi(value, scalar(a.offset, i32()))
    return arith.trunci(element("i8"), value)


def _prepare_input(op: Conv2dQOp, x: ir.Value, fill: ir.Value) -> ir.Value:
    """The padded input; for a transposed convolution first spread by the stride (`_spread`)."""
    top, left, bottom, right = op.padding
    _, kh, kw, _ = op.filter_fhwc()
    (sh, sw), (dh, dw) = op.strides, op.dilations
    assert kh is not None
    assert kw is not None
    if not op.transposed:
        return pad(x, (0, top, left, 0), (0, bottom, right, 0), fill)
    x = _spread(x, sh, sw, fill)
    edges = [
        dh * (kh - 1) - top,
        dw * (kw - 1) - left,
        # `_spread` adds stride - 1 fills after the last element too; they count as padding.
        dh * (kh - 1) - bottom + op.output_padding[0] - (sh - 1),
        dw * (kw - 1) - right + op.output_padding[1] - (sw - 1),
    ]
    cut = [max(0, -e) for e in edges]
    if any(cut):
        n, h, w, c = dims(x)
        x = crop(x, (0, cut[0], cut[1], 0), [n, _less(h, cut[0] + cut[2]), _less(w, cut[1] + cut[3]), c])
    grow = [max(0, e) for e in edges]
    return pad(x, (0, grow[0], grow[1], 0), (0, grow[2], grow[3], 0), fill)


def _less(size: Extent, by: int) -> Extent:
    return size - by if isinstance(size, int) else arith.subi(size, as_index(by))


def _spread(x: ir.Value, sh: int, sw: int, fill: ir.Value) -> ir.Value:
    """Insert `stride - 1` fills after each element along H and W."""
    if sh == sw == 1:
        return x
    n, h, w, c = dims(x)
    wide = pad(expand(x, [[n], [h, 1], [w, 1], [c]]), [0] * 6, [0, 0, sh - 1, 0, sw - 1, 0], fill)
    return collapse(wide, [[0], [1, 2], [3, 4], [5]])


def _rotate180(w: ir.Value) -> ir.Value:
    """The filter rotated by 180 degrees."""
    known = constant_array(w)
    if known is not None:
        return dense_like(known[:, ::-1, ::-1].copy(), w)
    sizes = dims(w)
    t = w.type.element_type

    def body(_: ir.Value) -> ir.Value:
        at = [loop_index(i) for i in range(4)]
        for axis in (1, 2):
            size = sizes[axis]
            assert isinstance(size, int)
            at[axis] = arith.subi(as_index(size - 1), at[axis])
        return tensor.extract(w, at)

    return generic([], filled(sizes, scalar(0, t)), range(4), 4, body)


def _convolve(
    x: ir.Value,
    w: ir.Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    t: ir.Type,
    bounds: tuple[int, int] | None,
) -> ir.Value:
    """NHWC x FHWC -> NHWF with the accumulator type `t`."""
    n, h, width, _ = dims(x)
    f, kh, kw, cg = dims(w)
    assert isinstance(kh, int)
    assert isinstance(kw, int)
    out: list[Extent] = [
        n,
        *(_extent(s, k, st, d) for s, k, st, d in zip((h, width), (kh, kw), strides, dilations, strict=True)),
    ]
    zero = scalar(0, t)
    options = {"strides": list(strides), "dilations": list(dilations)}
    if groups == 1:
        y = linalg.conv_2d_nhwc_fhwc(x, w, outs=[filled([*out, f], zero)], **options)
        _annotate(y, bounds)
        return y
    if cg == 1 and f == groups:
        hwc = _depthwise_filter(w)
        y = linalg.depthwise_conv_2d_nhwc_hwc(x, hwc, outs=[filled([*out, f], zero)], **options)
        _annotate(y, bounds)
        return y
    xg = expand(x, [[n], [h], [width], [groups, cg]])
    assert isinstance(f, int)
    wg = expand(w, [[groups, f // groups], [kh], [kw], [cg]])
    y = linalg.conv_2d_nhwgc_gfhwc(xg, wg, outs=[filled([*out, groups, f // groups], zero)], **options)
    _annotate(y, bounds)
    return collapse(y, [[0], [1], [2], [3, 4]])


def _annotate(y: ir.Value, bounds: tuple[int, int] | None) -> None:
    """Note the bounds of the codes, for strategies that multiply them as floats."""
    if bounds is not None:
        note(defining_op(y), dict(zip(MAGNITUDES, bounds, strict=True)))


def _depthwise_filter(w: ir.Value) -> ir.Value:
    """A depthwise weight `[C, KH, KW, 1]` as `[KH, KW, C]`."""
    known = constant_array(w)
    if known is not None:
        return dense_like(np.transpose(known[..., 0], (1, 2, 0)), w)
    return transpose(collapse(w, [[0], [1], [2, 3]]), (1, 2, 0))


def _extent(size: Extent, kernel: int, stride: int, dilation: int) -> Extent:
    """Output size of one axis of the padded input."""
    reach = dilation * (kernel - 1) + 1
    if isinstance(size, int):
        return (size - reach) // stride + 1
    return arith.addi(arith.divsi(arith.subi(size, as_index(reach)), as_index(stride)), as_index(1))


def _corrections(
    op: Conv2dQOp, inputs: Inputs, a: Side, b: Side, x: ir.Value, w: ir.Value, strides: Sequence[int]
) -> Callable[[Named], ir.Value] | None:
    """The body that corrects `acc` from `sum x*w` to `sum (x - zx)(w - zw)`. See corrections.add_corrections."""
    f, kh, kw, cg = dims(w)
    groups = op.groups
    if not (a.int_zero or b.int_zero):
        return None
    if a.zero is not None:
        inputs.add("lhs_zero", a.zero, (None,) * a.zero.type.rank)
    if b.zero is not None:
        inputs.add("rhs_zero", b.zero, _filter_axes(b.zero))
    if a.int_zero:
        inputs.add("rhs_sum", b.sum if b.sum is not None else _filter_sums(w), (3,))
    assert isinstance(kh, int)
    assert isinstance(kw, int)
    assert isinstance(cg, int)
    if b.int_zero:
        # The sums of the input in each window are a convolution with ones: with one filter, or with as many as `w`
        # has if there are groups, each of which reads channels of its own.
        filters = 1 if groups == 1 else f
        assert isinstance(filters, int)
        ones = dense(np.ones([filters, kh, kw, cg], np.int8))
        window = _convolve(x, ones, strides, op.dilations, groups, i32(), (a.magnitude(), 1))
        inputs.add("lhs_sum", window, (0, 1, 2, None if groups == 1 else 3))

    return correction_body(a, b, a.int_zero, b.int_zero, kh * kw * cg)


def _filter_sums(w: ir.Value) -> ir.Value:
    """Sum of the codes of each filter, i32 `[F]`."""
    init = filled([dims(w)[0]], scalar(0, i32()))
    return generic([Arg(w, (0, 1, 2, 3))], init, [0], 4, lambda v, acc: arith.addi(acc, to_i32(v)))
