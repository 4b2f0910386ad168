"""Recurrent layers on 64-bit Arm, executed by an emulator, against onnxruntime on this machine."""

from __future__ import annotations

import numpy as np
import pytest
from support.arm import Emulator
from support.cover import others_slow
from support.recurrent import LAYERS, layer

import qmlir
from qmlir.checking.onnxruntime import session


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("name", others_slow(list(LAYERS), "lstm_ragged", "gru_lengths"))
def test_layer(arm: Emulator, name: str) -> None:
    kind, arguments = LAYERS[name]
    model, inputs = layer(kind, **arguments)
    artifact = qmlir.compile(model, target="cpu:neoverse-n1")
    assert "recurrence-neon" in [s["chosen"] for s in artifact.manifest.strategies]
    [results] = arm.run(artifact, [list(inputs.values())])
    for got, want in zip(results, session(model, threads=1).run(None, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
