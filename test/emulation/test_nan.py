"""NaN stays NaN on GPUs, whose own maximum of NaN and a number is the number."""

from __future__ import annotations

import numpy as np
import pytest

import qmlir
from qmlir.emulation.backends import BACKENDS

TARGETS = [
    pytest.param(t, marks=pytest.mark.skipif(not BACKENDS[t.partition(":")[0]].complete, reason="no executor"))
    for t in ("cuda:sm_90a", "rocm:gfx942")
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("recipe", ["torchao", "onnx", "amax"])
def test_in_the_range_of_a_row(recipe: str, target: str) -> None:
    """Regression: the range of a row ignored its NaN."""
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    x[0, 3], x[1, 39], x[2, 0], x[3, 17] = np.inf, np.nan, -np.inf, -np.nan
    kw = {"symmetric": recipe == "amax", "recipe": recipe, "out_dtype": "i8" if recipe == "amax" else "u8"}
    with np.errstate(invalid="ignore"):
        wanted = [w for w in qmlir.reference.dynamic_quantize(x, **kw) if w is not None]
    made = qmlir.ops.dynamic_quantize.compile(qmlir.TensorSpec(x.shape, "f32"), target=target, **kw)
    for got, want in zip(qmlir.load(made, emulate=True).main(x), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("activation", ["relu", "clamp(-1,6)"])
def test_in_an_activation(activation: str, target: str) -> None:
    """Regression: on AMD GPUs and on sm_90a, NaN became a bound of the activation."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((4, 64), (64, 16)))
    s = np.array([[np.nan], [1], [np.inf], [0.5]], np.float32)
    made = qmlir.ops.scaled_matmul.compile(
        qmlir.TensorSpec(a.shape, "i8"), b, lhs_scale=qmlir.TensorSpec(s.shape, "f32"), activation=activation,
        target=target,
    )  # fmt: skip
    want = qmlir.reference.scaled_matmul(a, b, lhs_scale=s, activation=activation)
    assert np.isnan(want[0]).all()
    np.testing.assert_array_equal(qmlir.load(made, emulate=True).main(a, s), want)


REDUCTIONS = """
func.func @main(%x: tensor<?x40xELEMENT>, %image: tensor<1x6x6x4xf32>) -> (tensor<?xELEMENT>, tensor<1x3x3x4xf32>) {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : tensor<?x40xELEMENT>
  %low = arith.constant LOW : ELEMENT
  %e = tensor.empty(%rows) : tensor<?xELEMENT>
  %i = linalg.fill ins(%low : ELEMENT) outs(%e : tensor<?xELEMENT>) -> tensor<?xELEMENT>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x40xELEMENT>) outs(%i : tensor<?xELEMENT>) {
  ^bb0(%in: ELEMENT, %acc: ELEMENT):
    %1 = arith.maximumf %in, %acc : ELEMENT
    linalg.yield %1 : ELEMENT
  } -> tensor<?xELEMENT>
  %high = arith.constant 0x7F800000 : f32
  %pe = tensor.empty() : tensor<1x3x3x4xf32>
  %pi = linalg.fill ins(%high : f32) outs(%pe : tensor<1x3x3x4xf32>) -> tensor<1x3x3x4xf32>
  %window = tensor.empty() : tensor<2x2xf32>
  %2 = linalg.pooling_nhwc_min {strides = dense<2> : vector<2xi64>}
      ins(%image, %window : tensor<1x6x6x4xf32>, tensor<2x2xf32>) outs(%pi : tensor<1x3x3x4xf32>) -> tensor<1x3x3x4xf32>
  return %0, %2 : tensor<?xELEMENT>, tensor<1x3x3x4xf32>
}
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("element", "low"), [("f32", "0xFF800000"), ("f16", "0xFC00")])
def test_in_a_reduction(element: str, low: str, target: str) -> None:
    """Regression: the largest of a row (torch's amax, ONNX's ReduceMax) ignored NaN; so did a pooling."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 40)).astype({"f32": np.float32, "f16": np.float16}[element])
    x[0, 3], x[1, 39], x[3, 17], x[4] = np.inf, np.nan, -np.nan, -np.inf
    x[5] = np.array([-0.0, 0.0] * 20)
    image = rng.standard_normal((1, 6, 6, 4)).astype(np.float32)
    image[0, 0, 1, 2] = np.nan
    made = qmlir.compile(REDUCTIONS.replace("ELEMENT", element).replace("LOW", low), target=target, start="linalg")
    rows, pooled = qmlir.load(made, emulate=True).main(x, image)
    np.testing.assert_array_equal(rows, x.max(1))
    assert not np.signbit(rows[5])  # the largest of 0 and -0 is 0
    np.testing.assert_array_equal(pooled, image.reshape(1, 3, 2, 3, 2, 4).min((2, 4)))
