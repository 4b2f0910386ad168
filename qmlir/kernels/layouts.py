"""Layouts of a matrix of codes as data: pad, split, permute, pack short codes into bytes.

One description has two uses: `apply` folds a constant in numpy, `emit` makes IR for a value that is known at run time
(which IREE hoists into the program's initialisation if the value is a parameter).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..core.mlir import arith, ir, linalg, tensor
from ..dialect.dtypes import Array
from ..ir.attributes import iterator_types
from .description import Factor


@dataclass(frozen=True)
class WeightLayout:
    """The layout of a matrix `[rows, columns]` of codes that fit `bits` after `offset` is subtracted.

    Attributes:
        padded: the sizes that the matrix is padded to with zeros, at the high ends.
        factors: the sizes that each of the two axes is split into, outermost first.
        order: the permutation of all factors.
        bits: the width of a stored code; several share a byte, the first in its lowest bits.
        field: the factor (after the permutation) whose 8 / bits elements share a byte.
        offset: the value of a stored code is its bits as an unsigned number, plus this.
    """

    padded: tuple[int, ...]
    factors: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    bits: int = 8
    field: int | None = None
    offset: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the stored bytes."""
        flat = [size for axis in self.factors for size in axis]
        sizes = [flat[i] for i in self.order]
        return tuple(size for i, size in enumerate(sizes) if i != self.field)

    @property
    def bytes(self) -> int:
        return prod(self.shape)

    def apply(self, codes: Array) -> Array:
        """The stored bytes of `codes`, int8."""
        assert codes.ndim == 2
        padding = [(0, want - have) for want, have in zip(self.padded, codes.shape, strict=True)]
        stored = codes.astype(np.int8, copy=False).view(np.uint8)
        if self.offset:
            stored = stored - np.uint8(self.offset & 255)  # modulo 256
        if self.bits < 8:
            stored = stored & np.uint8((1 << self.bits) - 1)
        # Padding has zero bits: kernels multiply padded rows and columns by zero or drop their results.
        stored = np.pad(stored, padding) if any(high for _, high in padding) else stored
        parts = stored.reshape([size for axis in self.factors for size in axis]).transpose(self.order)
        if self.field is not None:
            count = 8 // self.bits
            pieces = [np.take(parts, i, self.field) for i in range(count)]
            joined = np.zeros_like(pieces[0])
            for i, piece in enumerate(pieces):
                joined |= piece << np.uint8(i * self.bits)
            parts = joined
        return np.ascontiguousarray(parts).view(np.int8)

    def each(self, codes: Array) -> Array:
        """The stored bytes of one matrix, or of each of `[B, rows, columns]`."""
        return self.apply(codes) if codes.ndim == 2 else np.stack([self.apply(matrix) for matrix in codes])

    def emit(self, value: ir.Value, flipped: bool = False) -> ir.Value:
        """Emit the IR of `apply` for a tensor of i8 codes `[.., rows, columns]` at the insertion point, or of floats,
        whose values stay unchanged; `flipped`: the tensor holds the codes with their top bit inverted."""
        offset = (self.offset + (128 if flipped else 0)) & 255
        if offset or self.bits < 8:
            value = _stored(value, offset, self.bits)
        value = _split(_pad(value, self.padded), self.factors)
        return (
            _transpose(value, self.order) if self.field is None else _joined(value, self.order, self.field, self.bits)
        )


def by_columns(rhs: Factor) -> ir.Value:
    """Transpose and collapse a weight to `[N, K]`, or `[B, N, K]` of a batch, at the insertion point."""
    axes = rhs.source_axes
    order = sorted(range(len(axes)), key=lambda i: ("b", "n", "g", "k").index(axes[i]))
    value = _transpose(rhs.value, order)
    groups = [[i for i, axis in enumerate(order) if axes[axis] in letters] for letters in ("b", "n", "gk")]
    groups = [group for group in groups if group]
    if len(groups) == len(axes):
        return value
    shape = _static(value)
    kind = ir.RankedTensorType.get([prod(shape[i] for i in group) for group in groups], value.type.element_type)
    return tensor.collapse_shape(kind, value, groups)


def _static(value: ir.Value) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def _stored(value: ir.Value, offset: int, bits: int) -> ir.Value:
    """Subtract the offset of every code and keep its lowest bits."""
    t, shape = value.type.element_type, _static(value)
    same = ir.AffineMap.get_identity(len(shape))

    def body(code: ir.Value, _: ir.Value) -> ir.Value:
        if offset:  # modulo 256
            code = arith.subi(code, arith.constant(t, offset - 256 if offset > 127 else offset))
        return arith.andi(code, arith.constant(t, (1 << bits) - 1)) if bits < 8 else code

    return _generic([value], tensor.empty(shape, t), [same, same], body)


def _pad(value: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """Pad the last two axes with zeros at the high ends."""
    shape = _static(value)
    lead = len(shape) - len(sizes)
    high = [0] * lead + [want - have for want, have in zip(sizes, shape[lead:], strict=True)]
    if not any(high):
        return value
    t = value.type.element_type
    padded = [size + more for size, more in zip(shape, high, strict=True)]
    op = tensor.PadOp(ir.RankedTensorType.get(padded, t), value, [], [], [0] * len(shape), high)
    index = ir.IndexType.get()
    block = op.regions[0].blocks.append(*[index] * len(shape))
    with ir.InsertionPoint(block):
        tensor.YieldOp(arith.constant(t, 0.0 if isinstance(t, ir.FloatType) else 0))
    return op.result


def _split(value: ir.Value, factors: Sequence[Sequence[int]]) -> ir.Value:
    """Split each of the last axes into its factors."""
    shape = _static(value)
    lead = len(shape) - len(factors)
    flat = [*shape[:lead], *(size for axis in factors for size in axis)]
    groups, at = [[i] for i in range(lead)], lead
    for axis in factors:
        groups.append(list(range(at, at + len(axis))))
        at += len(axis)
    kind = ir.RankedTensorType.get(flat, value.type.element_type)
    return tensor.expand_shape(kind, value, groups, [], flat)


def _transpose(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """Permute the last axes."""
    shape = _static(value)
    lead = len(shape) - len(order)
    whole = [*range(lead), *(lead + i for i in order)]
    if whole == sorted(whole):
        return value
    out = tensor.empty([shape[i] for i in whole], value.type.element_type)
    return linalg.transpose(value, outs=[out], permutation=whole).results[0]


def _joined(value: ir.Value, order: Sequence[int], field: int, bits: int) -> ir.Value:
    """Permute the last axes and pack the codes along the permuted axis `field` into bytes."""
    shape, t = _static(value), value.type.element_type
    lead = len(shape) - len(order)
    loops = [*range(lead), *(lead + i for i in order)]  # the axis of `value` that each loop runs along
    dims = [ir.AffineDimExpr.get(i) for i in range(len(loops))]
    kept = [i for i in range(len(loops)) if i != lead + field]
    shifts = np.arange(0, 8, bits, dtype=np.int8)
    maps = [
        ir.AffineMap.get(len(loops), 0, [dims[loops.index(axis)] for axis in range(len(shape))]),
        ir.AffineMap.get(len(loops), 0, [dims[lead + field]]),
        ir.AffineMap.get(len(loops), 0, [dims[i] for i in kept]),
    ]
    table = arith.constant(ir.RankedTensorType.get([len(shifts)], t), ir.DenseElementsAttr.get(shifts, type=t))
    empty = tensor.empty([shape[loops[i]] for i in kept], t)
    zeros = linalg.fill(arith.constant(t, 0), outs=[empty])

    def body(code: ir.Value, shift: ir.Value, before: ir.Value) -> ir.Value:
        return arith.ori(before, arith.shli(code, shift))

    return _generic([value, table], zeros, maps, body, lead + field)


def _generic(
    inputs: Sequence[ir.Value],
    out: ir.Value,
    maps: Sequence[ir.AffineMap],
    body: Callable[..., ir.Value],
    reduced: int = -1,
) -> ir.Value:
    """A `linalg.generic` whose loops are parallel, except the loop `reduced`."""
    kinds = ["reduction" if i == reduced else "parallel" for i in range(maps[0].n_dims)]
    iterators = iterator_types(kinds)
    attributes = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    op = linalg.GenericOp([out.type], list(inputs), [out], attributes, iterators)
    block = op.regions[0].blocks.append(*[v.type.element_type for v in (*inputs, out)])
    with ir.InsertionPoint(block):
        linalg.YieldOp([body(*block.arguments)])
    return op.results[0]
