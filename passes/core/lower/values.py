"""Quantised operands in the form that the products' rules work on.

Integer codes become signed i8: u8 codes are biased by 128 (an exclusive or with 0x80), because the matrix
instructions of most targets multiply signed bytes; the bias is added to the zero point. Scales and zero points get one
value per row and per group of K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....core.mlir import arith, ir, tensor
from ....dialect.constants import constant_array
from ....dialect.dtypes import DType, table
from ....dialect.ods import OpError
from ....dialect.ops.common import shape_of
from ....dialect.shapes import blocks
from ....ir.build import (
    Arg,
    Extent,
    collapse,
    dense,
    dense_like,
    dims,
    element,
    elementwise,
    expand,
    mapped,
    repeat,
    scalar,
    tensor_type,
)
from ....ir.facts import DECODES, PRESENT, SIGNED_CODES, WIDENS, FactValue
from ....ir.scalars import add, f32, i32, sub, to_f32, to_i32
from .unpacked import decode_table, unpack_codes, unpack_stored


@dataclass(frozen=True)
class Side:
    """One operand of a product.

    `codes` keeps the operand's own axes; `row` and `k` are the positions of its row (M or N) and K axes. The
    value of a code is `code + offset - zero`. `scale` and `zero` have the operand's rank, with one value per row (or 1)
    and one per group of K (or 1).
    """

    name: str
    d: DType
    codes: ir.Value
    row: int
    k: int
    offset: int
    scale: ir.Value | None
    zero: ir.Value | None
    mode: str
    block: int | None  # elements along K that share a scale and a zero point
    sum: ir.Value | None = None  # of the codes along K, if known before the product
    table: tuple[float, ...] | ir.Value | None = None  # values of the 16 codes; numbers if known
    global_scale: ir.Value | None = None

    @property
    def integer(self) -> bool:
        return self.d.is_int

    @property
    def plain(self) -> bool:
        return self.d.name in ("f32", "f16", "bf16", "f64") and self.scale is None

    @property
    def float_zero(self) -> bool:
        return self.zero is not None and self.mode in ("offset_float", "rescale")

    @property
    def int_zero(self) -> bool:
        """Whether a correction is due: an integer zero point, or an offset of the stored codes."""
        return self.offset != 0 or (self.zero is not None and not self.float_zero)

    @property
    def batch(self) -> int:
        """Number of batch axes."""
        return int(self.codes.type.rank) - 2

    def whole_zero(self, zero: ir.Value) -> ir.Value:
        """An element of an integer `zero` as i32; an 8-bit one has the signedness of the codes less their offset."""
        return to_i32(zero, unsigned=not self.d.signed and not self.mode.startswith("offset"))

    def magnitude(self) -> int:
        """Largest |stored signed code|."""
        return 128 if self.d.bits == 8 else self.d.magnitude

    def with_group(self, group: int) -> Side:
        """Scales and zero points repeated so that each holds for `group` elements of K."""
        if self.block is None or self.block == group:
            return self
        times = self.block // group
        return replace(
            self,
            scale=None if self.scale is None else self._spread(self.scale, times),
            zero=None if self.zero is None else self._spread(self.zero, times),
            block=group,
        )

    def _spread(self, value: ir.Value, times: int) -> ir.Value:
        return value if shape_of(value)[self.k] == 1 else repeated(value, self.k, times)


def repeated(value: ir.Value, axis: int, times: int) -> ir.Value:
    """Repeat each element of an axis `times` times; a constant stays a constant."""
    known = constant_array(value)
    return repeat(value, axis, times) if known is None else dense_like(np.repeat(known, times, axis), value)


def make_side(
    name: str,
    value: ir.Value,
    d: DType,
    shape: Sequence[Extent],
    row: int,
    k: int,
    *,
    scale: ir.Value | None,
    zero: ir.Value | None,
    mode: str,
    packing: str,
    codebook: ir.Value | None = None,
    global_scale: ir.Value | None = None,
) -> Side:
    """Convert an operand to the form of `Side`. `shape` is its shape in codes."""
    length = shape[-1] if packing != "none" else None
    codes = unpack_codes(value, d, packing, length) if d.bits < 8 else value
    offset = 0
    if d.is_int:
        if d.name == "u8":
            codes, offset = bias_unsigned(codes), 128
        if mode.startswith("offset"):
            offset -= 1 << (d.bits - 1)
    static_shape = tuple(s if isinstance(s, int) else None for s in shape)
    if mode == "packed_int" and zero is not None:
        last = dims(scale)[-1] if scale is not None else None
        zero = unpack_stored(zero, d, packing, last)
    per_row: list[ir.Value | None] = []
    along_k: list[int | None] = []
    for what, x in (("scale", scale), ("zero_point", zero)):
        if x is None:
            per_row.append(None)
            along_k.append(None)
            continue
        covered = blocks(shape_of(x), static_shape, f"{name}_{what}", name)
        x = full_rank(x, len(shape))
        for axis, size in enumerate(covered):
            if axis != k and size is not None and size > 1:
                x = repeated(x, axis, size)
        along_k.append(covered[k])
        per_row.append(x)
    block = math.gcd(*(size for size in along_k if size is not None)) or None
    if block is not None:  # scale and zero point may have different blocks: both get one value per common block
        per_row = [x if x is None or size in (None, block) else repeated(x, k, size // block)
                   for x, size in zip(per_row, along_k, strict=True)]  # fmt: skip
    values = _table(d, codebook)
    return Side(name, d, codes, row, k, offset, per_row[0], per_row[1], mode, block, table=values,
                global_scale=global_scale)  # fmt: skip


def _table(d: DType, codebook: ir.Value | None) -> tuple[float, ...] | ir.Value | None:
    """The values of table codes, as numbers if the table is built-in or a constant codebook."""
    if d.kind != "table":
        return None
    known = constant_array(codebook) if codebook is not None else table(d.name)
    return codebook if known is None else tuple(float(v) for v in known)


def constant_sums(
    a: Side, b: Side, value: ir.Value, d: DType, packing: str, k: int | tuple[int, ...]
) -> ir.Value | None:
    """i32 sums of the constant codes `value` of side `b` along `k`, one axis or several, which are dropped.

    A zero point of `a` is multiplied by them. None if `a` has no zero point, if sums are needed per group, or if the
    codes are not known.
    """
    if not a.int_zero or a.block is not None or b.block is not None:
        return None
    if packing != "none" or not d.is_int or d.name in ("u8", "i1"):
        return None
    known = constant_array(value)
    return None if known is None else dense(known.sum(k, dtype=np.int32))


def full_rank(x: ir.Value, rank: int) -> ir.Value:
    """Add leading axes of size one up to `rank`."""
    missing = rank - x.type.rank
    if missing == 0:
        return x
    known = constant_array(x)
    if known is not None:
        return dense_like(known.reshape((1,) * missing + known.shape), x)
    if x.type.rank == 0:
        return tensor.expand_shape(tensor_type([1] * rank, x.type.element_type), x, [], [], [1] * rank)
    sizes = dims(x)
    return expand(x, [[1] * missing + [sizes[0]]] + [[s] for s in sizes[1:]])


def bias_unsigned(codes: ir.Value) -> ir.Value:
    """u8 codes as s8 codes less 128."""
    known = constant_array(codes)
    if known is not None:
        return dense((known.view(np.uint8) ^ 0x80).view(np.int8))
    return mapped(codes, element("i8"), lambda x: arith.xori(x, scalar(-128, x.type)), {SIGNED_CODES: PRESENT})


def dequantized(side: Side, t_name: str) -> ir.Value:
    """The real values of an operand, computed in f32 and rounded once to float type `t_name`; same axes."""
    t = element(t_name)
    if side.plain and side.global_scale is None and str(side.codes.type.element_type) == str(t):
        return side.codes
    codes, k, group = side.codes, side.k, side.block
    grouped = group is not None
    if grouped:
        assert group is not None
        codes = _split_axis(codes, k, group)
    wide = dims(codes)
    args = [Arg(codes, tuple(range(len(wide))))]
    parts = ["codes"]
    for what, x in (("scale", side.scale), ("zero", side.zero)):
        if x is None:
            continue
        axes: list[int | None] = []
        for i, s in enumerate(shape_of(x)):
            at = i if i <= k or not grouped else i + 1
            axes.append(None if s == 1 and wide[at] != 1 else at)
        args.append(Arg(x, tuple(axes)))
        parts.append(what)
    if side.global_scale is not None:
        args.append(Arg(side.global_scale, (None,) * side.global_scale.type.rank))
        parts.append("global")

    def body(*scalars: ir.Value) -> ir.Value:
        named = dict(zip(parts, scalars, strict=True))
        y = real_value(named["codes"], named.get("scale"), named.get("zero"), side)
        if "global" in named:
            y = arith.mulf(y, to_f32(named["global"]))
        return arith.truncf(t, y) if t != f32() else y

    out = elementwise(args, wide, t, body, facts=_facts(side, t))
    if grouped:
        out = collapse(out, [[i] for i in range(k)] + [[k, k + 1]] + [[i] for i in range(k + 2, len(wide))])
    return out


def _facts(side: Side, t: ir.Type) -> dict[str, FactValue]:
    """Facts about the op that converts a side's codes to type `t`, if no scale or zero point is applied."""
    if side.scale is not None or side.zero is not None or side.global_scale is not None:
        return {}
    if side.d.kind == "table" and side.d.name != "codebook":
        return {DECODES: side.d.name}
    return {WIDENS: PRESENT} if side.plain and t == f32() and side.codes.type.element_type.width < 32 else {}


def _split_axis(value: ir.Value, axis: int, group: int) -> ir.Value:
    sizes = dims(value)
    size = sizes[axis]
    if not isinstance(size, int):
        raise OpError("groups along a dynamic axis are not supported; make K static")
    return expand(value, [[s] for s in sizes[:axis]] + [[size // group, group]] + [[s] for s in sizes[axis + 1 :]])


def real_value(code: ir.Value, scale: ir.Value | None, zero: ir.Value | None, side: Side) -> ir.Value:
    """The f32 value of one code (docs/semantics.md, section 1)."""
    if side.table is not None:
        y = decode_table(code, side.table)
        return y if scale is None else arith.mulf(y, to_f32(scale))
    if side.d.kind == "float":
        y = to_f32(code)
        return y if scale is None else arith.mulf(y, to_f32(scale))
    number = to_i32(code)
    if side.offset:
        number = arith.addi(number, scalar(side.offset, i32()))
    if zero is not None and not side.float_zero:
        number = arith.subi(number, side.whole_zero(zero))
    y = to_f32(number)
    if scale is not None:
        y = arith.mulf(y, to_f32(scale))
    if zero is not None and side.float_zero:
        y = add(y, to_f32(zero)) if side.mode == "offset_float" else sub(y, to_f32(zero))
    return y


def split_groups(side: Side, group: int) -> ir.Value:
    """Codes with K split into (groups, `group`)."""
    return _split_axis(side.codes, side.k, group)
