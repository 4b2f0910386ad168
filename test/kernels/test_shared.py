"""Products of the same sizes share a kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qmlir

PROGRAM = """
func.func @main(%x: tensor<?x64xi8>) -> (tensor<?x64xi32>, tensor<?x64xi32>, tensor<?x32xi32>) {
  %a = arith.constant dense<3> : tensor<64x64xi8>
  %b = arith.constant dense<-2> : tensor<64x64xi8>
  %c = arith.constant dense<5> : tensor<64x32xi8>
  %0 = "qmlir.scaled_matmul"(%x, %a) {operand_names = ["lhs", "rhs"]}
    : (tensor<?x64xi8>, tensor<64x64xi8>) -> tensor<?x64xi32>
  %1 = "qmlir.scaled_matmul"(%x, %b) {operand_names = ["lhs", "rhs"]}
    : (tensor<?x64xi8>, tensor<64x64xi8>) -> tensor<?x64xi32>
  %2 = "qmlir.scaled_matmul"(%x, %c) {operand_names = ["lhs", "rhs"]}
    : (tensor<?x64xi8>, tensor<64x32xi8>) -> tensor<?x32xi32>
  return %0, %1, %2 : tensor<?x64xi32>, tensor<?x64xi32>, tensor<?x32xi32>
}
"""


@pytest.mark.slow
def test_two_of_three_products_share_one(tmp_path: Path) -> None:
    source = tmp_path / "three.mlir"
    source.write_text(PROGRAM)
    named = qmlir.compile(source, target="cpu:znver4")
    assert [d["chosen"] for d in named.manifest.strategies] == ["avx512-vnni"] * 3
    configured = named.source("configured")
    assert configured.count("stream.executable private @") == 2
    assert configured.count("flow.dispatch @") == 3
    x = np.random.default_rng(0).integers(-128, 128, (5, 64), dtype=np.int8)
    found = qmlir.load(qmlir.compile(source)).main(x)
    for y, (columns, value) in zip(found, ((64, 3), (64, -2), (32, 5)), strict=True):
        np.testing.assert_array_equal(y, np.repeat(x.astype(np.int32).sum(1)[:, None] * value, columns, 1))
