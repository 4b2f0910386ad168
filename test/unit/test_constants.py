"""Constants of every float type come back from the IR bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir import TensorSpec
from qmlir.core.mlir import context, ir
from qmlir.dialect.constants import constant_array
from qmlir.dialect.dtypes import DTYPES
from qmlir.ir.build import dense

FLOATS = [name for name, d in DTYPES.items() if d.kind == "float"]


def _round_trip(array: Any, name: str) -> Any:
    with context():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            return constant_array(dense(array, name))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("shape", [(3, 5), (1,), (0, 4)], ids=str)
def test_floats_come_back(name: str, shape: tuple[int, ...]) -> None:
    dtype = DTYPES[name].numpy
    array = np.random.default_rng(0).integers(0, 120, shape).astype(np.uint8)
    array = array.view(dtype) if dtype.itemsize == 1 else array.astype(dtype)
    back = _round_trip(array, name)
    assert back.dtype == dtype
    assert back.shape == shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("name", FLOATS)
def test_splats_come_back(name: str) -> None:
    back = _round_trip(np.full((2, 3), 2.0, np.float32).astype(DTYPES[name].numpy), name)
    assert back.shape == (2, 3)
    assert (back.astype(np.float32) == 2).all()


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"])
def test_a_constant_weight_of_small_floats(name: str) -> None:
    """Regression: the reader of constants raised a TypeError."""
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-4, 5, s).astype(np.float32).astype(DTYPES[name].numpy) for s in ((5, 32), (7, 32)))
    kw = {"rhs_transposed": True, "rhs_scale": np.float32(0.5)}
    artifact = qmlir.ops.scaled_matmul.compile(TensorSpec((5, 32), name), w, lhs_scale=np.float32(2.0), **kw)
    expected = qmlir.reference.scaled_matmul(x, w, lhs_scale=np.float32(2.0), **kw)
    assert np.array_equal(qmlir.load(artifact).main(x), expected)
