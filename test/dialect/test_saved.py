"""Older text of the dialect is read, with a warning. test/dialect/saved.mlir has one program for each operation."""

from __future__ import annotations

import warnings

import pytest

from qmlir import compiler
from qmlir.core import mlir

SLICE = """func.func @main(%x: tensor<8xf32>) -> tensor<4xf32> {
  %0 = "tensor.extract_slice"(%x) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0>,
    static_sizes = array<i64: 4>, static_strides = array<i64: 1>}> : (tensor<8xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
OLD = """func.func @main(%x: tensor<4xf32>, %s: tensor<f32>) -> tensor<4xi8> {
  %0 = "qmlir.quantize"(%x, %s) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<4xf32>, tensor<f32>)
    -> tensor<4xi8>
  return %0 : tensor<4xi8>
}
"""


def test_old_text_warns() -> None:
    with mlir.context():
        with pytest.warns(DeprecationWarning, match="old.mlir: 'operandSegmentSizes' is deprecated"):
            module = compiler.parse(OLD, "old.mlir")
        assert 'operand_names = ["input", "scale"]' in str(module)


def test_other_dialects_keep_theirs() -> None:
    with mlir.context(), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiler.parse(SLICE, "-")


NAMES = """func.func @main(%x: tensor<2x16xi8>, %w: tensor<16x4xi8>) -> tensor<2x8xf32> {
  %0 = "qmlir.scaled_matmul"(%x, %w) {rhs_dtype = "i4", packing = "low_first"} : (tensor<2x16xi8>, tensor<16x4xi8>)
    -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}
"""


def test_old_names_warn() -> None:
    with mlir.context():
        with pytest.warns(
            DeprecationWarning, match="old.mlir: qmlir.scaled_matmul: 'packing' is deprecated: use 'rhs_p"
        ):
            module = compiler.parse(NAMES, "old.mlir")
        assert '{rhs_dtype = "i4", rhs_packing = "low_first"}' in str(module)
    with mlir.context(), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiler.parse(NAMES.replace("packing", "rhs_packing"), "-")
