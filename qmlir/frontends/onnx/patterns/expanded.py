"""Expand of tensors with dynamic sizes, each of which may be 1: torch-mlir takes it for another number, and ends the
call where it is not."""

from __future__ import annotations

from ....core.mlir import arith, ir, tensor
from ....ir import build
from ....ir.checks import assert_that, equal
from ...raising import NotQuantised, Tensor, raises
from ..node import Node


@raises("onnx.Expand")
def expand(op: Node) -> Tensor:
    """With dynamic sizes of which it is not known whether they are 1, by elements; otherwise by torch-mlir."""
    x, shape, spec = op.operand(0), op.operand(1), op.results[0]
    if spec is None or len(spec.shape) < len(x.shape):
        raise NotQuantised("as it is")
    first = len(spec.shape) - len(x.shape)
    named = op.graph.shapes.named(op.proto.output[0], spec.shape)[first:]
    unknown = [
        i for i, (a, b) in enumerate(zip(op.named(0), named, strict=True)) if x.shape[i] is None and a != (b or 0)
    ]
    if not unknown:
        raise NotQuantised("as it is")
    op.plain = True
    wanted = _wanted(shape, len(spec.shape))
    dims = build.dims(x.value)
    sizes = list(wanted)
    for i, (size, known) in enumerate(zip(dims, x.shape, strict=True)):
        at = first + i
        if known == 1:
            continue
        single = equal(size, 1)
        fits = arith.ori(arith.ori(single, equal(wanted[at], 1)), equal(size, wanted[at]))
        assert_that(fits, f"{op.where}: a size of axis {i} is neither 1 nor that of the shape it is expanded to")
        sizes[at] = (
            size
            if known is not None or i not in unknown
            else arith.select(single, build.as_index(wanted[at]), build.as_index(size))
        )
    sizes = [s if s is not None else size for s, size in zip(spec.shape, sizes, strict=True)]

    def body() -> ir.Value:
        places = []
        for i, size in enumerate(dims):
            place = build.loop_index(first + i)
            if x.shape[i] == 1:
                place = build.index(0)
            elif i in unknown:
                place = arith.select(equal(size, 1), build.index(0), place)
            places.append(place)
        return tensor.extract(value, places)

    value = x.value
    return Tensor(spec, build.elementwise([], sizes, value.type.element_type, body))


def _wanted(shape: Tensor, rank: int) -> list[build.Extent]:
    """The sizes of a shape, 1 for those in front that it does not have."""
    count = shape.shape[0]
    if count is None:
        raise NotQuantised("a shape of unknown length")
    ones: list[build.Extent] = [1] * (rank - count)
    if shape.array is not None:
        return [*ones, *(int(size) for size in shape.array)]
    each = [tensor.extract(shape.value, [build.index(i)]) for i in range(count)]
    return [*ones, *(arith.index_cast(ir.IndexType.get(), size) for size in each)]
