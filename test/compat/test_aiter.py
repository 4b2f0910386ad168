"""qmlir.compat.aiter against AITER's formula in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qmlir.compat import aiter
from qmlir.errors import UsageError


def test_pertoken_quant(data: Any) -> None:
    x = data.floats(5, 32)
    x[3] = 0
    codes, scale = aiter.pertoken_quant(x)
    expected = np.abs(x).max(1, keepdims=True) / np.float32(127)
    expected[3] = 1
    np.testing.assert_array_equal(scale, expected)
    np.testing.assert_array_equal(codes, np.trunc(x / expected).astype(np.int8))


def test_an_unknown_dtype() -> None:
    with pytest.raises(UsageError, match="quant_dtype='int4' is not known"):
        aiter.pertoken_quant(np.zeros((2, 4), np.float32), "int4")


@pytest.mark.parametrize(("name", "operation"), [("gemm_bias", "scaled_matmul"), ("grouped_gemm", "grouped_matmul")])
def test_what_aiter_never_had(name: str, operation: str) -> None:
    with pytest.raises(AttributeError, match=f"AITER has no function '{name}'; use qmlir.ops.{operation}"):
        getattr(aiter, name)
