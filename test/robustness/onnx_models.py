"""Truncated and hostile ONNX files: one error with the name of a tensor or node; no crash, no giant allocation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from robustness.case import Case, Feed, rows

from qmlir.compiler.compilation import text_at
from qmlir.errors import FrontEndError

FLOAT = TensorProto.FLOAT


def make(
    nodes: list[Any], shape: list[Any] | None = None, constants: dict[str, Any] | None = None, opset: int = 17,
    kind: int = FLOAT, out: str = "y",
) -> Any:  # fmt: skip
    """A model with one input `x` and one output."""
    graph = helper.make_graph(
        nodes, "graph",
        [helper.make_tensor_value_info("x", kind, [2, 4] if shape is None else shape)],
        [helper.make_empty_tensor_value_info(out)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node(op: str, inputs: list[str], out: str = "y", name: str = "the_node", **attributes: Any) -> Any:
    return helper.make_node(op, inputs, [out], name=name, **attributes)


def weight(model: Any, **change: Any) -> Any:
    """Change fields of the raw tensor that is the weight of a product."""
    t = model.graph.initializer[0]
    for name, value in change.items():
        if name == "dims":
            del t.dims[:]
            t.dims.extend(value)
        else:
            setattr(t, name, value)
    return model


def product(**change: Any) -> Any:
    return weight(make([node("MatMul", ["x", "w"])], constants={"w": np.ones((4, 3), np.float32)}), **change)


def external(**said: str) -> Any:
    """A product whose weight is in an external file."""
    model = product(data_location=TensorProto.EXTERNAL)
    t = model.graph.initializer[0]
    t.ClearField("raw_data")
    for key, value in said.items():
        entry = t.external_data.add()
        entry.key, entry.value = key, value
    return model


def sparse() -> Any:
    model = make([node("Relu", ["x"])])
    values = numpy_helper.from_array(np.ones(1, np.float32), "sparse")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    return model


def branches() -> Any:
    body = helper.make_graph([], "body", [], [helper.make_empty_tensor_value_info("x")])
    return make([node("If", ["x"], then_branch=body, else_branch=body)], shape=[], kind=TensorProto.BOOL)


def qlinear_conv(**change: Any) -> Any:
    constants: dict[str, Any] = {
        "xs": np.float32(0.1), "xz": np.uint8(3), "w": np.ones((2, 3, 3, 3), np.int8), "ws": np.ones(2, np.float32),
        "wz": np.zeros(2, np.int8), "ys": np.float32(0.5), "yz": np.uint8(1),
    }  # fmt: skip
    made = node("QLinearConv", ["x", *constants])
    return make([made], [1, 3, 5, 5], {**constants, **change}, kind=TensorProto.UINT8)


def nbits(**change: Any) -> Any:
    attributes = {"K": 64, "N": 8, "bits": 4, "block_size": 32, **change}
    constants = {"w": np.ones((8, 2, 16), np.uint8), "s": np.ones(16, np.float32)}
    return make([node("MatMulNBits", ["x", "w", "s"], domain="com.microsoft", **attributes)], [2, 64], constants)


HUGE = np.array([2**20, 2**20], np.int64)


def typed() -> Any:
    model = product()
    t = model.graph.initializer[0]
    t.ClearField("raw_data")
    t.float_data.extend([1.0, 2.0])
    return model


def no_rank() -> Any:
    model = make([node("Relu", ["x"])])
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model


def no_outputs() -> Any:
    model = make([node("Relu", ["x"])])
    del model.graph.output[:]
    return model


def another_type() -> Any:
    model = make([node("Relu", ["x"])])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, [2, 4]))
    return model


BAD: dict[str, tuple[Callable[[], Any], str]] = {  # a part of the message, not a regular expression
    "raw data too short": (
        lambda: product(raw_data=b"1234"),
        "tensor 'w': error: the tensor has 4 bytes, but its shape [4, 3] takes 48",
    ),
    "negative size": (lambda: product(dims=[4, -3]), "tensor 'w': error: the shape [4, -3] has a negative size"),
    "huge weight": (lambda: product(dims=[2**40, 2**40]), "tensor 'w': error: the shape"),
    "huge input": (lambda: make([node("Relu", ["x"])], [2**30, 2**30]), "tensor 'x': error: the shape"),
    "huge result": (lambda: make([node("Expand", ["x", "s"])], [1, 1], {"s": HUGE}), "the_node: error: the shape"),
    "huge constant": (
        lambda: make([node("ConstantOfShape", ["s"], "c"), node("Add", ["x", "c"])], [1, 1], {"s": HUGE}),
        "the_node: error: the shape",
    ),
    "typed data too short": (typed, "tensor 'w': error: the tensor has 2 values, but its shape [4, 3] takes 12"),
    "unknown element type": (lambda: product(data_type=99), "tensor 'w': error: the tensor is element type 99"),
    "strings": (
        lambda: make([node("Identity", ["x"])], kind=TensorProto.STRING),
        "the input is string, which is unsupported",
    ),
    "no rank": (no_rank, "tensor 'x': error: the input has no rank"),
    "cycle": (
        lambda: make([node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b", "second")], out="b"),
        "the_node: error: tensor 'b' is produced by a later node; the graph is not topologically sorted",
    ),
    "undefined": (
        lambda: make([node("Add", ["x", "nothing"])]),
        "the_node: error: tensor 'nothing' is not in the graph",
    ),
    "undefined output": (lambda: make([node("Relu", ["x"], "z")]), "tensor 'y' is not in the graph"),
    "made twice": (
        lambda: make([node("Relu", ["x"]), node("Abs", ["x"], name="second")]),
        "second: error: tensor 'y' is the output of two nodes",
    ),
    "unknown operator": (lambda: make([node("Frobnicate", ["x"])]), "the_node: error: No Op registered for Frobnicate"),
    "unknown domain": (
        lambda: make([node("Frobnicate", ["x"], domain="com.acme")]),
        "the_node: error: the operator com.acme.Frobnicate is not imported",
    ),
    "missing input": (lambda: make([node("MatMul", ["x"])]), "has input size 1 not in range"),
    "shapes that do not fit": (lambda: product(dims=[3, 4]), "the_node: error: MatMul does not fit its inputs"),
    "graph inside": (branches, "the_node: error: If contains a subgraph; control flow is not imported"),
    "sparse": (sparse, "tensor 'sparse': error: sparse initializers are not imported"),
    "old": (lambda: make([node("Relu", ["x"])], opset=7), "the model is of opset 7; 9 to 28 are imported"),
    "another type": (another_type, "the_node: error: Relu gives 'y' as f32, but the model states i64"),
    "no outputs": (no_outputs, "the graph has no outputs"),
    "outside of the folder": (
        lambda: external(location="../weights"),
        "the tensor's data is in '../weights', which is not inside",
    ),
    "absolute": (lambda: external(location="/etc/passwd"), "tensor 'w': error: the tensor's data is in '/etc/passwd'"),
    "no file": (
        lambda: external(location="nowhere"),
        "tensor 'w': error: the tensor's data is in nowhere, which is not a file",
    ),
    "offset outside": (
        lambda: external(location="data", offset="60"),
        "the tensor's data is at bytes 60 to 108 of data, which has 64",
    ),
    "negative offset": (
        lambda: external(location="data", offset="-8"),
        "tensor 'w': error: the tensor's data is at bytes -8 to 40",
    ),
    "other length": (
        lambda: external(location="data", length="4"),
        "tensor 'w': error: the tensor has 4 bytes in data, but its shape [4, 3] takes 48",
    ),
    "no number": (
        lambda: external(location="data", offset="much"),
        "tensor 'w': error: the tensor's data has offset 'much'",
    ),
    "scales of another count": (
        lambda: qlinear_conv(ws=np.ones(3, np.float32)),
        "the_node: error: the quantised operator QLinearConv, as it is used here, is not",
    ),
    "bits": (lambda: nbits(bits=3), "as it is used here, is not imported: codes of 3 bits"),
    "block size": (
        lambda: nbits(block_size=16),
        "not imported: scales has 16 elements, but K, N, bits and block_size need",
    ),
    "huge K": (lambda: nbits(K=2**40), "not imported: A is f32[2, 64], but K = 1099511627776"),
}


def feed(content: bytes, folder: Path) -> None:
    """Import a file next to a file `data` of 64 bytes."""
    path = folder / "model.onnx"
    path.write_bytes(content)
    (folder / "data").write_bytes(bytes(64))
    text_at(path, "import")


FEEDS: dict[str, Feed] = {"ONNX": lambda build, folder: feed(build().SerializeToString(), folder), "ONNX file": feed}
FILES: list[tuple[Any, str]] = [
    (b"", "it has no graph"),
    (b"\x00\xff" * 40, "truncated or not an ONNX model"),
    (b"PK\x03\x04" * 9, "not an ONNX model"),
]
CASES = [
    *(
        Case(
            "ONNX",
            name,
            build,
            FrontEndError,
            rf"front end 'onnx' could not import .*model\.onnx(.|\n)*{re.escape(message)}",
        )
        for name, (build, message) in BAD.items()
    ),
    *rows("ONNX file", FrontEndError, FILES),
]
