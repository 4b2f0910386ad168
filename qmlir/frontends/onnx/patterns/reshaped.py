"""Reshape and Unsqueeze of tensors with dynamic sizes: torch-mlir loses all sizes in converting Reshape, and does not
convert Unsqueeze."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....core.mlir import arith, ir, tensor
from ....dialect.ops.common import tensor_type
from ....ir import build
from ....ir.checks import assert_equal
from ....spec import TensorSpec
from ...raising import NotQuantised, Tensor, raises
from ...tensors import new_axis
from ..model import refuse
from ..node import Node
from ..shapes import factors
from .common import onnx_op


@raises("onnx.Reshape")
def reshape(op: Node) -> Tensor:
    """With dynamic sizes, axes are merged and split by the names of these sizes. With `allowzero`, a stated size of 0
    is 0, for which torch-mlir's code takes the input's size."""
    x, shape = op.operand(0), op.operand(1).array
    if int(op.attributes.get("allowzero", 0)) and (0 in x.shape or (shape is not None and 0 in shape)):
        raise refuse("Reshape with allowzero=1 of a tensor without elements is not imported", op.where)
    if None in x.shape and (found := _by_names(op)) is not None:
        op.plain = True
        return found
    if None in x.shape and x.shape and (spec := op.results[0]) is not None:
        if shape is not None and shape.size:
            op.plain = True
            return _stated(spec, _by_one_axis(x.value, [int(size) for size in shape], op.where))
        made = onnx_op(op, "Reshape", x, op.operand(1))
        had, has = (build.product(build.dims(t.value)) for t in (x, made))
        assert_equal(had, has, f"{op.where}: the computed shape does not have as many elements as the input")
        return _stated(spec, made.value)
    if int(op.attributes.get("allowzero", 0)):
        return onnx_op(op, "Reshape", x, op.operand(1))  # a computed shape contains no 0
    raise NotQuantised


def _by_one_axis(value: ir.Value, shape: list[int], where: str) -> ir.Value:
    """A reshape to a constant shape through one flat axis: 0 is the input's size, -1 the remaining elements."""
    dims = build.dims(value)
    sizes: list[build.Extent] = [dims[i] if size == 0 else size for i, size in enumerate(shape)]
    whole, known = build.product(dims), build.product([size for size in sizes if size != -1])
    if -1 in shape:
        of, by = build.as_index(whole), build.as_index(known)
        assert_equal(arith.remui(of, by), 0, f"{where}: the elements do not fill whole rows of the shape {shape}")
        sizes[shape.index(-1)] = arith.divui(of, by)
    else:
        assert_equal(whole, known, f"{where}: the shape {shape} has another number of elements than the input")
    flat = build.collapse(value, [list(range(len(dims)))])
    if isinstance(known, int) and -1 not in shape:
        flat = tensor.cast(ir.RankedTensorType.get([known], flat.type.element_type), flat)
    return build.expand(flat, [sizes])


def _by_names(op: Node) -> Tensor | None:
    """The reshape by the graph's names of dynamic sizes; None if they do not determine it."""
    x, spec = op.operand(0), op.results[0]
    if spec is None or not x.shape or not spec.shape:
        return None
    had = op.graph.shapes.named(op.proto.input[0], x.shape)
    has = op.graph.shapes.named(op.proto.output[0], spec.shape)
    if (found := _by_runs(x.value, had, has) or _between_equals(x.value, had, has, op.where)) is None:
        return None
    return _stated(spec, found)


def _by_runs(value: ir.Value, had: Sequence[int | str], has: Sequence[int | str]) -> ir.Value | None:
    """The reshape by runs of axes with equal numbers of elements, each of which merges axes into one or splits one;
    None if it is not of this form."""
    dims, merged, split = build.dims(value), list[list[int]](), list[list[build.Extent]]()
    for inner, outer in _runs(had, has):
        axes = range(inner.start, inner.stop)
        known = [size for size in has[outer] if isinstance(size, int)]
        unknown = outer.stop - outer.start - len(known)
        if (len(axes) > 1 and outer.stop - outer.start > 1) or unknown > 1:
            return None
        merged.append(list(axes))
        whole = build.product([dims[axis] for axis in axes])
        rest = whole if not unknown or known == [] else _divided(whole, math.prod(known))
        split.append([size if isinstance(size, int) else rest for size in has[outer]])
    return build.expand(build.collapse(value, merged), split) if merged else None


def _runs(had: Sequence[int | str], has: Sequence[int | str]) -> list[tuple[slice, slice]]:
    """The shortest runs of axes of both shapes with equal numbers of elements; empty if the names do not determine
    them."""
    runs: list[tuple[slice, slice]] = []
    i = j = 0
    while i < len(had) and j < len(has):
        inner, outer = slice(i, i + 1), slice(j, j + 1)
        while (a := factors(had[inner])) != (b := factors(has[outer])):
            if a is None or b is None:
                return []
            if not a - b and inner.stop < len(had):
                inner = slice(i, inner.stop + 1)
            elif not b - a and outer.stop < len(has):
                outer = slice(j, outer.stop + 1)
            else:
                return []
        if a is None:
            return []
        runs.append((inner, outer))
        i, j = inner.stop, outer.stop
    return runs if (i, j) == (len(had), len(has)) else []


def _divided(whole: build.Extent, known: int) -> build.Extent:
    return whole // known if isinstance(whole, int) else arith.divui(whole, build.index(known))


def _between_equals(value: ir.Value, had: Sequence[int | str], has: Sequence[int | str], where: str) -> ir.Value | None:
    """The reshape with leading and trailing axes unchanged, and between them one run of axes that is merged or one axis
    that is split; None if it is not of this form."""
    front = 0
    while front < min(len(had), len(has)) and had[front] == has[front] != "":
        front += 1
    back = 0
    while back < min(len(had), len(has)) - front and had[-1 - back] == has[-1 - back] != "":
        back += 1
    inner, outer = had[front : len(had) - back], has[front : len(has) - back]
    kept = [[i] for i in range(front)]
    if not inner and not outer:
        return value
    dims = build.dims(value)
    if len(outer) == 1 and inner:
        if isinstance(outer[0], int):
            text = f"{where}: the result {list(has)} has another number of elements than the input"
            assert_equal(build.product(dims[front : front + len(inner)]), outer[0], text)
        axes = [*kept, list(range(front, front + len(inner))), *([i] for i in range(len(had) - back, len(had)))]
        return build.collapse(value, axes)
    sizes = [s for s in outer if isinstance(s, int)]
    if len(inner) != 1 or not outer or len(outer) - len(sizes) > (0 if isinstance(inner[0], int) else 1):
        return None
    whole, known = dims[front], math.prod(sizes)
    unknown: build.Extent = 0
    if len(sizes) < len(outer):
        assert isinstance(whole, ir.Value)
        divisor = build.index(known)
        text = f"{where}: the size of axis {front} is not a multiple of {known}"
        assert_equal(arith.remui(whole, divisor), 0, text)
        unknown = arith.divui(whole, divisor)
    elif whole != known:
        return None
    split: list[build.Extent] = [s if isinstance(s, int) else unknown for s in outer]
    groups = [*([d] for d in dims[:front]), split, *([d] for d in dims[front + 1 :])]
    return build.expand(value, groups)


def _stated(spec: TensorSpec, value: ir.Value) -> Tensor:
    """`value`, cast to the static sizes of `spec`."""
    t = tensor_type(spec.shape, spec.dtype)
    return Tensor(spec, value if value.type == t else tensor.cast(t, value))


@raises("onnx.Unsqueeze")
def unsqueeze(op: Node) -> Tensor:
    """Built for tensors with dynamic sizes, which torch-mlir does not convert. Not if the graph has a Pad by amounts
    that nodes compute: IREE's code for the sum of such a tensor and a batch of products may be wrong."""
    x, axes = op.operand(0), op.attributes.get("axes")
    if axes is None and (known := op.optional(1)) is not None and known.array is not None:
        axes = known.array.reshape(-1)
    if axes is None or None not in x.shape or any(map(_pads_by_computed_amounts, op.graph.nodes)):
        raise NotQuantised
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
