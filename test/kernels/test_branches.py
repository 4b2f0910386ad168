"""Values that are read twice: by ops that compute another value from them, and by an op that joins both values. The
kernel fuses all of these ops, on every kind of target. Compared with numpy, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmlir

SIZES = 40, 96, 128
PROGRAM = """#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
#i = affine_map<(m, n) -> (m, n)>
#s = affine_map<(m, n) -> (n)>
func.func @main(%x: tensor<40x128xi8>, %s: tensor<96xf32>) -> tensor<40x96xf32> {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1.0 : f32
  %w = arith.constant dense<WEIGHT> : tensor<96x128xi8>
  %e = tensor.empty() : tensor<40x96xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e : tensor<40x96xi32>) -> tensor<40x96xi32>
  %p = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<40x128xi8>, tensor<96x128xi8>) outs(%f : tensor<40x96xi32>) {
  ^bb0(%a: i8, %b: i8, %c: i32):
    %l = arith.extsi %a : i8 to i32
    %r = arith.extsi %b : i8 to i32
    %m = arith.muli %l, %r : i32
    %t = arith.addi %c, %m : i32
    linalg.yield %t : i32
  } -> tensor<40x96xi32>
  %o = tensor.empty() : tensor<40x96xf32>
  %q = linalg.generic {indexing_maps = [#i, #s, #i], iterator_types = ["parallel", "parallel"]}
      ins(%p, %s : tensor<40x96xi32>, tensor<96xf32>) outs(%o : tensor<40x96xf32>) {
  ^bb0(%a: i32, %b: f32, %c: f32):
    %l = arith.sitofp %a : i32 to f32
    %m = arith.mulf %l, %b : f32
    linalg.yield %m : f32
  } -> tensor<40x96xf32>
  %g = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<40x96xf32>) outs(%o : tensor<40x96xf32>) {
  ^bb0(%a: f32, %c: f32):
    %l = arith.maximumf %a, %one : f32
    linalg.yield %l : f32
  } -> tensor<40x96xf32>
  %h = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel", "parallel"]}
      ins(%g, %q : tensor<40x96xf32>, tensor<40x96xf32>) outs(%o : tensor<40x96xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<40x96xf32>
  return %h : tensor<40x96xf32>
}
"""
EMULATED = ("cuda:sm_80", "rocm:gfx942")


def _data() -> tuple[str, list[Any], Any]:
    """The program, its arguments and its result."""
    rng, (m, n, k) = np.random.default_rng(0), SIZES
    weight, x = (rng.integers(-8, 8, shape).astype(np.int8) for shape in ((n, k), (m, k)))
    scale = (2.0 ** rng.integers(-6, -2, n)).astype(np.float32)
    scaled = (x.astype(np.int32) @ weight.T.astype(np.int32)).astype(np.float32) * scale
    return PROGRAM.replace("WEIGHT", str(weight.tolist())), [x, scale], np.maximum(scaled, 1) * scaled


@pytest.mark.sweep(fast=3, slow=3)
@pytest.mark.parametrize("target", ["cpu:x86-64-v3", *EMULATED])
def test_a_value_and_what_is_made_of_it(target: str) -> None:
    text, arguments, expected = _data()
    artifact = qmlir.compile(text, target=target)
    main = qmlir.load(artifact, emulate=target in EMULATED).main
    np.testing.assert_array_equal(main(*arguments), expected)


@pytest.mark.parametrize("target", ["cpu:x86-64-v4", "cuda:sm_80", "vulkan:ada"])
def test_all_of_it_is_one_kernel(target: str) -> None:
    text, _, _ = _data()
    [found] = qmlir.compile(text, target=target).manifest.strategies
    assert [a["plan"]["fused"] for a in found["answers"] if a["strategy"] == found["chosen"]] == [3]


def test_on_vulkan(lavapipe: str) -> None:
    text, arguments, expected = _data()
    np.testing.assert_array_equal(qmlir.load(qmlir.compile(text, target=lavapipe)).main(*arguments), expected)


def test_a_value_that_others_read_too_is_given_out() -> None:
    """The value has to be in memory, so the ops that read it are not fused into the kernel."""
    text, arguments, expected = _data()
    text = text.replace("-> tensor<40x96xf32> {\n  %zero", "-> (tensor<40x96xf32>, tensor<40x96xf32>) {\n  %zero", 1)
    text = text.replace("return %h : tensor<40x96xf32>", "return %h, %q : tensor<40x96xf32>, tensor<40x96xf32>")
    artifact = qmlir.compile(text, target="cpu:x86-64-v3")
    [found] = artifact.manifest.strategies
    assert [a["plan"]["fused"] for a in found["answers"] if a["strategy"] == found["chosen"]] == [1]
    made, scaled = qmlir.load(artifact).main(*arguments)
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(np.maximum(scaled, 1) * scaled, expected)


def test_a_value_that_is_given_out_beside_what_is_made_of_it() -> None:
    """Regression: both values are operands of the function's return, which is not an op that joins them."""
    text, arguments, _ = _data()
    text = text.replace("-> tensor<40x96xf32> {\n  %zero", "-> (tensor<40x96xf32>, tensor<40x96xf32>) {\n  %zero", 1)
    text = text.replace("return %h : tensor<40x96xf32>", "return %g, %q : tensor<40x96xf32>, tensor<40x96xf32>")
    made, scaled = qmlir.load(qmlir.compile(text, target="cpu:x86-64-v3")).main(*arguments)
    np.testing.assert_array_equal(made, np.maximum(scaled, 1))
