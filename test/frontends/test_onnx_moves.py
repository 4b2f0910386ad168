"""Quantised ONNX operators that move, average, clamp or upsample elements, against onnxruntime or a formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser
from support.onnx_models import model

import qmlir
from qmlir.checking.onnxruntime import session

Z = {"uint8": 117, "int8": -5}


def _quantised_model(
    nodes: list[Any], inputs: dict[str, Any], more: dict[str, Any], scale: float = 0.03, opset: int = 20
) -> Any:
    """A model that dequantises its inputs to `f0`, `f1`, ..., applies `nodes`, and quantises their result `r`."""
    kind = next(iter(inputs.values())).dtype
    parts = {"os": np.float32(scale), "oz": np.asarray(Z[str(kind)], kind), **more}
    before = []
    for i, name in enumerate(inputs):
        parts |= {f"s{i}": np.float32(0.03 + 0.011 * i), f"z{i}": np.asarray(Z[str(kind)] - i, kind)}
        before.append(helper.make_node("DequantizeLinear", [name, f"s{i}", f"z{i}"], [f"f{i}"]))
    after = helper.make_node("QuantizeLinear", ["r", "os", "oz"], ["y"])
    return model([*before, *nodes, after], inputs, ["y"], parts, opset=opset)


def _codes(kind: str, *shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape).astype(np.uint8).view(kind)


def _compare(made: Any, inputs: dict[str, Any], codes: int = 0) -> str:
    """Check that the program agrees with onnxruntime up to `codes`, and return its text."""
    artifact = qmlir.compile(made, target="cpu")
    want = session(made, threads=1).run(None, inputs)[0]
    got = qmlir.load(artifact).main(*inputs.values())
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert np.abs(got.astype(int) - want.astype(int)).max(initial=0) <= codes
    return str(artifact.source("linalg"))


@pytest.mark.sweep(fast=2, slow=26)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_concatenation_is_of_codes(kind: str) -> None:
    """The operand that has the result's quantisation is copied unchanged, the other one is requantised first."""
    inputs = {"a": _codes(kind, 2, 3, 5, 4), "b": _codes(kind, 2, 4, 5, 4)}
    text = _compare(_quantised_model([helper.make_node("Concat", ["f0", "f1"], ["r"], axis=1)], inputs, {}), inputs)
    assert "tensor<2x7x5x4xi8>" in text
    assert "tensor<2x7x5x4xf32>" not in text
    assert "tensor<2x3x5x4xf32>" not in text


def test_what_others_read_is_not_moved() -> None:
    inputs = {"a": _codes("uint8", 2, 3), "b": _codes("uint8", 2, 4)}
    nodes = [helper.make_node("Concat", ["f0", "f1"], ["c"], axis=1), helper.make_node("Abs", ["c"], ["d"]),
             helper.make_node("Add", ["c", "d"], ["r"])]  # fmt: skip
    assert "tensor<2x7xf32>" in _compare(_quantised_model(nodes, inputs, {}, 0.06), inputs)


RESIZES: dict[str, tuple[dict[str, Any], bool]] = {
    "asymmetric": ({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, True),
    "half_pixel": ({"coordinate_transformation_mode": "half_pixel"}, True),
    "torch": ({"coordinate_transformation_mode": "pytorch_half_pixel", "nearest_mode": "round_prefer_ceil"}, True),
    "ceil": ({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}, False),
}


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize("by", ["scales", "sizes"])
@pytest.mark.parametrize("name", RESIZES)
def test_resize_by_whole_factors(name: str, by: str) -> None:
    attributes, repeats = RESIZES[name]
    inputs = {"a": _codes("uint8", 1, 3, 5, 4)}
    parts: dict[str, Any] = {"f": np.float32([1, 1, 3, 2]), "n": np.int64([1, 3, 15, 8])}
    read = ["f0", "", "f"] if by == "scales" else ["f0", "", "", "n"]
    parts.pop("n" if by == "scales" else "f")
    node = helper.make_node("Resize", read, ["r"], mode="nearest", **attributes)
    text = _compare(_quantised_model([node], inputs, parts), inputs)
    assert ("tensor<1x3x15x8xf32>" in text) != repeats


def test_resize_by_other_factors() -> None:
    inputs = {"a": _codes("uint8", 1, 3, 6, 4)}
    node = helper.make_node("Resize", ["f0", "", "f"], ["r"], mode="nearest", nearest_mode="floor",
                            coordinate_transformation_mode="asymmetric")  # fmt: skip
    _compare(_quantised_model([node], inputs, {"f": np.float32([1, 1, 1.5, 0.5])}), inputs)


@pytest.mark.sweep(fast=2, slow=26)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_mean_is_an_exact_sum(keepdims: int) -> None:
    """Compared with the integer sum of 40,000 codes: adding these one by one in f32 would round."""
    x = _codes("uint8", 2, 3, 200, 200)
    node = helper.make_node("ReduceMean", ["f0", "axes"], ["r"], keepdims=keepdims)
    made = _quantised_model([node], {"a": x}, {"axes": np.int64([-1, 2])}, 1e-3)
    got = qmlir.load(qmlir.compile(made, target="cpu")).main(x)
    total = x.astype(np.int64).sum((2, 3), keepdims=bool(keepdims)) - 117 * 200 * 200
    mean = total.astype(np.float32) * np.float32(0.03) / np.float32(200 * 200)
    np.testing.assert_array_equal(got, np.clip(np.rint(mean / np.float32(1e-3)) + 117, 0, 255))


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize("axes", [[1], [0, 1, 2, 3], [3], []])
def test_other_means(axes: list[int]) -> None:
    """Regression: an empty list of axes, which means all axes, was refused."""
    inputs = {"a": _codes("int8", 2, 3, 4, 6)}
    node = helper.make_node("ReduceMean", ["f0", "axes"], ["r"], keepdims=1)
    _compare(_quantised_model([node], inputs, {"axes": np.int64(axes)}), inputs, codes=1)


def test_clamps_in_a_row() -> None:
    """Regression: after a product, two clamps with disjoint ranges, or one with its bounds in the wrong order, kept the
    first one's bounds."""
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]>
        graph (int8[4, 8] x) => (int8[4, 5] y0, int8[4, 5] y1, int8[4, 5] y2)
        <float s = {0.05}, float t = {0.1}, int8 z = {-5}, float zero = {0.0}, float one = {1.0},
         float two = {2.0}, float three = {3.0}, float less = {-3.0}> {
            a = DequantizeLinear(x, s) b = DequantizeLinear(w, s)
            p0 = MatMul(a, b) c0 = Clip(p0, two, three) d0 = Clip(c0, zero, one) y0 = QuantizeLinear(d0, t, z)
            p1 = MatMul(a, b) c1 = Clip(p1, less, zero) d1 = Clip(c1, one) y1 = QuantizeLinear(d1, t, z)
            p2 = MatMul(a, b) c2 = Clip(p2, three, two) y2 = QuantizeLinear(c2, t, z)
        }""")
    made.graph.initializer.append(numpy_helper.from_array(_codes("int8", 8, 5), "w"))
    x = _codes("int8", 4, 8)
    for got, code in zip(qmlir.load(qmlir.compile(made)).main(x), (5, 5, 15), strict=True):
        assert (got == code).all()


TRANSPOSED: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "blocks": ((2, 2), {"strides": [2, 2]}),
    "overlapping": ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "uneven": ((3, 5), {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 0]}),
    "stride_1": ((3, 3), {"pads": [1, 1, 1, 1]}),
    "gaps": ((1, 2), {"strides": [2, 3], "output_padding": [1, 2]}),
}


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize("channelwise", [False, True])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution_of_codes(name: str, channelwise: bool) -> None:
    """Bit-exact: the expected sum is computed in integers, by the definition."""
    (kh, kw), attributes = TRANSPOSED[name]
    rng = np.random.default_rng(1)
    x, w = _codes("uint8", 2, 5, 6, 7), rng.integers(-127, 128, (5, 4, kh, kw)).astype(np.int8)
    scale = (rng.random(4).astype(np.float32) * 0.01 + 0.01) if channelwise else np.float32(0.01)
    bias = rng.integers(-500, 500, 4).astype(np.int32)
    parts = {"w": w, "ws": scale, "wz": np.zeros(4 if channelwise else (), np.int8), "b": bias,
             "bs": np.float32(0.03) * scale, "bz": np.zeros(4 if channelwise else (), np.int32)}  # fmt: skip
    nodes = [helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=1),
             helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0),
             helper.make_node("ConvTranspose", ["f0", "wf", "bf"], ["r"], **attributes)]  # fmt: skip
    made = _quantised_model(nodes, {"a": x}, parts, 1.3)
    artifact = qmlir.compile(made, target="cpu")
    assert artifact.import_report is not None
    assert artifact.import_report["left"] == []
    (sh, sw), pads = attributes.get("strides", (1, 1)), attributes.get("pads", [0] * 4)
    eh, ew = attributes.get("output_padding", (0, 0))
    whole = np.zeros((2, 4, sh * 5 + kh + eh, sw * 6 + kw + ew), np.int64)
    for h in range(6):
        for v in range(7):
            part = np.einsum("nc,cfij->nfij", x[:, :, h, v].astype(np.int64) - 117, w.astype(np.int64))
            whole[:, :, sh * h : sh * h + kh, sw * v : sw * v + kw] += part
    whole += bias.reshape(-1, 1, 1)
    cut = whole[:, :, pads[0] : whole.shape[2] - pads[2], pads[1] : whole.shape[3] - pads[3]]
    factor = (np.float32(0.03) * scale / np.float32(1.3)).reshape(-1, 1, 1)
    want = np.clip(np.rint(cut.astype(np.float32) * factor) + 117, 0, 255)
    got = qmlir.load(artifact).main(x)
    np.testing.assert_array_equal(got, want)
