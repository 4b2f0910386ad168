"""A bias after a gated activation has one value per output column, which are half as many as the product's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir import TensorSpec


@pytest.mark.sweep(fast=3, slow=60)
@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("activation", ["swiglu", "geglu"])
@pytest.mark.parametrize("op", ["scaled_matmul", "conv2d_q"])
def test_a_bias_behind_the_gate(op: str, activation: str, layout: str) -> None:
    rng = np.random.default_rng(5)
    kw: dict[str, Any] = {
        "bias": rng.standard_normal(6).astype(np.float32), "bias_stage": "out", "activation": activation,
        "gate_layout": layout, "out_dtype": "f32",
    }  # fmt: skip
    if op == "scaled_matmul":
        x, w = rng.integers(-128, 128, (5, 64), np.int8), rng.integers(-128, 128, (12, 64), np.int8)
        kw |= {"rhs_transposed": True, "lhs_scale": np.float32(0.01), "rhs_scale": np.float32(0.01),
               "c": rng.standard_normal((5, 12)).astype(np.float32), "beta": 0.75}  # fmt: skip
    else:
        x, w = rng.integers(-128, 128, (1, 5, 5, 16), np.int8), rng.integers(-128, 128, (12, 3, 3, 16), np.int8)
        kw |= {"weight_layout": "FHWC", "input_layout": "NHWC", "input_scale": np.float32(0.01),
               "weight_scale": np.float32(0.01)}  # fmt: skip
    made = getattr(qmlir.ops, op).compile(TensorSpec(x.shape, "i8"), w, **kw)
    want = getattr(qmlir.reference, op)(x, w, **kw)
    np.testing.assert_allclose(qmlir.load(made).main(x), want, rtol=2e-6, atol=2e-6)
    without = getattr(qmlir.reference, op)(x, w, **{**kw, "bias": np.zeros(6, np.float32)})
    np.testing.assert_array_equal(want, without + kw["bias"])
