"""Layouts of a matrix of codes as data: pad, split, permute, join short codes in a byte.

One description, two readers: `apply` folds a constant in numpy, `emit` makes IR for a value that is known at run time
(which IREE hoists into the program's initialisation where the value is a parameter).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .._mlir import arith, ir, linalg, tensor
from ..dialect.dtypes import Array


@dataclass(frozen=True)
class Layout:
    """Of a matrix `[rows, columns]` of codes that fit `bits` once `offset` is taken off them.

    Attributes:
        padded: the sizes that the matrix is padded to with zero codes, at the high ends.
        factors: what each of the two axes is split into, outermost first.
        order: the permutation of all the factors.
        bits: of a stored code; several share a byte, the first in its lowest bits.
        field: the factor (after the permutation) whose elements share bytes; it has 8 / bits of them.
        offset: what a stored code stands for is its bits as an unsigned number, plus this.
    """

    padded: tuple[int, int]
    factors: tuple[tuple[int, ...], tuple[int, ...]]
    order: tuple[int, ...]
    bits: int = 8
    field: int | None = None
    offset: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the stored bytes."""
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
        # Padding is a code of zero bits: whoever reads a padded row or column multiplies it by zero or drops it.
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

    def emit(self, value: Any) -> Any:
        """The same of a tensor of i8 codes at the current insertion point. Codes of 8 bits only."""
        assert self.bits == 8
        i8 = ir.IntegerType.get_signless(8)
        if self.offset:
            assert self.offset == -128
            value = _flip(value, i8)
        value = _pad(value, self.padded)
        value = _split(value, self.factors)
        return _transpose(value, self.order)


def _static(value: Any) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def _flip(value: Any, t: Any) -> Any:
    """Every code with its top bit inverted."""
    shape = _static(value)
    same = ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(shape)))
    kinds = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * len(shape))
    out = tensor.empty(shape, t)
    op = linalg.GenericOp([out.type], [value], [out], ir.ArrayAttr.get([same, same]), kinds)
    block = op.regions[0].blocks.append(t, t)
    with ir.InsertionPoint(block):
        linalg.YieldOp([arith.xori(block.arguments[0], arith.constant(t, -128))])
    return op.results[0]


def _pad(value: Any, sizes: Sequence[int]) -> Any:
    shape = _static(value)
    high = [want - have for want, have in zip(sizes, shape, strict=True)]
    if not any(high):
        return value
    t = value.type.element_type
    op = tensor.PadOp(ir.RankedTensorType.get(list(sizes), t), value, [], [], [0] * len(sizes), high)
    index = ir.IndexType.get()
    block = op.regions[0].blocks.append(*[index] * len(sizes))
    with ir.InsertionPoint(block):
        tensor.YieldOp(arith.constant(t, 0))
    return op.result


def _split(value: Any, factors: Sequence[Sequence[int]]) -> Any:
    flat = [size for axis in factors for size in axis]
    groups, at = [], 0
    for axis in factors:
        groups.append(list(range(at, at + len(axis))))
        at += len(axis)
    kind = ir.RankedTensorType.get(flat, value.type.element_type)
    return tensor.expand_shape(kind, value, groups, [], flat)


def _transpose(value: Any, order: Sequence[int]) -> Any:
    shape = _static(value)
    out = tensor.empty([shape[i] for i in order], value.type.element_type)
    return linalg.transpose(value, outs=[out], permutation=list(order)).results[0]
