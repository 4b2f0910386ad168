"""Recurrent layers as ONNX models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    kind: str, hidden: int, *, steps: int = 5, batch: int = 3, dynamic: bool = False, rest: str = "BH", seed: int = 0,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Any]]:  # fmt: skip
    """A model of one layer, and its inputs. `rest`: the operands after the weights: B bias, L lengths, H and C initial
    states, P peepholes."""
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
    return model_of(graph), inputs


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


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
