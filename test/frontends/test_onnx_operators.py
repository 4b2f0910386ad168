"""Quantised operators against onnxruntime, on random models."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnxruntime
import pytest

import qmlir
from support.onnx_models import OPERATORS, Random

QUICK = ("QLinearConv", "QLinearAdd", "MatMulNBits", "QGemm")


def peer(model: Any, inputs: dict[str, Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)[0]


def compare(operator: str, seed: int, target: str) -> None:
    make, codes = OPERATORS[operator]
    model, inputs = make(Random(seed))
    want = peer(model, inputs)
    artifact = qmlir.compile(model, target=target)
    assert artifact.import_report is not None
    assert artifact.import_report["left"] == []
    names = [name for name, _ in artifact.functions["main"].inputs]
    got = qmlir.load(artifact).main(*(inputs[n] for n in names))
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if codes is None:  # sums of floats in another order
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max())))
        return
    apart = np.abs(got.astype(np.int64) - want.astype(np.int64))
    assert apart.max(initial=0) <= codes
    if codes:
        assert np.mean(apart > 0) < 0.05


@pytest.mark.parametrize("operator", [o if o in QUICK else pytest.param(o, marks=pytest.mark.slow) for o in OPERATORS])
def test_operator(operator: str) -> None:
    compare(operator, 0, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_on_vulkan(operator: str, lavapipe: str) -> None:
    compare(operator, 1, lavapipe)


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
@hypothesis.settings(max_examples=15, derandomize=False)
def test_random_models(operator: str, seed: int) -> None:
    compare(operator, seed, "cpu")
