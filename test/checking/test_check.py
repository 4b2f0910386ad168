"""`qmlir.check` finds planted faults and names the layer; it refuses what it cannot compare, with the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.checking.compare import Tolerance, compare
from qmlir.errors import UsageError
from qmlir.importing.program import write_safetensors
from qmlir.passes.core.fold import FoldPass
from qmlir.passes.core.lower import LowerToLinalgPass

sys.path.insert(0, str(Path(__file__).parent))
from models import twelve_layers

ROWS = 32  # so that every rounding mode meets ties


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, **faults: Any) -> Path:
        path = tmp_path / f"{name}.mlir"
        path.write_text(twelve_layers(**faults))
        return path

    return make


def test_a_right_program_passes(write: Callable[..., Path]) -> None:
    report = qmlir.check(write("model"), layers=True, size=ROWS)
    assert report.ok, str(report)
    assert [c.name for c in report.layers] == [f"layer{n}" for n in range(1, 13)]
    assert all(c.max_error == 0 for c in (*report.outputs, *report.layers, *report.own))


FAULTS = {
    "a scale": ({"scales": {5: 2.0}}, "layer5"),
    "the nibble order": ({"packings": {6: "high_first"}}, "layer6"),
    "the rounding mode": ({"roundings": {9: "half_away"}}, "layer9"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_layer_of_another_program_is_named(fault: str, write: Callable[..., Path], tmp_path: Path) -> None:
    change, layer = FAULTS[fault]
    report = qmlir.check(write("<b>model"), against=str(write("faulty", **change)), layers=True, size=ROWS)
    assert not report.ok
    assert report.first is not None
    assert report.first.name == layer
    assert f"first layer that differs: {layer}" in str(report)
    assert report.to_json()["first"] == layer
    html = report._repr_html_()
    assert layer in html
    assert "<b>model" not in html, "names are escaped"
    pytest.importorskip("matplotlib")
    report.plot(tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="cannot draw"):
        report.plot(tmp_path / "p.unknown")


WRONG = {
    "the nibble order": ("layer6", "rhs_packing", "high_first"),
    "the rounding mode": ("layer9", "rounding", "trunc"),
    "the activation": ("layer4", "activation", "relu"),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=[] if f == "the nibble order" else [pytest.mark.slow]) for f in WRONG]
)
def test_a_fault_of_the_compiler_is_named(
    fault: str, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler misreads one layer. It is named although layers were not asked for, and it is the only one with an
    error of its own: the later layers are right for the outputs of the layers before them."""
    from qmlir.core.mlir import ir

    layer, attribute, value = WRONG[fault]
    where: Any = FoldPass if attribute == "rhs_packing" else LowerToLinalgPass
    real = where.run

    def run(self: Any, module: Any, state: Any) -> None:
        def visit(op: Any) -> Any:
            if isinstance(op.location, ir.NameLoc) and op.location.name_str == layer and op.name.startswith("qmlir"):
                op.attributes[attribute] = ir.StringAttr.get(value)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        real(self, module, state)

    monkeypatch.setattr(where, "run", run)
    path = write("model")
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(path.parent / "cache"))
    report = qmlir.check(path, size=ROWS)
    assert not report.ok
    assert report.first is not None
    assert report.first.name == layer
    assert [c.name for c in report.own if not c.ok] == [layer]
    assert sum(not c.ok for c in report.layers) > 1


def test_a_fault_that_hides_when_layers_are_returned_is_searched_for(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from qmlir.checking import compiled

    model = write("model")
    right = compiled.compile_source(model, "main", "cpu", {})
    asked: list[int] = []

    def run_layers(self: Any, arguments: Any, chosen: Any, alone: bool = False) -> Any:
        asked.append(len(chosen))
        from qmlir.checking import reference

        found = reference.open(model, "main", {}).run_layers(arguments, chosen)
        return [x ^ 1 for x in found] if alone and chosen[0].position[0] >= 20 else found

    monkeypatch.setattr(compiled.Compiled, "run_layers", run_layers)
    monkeypatch.setattr(compiled.Compiled, "run", lambda self, arguments: [np.zeros((ROWS, 16), np.int8)])
    report = qmlir.check(model, size=ROWS)
    assert asked[0] == len(right.layers()) == 12
    assert 2 <= len(asked) <= 6, "a search, not one after the other"
    assert report.first is not None
    assert report.first.name == "layer6"  # the first four ops are layer 1, so that op 23 is layer 6
    assert "differs when it is returned alone" in str(report)


def test_roundings_that_add_up_are_no_layers_fault(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """All layers and the output differ, but each layer is right for the outputs of the layers before it."""
    from qmlir.checking import compiled, reference

    def run_layers(self: Any, arguments: Any, chosen: Any, alone: bool = False) -> Any:
        assert not alone, "there is no layer to search for"
        return [x ^ 1 for x in reference.open(path, "main", {}).run_layers(arguments, chosen)]

    path = write("model")
    monkeypatch.setattr(compiled.Compiled, "run_layers", run_layers)
    monkeypatch.setattr(compiled.Compiled, "run", lambda self, arguments: [np.zeros((ROWS, 16), np.int8)])
    monkeypatch.setattr(reference.Reference, "replay", lambda self, arguments, chosen, given: list(given))
    report = qmlir.check(path, size=ROWS)
    assert not report.ok
    assert report.first is None
    assert len(report.own) == 12
    assert "no layer has an error of its own" in str(report)


TWO = """
func.func @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %s = arith.constant dense<0.5> : tensor<f32>
  %q = "qmlir.quantize"(%x, %s) {operand_names = ["input", "scale"]}
      : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x4xi8>
  %y = "qmlir.dequant"(%q, %s) {operand_names = ["input", "scale"]}
      : (tensor<3x4xi8>, tensor<f32>) -> tensor<3x4xf32>
  %z = call @twice(%y) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return %z : tensor<3x4xf32>
}
func.func @twice(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %y = arith.addf %x, %x : tensor<3x4xf32>
  return %y : tensor<3x4xf32>
}
"""


def test_targets_calls_and_functions() -> None:
    report = qmlir.check(TWO, against="cpu:x86-64", layers=True)
    assert report.ok
    assert report.against == "cpu:x86-64"
    assert [c.name for c in report.layers] == ["quantize_1", "dequant_1", "addf_1"]
    assert qmlir.check(TWO, function="twice", layers=True).ok


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no function 'thrice'; it has main, twice"):
        qmlir.check(TWO, function="thrice")
    with pytest.raises(UsageError, match=r"cannot compare with 'tensorrt': it is not an oracle \(reference.*a target"):
        qmlir.check(TWO, against="tensorrt")
    with pytest.raises(UsageError, match="no argument 'y'; arguments: arg0"):
        qmlir.check(TWO, shapes={"y": (1,)})
    with pytest.raises(UsageError, match=r"argument 'arg0' is f32\[3, 4\], which takes no shape 3x5"):
        qmlir.check(TWO, shapes={"arg0": (3, 5)})
    a = qmlir.compile(TWO).save(tmp_path / "a.vmfb")
    assert qmlir.check(a, against=str(a)).ok
    b = qmlir.compile(TWO.replace("0.5", "0.25")).save(tmp_path / "b.vmfb")
    report = qmlir.check(a, against=str(b))
    assert not report.ok
    assert "a.vmfb does not show its layers" in str(report)
    with pytest.raises(UsageError, match=r"'reference' evaluates a program, and a \.vmfb has none"):
        qmlir.check(a)
    with pytest.raises(UsageError, match=r"a \.vmfb is compared with another program"):
        qmlir.check(a, against="cpu:x86-64")


def test_comparison() -> None:
    exact = Tolerance()
    x = np.array([1.0, np.nan, np.inf, 4.0], np.float32)
    assert compare("x", x, x, exact).ok
    c = compare("x", np.array([1.0, np.nan, 3.0, 4.0], np.float32), x, exact)
    assert not c.ok
    assert (c.max_error, c.first_bad, c.differ) == (np.inf, (2,), 0.25)
    assert (c.got, c.expected) == ("3.0", "inf")
    codes = np.arange(2000, dtype=np.int16).astype(np.int8)
    off = codes.copy()
    off[7] ^= 1
    assert not compare("q", off, codes, exact).ok
    assert compare("q", off, codes, Tolerance(codes=1)).ok
    assert not compare("q", codes ^ 1, codes, Tolerance(codes=1)).ok, "one code off is a matter of a few elements"
    y = np.linspace(-1, 1, 50, dtype=np.float32)
    assert compare("y", y * np.float32(1 + 1e-6), y, exact).ok
    assert not compare("y", y + np.float32(1e-3), y, exact).ok
    assert compare("y", y + np.float32(1e-3), y, Tolerance(relative=1e-2)).ok
    assert not compare("s", np.zeros((2, 3)), np.zeros((3, 2)), exact).ok
    assert compare("e", np.zeros((0, 3)), np.zeros((0, 3)), exact).ok
    assert compare("s", np.zeros((2, 3)), np.zeros((3, 2)), exact).to_json()["max_error"] is None, "JSON has no inf"
    with pytest.raises(UsageError, match="the tolerance relative is nan"):
        Tolerance(relative=float("nan"))


def test_onnx_against_onnxruntime(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    scale, zero = numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.int8(3), "z")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    spec = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 8]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", spec[:1], spec[1:], [scale, zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    report = qmlir.check(tmp_path / "m.onnx", against="onnxruntime")
    assert report.ok, str(report)
    assert report.against == "onnxruntime"
    assert qmlir.check(tmp_path / "m.onnx", layers=True).ok, "and against numpy"
    with pytest.raises(UsageError, match="'onnxruntime' runs ONNX models"):
        qmlir.check(TWO, against="onnxruntime")


def test_a_compiled_program_that_keeps_its_weights_apart(tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    write_safetensors(weights, {"w": np.arange(4, dtype=np.float32)})
    text = """
    util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<4xf32>
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %w = util.global.load @w : tensor<4xf32>
      %y = arith.addf %x, %w : tensor<4xf32>
      return %y : tensor<4xf32>
    }"""
    files = {"model": str(weights)}
    path = qmlir.compile(text, parameters=files, keep_parameters=True).save(tmp_path / "kept.vmfb")
    report = qmlir.check(text, against=str(path), parameters=files, tolerance=0.0)
    assert report.ok, str(report)
    (tmp_path / "p.mlir").write_text(text)
    assert qmlir.check(path, against=str(tmp_path / "p.mlir"), parameters=files).ok
