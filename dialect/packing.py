"""Sub-byte packing along the last axis, in the three orders of docs/semantics.md, section 3."""

from __future__ import annotations

import numpy as np

from .dtypes import DTYPES, Array, DType


def _word_shifts(bits: int) -> Array:
    """`interleaved`: bit offset of element i inside its 32-bit word.

    The LOP3 order of BitBLAS (`interleave_weight`, 16-bit stride) and FasterTransformer: even elements in the
    low half-word, odd ones in the high half-word, so that one mask yields a pair of neighbours.
    """
    i = np.arange(32 // bits)
    return (i % 2) * 16 + (i // 2) * bits


def packed_length(length: int, dtype: DType, order: str) -> int:
    """Bytes that `length` codes take."""
    if order == "none":
        return length
    if order == "interleaved":
        return -(-length * dtype.bits // 32) * 4
    return -(-length // dtype.per_byte)


def pack(codes: Array, dtype: str, packing: str) -> Array:
    """Codes `[.., L]`, one per element, to bytes `[.., ceil(L * bits / 8)]`, padded with zero bits.

    A 1-bit signed code is stored as the bit `q` of `2q - 1`; it is passed here as the stored bit.
    """
    d = DTYPES[dtype]
    if packing == "none" or d.bits == 8:
        return np.ascontiguousarray(codes)
    raw = (np.asarray(codes).astype(np.int64) & ((1 << d.bits) - 1)).astype(np.uint32)
    length = raw.shape[-1]
    per = 32 // d.bits if packing == "interleaved" else d.per_byte
    pad = -length % per
    raw = np.pad(raw, [(0, 0)] * (raw.ndim - 1) + [(0, pad)])
    raw = raw.reshape(*raw.shape[:-1], raw.shape[-1] // per, per)
    if packing == "interleaved":
        words = (raw << _word_shifts(d.bits).astype(np.uint32)).sum(-1, dtype=np.uint32)
        return np.ascontiguousarray(words.astype("<u4")).view(np.uint8)
    shifts = np.arange(per, dtype=np.uint32) * d.bits
    if packing == "high_first":
        shifts = shifts[::-1]
    out: Array = (raw << shifts).sum(-1).astype(np.uint8)
    return out


def signed_codes(stored: Array, dtype: str, packing: str, length: int | None = None) -> Array:
    """Unpack constant sub-byte codes to i8: signed codes are sign-extended, those of i1 become -1 or 1, unsigned and
    table codes keep their bits.

    Args:
        length: as for `unpack`.
    """
    codes = unpack(stored.view(np.uint8), dtype, packing, length).astype(np.int8)
    return (2 * (codes & 1) - 1).astype(np.int8) if dtype == "i1" else codes


def unpack(input: Array, dtype: str, packing: str, length: int | None = None) -> Array:
    """Bytes to codes, the inverse of `pack`: i8 for signed codes, u8 for unsigned and table codes.

    A 1-bit signed code comes back as the stored bit (0 or 1).

    Args:
        length: true number of codes along the last axis; default: all that the bytes hold.
    """
    d = DTYPES[dtype]
    if packing == "none" or d.bits == 8:
        return np.asarray(input) if length is None else np.asarray(input)[..., :length]
    raw = np.ascontiguousarray(input).view(np.uint8)
    if packing == "interleaved":
        words = raw.view("<u4")
        codes = (words[..., None] >> _word_shifts(d.bits).astype(np.uint32)) & ((1 << d.bits) - 1)
    else:
        shifts = np.arange(d.per_byte, dtype=np.uint8) * d.bits
        if packing == "high_first":
            shifts = shifts[::-1]
        codes = (raw[..., None] >> shifts) & ((1 << d.bits) - 1)
    codes = codes.reshape(*raw.shape[:-1], codes.shape[-2] * codes.shape[-1]).astype(np.uint8)
    if length is not None:
        codes = codes[..., :length]
    if d.is_int and d.signed and d.bits > 1:
        sign = 1 << (d.bits - 1)
        return ((codes.astype(np.int8) ^ sign) - sign).astype(np.int8)
    return codes
