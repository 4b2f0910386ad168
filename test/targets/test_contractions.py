"""Finding and describing contractions."""

from __future__ import annotations

from typing import Any

import pytest

from qmlir.core.mlir import context, ir
from qmlir.passes.core.contractions import find_contractions
from qmlir.targets.strategy import Contraction


def described(text: str) -> list[Contraction]:
    with context():
        module = ir.Module.parse(text)
        # The descriptions are read while the module lives; the ops must not be used afterwards.
        return [Contraction(**{**vars(c), "op": None}) for c in find_contractions(module)]


def test_matmul(forms: Any) -> None:
    (c,) = described(forms.matmul(128, 256, 512))
    assert (c.kind, c.batch, c.m, c.n, c.k) == ("matmul", (), 128, 256, 512)
    assert (c.lhs, c.rhs, c.acc) == ("i8", "i8", "i32")
    assert (c.roles, c.sizes) == (("m", "n", "k"), (128, 256, 512))
    assert (c.lhs_magnitude, c.rhs_magnitude) == (128, 128)
    assert c.location.startswith("-:")


@pytest.mark.parametrize("transposed", [True, False])
def test_dynamic_rows_are_none(forms: Any, transposed: bool) -> None:
    (c,) = described(forms.matmul(None, 256, 512, transposed=transposed))
    assert (c.m, c.n, c.k, c.sizes) == (None, 256, 512, (None, 256, 512))


def test_floats(forms: Any) -> None:
    (c,) = described(forms.matmul(8, 16, 32, dtype="bf16"))
    assert (c.lhs, c.rhs, c.acc) == ("bf16", "bf16", "f32")


def test_unsigned_codes_are_told_apart(forms: Any) -> None:
    (c,) = described(forms.matmul(8, 16, 32, extension="arith.extui"))
    assert (c.lhs, c.rhs) == ("ui8", "ui8")
    assert c.lhs_magnitude == 255


def test_magnitudes(forms: Any) -> None:
    (c,) = described(forms.matmul(8, 16, 32, attributes="qmlir.rhs_magnitude = 8 : i64"))
    assert (c.lhs_magnitude, c.rhs_magnitude) == (128, 8)


def test_k_groups_are_a_batch(forms: Any) -> None:
    (c,) = described(forms.k_groups(16, 32, 4, 64))
    assert (c.batch, c.m, c.n, c.k) == ((4,), 16, 32, 64)
    assert c.roles == ("b", "m", "n", "k")


def test_convolutions(forms: Any) -> None:
    (c,) = described(forms.conv(n=2, h=10, c=16, f=32))
    assert (c.kind, c.batch, c.m, c.n, c.k) == ("conv2d", (), 2 * 8 * 8, 32, 9 * 16)
    (c,) = described(forms.conv(n=2, h=10, c=4, f=8, groups=3))
    assert (c.kind, c.batch, c.m, c.n, c.k) == ("conv2d", (3,), 2 * 8 * 8, 8, 9 * 4)
    (c,) = described(forms.conv(n=None))
    assert c.m is None
    (c,) = described(forms.depthwise(h=10, c=16))
    assert (c.kind, c.batch, c.m, c.n, c.k) == ("depthwise_conv2d", (16,), 64, 1, 9)


def test_named_matmuls() -> None:
    (c,) = described("""
    func.func @f(%x: tensor<4x8x16xf16>, %w: tensor<4x16x32xf16>, %o: tensor<4x8x32xf32>) -> tensor<4x8x32xf32> {
      %r = linalg.batch_matmul ins(%x, %w : tensor<4x8x16xf16>, tensor<4x16x32xf16>)
                               outs(%o : tensor<4x8x32xf32>) -> tensor<4x8x32xf32>
      return %r : tensor<4x8x32xf32> }""")
    assert (c.batch, c.m, c.n, c.k, c.lhs, c.acc) == ((4,), 8, 32, 16, "f16", "f32")


def test_constant_weights() -> None:
    (c,) = described("""
    func.func @f(%x: tensor<4x8xi8>) -> tensor<4x2xi32> {
      %w = arith.constant dense<1> : tensor<8x2xi8>
      %zero = arith.constant 0 : i32
      %e = tensor.empty() : tensor<4x2xi32>
      %f = linalg.fill ins(%zero : i32) outs(%e : tensor<4x2xi32>) -> tensor<4x2xi32>
      %r = linalg.matmul ins(%x, %w : tensor<4x8xi8>, tensor<8x2xi8>)
                         outs(%f : tensor<4x2xi32>) -> tensor<4x2xi32>
      return %r : tensor<4x2xi32> }""")
    assert c.rhs_constant


@pytest.mark.parametrize(
    "body",
    [
        "%t = arith.addi %p, %q : i32\n linalg.yield %t : i32",  # no product
        "%c = arith.muli %p, %p : i32\n %t = arith.addi %o, %c : i32\n linalg.yield %t : i32",  # one operand
        "%c = arith.muli %p, %q : i32\n %t = arith.maxsi %o, %c : i32\n linalg.yield %t : i32",  # no sum
        "%c = arith.muli %p, %q : i32\n linalg.yield %c : i32",  # nothing is accumulated
    ],
)
def test_other_reductions_are_left_alone(body: str) -> None:
    assert not described(f"""
    func.func @f(%x: tensor<4x8xi32>, %w: tensor<2x8xi32>, %o0: tensor<4x2xi32>) -> tensor<4x2xi32> {{
      %r = linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
          affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}}
          ins(%x, %w : tensor<4x8xi32>, tensor<2x8xi32>) outs(%o0 : tensor<4x2xi32>) {{
      ^bb0(%p: i32, %q: i32, %o: i32):
        {body}
      }} -> tensor<4x2xi32>
      return %r : tensor<4x2xi32> }}""")
