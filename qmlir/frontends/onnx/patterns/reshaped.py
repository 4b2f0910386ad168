"""Reshape and Unsqueeze of tensors with dynamic sizes: torch-mlir converts the one to shapes of which it knows nothing,
and the other not at all."""

from __future__ import annotations

import math

from ....core.mlir import arith, ir, tensor
from ....dialect.ops.common import tensor_type
from ....ir import build
from ....spec import TensorSpec
from ...raising import NotQuantised, Tensor, raises
from ...tensors import new_axis
from ..model import refuse
from ..node import Node
from .common import onnx_op


@raises("onnx.Reshape")
def reshape(op: Node) -> Tensor:
    """With dynamic sizes by their names, where axes are merged or split. `allowzero`: a size of 0 is one, where
    torch-mlir's code takes the input's."""
    x, shape = op.operand(0), op.operand(1).array
    if int(op.attributes.get("allowzero", 0)) and (0 in x.shape or (shape is not None and 0 in shape)):
        raise refuse("Reshape with allowzero=1 of a tensor without elements is not imported", op.where)
    if None in x.shape and (found := _by_names(op)) is not None:
        op.plain = True
        return found
    if int(op.attributes.get("allowzero", 0)):
        return onnx_op(op, "Reshape", x, op.operand(1))  # no size of a shape that is computed is 0
    raise NotQuantised("as it is")


def _by_names(op: Node) -> Tensor | None:
    """The reshape as axes that stay, and one run of axes between them that is merged, or an axis that is split."""
    x, spec = op.operand(0), op.results[0]
    if spec is None or not x.shape or not spec.shape:
        return None
    had = op.graph.shapes.named(op.proto.input[0], x.shape)
    has = op.graph.shapes.named(op.proto.output[0], spec.shape)
    front = 0
    while front < min(len(had), len(has)) and had[front] == has[front] != "":
        front += 1
    back = 0
    while back < min(len(had), len(has)) - front and had[-1 - back] == has[-1 - back] != "":
        back += 1
    inner, outer = had[front : len(had) - back], has[front : len(has) - back]
    kept = [[i] for i in range(front)]
    if not inner and not outer:
        return _stated(spec, x.value)
    if len(outer) == 1 and inner:
        axes = [*kept, list(range(front, front + len(inner))), *([i] for i in range(len(had) - back, len(had)))]
        return _stated(spec, build.collapse(x.value, axes))
    sizes = [s for s in outer if isinstance(s, int)]
    if len(inner) != 1 or not outer or len(outer) - len(sizes) > (0 if isinstance(inner[0], int) else 1):
        return None
    dims = build.dims(x.value)
    whole, known = dims[front], math.prod(sizes)
    unknown: build.Extent = 0
    if len(sizes) < len(outer):
        assert isinstance(whole, ir.Value)
        divisor = build.index(known)
        fits = arith.cmpi(arith.CmpIPredicate.eq, arith.remui(whole, divisor), build.index(0))
        text = f"{op.where}: the size of axis {front} is not a multiple of {known}"
        ir.Operation.create("cf.assert", operands=[fits], attributes={"msg": ir.StringAttr.get(text)})
        unknown = arith.divui(whole, divisor)
    elif isinstance(whole, int) and whole != known:
        return None
    split: list[build.Extent] = [s if isinstance(s, int) else unknown for s in outer]
    groups = [*([d] for d in dims[:front]), split, *([d] for d in dims[front + 1 :])]
    return _stated(spec, build.expand(x.value, groups))


def _stated(spec: TensorSpec, value: ir.Value) -> Tensor:
    """A value with the static sizes that are known of it."""
    t = tensor_type(spec.shape, spec.dtype)
    return Tensor(spec, value if value.type == t else tensor.cast(t, value))


@raises("onnx.Unsqueeze")
def unsqueeze(op: Node) -> Tensor:
    """Of a tensor with dynamic sizes, for which torch-mlir has no conversion. Not beside a Pad by amounts that nodes
    compute: what IREE makes of a sum of such a tensor and a batch of products may be wrong."""
    x, axes = op.operand(0), op.attributes.get("axes")
    if axes is None and (known := op.optional(1)) is not None and known.array is not None:
        axes = known.array.reshape(-1)
    if axes is None or None not in x.shape or any(map(_pads_by_computed_amounts, op.graph.nodes)):
        raise NotQuantised("as it is")
    op.plain = True
    rank = len(x.shape) + len(axes)
    for axis in sorted(int(a) % rank for a in axes):
        x = new_axis(x, axis)
    return x


def _pads_by_computed_amounts(op: Node) -> bool:
    if op.op_type != "Pad" or len(op.proto.input) < 2:
        return False
    amounts = op.producer(1)
    return amounts is not None and amounts.op_type != "Constant"
