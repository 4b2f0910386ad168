"""A small vocabulary for building linalg on tensors readably.

Sizes are ints where static and `ir.Value`s of index type where dynamic. `elementwise` and `contraction` state
which result axis (or loop) each axis of an operand follows; an axis of size one that follows none is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..core.faults import Fault
from ..core.mlir import arith, ir, linalg, tensor
from ..dialect.dtypes import DTYPES, Array
from .attributes import iterator_types
from .facts import REPEATS, FactValue, note

Extent: TypeAlias = "ir.Value | int"  # the value is of index type
Body: TypeAlias = "Callable[..., ir.Value]"

FAULTS = (
    Fault(
        "IREE fuses the `tensor.bitcast` of one element into a dispatch, and then does not bufferize it.",
        canary="bitcast_of_one",
    ),
)


# ------------------------------------------------------------------------------------------------ constants


def element(name: str) -> ir.Type:
    """The MLIR element type that stores dtype `name`; also accepts MLIR's own spellings."""
    return ir.Type.parse(DTYPES[name].mlir if name in DTYPES else name)


def scalar(value: float | int, t: ir.Type) -> ir.Value:
    """A scalar constant of type `t`."""
    if isinstance(t, ir.FloatType):
        return arith.constant(t, float(value))
    return arith.constant(t, int(value))


def index(value: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), value)


def dense(array: Array, name: str | None = None) -> ir.Value:
    """A tensor constant. `name` gives the element type where numpy's is not MLIR's own (bf16, small floats)."""
    value = elements(array, name)
    return arith.constant(value.type, value)


def elements(array: Array, name: str | None = None) -> ir.Attribute:
    """The attribute of a constant that `dense` makes."""
    array = np.asarray(array, order="C")
    if array.dtype == np.bool_:
        made: ir.Attribute = truths(array)
        return made
    if name is None or array.dtype.kind in "iu":
        signless = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
        if array.dtype.kind in "iu":
            t = ir.RankedTensorType.get(array.shape, ir.Type.parse(signless[array.dtype.itemsize]))
            if array.size == 0 or array.ndim == 0:
                return _small(array, t)
            return ir.DenseElementsAttr.get(array.view(f"i{array.dtype.itemsize}"), type=t)
    t = ir.RankedTensorType.get(array.shape, element(name) if name else element("f32"))
    if array.size == 0 or array.ndim == 0:
        return _small(array, t)
    raw = array
    if array.dtype.kind not in "f" or array.dtype.name not in ("float16", "float32", "float64"):
        raw = array.view(f"u{array.dtype.itemsize}")
    return ir.DenseElementsAttr.get(raw, type=t)


def dense_like(array: Array, value: ir.Value) -> ir.Value:
    """A tensor constant with the element type of `value`."""
    t = value.type.element_type
    return dense(array, str(t) if isinstance(t, ir.FloatType) else None)


def truths(array: Array) -> ir.Attribute:
    """The elements of an array of truth values, one byte each, which is how this MLIR stores them."""
    t = ir.RankedTensorType.get(array.shape, ir.IntegerType.get_signless(1))
    if array.size == 0:
        return ir.Attribute.parse(f"dense<> : {t}")
    if array.all() or not array.any():
        return ir.DenseElementsAttr.get_splat(t, ir.BoolAttr.get(bool(array.flat[0])))
    return ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=t)


def _small(array: Array, t: ir.Type) -> ir.Attribute:
    """Scalars and empty tensors, which the buffer protocol of the bindings does not take."""
    if array.size == 0:
        return ir.Attribute.parse(f"dense<> : {t}")
    e = t.element_type
    value = array.reshape(()).item()
    attribute = ir.FloatAttr.get(e, float(value)) if isinstance(e, ir.FloatType) else ir.IntegerAttr.get(e, int(value))
    return ir.DenseElementsAttr.get_splat(t, attribute)


# --------------------------------------------------------------------------------------------------- shapes


def dims(value: ir.Value) -> list[Extent]:
    """The sizes of a tensor value; dynamic ones as `tensor.dim`."""
    t = value.type
    return [tensor.dim(value, index(i)) if t.is_dynamic_dim(i) else t.get_dim_size(i) for i in range(t.rank)]


def static(sizes: Sequence[Extent]) -> list[int]:
    """Sizes for a type: dynamic ones as MLIR's marker."""
    return [s if isinstance(s, int) else ir.ShapedType.get_dynamic_size() for s in sizes]


def tensor_type(sizes: Sequence[Extent], t: ir.Type) -> ir.Type:
    return ir.RankedTensorType.get(static(sizes), t)


def empty(sizes: Sequence[Extent], t: ir.Type) -> ir.Value:
    return tensor.empty(list(sizes), t)


def filled(sizes: Sequence[Extent], value: ir.Value) -> ir.Value:
    """A tensor of `sizes` filled with the scalar `value`."""
    return linalg.fill(value, outs=[empty(sizes, value.type)])


def product(sizes: Sequence[Extent]) -> Extent:
    """The product of sizes, which is the number of elements."""
    total: Extent = 1
    for s in sizes:
        if isinstance(total, int) and isinstance(s, int):
            total *= s
        else:
            total = arith.muli(as_index(total), as_index(s))
    return total


def as_index(size: Extent) -> ir.Value:
    return index(size) if isinstance(size, int) else size


def collapse(value: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    """Merge the axes of each group into one. Groups cover all axes in order."""
    sizes = dims(value)
    if all(len(g) == 1 for g in groups):
        return value
    out = [product([sizes[i] for i in g]) for g in groups]
    return tensor.collapse_shape(tensor_type(out, value.type.element_type), value, [list(g) for g in groups])


def expand(value: ir.Value, groups: Sequence[Sequence[Extent]]) -> ir.Value:
    """Split each axis into the sizes of its group. At most one size per group is dynamic."""
    if all(len(g) == 1 for g in groups):
        return value
    sizes = [s for g in groups for s in g]
    reassociation, at = [], 0
    for g in groups:
        reassociation.append(list(range(at, at + len(g))))
        at += len(g)
    return tensor.expand_shape(
        tensor_type(sizes, value.type.element_type),
        value,
        reassociation,
        [s for s in sizes if not isinstance(s, int)],
        static(sizes),
    )


def drop_axes(value: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Remove axes of size one."""
    rank = value.type.rank
    keep = [i for i in range(rank) if i not in axes]
    if len(keep) == rank:
        return value
    if not keep:
        t = ir.RankedTensorType.get([], value.type.element_type)
        return tensor.collapse_shape(t, value, [])
    # Each dropped axis joins the kept axis before it (the first ones join the first kept axis).
    groups: list[list[int]] = [[] for _ in keep]
    for i in range(rank):
        at = max((j for j, k in enumerate(keep) if k <= i), default=0)
        groups[at].append(i)
    return collapse(value, groups)


def transpose(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """Permute the axes."""
    if list(order) == list(range(len(order))):
        return value
    sizes = dims(value)
    out = [sizes[i] for i in order]
    return linalg.transpose(value, outs=[empty(out, value.type.element_type)], permutation=list(order)).results[0]


def pad(value: ir.Value, low: Sequence[int], high: Sequence[int], fill: ir.Value) -> ir.Value:
    """Pad with the scalar `fill`."""
    if not any(low) and not any(high):
        return value
    sizes = dims(value)
    out: list[int | ir.Value] = []
    for s, a, b in zip(sizes, low, high, strict=True):
        if isinstance(s, int):
            out.append(s + a + b)
        else:
            out.append(s if a + b == 0 else arith.addi(s, index(a + b)))
    op = tensor.PadOp(tensor_type(out, value.type.element_type), value, [], [], list(low), list(high))
    block = op.regions[0].blocks.append(*[ir.IndexType.get()] * value.type.rank)
    with ir.InsertionPoint(block):
        tensor.YieldOp(fill)
    return op.result


def crop(value: ir.Value, low: Sequence[int], sizes: Sequence[Extent]) -> ir.Value:
    """The box of `sizes` that starts at `low`."""
    if 0 in sizes:  # tensor.extract_slice has no valid offset in an axis of size 0
        return empty(sizes, value.type.element_type)
    return tensor.ExtractSliceOp(
        tensor_type(sizes, value.type.element_type),
        value,
        [],
        [s for s in sizes if not isinstance(s, int)],
        [],
        list(low),
        static(sizes),
        [1] * len(low),
    ).result


def bitcast(value: ir.Value, sizes: Sequence[Extent], element: ir.Type) -> ir.Value:
    """The same memory as a tensor of `sizes`, by IREE's own op (`FAULTS`)."""
    before, after = ([s for s in of if not isinstance(s, int)] for of in (dims(value), sizes))
    segments = ir.DenseI32ArrayAttr.get([1, len(before), len(after)])
    return ir.Operation.create(
        "flow.tensor.bitcast", results=[tensor_type(sizes, element)], operands=[value, *before, *after],
        attributes={"operandSegmentSizes": segments},
    ).results[0]  # fmt: skip


# -------------------------------------------------------------------------------------------------- generics


@dataclass(frozen=True)
class Arg:
    """An operand of a generic: `axes[i]` is the loop that axis `i` follows, None for an axis of size one."""

    value: ir.Value
    axes: tuple[int | None, ...]

    @classmethod
    def aligned(cls, value: ir.Value, sizes: Sequence[Extent]) -> Arg:
        """`value`, right-aligned with `sizes` as in numpy's broadcasting."""
        t, offset = value.type, len(sizes) - value.type.rank
        axes: list[int | None] = []
        for i in range(t.rank):
            one = not t.is_dynamic_dim(i) and t.get_dim_size(i) == 1
            axes.append(None if one and sizes[offset + i] != 1 else offset + i)
        return cls(value, tuple(axes))

    def prepared(self) -> tuple[ir.Value, list[int]]:
        """The value without its unattached axes, and the loops of the rest."""
        dropped = [i for i, a in enumerate(self.axes) if a is None]
        return drop_axes(self.value, dropped), [a for a in self.axes if a is not None]


def _map(loops: int, axes: Sequence[int]) -> ir.Attribute:
    return ir.AffineMapAttr.get(ir.AffineMap.get(loops, 0, [ir.AffineDimExpr.get(a) for a in axes]))


def generic(
    args: Sequence[Arg],
    init: ir.Value,
    out_axes: Sequence[int],
    loops: int,
    body: Body,
    *,
    facts: Mapping[str, FactValue] | None = None,
) -> ir.Value:
    """A `linalg.generic`; loops that the result does not follow are reductions. `body` gets the scalars of the
    operands and of the result and returns the new one. `facts`: facts about the op (`ir/facts.py`)."""
    return generics(args, [init], out_axes, loops, lambda *xs: [body(*xs)], facts=facts)[0]


def generics(
    args: Sequence[Arg],
    inits: Sequence[ir.Value],
    out_axes: Sequence[int],
    loops: int,
    body: Callable[..., Sequence[ir.Value]],
    *,
    facts: Mapping[str, FactValue] | None = None,
) -> list[ir.Value]:
    """`generic` with several results over the same axes; `body` returns a list."""
    prepared = [a.prepared() for a in args]
    values = [v for v, _ in prepared]
    if len(inits) > 1 and any(0 in v.type.shape for v in [*values, *inits]):
        return list(inits)  # there are no iterations, and IREE's compiler would divide by the size 0
    maps = [_map(loops, axes) for _, axes in prepared] + [_map(loops, out_axes)] * len(inits)
    kinds = ["parallel" if i in out_axes else "reduction" for i in range(loops)]
    iterators = iterator_types(kinds)
    op = linalg.GenericOp([i.type for i in inits], values, list(inits), ir.ArrayAttr.get(maps), iterators)
    block = op.regions[0].blocks.append(*[v.type.element_type for v in [*values, *inits]])
    with ir.InsertionPoint(block):
        linalg.YieldOp(body(*block.arguments))
    if facts:
        note(op.operation, facts)
    return list(op.results)


def inlined(block: ir.Block, arguments: Sequence[ir.Value]) -> ir.Value:
    """Clone a block at the insertion point, with `arguments` for its arguments, and return what it yields. Operations
    are cloned one by one and their operands replaced, because the bindings cannot clone with a value mapping."""
    *steps, end = (op.operation for op in block.operations)
    names = list(zip(block.arguments, arguments, strict=True))

    def renamed(value: ir.Value) -> ir.Value:
        return next((new for known, new in names if known == value), value)

    for step in steps:
        copy = step.clone(ir.InsertionPoint.current)
        for position, value in enumerate(step.operands):
            copy.operation.operands[position] = renamed(value)
        names += zip(step.results, copy.operation.results, strict=True)
    return renamed(end.operands[0])


def loop_index(i: int) -> ir.Value:
    """The running index of loop `i`, inside a body."""
    return linalg.IndexOp(i).result


def elementwise(
    args: Sequence[Arg],
    sizes: Sequence[Extent],
    t: ir.Type,
    body: Body,
    *,
    facts: Mapping[str, FactValue] | None = None,
) -> ir.Value:
    """One result element from one element of each operand. `body` gets only the operands' scalars."""
    rank = len(sizes)
    return generic(args, empty(sizes, t), range(rank), rank, lambda *xs: body(*xs[:-1]), facts=facts)


def mapped(value: ir.Value, t: ir.Type, body: Body, facts: Mapping[str, FactValue] | None = None) -> ir.Value:
    """One result element, of type `t`, from each element of one tensor."""
    return elementwise([Arg(value, tuple(range(value.type.rank)))], dims(value), t, body, facts=facts)


def repeat(value: ir.Value, axis: int, times: int) -> ir.Value:
    """Repeat each element along `axis` `times` times, like numpy.repeat."""
    if times == 1:
        return value
    sizes = dims(value)
    wide = [*sizes[: axis + 1], times, *sizes[axis + 1 :]]
    arg = Arg(value, tuple(i if i <= axis else i + 1 for i in range(len(sizes))))
    spread = elementwise([arg], wide, value.type.element_type, lambda x: x, facts={REPEATS: (axis, times)})
    groups = [[i] for i in range(axis)] + [[axis, axis + 1]] + [[i] for i in range(axis + 2, len(wide))]
    return collapse(spread, groups)
