"""ONNX element types: qmlir's dtype for each, and its spelling in torch's types."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...dialect.dtypes import DTYPES, Array


class Element(NamedTuple):
    """`torch` is the element type that a value of this dtype has between torch ops. Sub-byte codes take one byte each
    there: ops that move elements (Reshape, Transpose, Gather, ...) do not read them."""

    dtype: str
    torch: str


# By the numbers of onnx.TensorProto.DataType, which the format fixes.
ELEMENTS: dict[int, Element] = {
    1: Element("f32", "f32"),
    2: Element("u8", "ui8"),
    3: Element("i8", "si8"),
    4: Element("u16", "si16"),
    5: Element("i16", "si16"),
    6: Element("i32", "si32"),
    7: Element("i64", "si64"),
    9: Element("bool", "i1"),
    10: Element("f16", "f16"),
    11: Element("f64", "f64"),
    12: Element("u32", "si32"),
    16: Element("bf16", "bf16"),
    17: Element("e4m3", "f8E4M3FN"),
    18: Element("e4m3fnuz", "f8E4M3FNUZ"),
    19: Element("e5m2", "f8E5M2"),
    20: Element("e5m2fnuz", "f8E5M2FNUZ"),
    21: Element("u4", "ui8"),
    22: Element("i4", "si8"),
    23: Element("e2m1", "ui8"),
    24: Element("e8m0", "f8E8M0FNU"),
    25: Element("u2", "ui8"),
    26: Element("i2", "si8"),
}
TORCH = {e.dtype: e.torch for e in ELEMENTS.values()}
ONNX = {e.dtype: n for n, e in ELEMENTS.items()}
# Unsupported element types, for messages.
_OTHERS = {8: "string", 13: "uint64", 14: "complex64", 15: "complex128"}
# Bits of an element in a file: several codes of less than a byte share one.
BITS = {n: DTYPES[e.dtype].bits for n, e in ELEMENTS.items()}


def element_name(number: int) -> str:
    """The name of an unsupported element type."""
    return _OTHERS.get(number, f"element type {number}")


def stored(array: Array, dtype: str) -> Array:
    """Convert an array that `onnx.numpy_helper` read to the numpy type in which qmlir stores `dtype`."""
    array = np.asarray(array)
    if array.dtype == DTYPES[dtype].numpy:
        return array
    if dtype == "e2m1":
        return array.view(np.uint8)
    if DTYPES[dtype].kind == "float":
        return array.view(DTYPES[dtype].numpy)
    return array.astype(DTYPES[dtype].numpy)


def vtensor(shape: tuple[int | None, ...], dtype: str) -> str:
    """The text of torch's type of a tensor."""
    return f"!torch.vtensor<[{','.join('?' if s is None else str(s) for s in shape)}],{TORCH[dtype]}>"
