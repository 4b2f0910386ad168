"""The types of a function's arguments and results as IREE's runtime has them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..core.bindings import binding
from ..dialect.dtypes import DTYPES, NumpyType
from ..spec import TensorSpec

ALIGNMENT = 64  # bytes, which IREE's programs assume of an argument
# numpy types that the runtime's bindings accept by the buffer protocol.
_PLAIN = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64"})

_ELEMENT = {
    "i16": "SINT_16", "u16": "UINT_16", "i32": "SINT_32", "u32": "UINT_32", "i64": "SINT_64", "bool": "BOOL_8",
    "f32": "FLOAT_32", "f64": "FLOAT_64", "f16": "FLOAT_16", "bf16": "BFLOAT_16",
    "e4m3": "FLOAT_8_E4M3_FN", "e5m2": "FLOAT_8_E5M2",
    "e4m3fnuz": "FLOAT_8_E4M3_FNUZ", "e5m2fnuz": "FLOAT_8_E5M2_FNUZ", "e8m0": "FLOAT_8_E8M0_FNU",
}  # fmt: skip


def _element_type(dtype: str) -> int:
    """The HAL element type of a dtype. IREE's programs have signless integers, and accept signed and unsigned ones."""
    name = _ELEMENT.get(dtype, "INT_8")
    if name.startswith(("SINT", "UINT")):
        name = name[1:]
    return int(getattr(binding.HalElementType, name))


class Input(NamedTuple):
    """An argument.

    Attributes:
        shape: None if some size is dynamic.
        element: the HAL's element type.
        plain: whether the runtime's bindings accept numpy arrays of the dtype; other arrays are passed as integers of
            the same width.
        fixed: the static axes with their sizes.
    """

    dtype: NumpyType
    shape: tuple[int, ...] | None
    element: int
    plain: bool
    rank: int
    fixed: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, spec: TensorSpec) -> Input:
        dtype = DTYPES[spec.dtype].numpy
        fixed = tuple((axis, size) for axis, size in enumerate(spec.shape) if size is not None)
        shape = tuple(size for _, size in fixed) if len(fixed) == spec.rank else None
        return cls(dtype, shape, _element_type(spec.dtype), dtype.name in _PLAIN, spec.rank, fixed)

    @property
    def bytes(self) -> int | None:
        """The size of an array; None if its shape is dynamic."""
        return None if self.shape is None else math.prod(self.shape) * self.dtype.itemsize


class Output(NamedTuple):
    """A result.

    Attributes:
        shape: None if some size is dynamic.
        raw: the type that numpy reads its bits as.
    """

    shape: tuple[int, ...] | None
    dtype: NumpyType
    raw: NumpyType

    @classmethod
    def of(cls, spec: TensorSpec) -> Output:
        dtype = DTYPES[spec.dtype].numpy
        static = tuple(s for s in spec.shape if s is not None)
        raw = dtype if dtype.name in _PLAIN else np.dtype(f"u{dtype.itemsize}")
        return cls(static if len(static) == len(spec.shape) else None, dtype, raw)
