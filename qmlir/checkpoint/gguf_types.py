"""Decodes GGUF's block formats to codes and scales of the dialect, one function per type.

A row of K weights consists of B = K / block size blocks. Each function takes the blocks `[.., N, B, bytes]`, u8, and
returns codes and scales. Scales of scales are multiplied out in f32, as in ggml, so the values are bit-exact with ggml.

Source: ggml, `ggml-common.h` (layouts) and `ggml-quants.c` (`dequantize_row_*`); OCP Microscaling Formats 1.0 (MXFP4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..dialect.dtypes import DTYPES, Array, NumpyType

F32 = np.float32


class Decoded(NamedTuple):
    """`codes [.., N, K]` or packed bytes; `scale` and `zero_point` `[.., N, G]`."""

    codes: Array
    scale: Array
    dtype: str
    packing: str = "none"
    zero_point: Array | None = None
    zero_mode: str = "none"


def _halves(raw: Array) -> Array:
    """Pairs of bytes as f16: `[.., 2 * n]` -> `[.., n]`."""
    return np.ascontiguousarray(raw).view("<f2")


def _rows(blocks: Array) -> Array:
    """`[.., N, B, x]` -> `[.., N, B * x]`."""
    return blocks.reshape(*blocks.shape[:-2], blocks.shape[-2] * blocks.shape[-1])


def _nibbles(raw: Array) -> Array:
    """Codes in order. ggml stores element j of a block in the low bits of byte j, element j + half in the high bits."""
    return np.concatenate([raw & 15, raw >> 4], axis=-1)


def _packed(codes: Array) -> Array:
    """Pack neighbouring codes of `[.., K]` into one byte, the first in the low bits."""
    pairs: Array = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return pairs


def q4_0(blocks: Array) -> Decoded:
    """32 weights: f16 d, 16 bytes. `(q - 8) * d`."""
    codes = _packed(_nibbles(blocks[..., 2:])) ^ np.uint8(0x88)  # q - 8 is q with its top bit flipped
    return Decoded(_rows(codes), _halves(blocks[..., :2])[..., 0], "i4", "low_first")


def q4_1(blocks: Array) -> Decoded:
    """32 weights: f16 d, f16 m, 16 bytes. `q * d + m`."""
    d, m = np.moveaxis(_halves(blocks[..., :4]), -1, 0)
    return Decoded(_rows(_packed(_nibbles(blocks[..., 4:]))), d, "u4", "low_first", -m, "rescale")


def q5_0(blocks: Array) -> Decoded:
    """32 weights: f16 d, 4 bytes of high bits, 16 bytes. `(q - 16) * d`."""
    high = np.unpackbits(np.ascontiguousarray(blocks[..., 2:6]), axis=-1, bitorder="little")
    codes = (_nibbles(blocks[..., 6:]) | (high << 4)).astype(np.int8) - np.int8(16)
    return Decoded(_rows(codes), _halves(blocks[..., :2])[..., 0], "i8")


def q8_0(blocks: Array) -> Decoded:
    """32 weights: f16 d, 32 signed bytes. `q * d`."""
    codes = np.ascontiguousarray(blocks[..., 2:]).view(np.int8)
    return Decoded(_rows(codes), _halves(blocks[..., :2])[..., 0], "i8")


def q4_k(blocks: Array) -> Decoded:
    """256 weights in 8 groups: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes.
    `q * (d * sc) - dmin * m`."""
    d, dmin = np.moveaxis(_halves(blocks[..., :4]).astype(F32), -1, 0)
    low, middle, high = (blocks[..., a : a + 4] for a in (4, 8, 12))
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=-1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 6) << 4)], axis=-1)
    quarters = blocks[..., 16:].reshape(*blocks.shape[:-1], 4, 32)
    codes = np.stack([quarters & 15, quarters >> 4], axis=-2).reshape(*blocks.shape[:-1], 256)
    scale = _rows(d[..., None] * scales.astype(F32))
    zero = _rows(dmin[..., None] * minima.astype(F32))
    return Decoded(_rows(_packed(codes)), scale, "u4", "low_first", zero, "rescale")


def q6_k(blocks: Array) -> Decoded:
    """256 weights in 16 groups: 128 bytes of low bits, 64 of high bits, 16 signed scales, f16 d.
    `(q - 32) * (d * sc)`."""
    shape = blocks.shape[:-1]
    low = blocks[..., :128].reshape(*shape, 2, 1, 64) >> np.array([0, 4], np.uint8)[:, None]
    high = blocks[..., 128:192].reshape(*shape, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    codes = (low & 15).reshape(*shape, 256) | ((high & 3).reshape(*shape, 256) << 4)
    scales = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8)
    scale = _halves(blocks[..., 208:210]).astype(F32) * scales.astype(F32)
    return Decoded(_rows(codes.astype(np.int8) - np.int8(32)), _rows(scale), "i8")


def mxfp4(blocks: Array) -> Decoded:
    """32 weights: an exponent e, 16 bytes of e2m1 codes. `q * 2^(e - 127)`."""
    scale = np.ascontiguousarray(blocks[..., 0]).view(DTYPES["e8m0"].numpy)
    return Decoded(_rows(_packed(_nibbles(blocks[..., 1:]))), scale, "e2m1", "low_first")


# ggml's names of the types.
BLOCKS: dict[str, Callable[[Array], Decoded]] = {
    "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q8_0": q8_0, "Q4_K": q4_k, "Q6_K": q6_k, "MXFP4": mxfp4,
}  # fmt: skip
PLAIN: dict[str, NumpyType] = {
    "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": DTYPES["bf16"].numpy, "F64": np.dtype("<f8"),
    "I8": np.dtype("i1"), "I16": np.dtype("<i2"), "I32": np.dtype("<i4"), "I64": np.dtype("<i8"),
}  # fmt: skip
