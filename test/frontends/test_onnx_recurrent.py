"""LSTM, GRU and RNN against onnxruntime, by the kernel for each width of vectors and as a loop; and ConvTranspose of
floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.cover import diagonal

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session
from qmlir.errors import FrontEndError
from qmlir.targets import resolve

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# By target; where there is none, the layer is a loop.
KERNELS = {"cpu:x86-64-v4": ["recurrence-avx512"], "cpu:x86-64-v3": ["recurrence-avx2"], "cpu:x86-64": []}


def _layer(
    kind: str, hidden: int, *, steps: int = 5, batch: int = 3, dynamic: bool = False, rest: str = "BH", seed: int = 0,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Any]]:  # fmt: skip
    """`rest`: the operands behind the weights: B bias, L lengths, H and C first states, P peepholes."""
    rng = np.random.default_rng(seed)
    d, g, size = 1 + (attributes.get("direction") == "bidirectional"), GATES[kind], 7

    def floats(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    rows: Any = "N" if dynamic else batch
    constants = {"W": floats(d, g * hidden, size), "R": floats(d, g * hidden, hidden)}
    inputs = {"X": floats(steps, batch, size)}
    shapes: dict[str, list[Any]] = {"X": ["T" if dynamic else steps, rows, size]}
    if "B" in rest:
        constants["B"] = floats(d, 2 * g * hidden)
    if "P" in rest:
        constants["P"] = floats(d, 3 * hidden)
    if "L" in rest:
        inputs["L"], shapes["L"] = rng.integers(1, steps + 1, batch).astype(np.int32), [rows]
    for state in "HC":
        if state in rest:
            inputs[state], shapes[state] = floats(d, batch, hidden), [d, rows, hidden]
    names = ["X", "W", "R", *(name if name in rest else "" for name in "BLHCP")]
    while not names[-1]:
        names.pop()
    results = ["Y", "last_h", *(["last_c"] if kind == "LSTM" else [])]
    kinds = {"L": TensorProto.INT32}
    graph = helper.make_graph(
        [helper.make_node(kind, names, results, hidden_size=hidden, **attributes)], "layer",
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), shapes[n]) for n in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    return _model(graph), inputs


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _compare(model: onnx.ModelProto, inputs: dict[str, Any], target: str) -> qmlir.Artifact:
    want = session(model, threads=1).run(None, inputs)
    artifact = qmlir.compile(model, target=target)
    got = opened(artifact).main(*inputs.values())
    for one, other in zip(got if isinstance(got, tuple) else [got], want, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return artifact


LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {"hidden": 64}),
    "lstm_ragged": ("LSTM", {"hidden": 37, "batch": 6, "rest": "BHC", "direction": "bidirectional"}),
    "lstm_peepholes": ("LSTM", {"hidden": 20, "rest": "BCP", "direction": "reverse", "input_forget": 1}),
    "lstm_lengths": ("LSTM", {"hidden": 20, "rest": "BLHC", "direction": "bidirectional", "dynamic": True}),
    "lstm_rows": ("LSTM", {"hidden": 16, "batch": 19, "dynamic": True, "clip": 0.4}),
    "gru": ("GRU", {"hidden": 64, "batch": 1}),
    "gru_late_reset": ("GRU", {"hidden": 24, "linear_before_reset": 1, "direction": "bidirectional", "batch": 5}),
    "gru_lengths": ("GRU", {"hidden": 24, "rest": "L", "direction": "reverse", "dynamic": True}),
    "gru_functions": ("GRU", {"hidden": 3, "activations": ["HardSigmoid", "Softsign", "Sigmoid", "LeakyRelu"],
                              "activation_alpha": [0.3, 0.1], "activation_beta": [0.4], "direction": "bidirectional"}),
    "rnn": ("RNN", {"hidden": 33, "rest": "", "direction": "reverse"}),
    "rnn_functions": ("RNN", {"hidden": 16, "activations": ["ScaledTanh"], "activation_alpha": [1.5],
                              "activation_beta": [0.5]}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "target"), diagonal(list(LAYERS), list(KERNELS)))
def test_layer(name: str, target: str) -> None:
    if not set(resolve(target).capabilities.cpu_features) <= set(resolve("cpu").capabilities.cpu_features):
        pytest.skip(f"this host does not run {target}")
    kind, arguments = LAYERS[name]
    artifact = _compare(*_layer(kind, **arguments), target)
    chosen = [s["chosen"] for s in artifact.manifest.strategies]
    assert [name for name in chosen if name.startswith("recurrence-")] == KERNELS[target]


def test_weights_that_are_inputs_are_packed_at_run_time() -> None:
    model, inputs = _layer("GRU", 20)
    for t in list(model.graph.initializer):
        model.graph.input.append(helper.make_tensor_value_info(t.name, TensorProto.FLOAT, list(t.dims)))
        inputs[t.name] = numpy_helper.to_array(t)
    del model.graph.initializer[:]
    _compare(model, inputs, "cpu")


def test_functions_whose_parameters_onnx_and_onnxruntime_differ_about() -> None:
    model, _ = _layer("RNN", 8, activations=["Affine"])
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
    _compare(_model(graph), {"x": x}, "cpu")
