"""Chains of elementwise ops from 8-bit codes to 8-bit codes: dequantise, compute in f32, quantise.

A group has one result. It reads leaves, which are tensors of codes over all or some axes of the result, and constants.
A byte has few values, so a group can be evaluated at compile time: with one tensor of codes completely (a table of 256
entries), with two the result of each op for every pair of codes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.mlir import ir
from ..dialect.constants import constant_array
from ..dialect.dtypes import Array
from ..dialect.reference import scalars
from ..ir.affine import indexing_maps
from ..ir.attributes import is_elementwise
from ..ir.walk import operations_of, producer
from .bodies import scalar_constant, unclonable

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# Which axis of the result each axis of a tensor follows, None for one of size 1.
ReadAxes = tuple[int | None, ...]
_MAX_LEAVES = 2  # tensors of codes whose combinations are all evaluated: 65536
_MAX_STEPS = 64


@dataclass(frozen=True)
class Read:
    """A tensor, and for each of its axes the axis of the result that it follows."""

    value: ir.Value
    axes: ReadAxes

    def follows(self, shape: tuple[int | None, ...]) -> bool:
        """Whether the tensor has one element for each element of a result of this shape, in the same order."""
        in_order = all(a == i for i, a in enumerate(self.axes) if a is not None)
        return in_order and sizes_of(self.value) == shape


@dataclass(frozen=True)
class PointwiseStep:
    """One generic of a group: `reads` for its inputs, in order, and its result."""

    op: OpLike
    reads: tuple[Read, ...]
    result: Read

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]


@dataclass(frozen=True)
class Pointwise:
    """A group: its last op, all steps in order, the tensors that it reads, and its constants."""

    root: OpLike
    steps: tuple[PointwiseStep, ...]
    leaves: tuple[Read, ...]
    constants: Mapping[Read, Array]

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of the result; None for a dynamic size."""
        return sizes_of(self.root.results[0])

    @property
    def table(self) -> Array | None:
        """The result's code for each byte of the only leaf, from byte 0; None if there are more leaves, the leaf is not
        of codes, or a constant has more than one element."""
        if len(self.leaves) != 1 or not is_code(self.leaves[0].value) or _per_axis(self.constants):
            return None
        found = evaluated(self)
        return np.asarray(np.broadcast_to(found.results[self.steps[-1].result], (256,))).view(np.uint8)


@dataclass(frozen=True)
class Evaluated:
    """A group evaluated for every combination of codes of its leaves, with one axis per leaf: each value of a body, and
    each result of a step."""

    values: Mapping[ir.Value, Array]
    results: Mapping[Read, Array]

    def bound(self, value: ir.Value) -> float | None:
        """The largest magnitude of a float value of a body, None if it may be NaN or infinite."""
        found = self.values.get(value)
        if found is None or found.dtype.kind != "f" or not np.isfinite(found).all():
            return None
        return float(np.abs(found).max())

    def constant(self, value: ir.Value) -> float | None:
        """A value of a body if it is finite and the same for all codes, else None."""
        found = self.values.get(value)
        if found is None or not np.isfinite(found.flat[0]) or not (found == found.flat[0]).all():
            return None
        return float(found.flat[0])


def find(root: OpLike) -> Pointwise | None:
    """The group that ends in `root`; None if there is none, or if it computes without floats (ops that only flip the
    sign bit of codes do not need a kernel)."""
    if not _elementwise(root) or not is_code(root.results[0]):
        return None
    group = _grown(root)
    everywhere = [leaf for leaf in group.leaves if len({a for a in leaf.axes if a is not None}) == len(group.shape)]
    floats = any(_computes(step.op) for step in group.steps)
    return group if floats and all(is_code(leaf.value) for leaf in (everywhere or group.leaves)) else None


def meaning(value: ir.Value) -> Pointwise | None:
    """The group that makes an f32 tensor from one tensor of codes, and otherwise from single-element constants."""
    root = producer(value)
    if root is None or not _elementwise(root) or str(root.results[0].type.element_type) != "f32":
        return None
    group = _grown(root)
    return group if len(group.leaves) == 1 and enumerable(group) else None


def _grown(root: OpLike) -> Pointwise:
    rank = ir.RankedTensorType(root.results[0].type).rank
    steps: dict[Read, PointwiseStep] = {}
    leaves: dict[Read, None] = {}
    constants: dict[Read, Array] = {}

    def visit(read: Read) -> Read:
        """Look through views, and record the tensor behind them as a step, a leaf or a constant."""
        read = _behind_views(read)
        if read in steps or read in leaves or read in constants:
            return read
        known = constant_array(read.value)
        if known is not None:
            constants[read] = known
            return read
        op = producer(read.value)
        if op is None or not _elementwise(op) or len(steps) >= _MAX_STEPS or (op != root and _stored(op)):
            leaves[read] = None
            return read
        inputs = len(op.operands) - 1
        maps = indexing_maps(op)[:inputs]
        reads = [visit(Read(v, _followed(m, read.axes))) for v, m in zip(list(op.operands)[:inputs], maps, strict=True)]
        steps[read] = PointwiseStep(op, tuple(reads), read)
        return read

    visit(Read(root.results[0], tuple(range(rank))))
    return Pointwise(root, tuple(steps.values()), tuple(leaves), constants)


def evaluated(group: Pointwise) -> Evaluated:
    """Evaluate a group for every combination of codes with the reference. It must have at most two leaves, all of
    codes, and no constant with more than one element (see `enumerable`)."""
    results: dict[Read, Array] = {read: array.reshape(()) for read, array in group.constants.items()}
    for i, leaf in enumerate(group.leaves):
        shape = [1] * len(group.leaves)
        shape[i] = 256
        results[leaf] = np.arange(256, dtype=np.uint8).view(np.int8).reshape(shape)
    values: dict[ir.Value, Array] = {}
    for step in group.steps:
        known = dict(zip(step.body.arguments, (results[r] for r in step.reads), strict=False))
        for op in operations_of(step.body):
            operands = [known[v] if v in known else _scalar(v) for v in op.operands]
            if op.name == "linalg.yield":
                results[step.result] = operands[0]
            elif op.name == "arith.constant":
                known[op.results[0]] = _scalar(op.results[0])
            else:
                with np.errstate(all="ignore"):
                    known[op.results[0]] = np.asarray(scalars.evaluate(op, operands))
        for value, array in known.items():  # a body may be evaluated for two choices of axes
            values[value] = array if value not in values else np.append(values[value], array)
    return Evaluated(values, results)


def enumerable(group: Pointwise) -> bool:
    """Whether all combinations of codes can be evaluated."""
    few = len(group.leaves) <= _MAX_LEAVES and all(is_code(leaf.value) for leaf in group.leaves)
    return few and not _per_axis(group.constants)


def divides_by(found: Evaluated, op: OpLike) -> tuple[float, float] | None:
    """`(high, low)` for a quotient by a constant, such that `fma(x, high, x * low)` is bit-exact for every value that
    `x` can have; None if there is no such pair, or if the values of `x` are not known.

    Source: Brisebarre, Muller, Raina, "Accelerating correctly rounded floating-point division when the divisor is known
    in advance", 2004; here every value of `x` is tested. The sign of a zero may differ.
    """
    divisor = found.constant(op.operands[1])
    bound = found.bound(op.operands[0])
    if divisor is None or bound is None or not 2.0**-60 < abs(divisor) < 2.0**60:
        return None
    x = found.values[op.operands[0]]
    if x.dtype != np.float32:
        return None
    high = np.float32(1 / divisor)
    low = np.float32(1 / divisor - np.float64(high))
    # The product is exact in f64, the sum is not: its f64 neighbours must round to the same f32, too.
    total = x.astype(np.float64) * np.float64(high) + (x * low).astype(np.float64)
    wanted = x / np.float32(divisor)
    sides = (total, np.nextafter(total, -math.inf), np.nextafter(total, math.inf))
    return (float(high), float(low)) if all((s.astype(np.float32) == wanted).all() for s in sides) else None


def is_code(value: ir.Value) -> bool:
    """Whether a tensor has 8-bit integer elements."""
    element = ir.RankedTensorType(value.type).element_type
    return isinstance(element, ir.IntegerType) and element.width == 8


def sizes_of(value: ir.Value) -> tuple[int | None, ...]:
    """The sizes of a tensor; None for a dynamic one."""
    kind = ir.RankedTensorType(value.type)
    return tuple(None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank))


def _elementwise(op: OpLike) -> bool:
    """Whether an op is an elementwise generic with one result and a body that can be cloned onto vectors."""
    if not is_elementwise(op) or len(op.results) != 1:
        return False
    *maps, out = indexing_maps(op)
    if out != ir.AffineMap.get_identity(out.n_dims):
        return False
    block = op.regions[0].blocks[0]
    if list(list(block.arguments)[-1].uses) or unclonable(block):
        return False
    return all(_positions(m) is not None for m in maps)


def _positions(affine_map: ir.AffineMap) -> list[int | None] | None:
    """The loop that each axis of an operand follows, None for the index 0; None for any other map."""
    found: list[int | None] = []
    for x in affine_map.results:
        if isinstance(x, ir.AffineDimExpr):
            found.append(x.position)
        elif isinstance(x, ir.AffineConstantExpr) and x.value == 0:
            found.append(None)
        else:
            return None
    named = [p for p in found if p is not None]
    return found if len(set(named)) == len(named) else None


def _followed(affine_map: ir.AffineMap, axes: ReadAxes) -> ReadAxes:
    positions = _positions(affine_map)
    assert positions is not None
    return tuple(None if p is None else axes[p] for p in positions)


def _behind_views(read: Read) -> Read:
    """The tensor behind reshapes that add or drop axes of size 1."""
    while (op := producer(read.value)) is not None and op.name in ("tensor.collapse_shape", "tensor.expand_shape"):
        before, after = sizes_of(op.operands[0]), sizes_of(op.results[0])
        wide = [i for i, size in enumerate(before) if size != 1]
        left = [i for i, size in enumerate(after) if size != 1]
        if [before[i] for i in wide] != [after[i] for i in left] or (None in before and len(wide) > 1):
            break
        axes: list[int | None] = [None] * len(before)
        for i, j in zip(wide, left, strict=True):
            axes[i] = read.axes[j]
        read = Read(op.operands[0], tuple(axes))
    return read


def _stored(op: OpLike) -> bool:
    """Whether the result of a step is computed codes with several readers: the group reads them as a leaf instead of
    computing them again."""
    return is_code(op.results[0]) and _computes(op) and len(list(op.results[0].uses)) > 1


def _computes(op: OpLike) -> bool:
    """Whether an op's body has float arithmetic."""
    return any(isinstance(r.type, ir.FloatType) for o in op.regions[0].blocks[0].operations for r in o.results)


def _per_axis(constants: Mapping[Read, Array]) -> bool:
    return any(array.size != 1 for array in constants.values())


def _scalar(value: ir.Value) -> Array:
    attribute = scalar_constant(value)
    kind = scalars.numpy_type(value.type)
    assert attribute is not None
    assert kind is not None
    number = attribute.value
    if kind.kind == "i":  # signless: the bindings show some as unsigned
        bits = 8 * kind.itemsize
        number = (int(number) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return np.asarray(number, kind)
