"""The random stream that the systems' published results were drawn from: glibc's rand() after srand(1)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def glibc_rand(count: int) -> Any:
    """The first values of glibc's rand() after srand(1) (an additive feedback generator of degree 31)."""
    r = [0] * 34
    r[0] = 1
    for i in range(1, 31):
        r[i] = (16807 * r[i - 1]) % 2147483647
    for i in range(31, 34):
        r[i] = r[i - 31]
    for i in range(34, 344 + count):
        r.append((r[i - 3] + r[i - 31]) & 0xFFFFFFFF)
    return (np.array(r[344 : 344 + count], dtype=np.uint32) >> 1).astype(np.int64)


class Stream:
    """Draws tensors one after another."""

    def __init__(self, size: int = 8_100_000) -> None:
        self._values, self._at = glibc_rand(size), 0

    def __call__(self, shape: tuple[int, ...], lo: int, hi: int) -> Any:
        """Integers in `[lo, hi)`, i64, C order."""
        count = int(np.prod(shape))
        x = self._values[self._at : self._at + count]
        self._at += count
        return (x % (hi - lo) + lo).reshape(shape)
