"""Float operators that torch-mlir converts incorrectly, or to IR that IREE does not compile: they are built from
operators that both get right, or refused.

The onnx package's node tests (`test/support/onnx_all_nodes.py`) found these faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import arith, math
from ....dialect.dtypes import DTYPES
from ....ir import build
from ....ir.checks import assert_equal
from ....ir.scalars import gelu_by_sigmoid
from ....spec import TensorSpec
from ...raising import NotQuantised, PatternDeclined, Tensor, raises
from ...sampled import MODES, PADDINGS, grid_sampled
from ...tensors import cast_real, elementwise, real
from ..model import refuse
from ..node import Node
from .common import ints, onnx_op, quantised_input
from .interpolated import interpolated
from .phases import phased
from .pooled import LOWEST, max_pooled, uneven_pads
from .pooling import max_pool_codes
from .products import keep
from .resized import nearest, repeats
from .transposed import transposed_product

if TYPE_CHECKING:
    from ....core.mlir import ir


def _image_channels(op: Node, x: Tensor) -> int:
    """The channels of an image `[N, C, H, W]`."""
    if len(x.shape) != 4:
        raise refuse(f"{op.op_type} takes [N, C, H, W], not {x.spec}", op.where)
    c = x.shape[1]
    if c is None:
        raise refuse(f"{op.op_type} of dynamic channels is not imported; the other sizes may be dynamic", op.where)
    return c


@raises("onnx.DepthToSpace")
def depth_to_space(op: Node) -> Tensor:
    """`[N, C, H, W]` to `[N, C / b^2, H b, W b]`; the block axes come before the channels (DCR) or after them (CRD)."""
    x, b = op.operand(0), int(op.attributes["blocksize"])
    c = _image_channels(op, x)
    if b < 1 or c % (b * b):
        raise refuse(f"DepthToSpace by blocks of {b} needs a multiple of {b * b} channels, not {c}", op.where)
    k, (n, _, h, w) = c // (b * b), build.dims(x.value)
    behind = op.attributes.get("mode", "DCR") == "CRD"
    split = build.expand(x.value, [[n], [k, b, b] if behind else [b, b, k], [h], [w]])
    moved = build.transpose(split, [0, 1, 4, 2, 5, 3] if behind else [0, 3, 4, 1, 5, 2])
    return _image(x, build.collapse(moved, [[0], [1], [2, 3], [4, 5]]))


@raises("onnx.SpaceToDepth")
def space_to_depth(op: Node) -> Tensor:
    """`[N, C, H, W]` to `[N, C b^2, H / b, W / b]`: the inverse of DepthToSpace of the same mode."""
    x, b = op.operand(0), int(op.attributes["blocksize"])
    c = _image_channels(op, x)
    n, _, *sizes = build.dims(x.value)
    if b < 1 or any(isinstance(size, int) and size % b for size in sizes):
        raise refuse(f"SpaceToDepth by blocks of {b} needs height and width that are multiples, not {x.spec}", op.where)
    h, w = (size // b if isinstance(size, int) else _blocks(op, size, b) for size in sizes)
    split = build.expand(x.value, [[n], [c], [h, b], [w, b]])
    behind = op.attributes.get("mode", "DCR") == "CRD"
    moved = build.transpose(split, [0, 1, 3, 5, 2, 4] if behind else [0, 3, 5, 1, 2, 4])
    return _image(x, build.collapse(moved, [[0], [1, 2, 3], [4], [5]]))


def _blocks(op: Node, size: ir.Value, b: int) -> ir.Value:
    """The number of blocks of `b` in a dynamic size, which the program checks to be a multiple of `b`."""
    rest = arith.remui(size, build.index(b))
    assert_equal(rest, 0, f"{op.where}: height and width must be multiples of the block size {b}")
    return arith.divui(size, build.index(b))


def _image(x: Tensor, value: ir.Value) -> Tensor:
    sizes = [s if isinstance(s, int) else None for s in build.dims(value)]
    return Tensor(TensorSpec(sizes, x.dtype), value)


@raises("onnx.BitShift")
def bit_shift(op: Node) -> Tensor:
    """A shift by the type's width or more, or by a negative amount, gives 0; a right shift of a negative value gives
    -1 then."""
    x, by = op.operand(0), op.operand(1)
    if x.dtype not in ("i8", "i16", "i32", "i64", "u8", "u16", "u32"):
        raise NotQuantised  # another type
    d, right = DTYPES[x.dtype], op.attributes["direction"] == "RIGHT"
    op.plain = True

    def body(v: ir.Value, s: ir.Value) -> ir.Value:
        whole = arith.cmpi(arith.CmpIPredicate.uge, s, build.scalar(d.bits, s.type))
        if right and d.signed:
            return arith.shrsi(v, arith.select(whole, build.scalar(d.bits - 1, s.type), s))
        shifted = (arith.shrui if right else arith.shli)(v, arith.select(whole, build.scalar(0, s.type), s))
        return arith.select(whole, build.scalar(0, v.type), shifted)

    return elementwise(body, [x, by], x.dtype)


@raises("onnx.Gelu")
def gelu(op: Node) -> Tensor:
    """With `approximate="tanh"`: `x sigmoid(2 u)`, u = sqrt(2 / pi) (x + 0.044715 x^3), because `1 + tanh(u)` cancels
    for large negative u."""
    x = op.operand(0)
    if op.attributes.get("approximate", "none") != "tanh" or x.dtype != "f32":
        raise NotQuantised
    op.plain = True
    return elementwise(gelu_by_sigmoid, [x], "f32")


@raises("onnx.Sign")
def sign(op: Node) -> Tensor:
    """Imported directly, because torch-mlir compares a constant whose elements are all equal with an integer 0."""
    x = op.operand(0)
    if x.dtype not in ("f32", "f16", "bf16"):
        raise NotQuantised
    op.plain = True

    def body(v: ir.Value) -> ir.Value:
        zero, one, minus = (build.scalar(n, v.type) for n in (0.0, 1.0, -1.0))
        below = arith.select(arith.cmpf(arith.CmpFPredicate.OLT, v, zero), minus, zero)
        return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, v, zero), one, below)

    return elementwise(body, [x], x.dtype)


@raises("onnx.ReduceLogSumExp")
def log_sum_exp(op: Node) -> Tensor:
    """`m + log(sum(exp(x - m)))` with m the largest element; the sum of torch-mlir's conversion overflows."""
    x, given = op.operand(0), op.optional(1)
    stated = op.attributes.get("axes") if given is None else given.array
    empty = stated is None or not len(stated)
    if x.dtype not in ("f32", "f16", "bf16") or not x.shape or (given is not None and given.array is None):
        raise NotQuantised  # another type, or axes that are computed
    if empty and op.attributes.get("noop_with_empty_axes", 0):
        raise NotQuantised  # no axes
    axes = [int(a) % len(x.shape) for a in (range(len(x.shape)) if empty or stated is None else stated)]
    wide, infinite = real(x), build.scalar(np.inf, build.element("f32"))
    of_max: dict[str, object] = {"axes": axes} if op.graph.model.torch_opset < 18 else {}
    largest = onnx_op(op, "ReduceMax", wide, *([] if of_max else [ints(axes)]), keepdims=1, **of_max)

    def finite(m: ir.Value) -> ir.Value:
        known = arith.cmpf(arith.CmpFPredicate.OLT, math.absf(m), infinite)
        return arith.select(known, m, build.scalar(0.0, m.type))

    largest = elementwise(finite, [largest], "f32")
    total = onnx_op(op, "ReduceSum", onnx_op(op, "Exp", onnx_op(op, "Sub", wide, largest)), ints(axes), keepdims=1)
    made = onnx_op(op, "Add", onnx_op(op, "Log", total), largest)
    if not op.attributes.get("keepdims", 1):
        made = onnx_op(op, "Squeeze", made, ints(axes))
    return cast_real(made, x.dtype)


@raises("onnx.LpNormalization")
def lp_normalization(op: Node) -> Tensor:
    """A norm of 0 gives the result 0, not NaN."""
    x, p = op.operand(0), int(op.attributes.get("p", 2))
    axis = ints([int(op.attributes.get("axis", -1)) % len(x.shape)])
    if x.dtype != "f32":
        raise NotQuantised  # another type
    size = onnx_op(op, "Abs", x) if p == 1 else onnx_op(op, "Mul", x, x)
    norm = onnx_op(op, "ReduceSum", size, axis, keepdims=1)
    norm = norm if p == 1 else onnx_op(op, "Sqrt", norm)
    none = onnx_op(op, "Equal", norm, Tensor.constant(np.zeros((), np.float32)))
    return onnx_op(op, "Div", x, onnx_op(op, "Where", none, Tensor.constant(np.ones((), np.float32)), norm))


@raises("onnx.ReverseSequence")
def reverse_sequence(op: Node) -> Tensor:
    """With the time axis before the batch axis, the input is transposed, because IREE does not compile that order."""
    x = op.operand(0)
    batch, time = int(op.attributes.get("batch_axis", 1)), int(op.attributes.get("time_axis", 0))
    if (batch, time) == (0, 1):
        raise NotQuantised
    order = [1, 0, *range(2, len(x.shape))]
    batch_first = onnx_op(op, "Transpose", x, perm=order)
    done = onnx_op(op, "ReverseSequence", batch_first, op.operand(1), batch_axis=0, time_axis=1)
    return onnx_op(op, "Transpose", done, perm=order)


@raises("onnx.Pad")
def pad(op: Node) -> Tensor:
    """A gather along each padded axis for modes other than `constant`. Negative amounts in mode `constant` become a
    Slice before the Pad."""
    mode = op.attributes.get("mode", "constant")
    x: Tensor = op.operand(0)
    given, axes = op.optional(1), op.optional(3)
    amounts = op.attributes.get("pads") or (None if given is None else given.array)
    known = axes is None or axes.array is not None
    if mode == "constant" and not (known and amounts is not None and min(amounts, default=0) < 0):
        raise NotQuantised
    if amounts is None:
        raise refuse(f"Pad with mode {mode!r} needs constant pads", op.where)
    if not known:
        raise refuse(f"Pad with mode {mode!r} needs constant axes", op.where)
    chosen = None if axes is None else axes.array
    which = [int(a) % len(x.shape) for a in (range(len(x.shape)) if chosen is None else chosen)]
    if mode == "constant":
        return _cut_and_padded(op, x, which, [int(a) for a in amounts])
    for i, axis in enumerate(which):
        before, after = int(amounts[i]), int(amounts[len(which) + i])
        size = x.shape[axis]
        if not (before or after):
            continue
        if size is None:
            raise refuse(f"Pad with mode {mode!r} of axis {axis}, whose size is dynamic, is not imported", op.where)
        if size == 0 or (mode == "reflect" and max(before, after) >= size):
            raise refuse(f"Pad with mode {mode!r} of axis {axis} of size {size} by {before} and {after}: the padding "
                         "does not fit", op.where)  # fmt: skip
        places = [_SOURCES[mode](j, size) for j in range(-before, size + after)]
        x = onnx_op(op, "Gather", x, ints(places), axis=axis)
    return x


def _cut_and_padded(op: Node, x: Tensor, which: Sequence[int], amounts: Sequence[int]) -> Tensor:
    """A constant Pad with negative amounts as a Slice and a Pad; torch-mlir's conversion would read memory in front of
    the tensor."""
    count, rank = len(which), len(x.shape)
    starts = [max(-a, 0) for a in amounts[:count]]
    ends = [min(a, 0) or np.iinfo(np.int64).max for a in amounts[count:]]
    x = onnx_op(op, "Slice", x, ints(starts), ints(ends), ints(which))
    whole = [0] * 2 * rank
    for i, axis in enumerate(which):
        whole[axis], whole[rank + axis] = max(amounts[i], 0), max(amounts[count + i], 0)
    value = op.optional(2)
    if value is None:
        value = Tensor.constant(np.asarray(op.attributes.get("value", 0), DTYPES[x.dtype].numpy), x.dtype)
    return onnx_op(op, "Pad", x, ints(whole), value) if any(whole) else x


_SOURCES: dict[str, Callable[[int, int], int]] = {
    "reflect": lambda i, s: min(abs(i), 2 * (s - 1) - abs(i)),
    "edge": lambda i, s: min(max(i, 0), s - 1),
    "wrap": lambda i, s: i % s,
}


@raises("onnx.MaxPool")
def max_pool(op: Node) -> Tensor:
    """With uneven pads (also those of SAME_UPPER), the input is padded first."""
    x = op.operand(0)
    if x.dtype in ("i8", "u8"):
        return max_pool_codes(op)
    if not uneven_pads(op, x):
        raise NotQuantised
    if len(op.proto.output) > 1 and op.proto.output[1]:
        raise refuse("the indices of a MaxPool with uneven pads are not imported", op.where)
    if x.dtype not in LOWEST:
        raise refuse(f"a MaxPool of {x.dtype} with uneven pads is not imported", op.where)
    op.plain = True
    return max_pooled(op, x)


@raises("onnx.ConvTranspose")
def conv_transpose(op: Node) -> Tensor:
    """A convolution for each phase of the stride, of codes if the operands are dequantised. With a float weight that is
    not constant, or dynamic sizes, torch-mlir imports one ConvTranspose per group, because it does not convert groups,
    and uneven pads are sliced off the result."""
    why = ""
    if any(quantised_input(op, i) is not None for i in range(len(op.proto.input))):
        try:
            return keep(op, transposed_product(op))
        except PatternDeclined as e:
            why = str(e)
    x, weight, bias = op.operand(0), op.operand(1), op.optional(2)
    if x.dtype in ("f32", "f16", "bf16") and (made := phased(op, x, weight, bias)) is not None:
        if why:
            op.left(why)
        return made
    groups = int(op.attributes.get("group", 1))
    space = len(x.shape) - 2
    pads = list(op.attributes.get("pads", []))
    uneven = pads[:space] != pads[space:] and "output_shape" not in op.attributes
    if groups == 1 and not uneven:
        raise PatternDeclined(why) if why else NotQuantised()
    channels, out = weight.shape[:2]
    if channels is None or out is None or channels % groups:
        raise refuse(f"a ConvTranspose in groups needs static channels that {groups} divides", op.where)
    if why:
        op.left(why)
    attributes = {k: v for k, v in op.attributes.items() if k != "group" and not (k == "pads" and uneven)}
    each = channels // groups

    def part(t: Tensor, size: int, g: int, axis: int) -> Tensor:
        if groups == 1:
            return t
        return onnx_op(op, "Slice", t, ints([g * size]), ints([(g + 1) * size]), ints([axis]))

    parts = []
    for g in range(groups):
        biases = [] if bias is None else [part(bias, out, g, 0)]
        parts.append(onnx_op(op, "ConvTranspose", part(x, each, g, 1), part(weight, each, g, 0), *biases, **attributes))
    whole = parts[0] if groups == 1 else onnx_op(op, "Concat", *parts, axis=1)
    if not uneven:
        return whole
    ends = [-p if p else np.iinfo(np.int64).max for p in pads[space:]]
    return onnx_op(op, "Slice", whole, ints(pads[:space]), ints(ends), ints(range(2, 2 + space)))


# ------------------------------------------------------------------------------------------------- refused


@raises("onnx.Bernoulli", "onnx.Multinomial", "onnx.RandomNormal", "onnx.RandomNormalLike", "onnx.RandomUniform",
        "onnx.RandomUniformLike")  # fmt: skip
def random(op: Node) -> Tensor:
    """Refused: random numbers."""
    raise refuse(f"{op.op_type} makes random numbers, which compiled programs do not; make them an input", op.where)


@raises("onnx.SoftmaxCrossEntropyLoss", "onnx.NegativeLogLikelihoodLoss")
def weighted_loss(op: Node) -> Tensor:
    """Expanded to its ONNX function. If that is not possible and there are weights, it is refused, because torch-mlir's
    weighted mean is wrong."""
    if len(op.proto.input) > 2 and op.proto.input[2]:
        raise refuse(f"{op.op_type} with weights is imported only if its inputs have static shapes", op.where)
    raise NotQuantised


@raises("onnx.Det")
def determinant(op: Node) -> Tensor:
    """Refused: torch-mlir's elimination divides by a pivot that may be 0."""
    raise refuse("Det is not imported: its conversion is wrong where a pivot is 0", op.where)


@raises("onnx.GridSample")
def grid_sample(op: Node) -> Tensor:
    """Built as one loop, because torch-mlir's conversion reads outside of the image and lacks some modes."""
    a = op.attributes
    mode, padding = (str(a.get(n, d)) for n, d in (("mode", "linear"), ("padding_mode", "zeros")))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)  # as opset 16 calls them
    if mode not in MODES or padding not in PADDINGS:
        raise refuse(f"GridSample has no mode {mode!r} with padding {padding!r}; modes: {', '.join(MODES)}; paddings: "
                     f"{', '.join(PADDINGS)}", op.where)  # fmt: skip
    return grid_sampled(op.operand(0), op.operand(1), mode, padding, bool(a.get("align_corners", 0)))


@raises("onnx.Resize")
def resize(op: Node) -> Tensor:
    """With align_corners, coordinates are computed from the product of size and scale, as in ONNX, whereas torch-mlir
    uses the size of the result. Mode `nearest` by integer factors copies elements."""
    x, scales = op.operand(0), op.optional(2)
    if repeats(op, x) is not None:
        op.plain = True
        return nearest(op, x)
    if op.attributes.get("coordinate_transformation_mode", "half_pixel") != "align_corners" or scales is None:
        raise NotQuantised
    if scales.array is not None and not scales.array.size:
        raise NotQuantised  # the node states sizes instead of scales
    factors = None if scales.array is None else scales.array.astype(np.float64)
    whole = factors is not None and all(
        s is not None and float(s * f).is_integer() for s, f in zip(x.shape, factors, strict=True)
    )
    if whole:
        raise NotQuantised
    return interpolated(op, x, scales)
