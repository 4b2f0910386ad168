"""Static sizes that exporters compute with nodes are folded, even if other sizes are dynamic; against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import qmlir

# HALF: the second half of the channels, as exported from `torch.chunk`. LISTED: Reshapes by concatenated sizes. SCALED:
# images twice as large, by sizes computed in f32. SMALLER: the end of a slice is the smaller of a size and a constant.
HALF = """
  s = Shape(x) c = Gather<axis = 0>(s, one) more = Add(c, one) h = Div(more, two) e = Mul(h, two)
  y = Slice(x, h, e, one)
"""
LISTED = """
  s = Shape(x) f = Slice(s, zero, one) rest = Slice(s, one, four)
  flat = Concat<axis = 0>(f, minus) z = Reshape(x, flat) all = Concat<axis = 0>(f, rest) y = Reshape(z, all)
"""
SCALED = """
  s = Shape(x) hw = Slice(s, two, four) f = Cast<to = 1>(hw) t = Mul(f, twice) g = Floor(t) i = Cast<to = 7>(g)
  nc = Slice(s, zero, two) size = Concat<axis = 0>(nc, i) y = Resize<mode = "nearest">(x, , , size)
"""
SMALLER = "s = Shape(x) n = Slice(s, zero, one) m = Min(n, two) y = Slice(x, zero, m, zero)"
CONSTANTS = (
    "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4}, int64[1] minus = {-1}, "
    "float[1] twice = {2.0}"
)


def program(body: str, rows: str) -> str:
    head = '<ir_version: 9, opset_import: ["" : 18]>'
    return f"{head} graph (float[{rows}, 6, 4, 5] x) => (float[a, b, c, d] y) <{CONSTANTS}> {{ {body} }}"


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize(("body", "rows", "result"), [
    (HALF, "3", "3x3x4x5"), (HALF, "N", "?x3x4x5"), (LISTED, "3", "3x6x4x5"), (LISTED, "N", "?x6x4x5"),
    (SCALED, "3", "3x6x8x10"), (SCALED, "N", "?x6x8x10"), (SMALLER, "3", "2x6x4x5"), (SMALLER, "N", "?x?x?x?"),
])  # fmt: skip
def test_sizes_follow(body: str, rows: str, result: str) -> None:
    model = parser.parse_model(program(body, rows))
    artifact = qmlir.compile(model)
    function = next(line for line in artifact.source("linalg").splitlines() if "func.func @main" in line)
    assert f"tensor<{result}xf32>" in function.partition("->")[2], function
    session = onnxruntime.InferenceSession(model.SerializeToString())
    main = qmlir.load(artifact).main
    for count in (3,) if rows == "3" else (1, 2, 5):
        x = np.random.default_rng(count).standard_normal((count, 6, 4, 5)).astype(np.float32)
        np.testing.assert_array_equal(main(x), session.run(None, {"x": x})[0])


# Values that depend on a dynamic size are not constants: a divisor, the end of a slice of a constant, a bool.
READ = {
    "divided": "s = Shape(x) n = Gather<axis = 0>(s, zero) f = Cast<to = 1>(n) y = Div(x, f)",
    "sliced": """
        s = Shape(x) n = Slice(s, zero, one) p = Slice(table, zero, n) f = Cast<to = 1>(p) g = Unsqueeze(f, axes)
        y = Add(x, g)
    """,
    "asked": "s = Shape(x) n = Slice(s, zero, one) b = Cast<to = 9>(n) f = Cast<to = 1>(b) y = Add(x, f)",
}


@pytest.mark.parametrize("name", READ)
def test_dynamic_sizes_that_are_read_are_not_constants(name: str) -> None:
    """Regression: a mean was divided by -4.6e18 instead of a dynamic size; a slice of positions that ended at a dynamic
    size had one position."""
    constants = f"{CONSTANTS}, int64[3] axes = {{1, 2, 3}}, int64[8] table = {{3, 1, 4, 1, 5, 9, 2, 6}}"
    head = '<ir_version: 9, opset_import: ["" : 18]>'
    text = f"{head} graph (float[N, 6, 4, 5] x) => (float[N, 6, 4, 5] y) <{constants}> {{ {READ[name]} }}"
    model = parser.parse_model(text)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    main = qmlir.load(qmlir.compile(model)).main
    for count in (1, 5, 0):
        x = np.random.default_rng(count).standard_normal((count, 6, 4, 5)).astype(np.float32)
        np.testing.assert_array_equal(main(x), session.run(None, {"x": x})[0])


# Partly computed shapes, also in the opsets in which onnx infers nothing from them.
PARTLY = {
    "heads": (
        "s = Shape(x) n = Slice(s, zero, one) all = Concat<axis = 0>(n, two, minus, four, one) y = Reshape(x, all)",
        "?x2x15x4x1",
    ),
    "rest": ("s = Shape(x) n = Slice(s, zero, two) all = Concat<axis = 0>(n, minus) y = Reshape(x, all)", "?x6x20"),
    "expanded": (
        "s = Shape(x) n = Slice(s, zero, two) a = Concat<axis = 0>(n, four, one) e = Expand(twice, a) y = Add(x, e)",
        "?x6x4x5",
    ),
    "filled": ("s = Shape(x) z = ConstantOfShape<value = float[1] {2.0}>(s) y = Add(x, z)", "?x6x4x5"),
}


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("name", PARTLY)
def test_shapes_known_in_part(name: str, opset: int) -> None:
    """Regression: "the shape of a result of Reshape cannot be inferred", before opset 14."""
    body, result = PARTLY[name]
    head = f'<ir_version: 9, opset_import: ["" : {opset}]>'
    text = f"{head} graph (float[N, 6, 4, 5] x) => (float y) <{CONSTANTS}> {{ {body} }}"
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    artifact = qmlir.compile(model)
    function = next(line for line in artifact.source("linalg").splitlines() if "func.func @main" in line)
    assert f"tensor<{result}xf32>" in function.partition("->")[2], function
    main = qmlir.load(artifact).main
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for count in (1, 5):
        x = np.random.default_rng(count).standard_normal((count, 6, 4, 5)).astype(np.float32)
        np.testing.assert_array_equal(main(x), session.run(None, {"x": x})[0])
