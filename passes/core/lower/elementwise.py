"""dequant, quantize and unpack to linalg."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING

from ....core.mlir import arith
from ....dialect.constants import constant_array
from ....dialect.dtypes import DTYPES
from ....dialect.ops.common import code_dtype, shape_of
from ....dialect.ops.dequant import DequantOp
from ....dialect.ops.quantize import QuantizeOp
from ....dialect.ops.unpack import UnpackOp
from ....dialect.reference.values import reciprocal
from ....dialect.shapes import Shape, blocks
from ....ir.build import Arg, Extent, collapse, dense, dims, element, elementwise, expand, repeat
from ....ir.scalars import cast_f, const, requantize, to_f32
from .unpacked import unpack_stored
from .values import make_side, real_value

if TYPE_CHECKING:
    from ....core.mlir import ir


@dataclass(frozen=True)
class SplitAxes:
    """An elementwise operand whose axes are split into blocks if a parameter has one value per block, so that indexing
    maps stay projections.

    Attributes:
        groups: the sizes that each axis is split into: the number of blocks and their length, if there are blocks.
        shape: the shape of the operand.
    """

    groups: list[list[Extent]]
    shape: Shape

    @classmethod
    def of(cls, sizes: list[Extent], shape: Shape, *parameters: ir.Value | None) -> SplitAxes:
        """Split `sizes` into the blocks of `shape` that one element of a parameter covers. If parameters have blocks of
        different sizes, the greatest common divisor is used."""
        covered = [blocks(shape_of(p), shape, "scale", "input") for p in parameters if p is not None]
        groups: list[list[Extent]] = []
        for s, each in zip(sizes, zip(*covered, strict=True), strict=True):
            block = gcd(*(b for b in each if b is not None and b > 1))
            groups.append([s // block, block] if isinstance(s, int) and block > 1 else [s])
        return cls(groups, shape)

    @property
    def wide(self) -> list[Extent]:
        return [s for g in self.groups for s in g]

    def split(self, value: ir.Value) -> Arg:
        """The operand with its axes split."""
        return Arg(expand(value, self.groups), tuple(range(len(self.wide))))

    def parameter(self, value: ir.Value) -> Arg:
        """A scale or zero point, right-aligned with the operand."""
        first = len(self.groups) - value.type.rank
        covered = blocks(shape_of(value), self.shape, "scale", "input")[first:]
        split: list[list[Extent]] = []
        loops: list[int | None] = []
        at = sum(len(g) for g in self.groups[:first])
        for axis, (group, covers) in enumerate(zip(self.groups[first:], covered, strict=True)):
            if covers is None:
                split.append([1])
                loops.append(at if group == [1] else None)
            elif covers == 1:
                split.append(group)
                loops += range(at, at + len(group))
            else:  # one value per block of the split
                block = next((size for size in group[1:] if isinstance(size, int)), 1)
                value = repeat(value, axis, covers // block)
                split.append(group[:1])
                loops.append(at)
            at += len(group)
        return Arg(expand(value, split), tuple(loops))

    def merge(self, value: ir.Value) -> ir.Value:
        """The result in the operand's own axes."""
        merged, at = [], 0
        for g in self.groups:
            merged.append(list(range(at, at + len(g))))
            at += len(g)
        return collapse(value, merged)


def lower_dequant(op: DequantOp) -> list[ir.Value]:
    """`(q - z) * s` and its variants."""
    d = code_dtype(op.input, op.dtype, "input")
    sizes = dims(op.input)
    stated = shape_of(op.result)[-1:]
    if stated and stated[0] is not None:
        sizes[-1] = stated[0]
    length = sizes[-1] if op.packing != "none" else None
    zero = op.zero_point
    if zero is not None and op.zero_mode == "packed_int":
        zero = unpack_stored(zero, d, op.packing, dims(op.scale)[-1] if op.scale.type.rank else None)
    # Scales are applied here, because they may have blocks along any axis. The side only has the codes and their type.
    side = make_side("input", op.input, d, sizes, -1, -1, scale=None, zero=None, mode=op.zero_mode,
                     packing=op.packing if length is not None else "none", codebook=op.codebook)  # fmt: skip
    split = SplitAxes.of(sizes, shape_of(op.result), op.scale, zero)
    names, args = ["code", "scale"], [split.split(side.codes), split.parameter(op.scale)]
    if zero is not None:
        names.append("zero")
        args.append(split.parameter(zero))
    meaning = replace(side, zero=zero)
    t = op.result.type.element_type

    def body(*scalars: ir.Value) -> ir.Value:
        named = dict(zip(names, scalars, strict=True))
        return cast_f(real_value(named["code"], named["scale"], named.get("zero"), meaning), t)

    return [split.merge(elementwise(args, split.wide, t, body))]


def lower_quantize(op: QuantizeOp) -> list[ir.Value]:
    """`clamp(round(x * (1/s)) + z, lo, hi)`."""
    split = SplitAxes.of(dims(op.input), shape_of(op.input), op.scale, op.zero_point)
    known = constant_array(op.scale)
    factor = dense(reciprocal(known), "f32") if known is not None else op.scale
    names, args = ["x", "scale"], [split.split(op.input), split.parameter(factor)]
    if op.zero_point is not None:
        names.append("zero")
        args.append(split.parameter(op.zero_point))
    d = DTYPES[op.out_dtype]
    lo, hi = op.clamp or (d.lo, d.hi)

    def body(*scalars: ir.Value) -> ir.Value:
        named = dict(zip(names, scalars, strict=True))
        f = to_f32(named["scale"])
        f = f if known is not None else arith.divf(const(1.0), f)
        zero = named.get("zero")
        zero = None if zero is None else to_f32(zero, unsigned=zero.type.width == 8 and not d.signed)
        return requantize(to_f32(named["x"]), f, zero, op.rounding, lo, hi, element("i8"))

    return [split.merge(elementwise(args, split.wide, element("i8"), body))]


def lower_unpack(op: UnpackOp) -> list[ir.Value]:
    """Bytes to codes."""
    # If the length is dynamic, all codes in the bytes are unpacked.
    return [unpack_stored(op.input, DTYPES[op.dtype], op.packing, shape_of(op.result)[-1])]
