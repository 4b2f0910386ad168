"""LSTM, GRU and RNN against onnxruntime, by the kernel for each vector width and as a loop; and float ConvTranspose."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.cover import diagonal
from support.recurrent import LAYERS, layer, model_of

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session
from qmlir.errors import FrontEndError
from qmlir.targets import resolve

# The kernels of each target; without one, the layer is a loop.
KERNELS = {"cpu:x86-64-v4": ["recurrence-avx512"], "cpu:x86-64-v3": ["recurrence-avx2"], "cpu:x86-64": []}


def _compare(model: onnx.ModelProto, inputs: dict[str, Any], target: str) -> qmlir.Artifact:
    want = session(model, threads=1).run(None, inputs)
    artifact = qmlir.compile(model, target=target)
    got = opened(artifact).main(*inputs.values())
    for one, other in zip(got if isinstance(got, tuple) else [got], want, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return artifact


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize(("name", "target"), diagonal(list(LAYERS), list(KERNELS)))
def test_layer(name: str, target: str) -> None:
    if not set(resolve(target).capabilities.cpu_features) <= set(resolve("cpu").capabilities.cpu_features):
        pytest.skip(f"this host does not run {target}")
    kind, arguments = LAYERS[name]
    artifact = _compare(*layer(kind, **arguments), target)
    chosen = [s["chosen"] for s in artifact.manifest.strategies]
    assert [name for name in chosen if name.startswith("recurrence-")] == KERNELS[target]


def test_weights_that_are_inputs_are_packed_at_run_time() -> None:
    model, inputs = layer("GRU", 20)
    for t in list(model.graph.initializer):
        model.graph.input.append(helper.make_tensor_value_info(t.name, TensorProto.FLOAT, list(t.dims)))
        inputs[t.name] = numpy_helper.to_array(t)
    del model.graph.initializer[:]
    _compare(model, inputs, "cpu")


def test_functions_whose_parameters_onnx_and_onnxruntime_differ_about() -> None:
    model, _ = layer("RNN", 8, activations=["Affine"])
    with pytest.raises(FrontEndError, match="RNN with an activation affine has to state its parameters"):
        qmlir.compile(model)


TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "blocks": ((2, 8, 5, 6), (8, 3, 2, 2), {"strides": [2, 2]}),
    "overlapping": ((1, 8, 5, 6), (8, 3, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "uneven": ((1, 4, 5, 6), (4, 3, 3, 5), {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 0]}),
    "wide_pads": ((1, 4, 7, 7), (4, 3, 5, 5), {"strides": [1, 2], "pads": [4, 4, 4, 4]}),
    "groups": ((1, 8, 5, 6), (8, 3, 4, 4), {"strides": [2, 2], "group": 2}),
    "dilated_groups": ((1, 8, 5, 6), (8, 1, 3, 3), {"strides": [2, 2], "group": 8, "dilations": [2, 1]}),
    "gaps": ((1, 4, 5, 6), (4, 3, 1, 2), {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    "shape": ((1, 4, 5), (4, 3, 4), {"strides": [3], "output_shape": [16]}),
    "volume": ((1, 2, 3, 4, 3), (2, 2, 3, 2, 3), {"strides": [2, 1, 2], "pads": [1, 0, 1, 1, 0, 1]}),
}


@pytest.mark.sweep(fast=24, slow=60)
@pytest.mark.parametrize("batch", ["static", "dynamic"])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution(name: str, batch: str) -> None:
    shape, weight, attributes = TRANSPOSED[name]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in (shape, weight))
    b = rng.standard_normal(weight[1] * attributes.get("group", 1)).astype(np.float32)
    first: Any = "N" if batch == "dynamic" else shape[0]
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)], "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, *shape[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )  # fmt: skip
    _compare(model_of(graph), {"x": x}, "cpu")
