"""NaN stays NaN on GPUs, whose own maximum of two numbers is the other one."""

from __future__ import annotations

import numpy as np
import pytest

import qmlir
from qmlir.emulation.backends import BACKENDS

TARGETS = [
    pytest.param(t, marks=pytest.mark.skipif(not BACKENDS[t.partition(":")[0]].complete, reason="no executor"))
    for t in ("cuda:sm_90a", "rocm:gfx942")
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("recipe", ["torchao", "onnx", "amax"])
def test_in_the_range_of_a_row(recipe: str, target: str) -> None:
    """A row's range was that of its other numbers."""
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    x[0, 3], x[1, 39], x[2, 0], x[3, 17] = np.inf, np.nan, -np.inf, -np.nan
    kw = {"symmetric": recipe == "amax", "recipe": recipe, "out_dtype": "i8" if recipe == "amax" else "u8"}
    with np.errstate(invalid="ignore"):
        wanted = [w for w in qmlir.reference.dynamic_quantize(x, **kw) if w is not None]
    made = qmlir.ops.dynamic_quantize.compile(qmlir.TensorSpec(x.shape, "f32"), target=target, **kw)
    for got, want in zip(qmlir.load(made, emulate=True).main(x), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("activation", ["relu", "clamp(-1,6)"])
def test_in_an_activation(activation: str, target: str) -> None:
    """On AMD GPUs and on sm_90a it became a bound."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((4, 64), (64, 16)))
    s = np.array([[np.nan], [1], [np.inf], [0.5]], np.float32)
    made = qmlir.ops.scaled_matmul.compile(
        qmlir.TensorSpec(a.shape, "i8"), b, lhs_scale=qmlir.TensorSpec(s.shape, "f32"), activation=activation,
        target=target,
    )  # fmt: skip
    want = qmlir.reference.scaled_matmul(a, b, lhs_scale=s, activation=activation)
    assert np.isnan(want[0]).all()
    np.testing.assert_array_equal(qmlir.load(made, emulate=True).main(a, s), want)
