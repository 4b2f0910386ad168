"""Canaries of the workarounds: the smallest program that shows a fault, compiled without the pass that is there because
of it. It is expected to fail, strictly: where one passes, IREE or the driver was mended and the pass can go.

`qmlir-sign-matrix-sums` has its canary in test/kernels/test_cooperative.py, `qmlir-shared-memory` is judged by what the
driver says (test/targets/test_shared_memory.py). The canary of `qmlir-bound-unit-sums` is at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import qmlir
from qmlir.compiler import default_pipeline
from qmlir.compiler.compilation import compile_built
from qmlir.compiler.options import Options
from qmlir.compiler.sources import program_of
from qmlir.core.mlir import context, ir, passmanager
from qmlir.passes.pipeline import Pipeline
from qmlir.targets import Target, resolve

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)
FLOATS = rng.standard_normal(64).astype(np.float32)


def of_each(operation: str, source: str, result: str, size: int = 64) -> str:
    """One scalar operation of each element."""
    return f"""
func.func @main(%x: tensor<{size}x{source}>) -> tensor<{size}x{result}> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{size}x{result}>
  %0 = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}}
      ins(%x : tensor<{size}x{source}>) outs(%e : tensor<{size}x{result}>) {{
  ^bb0(%a: {source}, %b: {result}):
    %1 = {operation}
    linalg.yield %1 : {result}
  }} -> tensor<{size}x{result}>
  return %0 : tensor<{size}x{result}>
}}
"""


# `x[b, m, n] - sum over k of w[b, k, n]`
BROADCAST = """
func.func @main(%w: tensor<3x40x24xi32>, %x: tensor<3x4x24xi32>) -> tensor<3x4x24xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<3x24xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<3x24xi32>) -> tensor<3x24xi32>
  %sum = linalg.generic {indexing_maps = [affine_map<(b, n, k) -> (b, k, n)>, affine_map<(b, n, k) -> (b, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%w : tensor<3x40x24xi32>) outs(%f : tensor<3x24xi32>) {
  ^bb0(%a: i32, %acc: i32):
    %0 = arith.addi %a, %acc : i32
    linalg.yield %0 : i32
  } -> tensor<3x24xi32>
  %o = tensor.empty() : tensor<3x4x24xi32>
  %y = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, n)>,
      affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %sum : tensor<3x4x24xi32>, tensor<3x24xi32>) outs(%o : tensor<3x4x24xi32>) {
  ^bb0(%a: i32, %b: i32, %out: i32):
    %0 = arith.subi %a, %b : i32
    linalg.yield %0 : i32
  } -> tensor<3x4x24xi32>
  return %y : tensor<3x4x24xi32>
}
"""
DYNAMIC = """
func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n) : tensor<?x8xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.addf %a, %a : f32
    linalg.yield %1 : f32
  } -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
"""
# Four filters of 3 x 3 over images `[channel, row, column]`, summed over channels that lie last in the filter.
TWO_ORDERS = """
func.func @main(%x: tensor<2x6x6xi8>, %w: tensor<4x3x3x2xi8>) -> tensor<4x4x4xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<4x4x4xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<4x4x4xi32>) -> tensor<4x4x4xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(h, w, f, r, s, c) -> (c, h + r, w + s)>,
      affine_map<(h, w, f, r, s, c) -> (f, r, s, c)>, affine_map<(h, w, f, r, s, c) -> (h, w, f)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x6x6xi8>, tensor<4x3x3x2xi8>) outs(%f : tensor<4x4x4xi32>) {
  ^bb0(%a: i8, %b: i8, %acc: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<4x4x4xi32>
  return %0 : tensor<4x4x4xi32>
}
"""
# Rows first in the loops, channels first in the result.
CHANNELS_FIRST = """
func.func @main(%x: tensor<2x6x6xf16>, %w: tensor<4x2x3x3xf16>) -> tensor<4x4x4xf32> {
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4x4xf32>
  %f = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x4x4xf32>) -> tensor<4x4x4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(h, w, f, c, r, s) -> (c, h + r, w + s)>,
      affine_map<(h, w, f, c, r, s) -> (f, c, r, s)>, affine_map<(h, w, f, c, r, s) -> (f, h, w)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x6x6xf16>, tensor<4x2x3x3xf16>) outs(%f : tensor<4x4x4xf32>) {
  ^bb0(%a: f16, %b: f16, %acc: f32):
    %1 = arith.extf %a : f16 to f32
    %2 = arith.extf %b : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %acc, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<4x4x4xf32>
  return %0 : tensor<4x4x4xf32>
}
"""


# Two groups of eight filters over two images, and a bias that is reshaped in front of them.
BIAS = """
func.func @main(%x: tensor<2x2x4x8x8xf32>, %w: tensor<2x8x4x3x3xf32>, %b: tensor<16xf32>) -> tensor<2x2x8x6x6xf32> {
  %e = tensor.empty() : tensor<2x16x6x6xf32>
  %all = linalg.broadcast ins(%b : tensor<16xf32>) outs(%e : tensor<2x16x6x6xf32>) dimensions = [0, 2, 3]
  %f = tensor.expand_shape %all [[0], [1, 2], [3], [4]] output_shape [2, 2, 8, 6, 6]
      : tensor<2x16x6x6xf32> into tensor<2x2x8x6x6xf32>
  %0 = linalg.conv_2d_ngchw_gfchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<2x2x4x8x8xf32>, tensor<2x8x4x3x3xf32>) outs(%f : tensor<2x2x8x6x6xf32>)
      -> tensor<2x2x8x6x6xf32>
  return %0 : tensor<2x2x8x6x6xf32>
}
"""
# A product whose rows and columns are fewer than a tile has, something added to it, and a function with branches.
BRANCHES = """
func.func @main(%x: tensor<3x2xf32>, %w: tensor<2x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x4xf32>
  %f = linalg.fill ins(%c0 : f32) outs(%e : tensor<3x4xf32>) -> tensor<3x4xf32>
  %p = linalg.matmul ins(%x, %w : tensor<3x2xf32>, tensor<2x4xf32>) outs(%f : tensor<3x4xf32>) -> tensor<3x4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%p, %y : tensor<3x4xf32>, tensor<3x4xf32>) outs(%e : tensor<3x4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %1 = arith.addf %a, %b : f32
    %2 = math.tanh %1 : f32
    linalg.yield %2 : f32
  } -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
"""


def convolved(x: Array, w: Array) -> Array:
    """`[channel, row, column]` by `[filter, channel, 3, 3]`, in f64: `[filter, row, column]`."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(1, 2))
    return np.einsum("chwrs,fcrs->fhw", windows, w)


# Two sorts along the last axis that start from the same indices: the columns of `x` in the order of their elements.
SORTS = """
func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xi64> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xi64>
  %columns = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%e : tensor<?x4xi64>) {
  ^bb0(%out: i64):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i64
    linalg.yield %j : i64
  } -> tensor<?x4xi64>
  %0:2 = iree_linalg_ext.sort dimension(1) outs(%x, %columns : tensor<?x4xf32>, tensor<?x4xi64>) {
  ^bb0(%a: f32, %b: f32, %i: i64, %j: i64):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<?x4xf32>, tensor<?x4xi64>
  %1:2 = iree_linalg_ext.sort dimension(1) outs(%y, %columns : tensor<?x4xf32>, tensor<?x4xi64>) {
  ^bb0(%a: f32, %b: f32, %i: i64, %j: i64):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<?x4xf32>, tensor<?x4xi64>
  %both = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%0#1, %1#1 : tensor<?x4xi64>, tensor<?x4xi64>) outs(%e : tensor<?x4xi64>) {
  ^bb0(%a: i64, %b: i64, %out: i64):
    %sum = arith.addi %a, %b : i64
    linalg.yield %sum : i64
  } -> tensor<?x4xi64>
  return %both : tensor<?x4xi64>
}
"""


@dataclass(frozen=True)
class Canary:
    """A program that a target gets wrong without a pass.

    Attributes:
        target: that needs the pass; one of a GPU that is not here is emulated.
        program: MLIR text.
        arguments: of `main`.
        expected: what it returns for them.
    """

    target: str
    program: str
    arguments: Sequence[Array]
    expected: Callable[..., Array]


WITH_NAN = np.where(np.arange(64) % 7, FLOATS, np.float32(np.nan))
TENS = np.full(64, 1, np.float32)
CANARIES = {
    "qmlir-expand-bf16": Canary(
        "cpu:x86-64-v3", of_each("arith.sitofp %a : i32 to bf16", "i32", "bf16"), [np.arange(64, dtype=np.int32)],
        lambda x: x,
    ),
    "qmlir-decode-small-floats": Canary(
        "cuda:sm_80", of_each("arith.extf %a : f8E4M3FN to f32", "f8E4M3FN", "f32"),
        [FLOATS.astype(ml_dtypes.float8_e4m3fn)], lambda x: x,
    ),
    "qmlir-expand-functions": Canary("cpu", of_each("math.log10 %a : f32", "f32", "f32"), [TENS], np.log10),
    "qmlir-keep-nan": Canary(
        "rocm:gfx942", of_each("arith.maximumf %a, %zero : f32", "f32", "f32"), [WITH_NAN],
        lambda x: np.maximum(x, np.float32(0)),
    ),
    "qmlir-split-broadcast": Canary(
        "vulkan:lavapipe", BROADCAST, [np.ones((3, 40, 24), np.int32), np.zeros((3, 4, 24), np.int32)],
        lambda w, x: x - w.sum(1, dtype=np.int32)[:, None],
    ),
    "qmlir-own-destinations": Canary(
        "cpu", SORTS, [FLOATS.reshape(16, 4), -FLOATS.reshape(16, 4)], lambda x, y: x.argsort(1) + y.argsort(1),
    ),
    "qmlir-expand-functions on a tile": Canary(
        "rocm:gfx942", BRANCHES, [np.zeros(shape, np.float32) for shape in ((3, 2), (2, 4), (3, 4))],
        lambda x, w, y: np.tanh(x @ w + y),
    ),
    "qmlir-start-at-zero": Canary(
        "rocm:gfx942", BIAS,
        [rng.integers(-9, 9, shape).astype(np.float32) for shape in ((2, 2, 4, 8, 8), (2, 8, 4, 3, 3), (16,))],
        lambda x, w, b: b.reshape(2, 8, 1, 1) + np.stack([[convolved(*g) for g in zip(n, w, strict=True)] for n in x]),
    ),
    "qmlir-order-convolutions": Canary(
        "rocm:gfx942", TWO_ORDERS,
        [rng.integers(-9, 9, (2, 6, 6), np.int8), rng.integers(-9, 9, (4, 3, 3, 2), np.int8)],
        lambda x, w: convolved(x, w.transpose(0, 3, 1, 2)).transpose(1, 2, 0),
    ),
    "qmlir-order-results": Canary(
        "cuda:sm_80", CHANNELS_FIRST,
        [rng.integers(-9, 9, shape).astype(np.float16) for shape in ((2, 6, 6), (4, 2, 3, 3))], convolved,
    ),
    "qmlir-guard-empty": Canary("vulkan:lavapipe", DYNAMIC, [np.zeros((0, 8), np.float32)], lambda x: x),
}  # fmt: skip


def run(canary: Canary, target: Target, path: Path, left_out: str = "") -> None:
    path.write_text(canary.program)
    steps = [step.text() for step in Pipeline.parse(default_pipeline(target)).steps]
    pipeline = ",".join(step for step in steps if step.split("{")[0] != left_out)
    target = dataclasses.replace(target, source_passes=tuple(x for x in target.source_passes if x != left_out))
    made = compile_built(program_of(path, {}), target, Options(cache=False, pipeline=pipeline), None)
    emulated = not canary.target.startswith(("cpu", "vulkan"))
    got = qmlir.load(made, emulate=emulated).main(*canary.arguments)
    np.testing.assert_array_equal(np.asarray(got, np.float64), canary.expected(*canary.arguments).astype(np.float64))


@pytest.mark.parametrize("name", CANARIES)
def test_with_the_pass(name: str, tmp_path: Path) -> None:
    run(CANARIES[name], resolve(CANARIES[name].target), tmp_path / "canary.mlir")


@pytest.mark.xfail(strict=True, raises=(qmlir.errors.QmlirError, AssertionError))
@pytest.mark.parametrize("name", CANARIES)
def test_without_it(name: str, tmp_path: Path) -> None:
    run(CANARIES[name], resolve(CANARIES[name].target), tmp_path / "canary.mlir", left_out=name.split()[0])


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_a_mask_keeps_its_rows_when_unit_sizes_are_dropped() -> None:
    """What `targets/row_masks.py` and `qmlir-bound-unit-sums` are there for."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse("""
            func.func @main(%rows: index) -> vector<4xi1> {
              %c1 = arith.constant 1 : index
              %c4 = arith.constant 4 : index
              %mask = vector.create_mask %c1, %rows, %c4 : vector<1x1x4xi1>
              %row = vector.shape_cast %mask : vector<1x1x4xi1> to vector<4xi1>
              return %row : vector<4xi1>
            }""")
        passmanager.PassManager.parse("builtin.module(func.func(canonicalize))").run(module.operation)
        assert list(module.body.operations[0].regions[0].blocks[0].arguments[0].uses)
