"""qmlir.compat.aiter against AITER's formula in numpy."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from qmlir.compat import aiter
from qmlir.errors import UsageError


@pytest.mark.parametrize("dtype", ["i8", np.int8])
def test_pertoken_quant(dtype: Any, data: Any) -> None:
    x = data.floats(5, 32)
    x[3] = 0
    codes, scale = aiter.pertoken_quant(x, quant_dtype=dtype)
    expected = np.abs(x).max(1, keepdims=True) / np.float32(127)
    expected[3] = 1
    np.testing.assert_array_equal(scale, expected)
    np.testing.assert_array_equal(codes, np.trunc(x / expected).astype(np.int8))


def test_the_signature_is_that_of_aiter() -> None:
    """aiter/ops/quant.py of ROCm/aiter, commit e404860."""
    parameters = inspect.signature(aiter.pertoken_quant).parameters
    assert list(parameters) == ["x", "scale", "x_scale", "scale_dtype", "quant_dtype", "dtypeMax", "target"]


@pytest.mark.parametrize(
    ("kw", "message"),
    [({"quant_dtype": "int4"}, "quant_dtype='i4' is not known"), ({"scale_dtype": np.float16}, "scale_dtype='f16' is"),
     ({"scale": np.ones(2)}, "'scale' is unsupported: leave it None"), ({"x_scale": 1}, "'x_scale' is unsupported"),
     ({"dtypeMax": 7}, "'dtypeMax' is unsupported")],
)  # fmt: skip
def test_refusals(kw: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        aiter.pertoken_quant(np.zeros((2, 4), np.float32), **kw)


@pytest.mark.parametrize(("name", "operation"), [("gemm_bias", "scaled_matmul"), ("grouped_gemm", "grouped_matmul")])
def test_what_aiter_never_had(name: str, operation: str) -> None:
    with pytest.raises(AttributeError, match=f"AITER has no function '{name}'; use qmlir.ops.{operation}"):
        getattr(aiter, name)
