"""com.microsoft's quantised reductions: global average pooling by exact integer sums; average pooling, means and
softmax in f32 between a dequantisation and a quantisation, as onnxruntime computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import arith
from ....dialect.dtypes import DTYPES
from ....ir import build
from ....ir.scalars import i32
from ....spec import TensorSpec
from ...raising import NotQuantised, PatternDeclined, Tensor, raises
from ...tensors import elementwise, integer, quantised
from ..model import refuse
from ..node import Node
from .common import BYTES, DequantizedValue, absorb, quantised_input, ratio
from .linear import quantize
from .pointwise import dequantize, output, per_tensor
from .pooled import pooled_codes

if TYPE_CHECKING:
    from ....core.mlir import ir


@raises("onnx.com.microsoft.QLinearGlobalAveragePool")
def global_average_pool(op: Node) -> Tensor:
    """(X, x_scale, x_zero, y_scale, y_zero): `sum(x - x_zero) * (x_scale / (y_scale * size))`."""
    x = per_tensor(op, 0, 1, 2)
    scale, zero, dtype = output(op, 3, 4, x.codes.dtype)
    rank = len(x.codes.shape)
    last = bool(op.attributes.get("channels_last", 0))
    axes = range(1, rank - 1) if last else range(2, rank)
    sizes = [x.codes.shape[i] for i in axes]
    if rank < 3 or None in sizes:
        raise PatternDeclined(f"a global average over {x.codes.spec}; the sizes it sums over must be static")
    count = int(np.prod([s for s in sizes if s is not None]))
    total = _sum(x.codes, axes)
    factor = ratio([x.scale], _scaled(scale, count))
    d = DTYPES[dtype]
    extra = [t for t in (x.zero, zero) if t is not None]

    def body(acc: ir.Value, r: ir.Value, *zs: ir.Value) -> ir.Value:
        if x.zero is not None:
            acc = arith.subi(acc, arith.muli(zs[0], build.scalar(count, i32())))
        value = arith.mulf(arith.sitofp(r.type, acc), r)
        return quantised(value, arith.sitofp(r.type, zs[-1]) if zero is not None else None, d)

    return elementwise(body, [total, factor, *extra], dtype)


def _scaled(scale: Tensor, count: int) -> Tensor:
    """A scale times a count."""
    if scale.array is not None:
        return Tensor.constant(np.asarray(scale.array * np.float32(count), np.float32))
    return elementwise(lambda s: arith.mulf(s, build.scalar(count, s.type)), [scale], "f32")


def _sum(x: Tensor, axes: Sequence[int]) -> Tensor:
    """The i32 sums of codes over `axes`, which are kept with size one."""
    value = x.value
    sizes = build.dims(value)
    rank = len(sizes)
    kept = [i for i in range(rank) if i not in axes]
    init = build.filled([sizes[i] for i in kept], build.scalar(0, i32()))

    def body(v: ir.Value, acc: ir.Value) -> ir.Value:
        return arith.addi(acc, integer(v, x.dtype))

    made = build.generic([build.Arg(value, tuple(range(rank)))], init, kept, rank, body)
    groups: list[list[ir.Value | int]] = []
    for i in range(rank):
        if i in kept:
            groups.append([sizes[i]])
        else:
            groups[-1].append(1)
    shape = tuple(1 if i in axes else s for i, s in enumerate(x.shape))
    return Tensor(TensorSpec(shape, "i32"), build.expand(made, groups))


@raises("onnx.GlobalAveragePool", "onnx.ReduceMean")
def mean_of_codes(op: Node) -> Tensor:
    """The mean over the last axes of a dequantised tensor with one scale: `f32(sum(x - zero)) * scale / size`, with an
    exact i32 sum. Other means are float operators."""
    q = quantised_input(op, 0)
    axes = None if q is None else _mean_axes(op, len(q.codes.shape))
    if q is None or axes is None or not q.per_tensor or q.dtype != "f32" or q.codes.dtype not in BYTES:
        raise NotQuantised  # a mean of floats
    shape = q.codes.shape
    outer = len(shape) - len(axes)
    count = 1
    for size in shape[outer:]:
        count *= size or 0
    if axes != list(range(outer, len(shape))) or not 0 < count < 2**23 or not outer:
        raise NotQuantised  # not over the last axes, of static sizes
    rows = build.collapse(q.codes.value, [*([i] for i in range(outer)), list(range(outer, len(shape)))])
    sizes = build.dims(rows)
    init = build.filled(sizes[:outer], build.scalar(0, i32()))
    total = build.generic([build.Arg(rows, tuple(range(outer + 1)))], init, range(outer), outer + 1,
                          lambda v, acc: arith.addi(acc, integer(v, q.codes.dtype)))  # fmt: skip

    def body(acc: ir.Value, s: ir.Value, *z: ir.Value) -> ir.Value:
        if z:
            acc = arith.subi(acc, arith.muli(z[0], build.scalar(count, i32())))
        return arith.divf(arith.mulf(arith.sitofp(s.type, acc), s), build.scalar(count, s.type))

    extra = [] if q.zero is None else [q.zero]
    mean = elementwise(body, [Tensor(TensorSpec(shape[:outer], "i32"), total), q.scale, *extra], "f32")
    absorb(op, *q.nodes)
    if not int(op.attributes.get("keepdims", 1)):
        return mean
    groups = [[s] for s in build.dims(mean.value)]
    groups[-1] += [1] * len(axes)
    return Tensor(TensorSpec((*shape[:outer], *[1] * len(axes)), "f32"), build.expand(mean.value, groups))


def _mean_axes(op: Node, rank: int) -> list[int] | None:
    """The axes of a mean in ascending order; None if they are not constant or there are none."""
    if op.op_type == "GlobalAveragePool":
        return list(range(2, rank))
    stated = op.attributes.get("axes")
    given = op.optional(1)
    if given is not None:
        stated = given.array
    elif stated is None and not int(op.attributes.get("noop_with_empty_axes", 0)):
        stated = range(rank)
    return None if stated is None or not len(stated) else sorted(int(a) % rank for a in stated)


def _through_float(op: Node, operator: str, x: DequantizedValue, y: tuple[Tensor, Tensor | None, str],
                   names: Sequence[str], rest: Sequence[Tensor] = ()) -> Tensor:  # fmt: skip
    """Dequantise, apply an operator of the default domain with the attributes `names`, and quantise."""
    attributes = [a for a in op.proto.attribute if a.name in names]
    value = op.graph.torch_op(operator, [dequantize(op, x), *rest], attributes, op)
    return quantize(value, *y)


@raises("onnx.com.microsoft.QLinearAveragePool")
def average_pool(op: Node) -> Tensor:
    """(X, x_scale, x_zero, y_scale, y_zero)."""
    if int(op.attributes.get("channels_last", 0)):
        raise PatternDeclined("channels_last average pooling")
    _refuse_wrong_average(op)
    x = per_tensor(op, 0, 1, 2)
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    return _through_float(op, "AveragePool", x, output(op, 3, 4, x.codes.dtype), names)


@raises("onnx.AveragePool")
def float_average_pool(op: Node) -> Tensor:
    """Imported by torch-mlir, except for one form that torch-mlir computes wrongly, which is refused."""
    _refuse_wrong_average(op)
    raise NotQuantised


def _refuse_wrong_average(op: Node) -> None:
    """Refuse an average pool with both ceil_mode and count_include_pad: for a window that exceeds the padding,
    torch-mlir divides by the size of the whole window; onnxruntime, torch and the onnx package's reference divide by
    the number of elements inside."""
    if int(op.attributes.get("ceil_mode", 0)) and int(op.attributes.get("count_include_pad", 0)):
        raise refuse("an average pool with both ceil_mode and count_include_pad is not computed as onnxruntime does; "
                     "leave one of them out, or pad in front of the pool", op.where)  # fmt: skip


@raises("onnx.com.microsoft.QLinearReduceMean")
def reduce_mean(op: Node) -> Tensor:
    """(data, data_scale, data_zero, reduced_scale, reduced_zero), axes an attribute."""
    x = per_tensor(op, 0, 1, 2)
    rest = []
    names = ["keepdims"]
    if op.opset < 18:
        names.append("axes")
    elif "axes" in op.attributes:
        rest = [Tensor.constant(np.asarray(op.attributes["axes"], np.int64))]
    return _through_float(op, "ReduceMean", x, output(op, 3, 4, x.codes.dtype), names, rest)


@raises("onnx.com.microsoft.QLinearSoftmax")
def softmax(op: Node) -> Tensor:
    """(X, X_scale, x_zero, y_scale, y_zero), with the attributes `axis` and `opset`, the one that defines the
    Softmax."""
    x = per_tensor(op, 0, 1, 2)
    axis = int(op.attributes.get("axis", -1))
    rank = len(x.codes.shape)
    if int(op.attributes.get("opset", 13)) < 13 and axis % rank != rank - 1:
        raise PatternDeclined("a Softmax of opset 12 or lower along an axis that is not the last")
    return _through_float(op, "Softmax", x, output(op, 3, 4, x.codes.dtype), ("axis",))


def max_pool_codes(op: Node) -> Tensor:
    """A MaxPool of codes, which torch-mlir converts for floats: the codes are converted to f32, which is exact, and
    back."""
    if len(op.proto.output) > 1 and op.proto.output[1]:
        raise PatternDeclined("the indices of a maximum over codes")
    return pooled_codes(op, op.operand(0))
