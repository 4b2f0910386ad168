"""Data and comparison for the numeric tests; the judge is qmlir.reference (docs/semantics.md, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from qmlir.dialect.reference.matmul import make_side

# |err| <= relative * |ref| + K * eps * sum|terms|, by output type. For f16 and bf16 the first term is the one
# rounding of the output, half a unit in the last place.
_RELATIVE = {"float32": 2.0**-22, "float16": 2.0**-11, "bfloat16": 2.0**-8}


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


def exactly(actual: Any, expected: Any) -> None:
    """The same shape, dtype and bits (NaN equals NaN)."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    assert same.all(), (
        f"{np.count_nonzero(~same)} of {same.size} differ, first at {np.argwhere(~same)[0].tolist()}: "
        f"{actual[~same][0]} instead of {expected[~same][0]}"
    )


def closely(actual: Any, expected: Any, terms: Any) -> None:
    """Section 5: `expected` is the unrounded f32 or f64 value, `terms` is sum|a*b| of the dequantised operands,
    times K, per element."""
    assert actual.shape == expected.shape
    if not actual.size:
        return
    ref = expected.astype(np.float64)
    bound = _RELATIVE[actual.dtype.name] * np.abs(ref) + 2.0**-24 * np.asarray(terms)
    error = np.abs(actual.astype(np.float64) - ref)
    worst = np.unravel_index(np.argmax(error - bound), error.shape)
    assert (error <= bound).all(), f"at {worst}: {actual[worst]} instead of {expected[worst]}, allowed {bound[worst]}"


def magnitude_terms(lhs: Any, rhs: Any, kw: dict[str, Any]) -> Any:
    """K * sum_k |A[m,k] * B[k,n]| of the dequantised operands of a scaled_matmul."""
    k = lhs.shape[-2 if kw.get("lhs_transposed") else -1]
    a = make_side("lhs", lhs, kw.get("lhs_dtype"), kw.get("lhs_scale"), kw.get("lhs_zero_point"), None, "none",
                  kw.get("lhs_transposed", False), None)  # fmt: skip
    transposed = kw.get("rhs_transposed", False)
    b = make_side("rhs", rhs, kw.get("rhs_dtype"), kw.get("rhs_scale"), kw.get("rhs_zero_point"), kw.get("zero_mode"),
                  kw.get("packing", "none"), not transposed, k if transposed else None, kw.get("codebook"))  # fmt: skip
    x, y = (np.abs(s.real("f32").astype(np.float64)) for s in (a, b))
    bias = np.abs(np.asarray(kw.get("bias", 0), np.float64))
    return k * (x @ np.swapaxes(y, -1, -2)) + bias


@pytest.fixture
def same() -> Callable[[Any, Any], None]:
    return exactly


@pytest.fixture
def near() -> Callable[..., None]:
    return closely


@pytest.fixture
def terms() -> Callable[..., Any]:
    return magnitude_terms
