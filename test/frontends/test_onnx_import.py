"""Whole models in the ONNX front end: which operators are fused, left or reported, types, the command line."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_models import Random, model, qlinear_matmul

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session
from qmlir.compiler import patterns
from qmlir.compiler.compilation import text_at
from qmlir.frontends import raising


def dq(codes: str, out: str, **attributes: Any) -> Any:
    names = [codes, f"{codes}_s", f"{codes}_z"]
    return helper.make_node("DequantizeLinear", names, [out], name=f"dq_{codes}", **attributes)


def q(value: str, out: str) -> Any:
    return helper.make_node("QuantizeLinear", [value, f"{out}_s", f"{out}_z"], [out], name=f"q_{out}")


def constants(r: Random) -> dict[str, Any]:
    return {"x_s": np.float32(0.03), "x_z": r.zero(), "w": r.codes(16, 8, signed=True), "w_s": r.scale(8),
            "w_z": np.zeros(8, np.int8), "y_s": np.float32(0.7), "y_z": r.zero()}  # fmt: skip


def test_qdq_product_with_relu_is_one_operation() -> None:
    r = Random(3)
    x = r.codes(4, 16)
    nodes = [dq("x", "a"), dq("w", "b", axis=1), helper.make_node("MatMul", ["a", "b"], ["c"], name="product"),
             helper.make_node("Relu", ["c"], ["d"], name="relu"), q("d", "y")]  # fmt: skip
    made = model(nodes, {"x": x}, ["y"], constants(r), dynamic=True)
    artifact = qmlir.compile(made)
    report = artifact.import_report
    assert report is not None
    assert [(e["op"], e["became"]) for e in report["raised"]] == [("QuantizeLinear", "qmlir.scaled_matmul")]
    assert {e["where"] for e in report["fused"]} == {f"ModelProto:{n}" for n in ("dq_x", "dq_w", "product", "relu")}
    assert report["left"] == []
    text = artifact.source("import")
    assert text.count('"qmlir.') == 1
    assert "clamp = array<i64" in text
    want = session(made).run(None, {"x": x})[0]
    got = opened(artifact).main(x)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_quantising_again_is_taken_out_where_exact() -> None:
    r = Random(4)
    x = r.codes(4, 16)
    parts = {"x_s": np.float32(0.03), "x_z": r.zero(), "shape": np.array([8, 8], np.int64)}
    nodes = [dq("x", "a"), helper.make_node("Reshape", ["a", "shape"], ["b"], name="move"), q("b", "y")]
    same = model(nodes, {"x": x}, ["y"], {**parts, "y_s": parts["x_s"], "y_z": parts["x_z"]})
    assert '"qmlir.' not in text_at(same, "import")
    other = model(nodes, {"x": x}, ["y"], {**parts, "y_s": np.float32(0.04), "y_z": parts["x_z"]})
    assert text_at(other, "import").count('"qmlir.') == 2
    np.testing.assert_array_equal(opened(qmlir.compile(same)).main(x), x.reshape(8, 8))


def test_product_that_others_read_is_not_taken_in() -> None:
    r = Random(5)
    nodes = [dq("x", "a"), dq("w", "b", axis=1), helper.make_node("MatMul", ["a", "b"], ["c"], name="product"),
             q("c", "y")]  # fmt: skip
    text = text_at(model(nodes, {"x": r.codes(4, 16)}, ["y", "c"], constants(r)), "import")
    assert text.count('"qmlir.scaled_matmul"') == 1
    assert text.count('"qmlir.quantize"') == 1


def test_what_is_left_is_said_with_the_node() -> None:
    r = Random(6)
    nodes = [dq("x", "a"), dq("w", "b", axis=0), helper.make_node("MatMul", ["a", "b"], ["y"], name="product")]
    parts = {**constants(r), "w_s": r.scale(16), "w_z": np.zeros(16, np.int8)}
    made = model(nodes, {"x": r.codes(4, 16)}, ["y"], parts)
    said = "ModelProto:product: .*MatMul is not raised.*rhs is quantised per axis 0, which the product sums over"
    with pytest.warns(qmlir.SlowFallbackWarning, match=said):
        artifact = qmlir.compile(made)
    assert artifact.import_report is not None
    assert [e["op"] for e in artifact.import_report["left"]] == ["MatMul"]
    with pytest.raises(qmlir.QmlirError, match="is not raised"):
        qmlir.compile(made, strict=True)


def test_float_model_has_nothing_to_report() -> None:
    r = Random(7)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"], axis=-1)]
    x, w = r.floats(3, 8), r.floats(8, 5)
    made = model(nodes, {"x": x}, ["y"], {"w": w}, opset=13, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        artifact = qmlir.compile(made)
    assert artifact.import_report == {"raised": [], "fused": [], "left": []}
    want = session(made).run(None, {"x": x})[0]
    np.testing.assert_allclose(opened(artifact).main(x), want, rtol=1e-5, atol=1e-6)


def test_operators_of_old_opsets() -> None:
    """Attributes that later became inputs, and ReduceMin, which torch-mlir converts from opset 13 on."""
    r = Random(8)
    nodes = [helper.make_node("ReduceMin", ["x"], ["a"], axes=[1], keepdims=1),
             helper.make_node("Squeeze", ["a"], ["b"], axes=[1]), helper.make_node("Clip", ["b"], ["c"], min=-1.0),
             helper.make_node("Unsqueeze", ["c"], ["y"], axes=[0])]  # fmt: skip
    x = r.floats(3, 8)
    made = model(nodes, {"x": x}, ["y"], {}, opset=10)
    np.testing.assert_array_equal(opened(qmlir.compile(made)).main(x), np.maximum(x.min(1), -1)[None])


def test_pattern_of_somebody_else() -> None:
    @raising.raises("onnx.com.acme.Twice")
    def twice(op: raising.Raising) -> raising.Tensor:
        assert op.attributes == {"times": 2.0}
        made: raising.Tensor = op.build("dequant", input=op.operand(0), scale=np.float32(op.attributes["times"]))
        return made

    try:
        node = helper.make_node("Twice", ["x"], ["y"], domain="com.acme", times=2.0)
        x = Random(9).codes(5, signed=True)
        made = model([node], {"x": x}, ["y"], {})
        assert patterns.foreign_patterns() == ["onnx.com.acme.Twice"]
        np.testing.assert_array_equal(opened(qmlir.compile(made)).main(x), x.astype(np.float32) * 2)
    finally:
        patterns._PATTERNS.pop("onnx.com.acme.Twice")


def test_blocks_of_int4_weights() -> None:
    """Compared with the definition: for this form, onnxruntime quantises the activations too."""
    r = Random(12)
    codes, scale, x = r.rng.integers(-8, 8, (64, 24)), r.scale(2, 24), r.floats(3, 64)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=32),
             helper.make_node("MatMul", ["x", "d"], ["y"])]  # fmt: skip
    made = model(nodes, {"x": x}, ["y"], {"s": scale}, opset=21, dynamic=True)
    made.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [64, 24], codes.ravel().tolist()))
    artifact = qmlir.compile(made)
    assert artifact.import_report is not None
    assert [e["became"] for e in artifact.import_report["raised"]] == ["qmlir.scaled_matmul"]
    want = x.astype(np.float64) @ (codes * np.repeat(scale, 32, 0).astype(np.float64))
    np.testing.assert_allclose(opened(artifact).main(x), want, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("error::UserWarning")
def test_sum_over_a_dynamic_size_is_left() -> None:
    r = Random(13)
    a, b = r.codes(3, 9), r.codes(9, 4)
    parts = {"as": r.scale(), "az": r.zero(), "bs": r.scale(), "bz": r.zero(), "ys": r.scale(times=9.0), "yz": r.zero()}
    node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"], name="product")
    made = model([node], {"a": a, "b": b}, ["y"], parts)
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "K"
    made.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "K"
    with pytest.warns(qmlir.SlowFallbackWarning, match="K is dynamic, so that an i32 sum could wrap"):
        artifact = qmlir.compile(made)
    want = session(made).run(None, {"a": a, "b": b})[0]
    np.testing.assert_array_equal(opened(artifact).main(a, b), want)


def test_an_average_pool_that_torch_mlir_divides_otherwise_is_refused() -> None:
    node = helper.make_node("AveragePool", ["x"], ["y"], name="pool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1,
                            count_include_pad=1)  # fmt: skip
    with pytest.raises(qmlir.QmlirError, match=r"pool.*both ceil_mode and count_include_pad"):
        qmlir.compile(model([node], {"x": np.zeros((1, 2, 8, 8), np.float32)}, ["y"], {}))


@pytest.mark.slow
def test_command_line(tmp_path: Path) -> None:
    r = Random(10)
    made, inputs = qlinear_matmul(r)
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    np.save(tmp_path / "a.npy", inputs["a"])

    def qmlir_command(*words: str) -> str:
        done = subprocess.run([sys.executable, "-m", "qmlir", *words], cwd=tmp_path, capture_output=True, text=True,
                              check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "main(a: " in qmlir_command("compile", "model.onnx")
    qmlir_command("run", "model.vmfb", "-i", "a.npy", "-o", "y.npy")
    want = session(made).run(None, inputs)[0]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), want)

    (tmp_path / "bad.onnx").write_bytes(b"\x00\xff" * 40)
    done = subprocess.run([sys.executable, "-m", "qmlir", "compile", "bad.onnx"], cwd=tmp_path, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 1
    assert "bad.onnx: error: the file is truncated or not an ONNX model" in done.stderr
    assert "Traceback" not in done.stderr


def test_weights_in_a_file(tmp_path: Path) -> None:
    import onnx

    r = Random(11)
    made, inputs = qlinear_matmul(r)
    want = session(made).run(None, inputs)[0]
    onnx.save(made, tmp_path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    np.testing.assert_array_equal(opened(qmlir.compile(tmp_path / "model.onnx")).main(inputs["a"]), want)
