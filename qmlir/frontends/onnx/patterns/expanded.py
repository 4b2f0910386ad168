"""Broadcasts of tensors with dynamic sizes, each of which may be 1. torch-mlir assumes that a dynamic size is not 1,
and its code aborts the call if it is."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.mlir import arith, ir, tensor
from ....ir import build
from ....ir.checks import assert_that, equal
from ....spec import TensorSpec
from ...raising import NotQuantised, Tensor, raises
from ..node import Node


@raises("onnx.Expand")
def expand(op: Node) -> Tensor:
    """Built as a loop over the elements if dynamic sizes may be 1 at run time; otherwise imported by torch-mlir."""
    x, shape, spec = op.operand(0), op.operand(1), op.results[0]
    if spec is None or len(spec.shape) < len(x.shape):
        raise NotQuantised
    first = len(spec.shape) - len(x.shape)
    named = op.graph.shapes.named(op.proto.output[0], spec.shape)[first:]
    unknown = [
        i for i, (a, b) in enumerate(zip(op.named(0), named, strict=True)) if x.shape[i] is None and a != (b or 0)
    ]
    if not unknown:
        raise NotQuantised
    op.plain = True
    wanted = _stated_sizes(shape, len(spec.shape))
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


def _stated_sizes(shape: Tensor, rank: int) -> list[build.Extent]:
    """The sizes that a shape tensor holds, with leading ones for `rank` axes."""
    count = shape.shape[0]
    if count is None:
        raise NotQuantised  # a shape of unknown length
    ones: list[build.Extent] = [1] * (rank - count)
    if shape.array is not None:
        return [*ones, *(int(size) for size in shape.array)]
    each = [tensor.extract(shape.value, [build.index(i)]) for i in range(count)]
    return [*ones, *(arith.index_cast(ir.IndexType.get(), size) for size in each)]


# Operators that broadcast their operands.
BROADCASTING = frozenset((
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less",
    "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
))  # fmt: skip


def spread(
    operands: Sequence[Tensor], names: Sequence[tuple[int | str, ...]], result: Sequence[int | str], where: str
) -> list[Tensor]:
    """The operands of a broadcasting operator, repeated along the axes whose sizes are not known to be equal, i.e.
    dynamic sizes without names or with different names. `names` are the sizes of each operand and `result` those of the
    result, as `Shapes.named` returns them."""
    rank = max(len(own) for own in names)
    unclear: dict[int, build.Extent] = {}  # axis, counted from the last: the size of the result
    for axis in range(1, rank + 1):
        sizes = [
            (t, own[-axis]) for t, own in zip(operands, names, strict=True) if axis <= len(own) and own[-axis] != 1
        ]
        if len(sizes) < 2 or ("" not in (said := {name for _, name in sizes}) and len(said) == 1):
            continue
        stated = result[-axis] if axis <= len(result) else ""
        whole = [t for t, name in sizes if isinstance(name, int) or name == stated != ""]
        unclear[axis] = _not_one([build.dims(t.value)[-axis] for t in whole[:1] or [t for t, _ in sizes]])
    return [_repeated(t, own, unclear, where) for t, own in zip(operands, names, strict=True)]


def _not_one(sizes: Sequence[build.Extent]) -> build.Extent:
    """The first size that is not 1 at run time, or 1."""
    found = sizes[0]
    for size in sizes[1:]:
        found = arith.select(equal(found, 1), build.as_index(size), build.as_index(found))
    return found


def _repeated(t: Tensor, own: tuple[int | str, ...], unclear: dict[int, build.Extent], where: str) -> Tensor:
    chosen = {len(own) - axis: size for axis, size in unclear.items() if axis <= len(own)}
    chosen = {i: size for i, size in chosen.items() if not isinstance(own[i], int)}
    if not chosen:
        return t
    value, have = t.value, build.dims(t.value)
    sizes = [chosen.get(i, size) for i, size in enumerate(have)]
    for i, size in chosen.items():
        fits = arith.ori(equal(have[i], 1), equal(have[i], size))
        assert_that(fits, f"{where}: a size of axis {i} is neither 1 nor that of the other operands")

    def body() -> ir.Value:
        places = [build.loop_index(i) for i in range(len(have))]
        for i in chosen:
            places[i] = arith.select(equal(have[i], 1), build.index(0), places[i])
        return tensor.extract(value, places)

    spec = TensorSpec(tuple(size if isinstance(size, int) else None for size in sizes), t.dtype)
    return Tensor(spec, build.elementwise([], sizes, value.type.element_type, body))
