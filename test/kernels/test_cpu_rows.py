"""The row kernel: dynamic quantisation is bit-exact, norms and sums are compared with float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.cover import diagonal

import qmlir
from qmlir import TensorSpec
from qmlir.targets import resolve

R = qmlir.reference
_MAPS = """#w = affine_map<(a, b, n) -> (a, b, n)>
#r = affine_map<(a, b, n) -> (a, b)>
#k = affine_map<(a, b, n) -> (a, b, 0)>
#c = affine_map<(a, b, n) -> (n)>
"""

QUANTISED: dict[str, tuple[tuple[int | None, ...], dict[str, Any]]] = {
    "rows": ((None, 384), {}),
    "ragged": ((None, 100), {}),
    "a_vector": ((5, 16), {}),
    "three_axes": ((3, None, 40), {}),
    "range": ((None, 600), {"symmetric": False}),
    "groups": ((None, 96), {"granularity": "group", "group_size": 32}),
    "onnx": ((7, 64), {"recipe": "onnx", "symmetric": False, "out_dtype": "u8"}),
    "fbgemm": ((7, 71), {"recipe": "fbgemm", "symmetric": False, "out_dtype": "u8"}),
    "amax": ((9, 33), {"recipe": "amax"}),
    "from_f16": ((9, 48), {}),
}


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize(("name", "target"), diagonal(list(QUANTISED), ["cpu:x86-64-v4", "cpu:x86-64-v3"]))
def test_dynamic_quantisation_is_exact(name: str, target: str) -> None:
    _needs(target)
    shape, options = QUANTISED[name]
    kind = "f16" if name == "from_f16" else "f32"
    artifact = qmlir.ops.dynamic_quantize.compile(TensorSpec(shape, kind), target=target, **options)
    assert "_rows_0" in artifact.source("configured")
    run = qmlir.load(artifact).main
    rng = np.random.default_rng(0)
    for rows in (11, 1, 70):
        x = (30 * rng.standard_normal([rows if s is None else s for s in shape])).astype(np.float32)
        x[-1] = 0
        x[0] *= 1e-3
        if kind == "f16":
            x = x.astype(np.float16)
        for got, expected in zip(run(x), R.dynamic_quantize(x, **options), strict=False):
            np.testing.assert_array_equal(got, expected)


def test_no_numbers() -> None:
    """Rows that contain infinities or NaNs."""
    x = np.ones((4, 40), np.float32)
    x[0, 3], x[1, 39], x[2, 0], x[3, 17] = np.inf, np.nan, -np.inf, -np.nan
    artifact = qmlir.ops.dynamic_quantize.compile(TensorSpec(x.shape, "f32"), target="cpu:x86-64-v3")
    for got, expected in zip(qmlir.load(artifact).main(x), R.dynamic_quantize(x), strict=False):
        np.testing.assert_array_equal(got, expected)


def _needs(target: str) -> None:
    if not set(resolve(target).capabilities.cpu_features) <= set(resolve("cpu").capabilities.cpu_features):
        pytest.skip(f"this host does not run {target}")


def _generic(
    name: str, maps: str, reads: str, types: str, out: str, body: str, args: int, reduces: bool = False
) -> str:
    kinds = '"parallel", "parallel", ' + ('"reduction"' if reduces else '"parallel"')
    block = ", ".join(f"%x{i}: f32" for i in range(args))
    init, kind = out.split(" : ")
    return f"""  %{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins({reads} : {types}) outs({init} : {kind}) {{
  ^bb0({block}, %o: f32):
{body}
  }} -> {kind}
"""


def _layer_norm(rows: str, width: int) -> str:
    """Mean and variance as torch-mlir writes them, with axes of size one; the norm, and its dynamic quantisation."""
    wide, keep = f"tensor<{rows}x{width}xf32>", f"tensor<{rows}x1xf32>"
    flat, codes = f"tensor<{rows}xf32>", f"tensor<{rows}x{width}xi8>"
    sizes = ["%m"] if "?" in rows else []
    e = ", ".join(sizes)
    add = "    %v = arith.addf %x0, %o : f32\n    linalg.yield %v : f32"
    mean = "    %v = arith.divf %x0, %count : f32\n    linalg.yield %v : f32"
    groups = "[[0], [1, 2]]"
    text = f"""{_MAPS}func.func @main(%x: {wide}, %gain: tensor<{width}xf32>) -> ({wide}, {codes}, {keep}) {{
  %zero = arith.constant 0.0 : f32
  %count = arith.constant {width}.0 : f32
  %eps = arith.constant 1.0e-5 : f32
  %one = arith.constant 1 : index
  %m = tensor.dim %x, %one : {wide}
  %w = tensor.empty({e}) : {wide}
  %k = tensor.empty({e}) : {keep}
  %f = linalg.fill ins(%zero : f32) outs(%k : {keep}) -> {keep}
"""
    text += _generic("sum", "#w, #k", "%x", wide, f"%f : {keep}", add, 1, True)
    text += _generic("mean", "#w, #w", "%sum", keep, f"%k : {keep}", mean, 1)
    text += f"  %flat = tensor.collapse_shape %mean {groups} : {keep} into {flat}\n"
    text += _generic("away", "#w, #r, #w", "%x, %flat", f"{wide}, {flat}", f"%w : {wide}",
                     "    %v = arith.subf %x0, %x1 : f32\n    linalg.yield %v : f32", 2)  # fmt: skip
    text += _generic("square", "#w, #w", "%away", wide, f"%w : {wide}",
                     "    %v = arith.mulf %x0, %x0 : f32\n    linalg.yield %v : f32", 1)  # fmt: skip
    text += _generic("squares", "#w, #k", "%square", wide, f"%f : {keep}", add, 1, True)
    text += _generic("variance", "#w, #w", "%squares", keep, f"%k : {keep}",
                     "    %u = arith.divf %x0, %count : f32\n    %t = arith.addf %u, %eps : f32\n"
                     "    %v = math.rsqrt %t : f32\n    linalg.yield %v : f32", 1)  # fmt: skip
    text += f"  %factor = tensor.collapse_shape %variance {groups} : {keep} into {flat}\n"
    text += _generic("norm", "#w, #r, #c, #w", "%away, %factor, %gain", f"{wide}, {flat}, tensor<{width}xf32>",
                     f"%w : {wide}",
                     "    %u = arith.mulf %x0, %x1 : f32\n    %v = arith.mulf %u, %x2 : f32\n"
                     "    linalg.yield %v : f32", 3)  # fmt: skip
    return (
        text
        + f"""  %q:2 = "qmlir.dynamic_quantize"(%norm) : ({wide}) -> ({codes}, {keep})
  return %norm, %q#0, %q#1 : {wide}, {codes}, {keep}
}}
"""
    )


@pytest.mark.sweep(fast=3, slow=3)
@pytest.mark.parametrize(
    ("rows", "width", "target"),
    diagonal([("2x?", 384), ("3x4", 70), ("1x?", 20)], ["cpu:x86-64-v4", "cpu:x86-64-v3"]),
)
def test_layer_norm_and_quantisation_are_one_kernel(rows: str, width: int, target: str) -> None:
    _needs(target)
    artifact = qmlir.compile(_layer_norm(rows, width), target=target)
    text = artifact.source("configured")
    assert text.count("flow.dispatch @") == 1
    assert "linalg.generic" not in text.split("func.func @main(")[-1]
    run = qmlir.load(artifact).main
    rng = np.random.default_rng(width)
    for m in (4,) if "?" not in rows else (4, 1, 50):
        x = rng.standard_normal((int(rows[0]), m, width)).astype(np.float32) + 3
        gain = rng.standard_normal(width).astype(np.float32)
        norm, codes, scale = run(x, gain)
        wide = x.astype(np.float64)
        away = wide - wide.mean(-1, keepdims=True)
        expected = away / np.sqrt((away**2).mean(-1, keepdims=True) + 1e-5) * gain
        np.testing.assert_allclose(norm, expected, rtol=3e-6, atol=3e-6)
        for got, want in zip((codes, scale), R.dynamic_quantize(norm), strict=False):
            np.testing.assert_array_equal(got, want)  # of the kernel's own norm


def test_a_static_operand_with_a_result_of_dynamic_sizes() -> None:
    """Only the operand states the number of rows. No kernel takes the op, as it would not know its result's sizes."""
    add = "    %v = arith.addf %x0, %o : f32\n    linalg.yield %v : f32"
    text = (
        _MAPS
        + """func.func @main(%x: tensor<2x12x64xf32>, %like: tensor<?x?x1xf32>) -> tensor<?x?x1xf32> {
  %zero = arith.constant 0.0 : f32
  %f = linalg.fill ins(%zero : f32) outs(%like : tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
"""
    )
    text += _generic("sum", "#w, #k", "%x", "tensor<2x12x64xf32>", "%f : tensor<?x?x1xf32>", add, 1, True)
    artifact = qmlir.compile(text + "  return %sum : tensor<?x?x1xf32>\n}\n", target="cpu:x86-64-v3")
    _needs("cpu:x86-64-v3")
    x = np.random.default_rng(0).standard_normal((2, 12, 64)).astype(np.float32)
    found = qmlir.load(artifact).main(x, np.zeros((2, 12, 1), np.float32))
    np.testing.assert_allclose(found, x.sum(-1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_integer_sums_and_several_readers() -> None:
    """An op outside the group (`%z`) reads the sum `%s` before the group is complete, and a later op (`%w`) reads its
    result: two groups, the second of which reads the first."""
    text = """#id = affine_map<(m, n) -> (m, n)>
#t = affine_map<(m, n) -> (n, m)>
#row = affine_map<(m, n) -> (m)>
func.func @main(%x: tensor<33x33xf32>) -> (tensor<33x33xf32>, tensor<33xf32>) {
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<33x33xf32>
  %r = tensor.empty() : tensor<33xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<33xf32>) -> tensor<33xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<33x33xf32>) outs(%f : tensor<33xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.addf %o, %a : f32
    linalg.yield %v : f32
  } -> tensor<33xf32>
  %z = linalg.generic {indexing_maps = [#t, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<33x33xf32>, tensor<33xf32>) outs(%e : tensor<33x33xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.addf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<33x33xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<33x33xf32>, tensor<33xf32>) outs(%e : tensor<33x33xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.mulf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<33x33xf32>
  %u = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<33x33xf32>) outs(%f : tensor<33xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.addf %o, %a : f32
    linalg.yield %v : f32
  } -> tensor<33xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%z, %u : tensor<33x33xf32>, tensor<33xf32>) outs(%e : tensor<33x33xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.addf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<33x33xf32>
  %q = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<33x33xf32>) outs(%f : tensor<33xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.addf %o, %a : f32
    linalg.yield %v : f32
  } -> tensor<33xf32>
  return %w, %q : tensor<33x33xf32>, tensor<33xf32>
}
"""
    x = np.random.default_rng(1).integers(-4, 5, (33, 33)).astype(np.float32)  # all sums are exact
    artifact = qmlir.compile(text, target="cpu:x86-64-v3")
    assert artifact.source("configured").count("flow.dispatch @") == 2
    run = qmlir.load(artifact).main
    sums = x.sum(1)
    again = (x * sums[:, None]).sum(1)
    expected = x.T + sums[:, None] + again[:, None]
    got, want = run(x)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(want, expected.sum(1))


def test_as_many_rows_as_columns(target: str) -> None:
    """Regression: the compiler failed on CPUs and through Vulkan if one vector was indexed by rows and by columns, or
    if the sums of rows were indexed by columns."""
    text = """
#w = affine_map<(i, j) -> (i, j)>
#r = affine_map<(i, j) -> (i)>
#c = affine_map<(i, j) -> (j)>
func.func @main(%g: tensor<64x64xf32>, %n: tensor<64xf32>) -> (tensor<64x64xf32>, tensor<64xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %d = linalg.generic {indexing_maps = [#w, #r, #c, #w], iterator_types = ["parallel", "parallel"]}
      ins(%g, %n, %n : tensor<64x64xf32>, tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%x: f32, %a: f32, %b: f32, %o: f32):
    %1 = arith.subf %a, %b : f32
    %2 = arith.addf %1, %x : f32
    linalg.yield %2 : f32
  } -> tensor<64x64xf32>
  %e1 = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64xf32>) -> tensor<64xf32>
  %m = linalg.generic {indexing_maps = [#w, #r], iterator_types = ["parallel", "reduction"]}
      ins(%d : tensor<64x64xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%x: f32, %o: f32):
    %1 = arith.addf %o, %x : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  %q = linalg.generic {indexing_maps = [#w, #c, #w], iterator_types = ["parallel", "parallel"]}
      ins(%d, %m : tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%x: f32, %b: f32, %o: f32):
    %1 = arith.mulf %x, %b : f32
    linalg.yield %1 : f32
  } -> tensor<64x64xf32>
  return %q, %m : tensor<64x64xf32>, tensor<64xf32>
}
"""
    rng = np.random.default_rng(2)
    g, n = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((64, 64), 64))  # all sums are exact
    d = g + n[:, None] - n[None]
    q, m = qmlir.load(qmlir.compile(text, target=target)).main(g, n)
    np.testing.assert_array_equal(m, d.sum(1))
    np.testing.assert_array_equal(q, d * d.sum(1)[None])


def test_a_square_product_with_zero_points_of_rows(target: str) -> None:
    """Regression: the weight's row sums are indexed by the columns of the result, which has as many columns as rows."""
    rng = np.random.default_rng(3)
    kw: dict[str, Any] = {
        "lhs": rng.integers(-128, 128, (8, 8)).astype(np.int8), "rhs": rng.integers(-128, 128, (8, 8)).astype(np.int8),
        "lhs_zero_point": rng.integers(-40, 40, (8, 1)).astype(np.int32), "rhs_transposed": True,
    }  # fmt: skip
    np.testing.assert_array_equal(qmlir.ops.scaled_matmul(target=target, **kw), R.scaled_matmul(**kw))


@pytest.mark.parametrize("kind", ["i8", "i64"])
def test_largest_integers_of_rows(kind: str) -> None:
    """Regression: the maximum of a row of integers was 0 if all were negative and had 8 or 16 bits, and -2**31 if all
    had 64 bits and were below that."""
    type_ = np.dtype(f"int{kind[1:]}")
    least = int(np.iinfo(type_).min)
    text = f"""
#w = affine_map<(i, j) -> (i, j)>
#r = affine_map<(i, j) -> (i)>
func.func @main(%x: tensor<3x40x{kind}>) -> tensor<3x{kind}> {{
  %least = arith.constant {least} : {kind}
  %e = tensor.empty() : tensor<3x{kind}>
  %f = linalg.fill ins(%least : {kind}) outs(%e : tensor<3x{kind}>) -> tensor<3x{kind}>
  %m = linalg.generic {{indexing_maps = [#w, #r], iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<3x40x{kind}>) outs(%f : tensor<3x{kind}>) {{
  ^bb0(%a: {kind}, %o: {kind}):
    %1 = arith.maxsi %a, %o : {kind}
    linalg.yield %1 : {kind}
  }} -> tensor<3x{kind}>
  return %m : tensor<3x{kind}>
}}"""
    x = (least + np.random.default_rng(3).integers(0, 50, (3, 40))).astype(type_)
    artifact = qmlir.compile(text, target="cpu:x86-64-v3")
    assert "_rows_0" in artifact.source("configured")
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), x.max(1))
