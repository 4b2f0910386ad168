"""Products of floats by constant weights of floats. The data are integers, so that all sums are exact in f32: then the
order of additions does not show, and results are equal bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
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


def test_on_arm(arm: Emulator) -> None:
    model, weight = program(BEHIND, 70, 45, "13")
    artifact = qmlir.compile(model, target="cpu:aarch64")
    assert artifact.manifest.strategies[0]["chosen"] == "neon-f32"
    given = arguments(BEHIND, (13,), 70, 45)
    np.testing.assert_array_equal(arm.run(artifact, [given])[0], expected(BEHIND, given, weight))
