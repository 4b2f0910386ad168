"""Products of floats by constant float weights. The data are integers, so all sums are exact in f32: the order of
additions makes no difference, and results are bit-exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from support import amx
from support.arm import Emulator
from support.parameters import SCOPE, apart

import qmlir
from qmlir.targets import resolve

KERNELS = {"cpu:x86-64-v4": "avx512-f32", "cpu:x86-64-v3": "avx2-f32"}
PLAIN = "y = MatMul(x, w)"
TURNED = "t = Transpose<perm = [1, 0]>(w)\n y = MatMul(x, t)"
BEHIND = "p = MatMul(x, w)\n q = Add(p, b)\n r = Relu(q)\n y = Add(r, z)"
SIZES = ((1, 1), (1, 3), (7, 1), (1, 13), (2, 8), (1, 17), (3, 33), (1, 128), (0, 5))


def program(body: str, k: int, n: int, rows: str = "B, S") -> tuple[Any, Any]:
    rng = np.random.default_rng(k + n)
    weight = rng.integers(-4, 5, (n, k) if body == TURNED else (k, n)).astype(np.float32)
    inputs = f"float[{rows}, {k}] x" + (f", float[{rows}, {n}] z" if body == BEHIND else "")
    text = f'<ir_version: 9, opset_import: ["" : 18]> graph ({inputs}) => (float[{rows}, {n}] y) {{ {body} }}'
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.arange(n, dtype=np.float32), "b"))
    return onnx.shape_inference.infer_shapes(model), weight.T if body == TURNED else weight


def arguments(body: str, shape: tuple[int, ...], k: int, n: int) -> list[Any]:
    rng = np.random.default_rng(len(shape))
    widths = (k, n) if body == BEHIND else (k,)
    return [rng.integers(-4, 5, (*shape, width)).astype(np.float32) for width in widths]


def expected(body: str, given: list[Any], weight: Any) -> Any:
    found = given[0] @ weight
    return np.maximum(found + np.arange(weight.shape[1]), 0) + given[1] if body == BEHIND else found


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize("target", KERNELS)
@pytest.mark.parametrize(
    ("body", "k", "n"), [(PLAIN, 7, 45), (TURNED, 64, 32), (BEHIND, 770, 70), (BEHIND, 1537, 129), (PLAIN, 1, 8)]
)
def test_any_number_of_rows(body: str, k: int, n: int, target: str) -> None:
    if not set(resolve(target).capabilities.cpu_features) <= set(resolve("cpu").capabilities.cpu_features):
        pytest.skip(f"this host does not run {target}")
    model, weight = program(body, k, n)
    artifact = qmlir.compile(model, target=target)
    [found] = artifact.manifest.strategies
    assert found["chosen"] == KERNELS[target], found["answers"]
    main = qmlir.load(artifact).main
    for shape in SIZES:
        given = arguments(body, shape, k, n)
        np.testing.assert_array_equal(main(*given), expected(body, given, weight))


@pytest.mark.sweep(fast=4, slow=40)
@pytest.mark.parametrize("rows", [1, 5, 16, 100])
def test_a_known_number_of_rows(rows: int) -> None:
    model, weight = program(BEHIND, 96, 80, str(rows))
    artifact = qmlir.compile(model, target="cpu:x86-64-v3")
    [plan] = [
        a["plan"] for a in artifact.manifest.strategies[0]["answers"] if a["strategy"] == KERNELS["cpu:x86-64-v3"]
    ]
    assert plan["fused"] == 3
    given = arguments(BEHIND, (rows,), 96, 80)
    np.testing.assert_array_equal(qmlir.load(artifact).main(*given), expected(BEHIND, given, weight))


def test_what_is_no_number_stays_in_its_row() -> None:
    model, weight = program(PLAIN, 33, 40)
    main = qmlir.load(qmlir.compile(model)).main
    [x] = arguments(PLAIN, (2, 9), 33, 40)
    x[1, 3, 32] = np.nan
    found = main(x)
    assert np.isnan(found[1, 3]).all()
    found[1, 3] = 0
    x[1, 3] = 0
    np.testing.assert_array_equal(found, x @ weight)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("body", [PLAIN, TURNED])
def test_parameters_are_as_constants(body: str, tmp_path: Path) -> None:
    model, weight = program(body, 70, 45)
    target = "cpu:x86-64-v3"
    loads = apart(qmlir.compile(model, target=target), tmp_path / "weights.irpa", target=target)
    assert loads.manifest.strategies[0]["chosen"] == "avx2-f32"
    main = qmlir.load(loads, parameters={SCOPE: str(tmp_path / "weights.irpa")}).main
    given = arguments(body, (2, 9), 70, 45)
    np.testing.assert_array_equal(main(*given), expected(body, given, weight))


def test_a_weight_that_comes_with_a_call() -> None:
    graph = f"graph (float[M, 64] x, float[64, 32] w) => (float[M, 32] y) {{ {PLAIN} }}"
    text = f'<ir_version: 9, opset_import: ["" : 18]> {graph}'
    [found] = qmlir.compile(parser.parse_model(text)).manifest.strategies
    assert found["chosen"] == "stock"
    reason = "the weight is an argument or computed"
    answers = {a["strategy"]: a.get("reason") for a in found["answers"]}
    assert answers.get("avx2-f32", reason) == reason


# ------------------------------------------------------------------------------------- bfloat16


def bf16_program(k: int, n: int, rows: str, turned: bool) -> str:
    """A product by a constant, plus a bias, then the maximum with 0, rounded to bf16 at the end."""
    rng = np.random.default_rng(k)
    weight = rng.integers(-4, 5, (n, k) if turned else (k, n)).tolist()
    axes = "d1, d2" if turned else "d2, d1"
    shape = f"{n}x{k}" if turned else f"{k}x{n}"
    size = "" if rows != "?" else "%rows = tensor.dim %x, %c0 : tensor<?xKxbf16>".replace("K", str(k))
    given = "%rows" if rows == "?" else ""
    return f"""
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> ({axes})>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#i = affine_map<(d0, d1) -> (d0, d1)>
#b = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: tensor<{rows}x{k}xbf16>, %b: tensor<{n}xf32>) -> tensor<{rows}x{n}xbf16> {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  {size}
  %w = arith.constant dense<{[[float(x) for x in row] for row in weight]}> : tensor<{shape}xbf16>
  %e = tensor.empty({given}) : tensor<{rows}x{n}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{rows}x{n}xf32>) -> tensor<{rows}x{n}xf32>
  %p = linalg.generic {{indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%x, %w : tensor<{rows}x{k}xbf16>, tensor<{shape}xbf16>) outs(%f : tensor<{rows}x{n}xf32>) {{
  ^bb0(%a: bf16, %c: bf16, %s: f32):
    %l = arith.extf %a : bf16 to f32
    %r = arith.extf %c : bf16 to f32
    %m = arith.mulf %l, %r : f32
    %t = arith.addf %s, %m : f32
    linalg.yield %t : f32
  }} -> tensor<{rows}x{n}xf32>
  %o = tensor.empty({given}) : tensor<{rows}x{n}xbf16>
  %y = linalg.generic {{indexing_maps = [#i, #b, #i], iterator_types = ["parallel", "parallel"]}}
      ins(%p, %b : tensor<{rows}x{n}xf32>, tensor<{n}xf32>) outs(%o : tensor<{rows}x{n}xbf16>) {{
  ^bb0(%a: f32, %c: f32, %s: bf16):
    %t = arith.addf %a, %c : f32
    %m = arith.maximumf %t, %zero : f32
    %r = arith.truncf %m : f32 to bf16
    linalg.yield %r : bf16
  }} -> tensor<{rows}x{n}xbf16>
  return %y : tensor<{rows}x{n}xbf16>
}}"""


@pytest.mark.sweep(fast=15, slow=60)
@pytest.mark.parametrize("kernel", amx.BF16_PLAIN)
@pytest.mark.parametrize(("k", "n", "rows", "turned"), [
    (7, 45, "?", False), (64, 32, "?", True), (70, 33, "29", True), (1537, 129, "40", False), (1, 8, "1", True),
])  # fmt: skip
def test_weights_of_bfloat16(k: int, n: int, rows: str, turned: bool, kernel: str, emulated_amx: None) -> None:
    choice = {"strategy": kernel}
    artifact = qmlir.compile(bf16_program(k, n, rows, turned), target="cpu", choice=choice, cache=False)
    [found] = artifact.manifest.strategies
    [plan] = [a["plan"] for a in found["answers"] if a["strategy"] == kernel]
    assert (found["chosen"], plan["fused"]) == (kernel, 1)
    main = qmlir.load(artifact).main
    rng, bias = np.random.default_rng(n), np.arange(n, dtype=np.float32)
    weight = np.random.default_rng(k).integers(-4, 5, (n, k) if turned else (k, n)).astype(np.float32)
    for m in (0, 1, 5, 33) if rows == "?" else (int(rows),):
        x = rng.integers(-4, 5, (m, k)).astype(np.float32)
        expected = np.maximum(x @ (weight.T if turned else weight) + bias, 0).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(main(x.astype(ml_dtypes.bfloat16), bias), expected)


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize(("shape", "weight", "options"), [
    ((2, 5, 9, 8), (7, 5, 3, 3), {"padding": 1}), ((1, 6, 8, 8), (4, 6, 1, 1), {"stride": 2}),
    ((1, 3, 12, 10), (33, 3, 5, 3), {"dilation": 2, "bias": False}), ((2, 16, 7, 7), (16, 16, 1, 1), {}),
])  # fmt: skip
def test_convolutions_of_bfloat16(shape: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]) -> None:
    """Compared with torch in f64, on exact values. Regression: IREE's bf16 convolutions took 50 times torch's time."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Conv2d(weight[1], weight[0], weight[2:], **options).bfloat16().eval()
    generator = torch.Generator().manual_seed(3)
    for p in net.parameters():
        p.data = torch.randint(-3, 4, p.shape, generator=generator).bfloat16()
    x = torch.randint(-3, 4, shape, generator=generator).bfloat16()
    artifact = qmlir.compile(torch.export.export(net, (x,)), target="cpu")
    assert [s["kind"] for s in artifact.manifest.strategies] == ["conv2d"]
    with torch.no_grad():
        expected = net.double()(x.double())
    torch.testing.assert_close(qmlir.load(artifact).main(x), expected.bfloat16(), rtol=0, atol=0)


def test_on_arm(arm: Emulator) -> None:
    model, weight = program(BEHIND, 70, 45, "13")
    artifact = qmlir.compile(model, target="cpu:aarch64")
    assert artifact.manifest.strategies[0]["chosen"] == "neon-f32"
    given = arguments(BEHIND, (13,), 70, 45)
    np.testing.assert_array_equal(arm.run(artifact, [given])[0], expected(BEHIND, given, weight))
