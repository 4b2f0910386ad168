"""Unpack codes from bytes and words to one code per byte, and decode table codes."""

from __future__ import annotations

import numpy as np

from ....core.mlir import arith, ir, tensor
from ....dialect.constants import constant_array
from ....dialect.dtypes import DTYPES, Array, DType
from ....dialect.ods import OpError
from ....dialect.packing import unpack as unpack_array
from ....ir.build import (
    Arg,
    Extent,
    collapse,
    crop,
    dense,
    dims,
    element,
    elementwise,
    expand,
    scalar,
)
from ....ir.scalars import const, i32, to_f32, to_i32


def unpack_codes(value: ir.Value, d: DType, packing: str, length: Extent | None) -> ir.Value:
    """Bytes `[.., L*bits/8]` to i8 codes `[.., L]`: sign-extended for signed codes, zero-extended for unsigned
    and table codes; a 1-bit signed code becomes 2q - 1."""
    known = constant_array(value)
    if known is not None:
        codes = unpack_array(known.view(np.uint8), d.name, packing, length if isinstance(length, int) else None)
        if d.name == "i1":
            codes = (2 * (codes.astype(np.int8) & 1) - 1).astype(np.int8)
        return dense(codes.view(np.int8))
    i8 = element("i8")
    if packing == "none":
        if d.name != "i1":
            return value
        return elementwise([Arg.aligned(value, dims(value))], dims(value), i8, _one_bit)
    *outer, last = dims(value)
    if packing == "interleaved":
        return _unpack_interleaved(value, d, outer, last, length)
    per = d.per_byte
    position = dense(_shifts(d, packing).astype(np.int8))
    sizes = [*outer, last, per]
    n = len(outer)

    def body(byte: ir.Value, shift: ir.Value) -> ir.Value:
        return _field(to_i32(byte, unsigned=True), to_i32(shift), d)

    wide = elementwise([Arg(value, tuple(range(n + 1))), Arg(position, (n + 1,))], sizes, i8, body)
    flat = collapse(wide, [[i] for i in range(n)] + [[n, n + 1]])
    return _cut(flat, outer, length, last, per)


def unpacked_dtype(d: DType) -> DType:
    """The dtype of the results of `unpack_codes`: signed 1-bit codes have become -1 and 1."""
    return DTYPES["i2"] if d.name == "i1" else d


def _shifts(d: DType, packing: str) -> Array:
    shifts = np.arange(d.per_byte) * d.bits
    return shifts[::-1].copy() if packing == "high_first" else shifts


def _unpack_interleaved(
    value: ir.Value, d: DType, outer: list[Extent], last: Extent, length: Extent | None
) -> ir.Value:
    """32-bit words, element i at bit `(i % 2) * 16 + (i // 2) * bits`: byte and shift of each are constants."""
    per = 32 // d.bits
    i = np.arange(per)
    bit = (i % 2) * 16 + (i // 2) * d.bits
    if not isinstance(last, int):
        raise OpError("packing 'interleaved' needs a static last axis")
    n = len(outer)
    words = expand(value, [[s] for s in outer] + [[last // 4, 4]])
    # Codes are stored as (half, byte in half, code in byte), and elements are (byte in half, code in byte, half):
    # element i = 2*j + half, with j = byte*codes_per_byte + code.
    code = 8 // d.bits
    halves = expand(words, [[s] for s in dims(words)[: n + 1]] + [[2, 2]])
    shifts = dense((np.arange(code) * d.bits).astype(np.int8))
    sizes = [*outer, last // 4, 2, code, 2]  # word, byte in half, code in byte, half
    assert (bit.reshape(2, code, 2)[:, :, 0] == np.arange(2)[:, None] * 8 + np.arange(code) * d.bits).all()
    args = [
        Arg(halves, (*range(n + 1), n + 3, n + 1)),
        Arg(shifts, (n + 2,)),
    ]
    wide = elementwise(args, sizes, element("i8"), lambda b, s: _field(to_i32(b, unsigned=True), to_i32(s), d))
    flat = collapse(wide, [[i] for i in range(n)] + [list(range(n, n + 4))])
    return _cut(flat, outer, length, last // 4, per)


def unpack_stored(value: ir.Value, d: DType, packing: str, length: Extent | None) -> ir.Value:
    """Unpack codes, or zero points packed like codes, as the op `unpack` does: a signed 1-bit code is its bit."""
    return unpack_codes(value, DTYPES["u1"] if d.name == "i1" else d, packing, length)


def _cut(flat: ir.Value, outer: list[Extent], length: Extent | None, units: Extent, per: int) -> ir.Value:
    """Drop the padding codes of the last byte."""
    if length is None or (isinstance(length, int) and isinstance(units, int) and length == units * per):
        return flat
    return crop(flat, [0] * (len(outer) + 1), [*outer, length])


def _field(word: ir.Value, shift: ir.Value, d: DType) -> ir.Value:
    """The code of `d.bits` bits at `shift` of an i32 word, as i8."""
    mask = scalar((1 << d.bits) - 1, i32())
    code = arith.andi(arith.shrui(word, shift), mask)
    if d.name == "i1":
        return _one_bit(arith.trunci(element("i8"), code))
    if d.is_int and d.signed:
        sign = scalar(1 << (d.bits - 1), i32())
        code = arith.subi(arith.xori(code, sign), sign)
    return arith.trunci(element("i8"), code)


def _one_bit(bit: ir.Value) -> ir.Value:
    """A stored bit q as 2q - 1."""
    one, two = scalar(1, bit.type), scalar(2, bit.type)
    return arith.subi(arith.muli(arith.andi(bit, one), two), one)


def decode_table(code: ir.Value, values: tuple[float, ...] | ir.Value) -> ir.Value:
    """A 4-bit code (scalar i8) to its f32 value: a chain of selects over known values, or a read of the tensor that
    holds them."""
    low = arith.andi(to_i32(code), scalar(15, i32()))
    if not isinstance(values, tuple):
        at = arith.index_cast(ir.IndexType.get(), low)
        return to_f32(tensor.extract(values, [at]))
    result = const(values[0])
    for i, v in enumerate(values[1:], 1):
        hit = arith.cmpi(arith.CmpIPredicate.eq, low, scalar(i, i32()))
        result = arith.select(hit, const(v), result)
    return result
