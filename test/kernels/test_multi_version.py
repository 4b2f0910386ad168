"""Products with a dynamic number of rows: one dispatch, which selects the kernel for the call's number of rows."""

from __future__ import annotations

import re
from math import inf
from typing import Any

import numpy as np
import pytest
from kernels.gpu_products import PRODUCTS, Product, check, codes_of, functions, interpreted, values, weight_only

import qmlir
from qmlir import TensorSpec
from qmlir.core.mlir import context, ir
from qmlir.targets.gpu_kernels.multi_version import partition
from qmlir.targets.rocm import isa

pytestmark = pytest.mark.sweep(fast=3, slow=40)


def test_each_number_of_rows_gets_what_is_fastest_for_it() -> None:
    few, many = [1.0, 1.0, 4.0, 16.0], [4.0, 4.0, 4.0, 4.0]
    assert partition([few, many]) == [(2, 0), (4, 1)]


def test_a_function_has_to_be_worth_its_code() -> None:
    assert partition([[1.0, 1.0, 1.0], [0.95, 1.0, 1.1]]) == [(3, 0)]


def test_functions_are_few_and_take_what_they_can() -> None:
    """Eight candidates, each of which is the best at one sample and impossible above it."""
    costs = [[inf if i > best else 10.0 ** (best - i) for i in range(8)] for best in range(8)]
    chosen = partition(costs)
    assert len(chosen) == 4
    assert [end for end, _ in chosen][-1] == 8
    assert all(candidate >= end - 1 for end, candidate in chosen)


def _bounds(artifact: Any) -> list[int]:
    """The most rows of each function except the last, from the conditions that the host checks."""
    text = artifact.source("configured")
    asked = re.findall(
        r"condition\(.*?-> i1 \{\s*%c(\d+) = arith.constant \d+ : index\b.*?\s*%\w+ = arith.cmpi ule", text
    )
    return [int(rows) for rows in asked]


def _near(bounds: list[int]) -> list[int]:
    """Numbers of rows on both sides of each bound."""
    return sorted({0, 1, *bounds, *(rows + 1 for rows in bounds)})


# Enough columns to fill a device, so that bounds are small.
WIDE = {
    "w8a8": Product(2048, 64, codes_of("i8")),
    "w4a8, group 32, zero points": Product(1024, 64, codes_of("u4", 32, zeros=True)),
    "w8a16": Product(2048, 32, weight_only("i8"), exact=False),
}


@pytest.mark.parametrize("name", WIDE)
def test_on_lavapipe(name: str, lavapipe: str) -> None:
    product = WIDE[name]
    arguments = product.arguments(None)
    artifact = qmlir.ops.scaled_matmul.compile(target=lavapipe, **arguments)
    bounds, program = _bounds(artifact), qmlir.load(artifact)
    assert bounds
    assert bounds[0] <= 16
    found = functions(artifact.manifest.strategies[0])
    assert [f["strategy"] for f in found] == [*["cooperative"] * len(bounds), "tiled"]
    assert artifact.source("configured").count("flow.dispatch ") == 1
    for rows in _near(bounds):
        given = values(arguments, rows)
        check(product, program.main(*given.values()), qmlir.reference.scaled_matmul(**{**arguments, **given}))


def _chain(layers: int, width: int) -> tuple[str, list[Any]]:
    """A program of int8 layers that requantise to int8 and whose outputs are all results; and the layers' weights."""
    rng = np.random.default_rng(3)
    weights = [rng.integers(-128, 128, (width, width)).astype(np.int8) for _ in range(layers)]
    kind = f"tensor<?x{width}xi8>"
    lines = [f"func.func @main(%x0: {kind}) -> ({', '.join([kind] * layers)}) {{"]
    for n, weight in enumerate(weights, 1):
        lines += [
            f'  %w{n} = arith.constant dense<"0x{weight.tobytes().hex().upper()}"> : tensor<{width}x{width}xi8>',
            f"  %s{n} = arith.constant dense<0.001953125> : tensor<{width}x1xf32>",
            f"  %o{n} = arith.constant dense<2.0> : tensor<f32>",
            f'  %x{n} = "qmlir.scaled_matmul"(%x{n - 1}, %w{n}, %s{n}, %o{n}) {{rhs_transposed = true,',
            '    operand_names = ["lhs", "rhs", "rhs_scale", "out_scale"]}',
            f"    : ({kind}, tensor<{width}x{width}xi8>, tensor<{width}x1xf32>, tensor<f32>) -> {kind}",
        ]
    results = ", ".join(f"%x{n}" for n in range(1, layers + 1))
    return "\n".join([*lines, f"  return {results} : {', '.join([kind] * layers)}", "}"]), weights


@pytest.mark.parametrize("layers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_layers_of_a_program_choose_each(layers: int, lavapipe: str) -> None:
    width = 1024
    text, weights = _chain(layers, width)
    artifact = qmlir.compile(text, target=lavapipe)
    bounds, program = _bounds(artifact), qmlir.load(artifact)
    assert artifact.source("configured").count("flow.dispatch ") == layers
    for rows in filter(None, _near(bounds)):  # calls with no rows need a single result: qmlir-guard-empty
        x = np.random.default_rng(rows).integers(-128, 128, (rows, width)).astype(np.int8)
        got = program.main(x)
        for found, weight in zip(got, weights, strict=True):
            x = qmlir.reference.scaled_matmul(
                x, weight, rhs_transposed=True, rhs_scale=np.full((width, 1), 2.0**-9, np.float32), out_dtype="i8",
                out_scale=np.float32(2),
            )  # fmt: skip
            np.testing.assert_array_equal(found, x)


def test_a_convolution_of_any_number_of_images(lavapipe: str) -> None:
    rng = np.random.default_rng(5)
    weight = rng.integers(-128, 128, (1024, 3, 3, 16)).astype(np.int8)
    scale = (2.0 ** rng.integers(-9, -3, 1024)).astype(np.float32)
    more: dict[str, Any] = {"input_scale": np.float32(0.5), "weight_scale": scale, "padding": (1, 0, 1, 0)}
    artifact = qmlir.ops.conv2d_q.compile(TensorSpec((None, 3, 3, 16), "i8"), weight, target=lavapipe, **more)
    bounds, program = _bounds(artifact), qmlir.load(artifact)
    assert bounds
    for images in {0, 1, *(rows // 4 + i for rows in bounds for i in (0, 1))}:
        x = rng.integers(-128, 128, (images, 3, 3, 16)).astype(np.int8)
        np.testing.assert_array_equal(program.main(x), qmlir.reference.conv2d_q(x, weight, **more))


IN_TURN = {
    "w4a8": Product(1024, 64, codes_of("u4", 64, zeros=True)),
    "w4a16": Product(1024, 64, weight_only("u4", 32, zeros=True), exact=False),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target"),
    [("w4a8", "vulkan:rdna3")]
    + [("w4a8", f"rocm:{arch}") for arch in ("gfx90a", "gfx942", "gfx1100", "gfx1201")]
    + [("w4a16", t) for t in ("rocm:gfx942", "vulkan:rdna3", "vulkan:ada")],
)
def test_kernels_share_a_weight(name: str, target: str) -> None:
    """Each kernel, interpreted, reads the weight that all of them share."""
    product = IN_TURN[name]
    arguments = product.arguments(None)
    artifact = qmlir.ops.scaled_matmul.compile(target=target, **arguments)
    bounds = _bounds(artifact)
    found = functions(artifact.manifest.strategies[0])
    assert bounds
    if target == "vulkan:rdna3":
        assert {f["strategy"] for f in found} >= {"cooperative", "matrix"} or name == "w4a16"
    # The interpreter takes long for AMD's kernels for many rows.
    for rows in (1, bounds[0] + 1, bounds[-1] + 1) if "vulkan" in target else (5, bounds[0] + 1):
        given = values(arguments, rows)
        want = qmlir.reference.scaled_matmul(**{**arguments, **given})
        check(product, interpreted(artifact, given, want.shape, want.dtype, rows), want)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_many_rows_are_matrix_instructions(scheme: str) -> None:
    """On gfx942 the kernel for the most rows spends at least 60 % of its main loop's issue cycles on them."""
    product = Product(2048, 1024, PRODUCTS[scheme].build)
    artifact = qmlir.ops.scaled_matmul.compile(target="rocm:gfx942", **product.arguments(None))
    assembly = artifact.source("isa")
    found = isa.functions(assembly)
    assert len(found) == len(functions(artifact.manifest.strategies[0])) == len(_bounds(artifact)) + 1
    assert isa.matrix_share(isa.main_loop(found[f"main_product_0_above_{_bounds(artifact)[-1]}"])) >= 0.6
    assert "ds_read_u8" not in assembly
    assert all(r.scratch_bytes == r.spilled == 0 for r in isa.resources(assembly))


def test_weights_of_one_layout(lavapipe: str) -> None:
    """The program holds its weight once."""
    product = Product(2048, 256, codes_of("i8"))
    artifact = qmlir.ops.scaled_matmul.compile(target=lavapipe, **product.arguments(None))
    assert len(_bounds(artifact)) >= 1
    with context():
        module = ir.Module.parse(artifact.source("configured"))
        sizes: list[int] = []

        def visit(op: Any) -> Any:
            if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
                sizes.append(int(np.prod(ir.RankedTensorType(op.results[0].type).shape)))
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
    assert sum(size >= 2048 * 256 for size in sizes) == 1


def test_a_static_number_of_rows_has_one_kernel() -> None:
    artifact = qmlir.ops.scaled_matmul.compile(target="cuda:sm_80", **WIDE["w8a8"].arguments(64))
    answers = {a["strategy"]: a for a in artifact.manifest.strategies[0]["answers"]}
    assert answers["multi-version-m"]["reason"] == "the number of rows is static"
    assert not _bounds(artifact)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx942"])
def test_groups_of_integers_are_added_up_in_their_order(target: str) -> None:
    """K is split among workgroups on request only. Regression: with a dynamic number of rows it always was."""
    arguments = Product(512, 8192, codes_of("i4", 128)).arguments(None)
    made = qmlir.ops.scaled_matmul.compile(target=target, **arguments)
    assert "stream_k" not in str(functions(made.manifest.strategies[0]))
    wide = Product(512, 8192, codes_of("i8")).arguments(None)  # sums of integers have no order
    made = qmlir.ops.scaled_matmul.compile(target=target, **wide)
    assert "stream_k" in str(functions(made.manifest.strategies[0]))
