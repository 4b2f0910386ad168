"""Forms of the support matrix, compiled for 64-bit Arm and executed in an emulator, against the interpreter of the same
program, whichever route a product takes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.arm import Emulator
from support.cover import others_slow
from support.forms import FORMS

import qmlir
from qmlir import TensorSpec as T
from qmlir.checking.interpreter import Interpreter
from qmlir.compiler.compilation import compile_built
from qmlir.compiler.options import Options
from qmlir.compiler.sources import program_of
from qmlir.core.mlir import context, ir
from qmlir.runtime import inputs
from qmlir.targets import Target, resolve
from qmlir.targets.cpu.data_layout import natural_alignments

PRODUCTS = {form.name: form for form in FORMS if form.product and form.op not in ("sparse_matmul", "route")}


def evaluated(artifact: Any, arguments: list[Any]) -> Any:
    with context():
        return Interpreter(ir.Module.parse(artifact.source("import"))).call("main", arguments)


# The first target takes qmlir's kernels, the second IREE's route for integers.
@pytest.mark.sweep(slow=40)
@pytest.mark.parametrize("target", ["cpu:neoverse-v1", "cpu:aarch64"])
@pytest.mark.parametrize("name", others_slow(sorted(PRODUCTS)))
def test_products(arm: Emulator, name: str, target: str) -> None:
    artifact = PRODUCTS[name].compile(target, m=None)
    signature = artifact.functions["main"]
    arguments = list(inputs.make(signature, artifact.manifest.arguments.get("main"), size=5, seed=1))
    (got,) = arm.run(artifact, [arguments])
    for found, expected in zip([got], evaluated(artifact, arguments), strict=True):
        if np.asarray(expected).dtype.kind in "iu":
            np.testing.assert_array_equal(found, expected)
        else:
            a, b = (np.asarray(x).astype(np.float64) for x in (found, expected))
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2 * np.abs(b).max())


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["low_first", "high_first", "interleaved"])
def test_unpacking_is_exact(arm: Emulator, packing: str) -> None:
    codes = np.arange(96, dtype=np.uint8).reshape(3, 32)
    artifact = qmlir.ops.unpack.compile(T(codes.shape, "u8"), dtype="u2", packing=packing, target="cpu:aarch64")
    want = qmlir.reference.unpack(codes, dtype="u2", packing=packing)
    np.testing.assert_array_equal(arm.run(artifact, [[codes]])[0], want)


# Each row plus each of four constants.
SHORT_CONSTANT = """
func.func @main(%x: tensor<24x2xi8>) -> tensor<24x4x2xi8> {
  %four = arith.constant dense<[0, 1, 2, 3]> : tensor<4xi8>
  %none = tensor.empty() : tensor<24x4x2xi8>
  %sums = linalg.generic {
      indexing_maps = [
          affine_map<(r, f, c) -> (r, c)>, affine_map<(r, f, c) -> (f)>, affine_map<(r, f, c) -> (r, f, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %four : tensor<24x2xi8>, tensor<4xi8>) outs(%none : tensor<24x4x2xi8>) {
  ^bb0(%a: i8, %b: i8, %o: i8):
    %sum = arith.addi %a, %b : i8
    linalg.yield %sum : i8
  } -> tensor<24x4x2xi8>
  return %sums : tensor<24x4x2xi8>
}
"""


def constants_added(arm: Emulator, target: Target) -> None:
    x = np.arange(48, dtype=np.int8).reshape(24, 2)
    artifact = compile_built(program_of(SHORT_CONSTANT, {}), target, Options(cache=False), None)
    want = x[:, None] + np.arange(4, dtype=np.int8)[:, None]
    np.testing.assert_array_equal(arm.run(artifact, [[x]])[0], want)


def test_with_natural_alignments(arm: Emulator) -> None:
    constants_added(arm, resolve("cpu:aarch64"))


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_without_natural_alignments(arm: Emulator) -> None:
    """The fault that `targets/cpu/data_layout.py` avoids."""
    target = resolve("cpu:aarch64")
    flags = tuple(flag for flag in target.compiler_flags if flag not in natural_alignments())
    assert len(flags) < len(target.compiler_flags)
    constants_added(arm, dataclasses.replace(target, compiler_flags=flags))
