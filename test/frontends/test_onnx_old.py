"""Operators in the form of the oldest opsets, with sizes and factors as attributes; against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import qmlir
from qmlir.checking.onnxruntime import session
from qmlir.errors import FrontEndError

NODES = {
    "slice": "y = Slice<starts = [1, -3], ends = [3, 9223372036854775807], axes = [1, 3]>(x)",
    "slice of all axes": "y = Slice<starts = [0, 1, 0, 2], ends = [9, 2, 3, 4]>(x)",
    "topk": "y, i = TopK<k = 2, axis = 3>(x)",
    "upsample": 'y = Upsample<mode = "nearest">(x, scales)',
    "linear upsample": 'y = Upsample<mode = "linear">(x, scales)',
    "dropout": "y = Dropout<ratio = 0.25>(x)",
    "squeeze": "a = Unsqueeze<axes = [0, 2]>(x) b = Squeeze<axes = [2]>(a) y = ReduceSum<axes = [0]>(b)",
}
NEWER = {"resize": 'y = Resize<mode = "nearest">(x, scales)', "linear resize": 'y = Resize<mode = "linear">(x, scales)'}


@pytest.mark.sweep(fast=9, slow=60)
@pytest.mark.parametrize("rows", ["2", "N"])
@pytest.mark.parametrize("name", [*NODES, *NEWER])
def test_operators_of_opsets_9_and_10(name: str, rows: str) -> None:
    """Regression: opset 9 was refused, as were Upsample and the Resize of opset 10."""
    opset = 9 if name in NODES else 10
    body = NODES[name] if name in NODES else NEWER[name]
    text = f"""<ir_version: 6, opset_import: ["" : {opset}]> graph (float[{rows}, 3, 4, 6] x) => (float y)
        <float[4] scales = {{1.0, 1.0, 2.0, 3.0}}> {{ {body} }}"""
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    main = qmlir.load(qmlir.compile(model)).main
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
    [want] = session(model, threads=1).run(None, {"x": x})
    np.testing.assert_allclose(main(x), want, rtol=1e-6, atol=1e-6)


def test_axes_of_codes() -> None:
    """Regression: Squeeze and Unsqueeze of opsets 10 to 12 were refused before a quantisation."""
    model = parser.parse_model("""<ir_version: 6, opset_import: ["" : 11]> graph (uint8[1, 3, 1, 4] x) => (uint8 y)
        <float s = {0.1}, uint8 z = {3}> {
            d = DequantizeLinear(x, s, z) a = Squeeze<axes = [0]>(d) b = Unsqueeze<axes = [2]>(a)
            y = QuantizeLinear(b, s, z)
        }""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 1, 4)).astype(np.uint8)
    np.testing.assert_array_equal(qmlir.load(qmlir.compile(model)).main(x), x.reshape(3, 1, 1, 4))


def _smaller(scales: str) -> Any:
    model = parser.parse_model(f"""<ir_version: 6, opset_import: ["" : 10]> graph (float[1, 2, 4, 7] x) => (float y)
        <float[4] scales = {{{scales}}}> {{ y = Resize<mode = "nearest">(x, scales) }}""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def test_the_first_resize_to_a_smaller_image() -> None:
    """Regression: positions between two elements were rounded down, where onnxruntime rounds them up."""
    model = _smaller("1.0, 1.0, 0.6, 0.7")
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 7)).astype(np.float32)
    [want] = session(model, threads=1).run(None, {"x": x})
    np.testing.assert_array_equal(qmlir.load(qmlir.compile(model)).main(x), want)
    with pytest.raises(FrontEndError, match="shrinks one axis and enlarges another"):
        qmlir.compile(_smaller("1.0, 1.0, 0.5, 2.0"))
