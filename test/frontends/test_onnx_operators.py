"""Quantised operators against onnxruntime, on random models."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import onnx.reference
import pytest
from support.onnx_models import OPERATORS, Random, model, node

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session
from qmlir.errors import FrontEndError

QUICK = ("QLinearConv", "QLinearAdd", "MatMulNBits", "QGemm")


def peer(model: Any, inputs: dict[str, Any]) -> Any:
    return session(model, threads=1).run(None, inputs)[0]


def compare(operator: str, seed: int, target: str) -> None:
    make, codes = OPERATORS[operator]
    model, inputs = make(Random(seed))
    want = peer(model, inputs)
    artifact = qmlir.compile(model, target=target)
    assert artifact.import_report is not None
    assert artifact.import_report["left"] == []
    names = [name for name, _ in artifact.functions["main"].inputs]
    got = opened(artifact).main(*(inputs[n] for n in names))
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if codes is None:  # f32 sums, in another order
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max())))
        return
    apart = np.abs(got.astype(np.int64) - want.astype(np.int64))
    assert apart.max(initial=0) <= codes
    if codes:
        assert np.mean(apart > 0) < 0.05


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("operator", [o if o in QUICK else pytest.param(o, marks=pytest.mark.slow) for o in OPERATORS])
def test_operator(operator: str) -> None:
    compare(operator, 0, "cpu")


@pytest.mark.sweep(slow=26)
@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_on_vulkan(operator: str, lavapipe: str) -> None:
    compare(operator, 1, lavapipe)


@pytest.mark.sweep(slow=26)
@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
@hypothesis.settings(max_examples=15, derandomize=False)
def test_random_models(operator: str, seed: int) -> None:
    compare(operator, seed, "cpu")


def test_a_pool_of_one_window_that_leaves_the_end_of_its_input_unread() -> None:
    """Regression: IREE folded the loop away and refused an input longer than the window."""
    compare("QLinearAveragePool", 189, "cpu")


def test_order_of_input_channels_with_zero_points() -> None:
    """MatMulNBits with g_idx and zero points, by its definition: onnxruntime 1.31 leaves the zero points out."""
    k, n, block = 48, 5, 16
    r = Random(0)
    a, b = r.floats(3, k), r.codes(n, k // block, block // 2, signed=False)
    scale, zero = r.scale(n * k // block), r.codes(n, 2, signed=False)
    g = r.rng.permutation(np.arange(k) // block).astype(np.int32)
    made = node("MatMulNBits", ["a", "b", "s", "z", "g"], K=k, N=n, bits=4, block_size=block)
    artifact = qmlir.compile(model([made], {"a": a}, ["y"], {"b": b, "s": scale, "z": zero.reshape(-1), "g": g}))

    def nibbles(x: Any) -> Any:
        return np.stack([x & 15, x >> 4], -1).reshape(n, -1).astype(np.float64)

    weight = (nibbles(b) - nibbles(zero)[:, g]) * scale.reshape(n, -1)[:, g]
    np.testing.assert_allclose(opened(artifact).main(a), a @ weight.T, rtol=1e-5, atol=1e-5)


def test_an_operator_that_is_not_imported() -> None:
    made = model([node("MatMulFpQ4", ["x"])], {"x": np.zeros((2, 4), np.float32)}, ["y"], {})
    with pytest.raises(
        FrontEndError, match=r"MatMulFpQ4, as it is used here, is not imported: .*MatMulNBits is imported"
    ):
        qmlir.compile(made)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [({"gather_axis": 1, "quantize_axis": 1}, "gather_axis 1 and quantize_axis 1; the first and the last are raised"),
     ({"bits": 3}, "codes of 3 bits; 2, 4, 8 are raised"),
     ({"block_size": 64}, r"scales of \[30, 2\] for rows of 32 codes in whole blocks of 64")],
)  # fmt: skip
def test_tables_in_blocks_that_are_not_imported(attributes: dict[str, int], reason: str) -> None:
    given = {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1, **attributes}
    parts = {"d": np.zeros((30, 16), np.uint8), "s": np.ones((30, 2), np.float32)}
    made = node("GatherBlockQuantized", ["d", "i", "s"], **given)
    with pytest.raises(FrontEndError, match=reason):
        qmlir.compile(model([made], {"i": np.zeros((2, 5), np.int64)}, ["y"], parts))


@pytest.mark.parametrize("truth", [True, False])
def test_a_constant_truth_value(truth: bool) -> None:
    """Regression: a scalar bool constant became a vector, and torch-mlir refused the node that reads it. Every causal
    model that torch exports has such a constant."""
    x = np.array([[True, False], [False, True]])
    made = model([onnx.helper.make_node("And", ["x", "c"], ["y"])], {"x": x}, ["y"], {"c": np.array(truth)})
    np.testing.assert_array_equal(opened(qmlir.compile(made)).main(x), x & truth)


@pytest.mark.parametrize("operands", ["u, v", "v, u"])
def test_branches_with_strides(operands: str) -> None:
    """Regression: the operand of both convolutions was written only at the positions that the first one reads."""
    made = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 17]>
        graph (float[2, 8, 8, 8] x, float[8, 8, 1, 1] w1, float[8, 8, 3, 3] w3) => (float[2, 8, 4, 4] y) {{
            r = Relu(x)
            u = Conv<kernel_shape = [1, 1], strides = [2, 2]>(r, w1)
            v = Conv<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(r, w3)
            y = Add({operands})
        }}
    """)
    r = Random(0)
    inputs = {"x": r.floats(2, 8, 8, 8), "w1": r.floats(8, 8, 1, 1), "w3": r.floats(8, 8, 3, 3)}
    got = opened(qmlir.compile(made)).main(*inputs.values())
    np.testing.assert_allclose(got, peer(made, inputs), rtol=1e-5, atol=1e-4)


def test_an_average_of_whole_windows() -> None:
    """Regression: with ceil_mode and a dynamic batch, the sum was not divided."""
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]> graph (float[N, 3, 8, 8] x) => (float[N, 3, 4, 4] y) {
            y = AveragePool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(x)
        }
    """)
    x = Random(0).floats(2, 3, 8, 8)
    np.testing.assert_allclose(opened(qmlir.compile(made)).main(x), peer(made, {"x": x}), rtol=1e-6, atol=1e-6)


def test_the_last_window_of_a_maximum() -> None:
    """Regression: with ceil_mode and uneven pads there was one window too many, all of it in the padding."""
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 22]> graph (float[1, 2, 6, 7] x) => (float[1, 2, 2, 3] y) {
            y = MaxPool<kernel_shape = [2, 2], strides = [3, 3], pads = [0, 0, 1, 1], ceil_mode = 1>(x)
        }
    """)
    x = -np.abs(Random(0).floats(1, 2, 6, 7))
    got, [want] = opened(qmlir.compile(made)).main(x), onnx.reference.ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_array_equal(got, want)


def test_pads_that_cut_off() -> None:
    """Regression: with a negative pad at the start of an axis, rows began before the tensor."""
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        graph (float[3, 4] x, float[N, 4] t) => (float[3, 5] y, float[2, 1] z, float[M, 4] u)
        <int64[2] p = {-1, 2}, int64[1] last = {-1}, int64[4] q = {-1, -1, 0, -2}, int64[4] r = {-2, 0, 1, 0},
         float seven = {7.0}> {
            y = Pad(x, p, seven, last)
            z = Pad(x, q)
            u = Pad(t, r, seven)
        }
    """)
    inputs = {"x": Random(0).floats(3, 4), "t": Random(1).floats(5, 4)}
    want = session(made, threads=1).run(None, inputs)
    for got, wanted in zip(opened(qmlir.compile(made)).main(*inputs.values()), want, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_backwards_from_behind_the_end() -> None:
    """Regression: a Slice with a negative step and a start past the last element began one past it."""
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]> graph (float[4, 7] x, float[N, 3] t) => (float[4, 3] y, float[N, 3] u)
        <int64[1] far = {10}, int64[1] one = {1}, int64[1] most = {9223372036854775807},
         int64[1] least = {-9223372036854775807}, int64[1] zero = {0}, int64[1] three = {-3}, int64[1] back = {-1}> {
            y = Slice(x, far, zero, one, three)
            u = Slice(t, most, least, zero, back)
        }
    """)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    x, t = Random(0).floats(4, 7), Random(1).floats(5, 3)
    y, u = opened(qmlir.compile(made)).main(x, t)
    np.testing.assert_array_equal(y, x[:, 10:0:-3])
    np.testing.assert_array_equal(u, t[::-1])


def test_the_logarithm_of_large_sums() -> None:
    """Regression: ReduceLogSumExp of values of 89 or more was infinite."""
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]> graph (float[3, 4] x) => (float[3] y, float[1, 1] z)
        <int64[1] last = {-1}> {
            y = ReduceLogSumExp<keepdims = 0>(x, last)
            z = ReduceLogSumExp(x)
        }
    """)
    x = np.float32([[1000, 999, 2, 9], [-1000, -1000, -999, -1001], [-np.inf, -np.inf, -np.inf, -np.inf]])
    wanted = session(made, threads=1).run(None, {"x": x})
    for got, want in zip(opened(qmlir.compile(made)).main(x), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_numbers_without_sign() -> None:
    """Regression: u8 was divided, clamped and sorted as i8; all of these operators treated u16 and u32 as signed."""
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        graph (uint8[6] a, uint8[6] b, uint16[6] c, uint16[6] d, uint32[6] e, uint32[6] f) => (
            uint8[6] aq, uint8[6] ar, uint8[6] ac, uint8[3] first, int64[3] of, bool[6] cd, uint32[6] eq, uint32[6] ef,
            uint32[3] top, int64[3] at, uint32[1] least, float[6] real, int64[6] wide, uint32[6] back
        ) <int64[1] k = {3}, uint8 low = {5}, uint8 high = {210}> {
            aq = Div(a, b)
            ar = Mod(a, b)
            ac = Clip(a, low, high)
            first, of = TopK(b, k)
            cd = Less(c, d)
            eq = Div(e, f)
            ef = Max(e, f)
            top, at = TopK(e, k)
            least = ReduceMin(f)
            real = Cast<to = 1>(e)
            wide = Cast<to = 7>(e)
            back = Cast<to = 12>(real)
        }
    """)
    inputs = {
        "a": np.uint8([200, 3, 250, 129, 7, 255]), "b": np.uint8([3, 200, 7, 128, 255, 2]),
        "c": np.uint16([1, 40000, 65535, 5, 7, 32768]), "d": np.uint16([40000, 1, 5, 65535, 9, 32767]),
        "e": np.uint32([2**31, 5, 2**32 - 2**8, 9, 2**31 + 2**8, 1]), "f": np.uint32([3, 2**31, 2, 2**32 - 1, 9, 7]),
    }  # fmt: skip
    for got, want in zip(opened(qmlir.compile(made)).main(*inputs.values()),
                         onnx.reference.ReferenceEvaluator(made).run(None, inputs), strict=True):  # fmt: skip
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_larger_and_smaller_than_nan() -> None:
    """Regression: if one operand was NaN, Max and Min gave the other operand, and Clip its bound."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        f (float[4] x, float[4] y, float low) => (float[4] a, float[4] b, float[4] c) {
            a = Max(x, y)
            b = Min(y, x, a)
            c = Clip(x, low)
        }
    """)
    x, y = np.array([np.nan, 1, np.nan, 3], np.float32), np.array([1, np.nan, np.nan, 2], np.float32)
    expected = [[np.nan, np.nan, np.nan, 3], [np.nan, np.nan, np.nan, 2], [np.nan, 2, np.nan, 3]]
    np.testing.assert_array_equal(qmlir.load(qmlir.compile(model)).main(x, y, np.float32(2)), expected)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("directions", [1, 2])
def test_an_lstm_of_coded_weights(directions: int) -> None:
    """onnxruntime quantises activations and states as well: results agree within the error of 8-bit codes."""
    r, h, k = Random(3), 8, 6
    x = r.floats(5, 2, k)
    weights: dict[str, Any] = {
        "w": r.codes(directions, k, 4 * h, signed=True), "r": r.codes(directions, h, 4 * h, signed=True),
        "b": r.floats(directions, 8 * h), "ws": r.scale(directions, times=0.2), "rs": r.scale(directions, times=0.2),
        "wz": np.zeros(directions, np.int8), "rz": np.zeros(directions, np.int8),
    }  # fmt: skip
    made = node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"], hidden_size=h,
                direction="forward" if directions == 1 else "bidirectional")  # fmt: skip
    proto = model([made], {"x": x}, ["y"], weights)
    artifact = qmlir.compile(proto)
    assert artifact.import_report is not None
    [left] = artifact.import_report["left"]
    assert left["reason"].startswith("its products are of floats")
    np.testing.assert_allclose(opened(artifact).main(x), peer(proto, {"x": x}), atol=0.02)
