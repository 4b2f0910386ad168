"""Data and comparison for the numeric tests; the judge is qmlir.reference (docs/semantics.md, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.judge import closely, exactly, magnitude_terms


class Data:
    """Random operands from one seeded stream."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def codes(self, *shape: int, dtype: str = "i8") -> Any:
        lo, hi = {"i8": (-128, 128), "u8": (0, 256), "i4": (-8, 8), "u4": (0, 16), "i2": (-2, 2), "u2": (0, 4)}[dtype]
        kind = np.uint8 if dtype[0] == "u" else np.int8
        return self.rng.integers(lo, hi, shape).astype(kind)

    def floats(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32)

    def scales(self, *shape: int) -> Any:
        return (self.rng.random(shape) * 0.01 + 0.001).astype(np.float32)

    def zeros(self, *shape: int, lo: int = -30, hi: int = 30) -> Any:
        return self.rng.integers(lo, hi, shape).astype(np.int32)


@pytest.fixture
def data(request: pytest.FixtureRequest) -> Data:
    """A stream that depends on the test's name only."""
    import zlib

    return Data(zlib.crc32(request.node.name.encode()))


@pytest.fixture
def same() -> Callable[[Any, Any], None]:
    return exactly


@pytest.fixture
def near() -> Callable[..., None]:
    return closely


@pytest.fixture
def terms() -> Callable[..., Any]:
    return magnitude_terms
