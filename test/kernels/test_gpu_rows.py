"""The GPU row kernel: dynamic quantisation, bit-exact, and row sums; on lavapipe, and for AMD in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import gpu_programs, gpu_workgroup
from support.cover import others_slow
from support.divisions import vulkan_division

import qmlir
from qmlir import TensorSpec
from qmlir.dialect.shapes import Shape

pytestmark = pytest.mark.sweep(fast=6, slow=40)

R = qmlir.reference
QUANTISED: dict[str, tuple[Shape, dict[str, Any]]] = {
    "rows": ((None, 384), {}),
    "ragged": ((None, 71), {}),
    "a_vector": ((5, 16), {}),
    "three_axes": ((3, None, 40), {}),
    "range": ((None, 600), {"symmetric": False}),
    "groups": ((None, 96), {"granularity": "group", "group_size": 32}),
    "onnx": ((7, 64), {"recipe": "onnx", "symmetric": False, "out_dtype": "u8"}),
    "amax": ((9, 33), {"recipe": "amax"}),
    "from_f16": ((9, 48), {}),
    "long": ((None, 5000), {"symmetric": False}),
}


def _numbers(name: str, rows: int) -> Any:
    rng = np.random.default_rng(rows)
    x = (30 * rng.standard_normal([rows if s is None else s for s in QUANTISED[name][0]])).astype(np.float32)
    x[-1] = 0
    x[0] *= 1e-3
    return x.astype(np.float16) if name == "from_f16" else x


def _compiled(name: str, target: str, rows: int | None = None) -> Any:
    shape, options = QUANTISED[name]
    shape = tuple(rows if s is None else s for s in shape)
    kind = "f16" if name == "from_f16" else "f32"
    artifact = qmlir.ops.dynamic_quantize.compile(TensorSpec(shape, kind), target=target, **options)
    assert "_rows_0" in artifact.source("configured")
    return artifact


@pytest.mark.parametrize("name", others_slow(list(QUANTISED), "rows", "ragged", "range", "groups", "from_f16", "long"))
def test_dynamic_quantisation_on_lavapipe(name: str, lavapipe: str) -> None:
    artifact = _compiled(name, lavapipe)
    assert len(gpu_programs.dispatches(artifact)) == 1
    run = qmlir.load(artifact).main
    for rows in (11, 1, 70):
        x = _numbers(name, rows)
        for got, want in zip(run(x), R.dynamic_quantize(x, **QUANTISED[name][1]), strict=False):
            np.testing.assert_array_equal(got, want)


def _interpreted(name: str, target: str, rows: int | None = None) -> None:
    artifact = _compiled(name, target, rows)
    x = _numbers(name, 6)
    for got, want in zip(gpu_programs.run(artifact, x), R.dynamic_quantize(x, **QUANTISED[name][1]), strict=False):
        np.testing.assert_array_equal(got.view(want.dtype), want)  # dispatches do not know the sign of codes


@pytest.mark.parametrize(("name", "target"), [("long", "rocm:gfx942"), ("groups", "rocm:gfx1100")])
def test_dynamic_quantisation_on_amd(name: str, target: str) -> None:
    _interpreted(name, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["rocm:gfx90a", "rocm:gfx942", "rocm:gfx1201"])
@pytest.mark.parametrize("name", QUANTISED)
def test_all_dynamic_quantisation_on_amd(name: str, target: str) -> None:
    _interpreted(name, target)


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize("target", ["vulkan:hopper", "vulkan:rdna3"])
@pytest.mark.parametrize("name", others_slow(list(QUANTISED), "rows", "range", "groups", "from_f16"))
def test_dynamic_quantisation_on_devices_that_divide_badly(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Divisions are as inexact as Vulkan allows, as NVIDIA's driver's are: codes were -127 instead of -128."""
    divided = vulkan_division(None)
    monkeypatch.setitem(gpu_workgroup.PURE, "arith.divf", lambda w, op, a, b: divided(a, b))
    _interpreted(name, target, 6)


def test_rows_that_hold_no_numbers(lavapipe: str) -> None:
    """Rows with infinities and NaN."""
    x = np.ones((4, 40), np.float32)
    x[0, 3], x[1, 39], x[2, 0], x[3, 17] = np.inf, np.nan, -np.inf, -np.nan
    artifact = qmlir.ops.dynamic_quantize.compile(TensorSpec(x.shape, "f32"), target=lavapipe)
    for got, want in zip(qmlir.load(artifact).main(x), R.dynamic_quantize(x), strict=False):
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
def test_more_rows_than_a_grid_has_along_one_axis(lavapipe: str) -> None:
    """The grid then has two axes."""
    x = np.random.default_rng(1).standard_normal((1 << 15, 264)).astype(np.float32)
    x = np.concatenate([x, x[:3]])
    artifact = qmlir.ops.dynamic_quantize.compile(TensorSpec((None, 264), "f32"), target=lavapipe)
    codes, scales = qmlir.load(artifact).main(x)
    want = R.dynamic_quantize(x)
    np.testing.assert_array_equal(codes, want[0])
    np.testing.assert_array_equal(scales, want[1])


_ENTRY = """#w = affine_map<(m, n) -> (m, n)>
#k = affine_map<(m, n) -> (m)>
#c = affine_map<(m, n) -> (n)>
func.func @main(%x: tensor<?x{two}xf32>, %gain: tensor<{n}xf32>) -> (tensor<?x{n}xf32>, tensor<?xf32>) {{
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x{two}xf32>
  %a = tensor.extract_slice %x[0, 0] [%m, {n}] [1, 1] : tensor<?x{two}xf32> to tensor<?x{n}xf32>
  %b = tensor.extract_slice %x[0, {n}] [%m, {n}] [1, 1] : tensor<?x{two}xf32> to tensor<?x{n}xf32>
  %e = tensor.empty(%m) : tensor<?x{n}xf32>
  %r = tensor.empty(%m) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<?xf32>) -> tensor<?xf32>
  %p = linalg.generic {{indexing_maps = [#w, #w, #w], iterator_types = ["parallel", "parallel"]}}
      ins(%a, %b : tensor<?x{n}xf32>, tensor<?x{n}xf32>) outs(%e : tensor<?x{n}xf32>) {{
  ^bb0(%u: f32, %v: f32, %o: f32):
    %y = arith.mulf %u, %v : f32
    linalg.yield %y : f32
  }} -> tensor<?x{n}xf32>
  %s = linalg.generic {{indexing_maps = [#w, #k], iterator_types = ["parallel", "reduction"]}}
      ins(%p : tensor<?x{n}xf32>) outs(%f : tensor<?xf32>) {{
  ^bb0(%u: f32, %o: f32):
    %y = arith.addf %o, %u : f32
    linalg.yield %y : f32
  }} -> tensor<?xf32>
  %q = linalg.generic {{indexing_maps = [#w, #k, #c, #w], iterator_types = ["parallel", "parallel"]}}
      ins(%p, %s, %gain : tensor<?x{n}xf32>, tensor<?xf32>, tensor<{n}xf32>) outs(%e : tensor<?x{n}xf32>) {{
  ^bb0(%u: f32, %v: f32, %g: f32, %o: f32):
    %d = arith.subf %u, %v : f32
    %y = arith.mulf %d, %g : f32
    linalg.yield %y : f32
  }} -> tensor<?x{n}xf32>
  return %q, %s : tensor<?x{n}xf32>, tensor<?xf32>
}}"""


@pytest.mark.parametrize("n", [40, 39])
def test_a_gated_pair_is_read_where_it_is(n: int, lavapipe: str) -> None:
    """Halves of rows, a product that two passes read, a row sum and a per-column factor are one dispatch. Each half
    that is not a whole number of vectors needs one more dispatch."""
    artifact = qmlir.compile(_ENTRY.format(n=n, two=2 * n), target=lavapipe)
    assert "_rows_0" in artifact.source("configured")
    assert len(gpu_programs.dispatches(artifact)) == (1 if n % 4 == 0 else 3)
    rng = np.random.default_rng(2)
    x, gain = rng.integers(-8, 9, (9, 2 * n)).astype(np.float32), rng.integers(-4, 5, n).astype(np.float32)
    product = x[:, :n] * x[:, n:]
    total = product.sum(1)  # of small integers: exact in any order
    got = qmlir.load(artifact).main(x, gain)
    np.testing.assert_array_equal(got[1], total)
    np.testing.assert_array_equal(got[0], (product - total[:, None]) * gain)


def test_columns_from_a_place_that_the_call_says(lavapipe: str) -> None:
    """Regression: a kernel took an offset that is known only at run time for a constant, and read far outside of the
    tensor."""
    n = 40
    text = _ENTRY.format(n=n, two=2 * n).replace("%gain:", "%at: tensor<i32>, %gain:")
    text = text.replace(f"%x[0, {n}]", "%x[0, %first]").replace(
        "  %a =", "  %i = tensor.extract %at[] : tensor<i32>\n  %first = arith.index_cast %i : i32 to index\n  %a ="
    )
    artifact = qmlir.compile(text, target=lavapipe)
    rng = np.random.default_rng(4)
    x, gain = rng.integers(-8, 9, (9, 2 * n)).astype(np.float32), rng.integers(-4, 5, n).astype(np.float32)
    product = x[:, :n] * x[:, 7 : 7 + n]
    total = product.sum(1)
    got = qmlir.load(artifact).main(x, np.int32(7), gain)
    np.testing.assert_array_equal(got[1], total)
    np.testing.assert_array_equal(got[0], (product - total[:, None]) * gain)
