"""Arrays of the second oracle: a shape and a flat list of exact numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .rounding import FORMATS, ZERO, Number, number

_NAMES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float8_e4m3fnuz": "e4m3fnuz",
          "float8_e5m2fnuz": "e5m2fnuz", "bfloat16": "bf16"}  # fmt: skip

Index = tuple[int, ...]


@dataclass
class Tensor:
    """A tensor in row-major order."""

    shape: tuple[int, ...]
    data: list[Any]

    def __getitem__(self, index: Index) -> Any:
        at = 0
        for i, size in zip(index, self.shape, strict=True):
            assert 0 <= i < size
            at = at * size + i
        return self.data[at]

    def map(self, f: Callable[[Any], Any]) -> Tensor:
        return Tensor(self.shape, [f(x) for x in self.data])


def indices(shape: tuple[int, ...]) -> Iterator[Index]:
    """Every index, in row-major order."""
    return itertools.product(*(range(s) for s in shape))


def fill(shape: tuple[int, ...], f: Callable[[Index], Any]) -> Tensor:
    return Tensor(shape, [f(i) for i in indices(shape)])


def read(array: Any) -> Tensor:
    """A numpy array (or number) as exact numbers: integers unchanged, floats decoded from their bits."""
    import numpy as np

    if isinstance(array, Tensor):
        return array
    if isinstance(array, (int, float)):
        return Tensor(
            (), [Fraction(array) if isinstance(array, int) else number(FORMATS["f32"].round(Fraction(array)))]
        )
    array = np.asarray(array)
    name = array.dtype.name
    if name == "float8_e8m0fnu":  # 2^(code - 127)
        return Tensor(array.shape, [Fraction(2) ** (c - 127) for c in array.view(np.uint8).ravel().tolist()])
    if name in _NAMES:
        wide = np.uint16 if name == "bfloat16" else np.uint8
        decode = FORMATS[_NAMES[name]].decode
        return Tensor(array.shape, [decode(c) for c in array.view(wide).ravel().tolist()])
    values = array.ravel().tolist()
    return Tensor(array.shape, [number(v) if isinstance(v, float) else v for v in values])


def block_index(index: Index, shape: tuple[int, ...], small: tuple[int, ...]) -> Index:
    """The index of an element's value in a tensor that is aligned with the last axes of `shape` and whose axes divide
    them (docs/semantics.md, section 1)."""
    tail = index[len(index) - len(small) :]
    sizes = shape[len(shape) - len(small) :]
    return tuple(0 if s == 1 else i // (d // s) for i, d, s in zip(tail, sizes, small, strict=True))


def blockwise(t: Tensor | None, index: Index, shape: tuple[int, ...], default: Any) -> Any:
    """The scale or zero point of an element."""
    return default if t is None else t[block_index(index, shape, t.shape)]


def broadcast(t: Tensor, index: Index) -> Any:
    """An element of `t`, broadcast as by numpy."""
    tail = index[len(index) - len(t.shape) :]
    return t[tuple(0 if s == 1 else i for i, s in zip(tail, t.shape, strict=True))]


class InfiniteSum(ArithmeticError):
    """Raised for sums with infinities or NaN, which are not compared."""


def exact(x: Number) -> Fraction:
    if not isinstance(x, Fraction | int):
        raise InfiniteSum
    return Fraction(x)


__all__ = [
    "ZERO",
    "Index",
    "InfiniteSum",
    "Tensor",
    "block_index",
    "blockwise",
    "broadcast",
    "exact",
    "fill",
    "indices",
    "math",
    "read",
]
