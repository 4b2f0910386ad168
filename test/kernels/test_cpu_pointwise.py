"""Elementwise ops between codes: tables and kernels give the results of the program's ops, for every code."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.cover import diagonal
from support.onnx_models import model

import qmlir
from qmlir.checking.interpreter import Interpreter
from qmlir.compiler import parse, text_at
from qmlir.core.mlir import context, ir
from qmlir.targets import resolve

pytestmark = pytest.mark.sweep(fast=3, slow=40)

KINDS = ("uint8", "int8")
TARGETS = ("cpu:znver4", "cpu:x86-64-v4", "cpu:x86-64-v3")
# The ops between a dequantised `a` (and `b`) and the quantisation of their result.
UNARY: dict[str, list[tuple[str, list[str], dict[str, Any]]]] = {
    "sigmoid": [("Sigmoid", ["a"], {})],
    "hardswish": [("HardSwish", ["a"], {})],
    "leaky": [("LeakyRelu", ["a"], {"alpha": 0.1})],
    "silu": [("Sigmoid", ["a"], {}), ("Mul", ["a", 0], {})],
    "gelu": [("Gelu", ["a"], {})],
}
BINARY: dict[str, tuple[str, tuple[int | str, ...], tuple[int | str, ...]]] = {
    "add": ("Add", (256, 256), (256, 256)),
    "sub": ("Sub", (256, 256), (256, 256)),
    "mul": ("Mul", (256, 256), (256, 256)),
    "column": ("Mul", (256, 256), (256, 1)),
    "row": ("Add", (256, 256), (256,)),
    "ragged": ("Add", (3, 5, 71), (3, 1, 71)),
    "squeeze_excite": ("Mul", (2, 6, 5, 7), (2, 6, 1, 1)),
    "one": ("Add", (40, 33), ()),
}


def _with_kinds(names: Any) -> list[tuple[str, str]]:
    return list(zip(names, itertools.cycle(KINDS), strict=False))


def _needs(target: str) -> None:
    if not set(resolve(target).capabilities.cpu_features) <= set(resolve("cpu").capabilities.cpu_features):
        pytest.skip(f"this host does not run {target}")


def _chain(ops: Any, inputs: dict[str, Any], dynamic: bool = False) -> Any:
    """A model that dequantises its inputs, applies `ops`, and quantises the result of the last."""
    kinds = next(iter(inputs.values())).dtype
    zero = 120 if kinds == np.uint8 else -7
    parts: dict[str, Any] = {"os": np.float32(0.04), "oz": np.asarray(zero, kinds)}
    nodes = []
    for i, name in enumerate(inputs):
        parts |= {f"{name}s": np.float32(0.03 + 0.017 * i), f"{name}z": np.asarray(zero + 3 * i, kinds)}
        nodes.append(helper.make_node("DequantizeLinear", [name, f"{name}s", f"{name}z"], [name.removeprefix("x")]))
    for i, (kind, reads, attributes) in enumerate(ops):
        read = [r if isinstance(r, str) else f"r{r}" for r in reads]
        nodes.append(helper.make_node(kind, read, [f"r{i}"], **attributes))
    nodes.append(helper.make_node("QuantizeLinear", [f"r{len(ops) - 1}", "os", "oz"], ["y"]))
    return model(nodes, inputs, ["y"], parts, opset=20, dynamic=dynamic)


def _meant(made: Any, inputs: dict[str, Any]) -> Any:
    """The program's result in the reference interpreter."""
    text = text_at(made, "linalg")
    with context(), ir.Location.unknown():
        module = parse(text, "-")
        signed = [x.view(np.int8) for x in inputs.values()]
        [found] = Interpreter(module).call("main", signed)
    return found.view(next(iter(inputs.values())).dtype)


def _codes(kind: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    count = int(np.prod(shape))
    start = np.arange(count) if seed == 0 else np.random.default_rng(seed).permutation(count)
    return start.astype(np.uint8).view(kind).reshape(shape)


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize(("name", "kind", "target"), diagonal(_with_kinds(UNARY), TARGETS))
def test_every_code_of_a_chain(name: str, kind: str, target: str) -> None:
    _needs(target)
    inputs = {"xa": _codes(kind, (2, 3, 91))}
    made = _chain(UNARY[name], inputs)
    artifact = qmlir.compile(made, target=target)
    text = artifact.source("configured")
    assert ("_table_0" if target == "cpu:znver4" else "_pointwise_0") in text
    got = qmlir.load(artifact).main(*inputs.values())
    want = _meant(made, inputs)
    if target == "cpu:znver4":
        np.testing.assert_array_equal(got, want)
    else:  # exp by a polynomial
        apart = np.abs(got.astype(int) - want.astype(int))
        assert apart.max() <= 1
        assert (apart > 0).mean() < 0.01


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize(("name", "kind", "target"), diagonal(_with_kinds(BINARY), TARGETS))
def test_every_pair_of_codes(name: str, kind: str, target: str) -> None:
    _needs(target)
    op, left, right = BINARY[name]
    a = np.repeat(_codes(kind, (256,)), 256).reshape(256, 256) if left == (256, 256) else _codes(kind, left, 1)
    b = np.tile(_codes(kind, (256,)), 256).reshape(256, 256) if right == left == (256, 256) else _codes(kind, right, 2)
    inputs = {"xa": a, "xb": b}
    made = _chain([(op, ["a", "b"], {})], inputs)
    artifact = qmlir.compile(made, target=target)
    assert "_pointwise_0" in artifact.source("configured")
    np.testing.assert_array_equal(qmlir.load(artifact).main(a, b), _meant(made, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("ops", [UNARY["sigmoid"], [("Add", ["a", "b"], {})]], ids=["table", "pair"])
def test_any_number_of_rows(ops: Any) -> None:
    _needs("cpu:znver4")
    names = ["xa", "xb"][: len(ops[0][1])]
    shape = (3, 4, 37)
    made = _chain(ops, {n: _codes("uint8", shape) for n in names}, dynamic=True)
    artifact = qmlir.compile(made, target="cpu:znver4")
    assert "linalg.generic" not in artifact.source("configured")
    run = qmlir.load(artifact).main
    for rows in (1, 2, 300):
        inputs = {n: _codes("uint8", (rows, 4, 37), i) for i, n in enumerate(names)}
        np.testing.assert_array_equal(run(*inputs.values()), _meant(made, inputs))


def test_the_same_quantisation_is_no_work() -> None:
    """A table that maps each code to itself is removed."""
    x = _codes("uint8", (4, 64))
    parts = {"s": np.float32(0.02), "z": np.uint8(9), "one": np.float32(1.0)}
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]), helper.make_node("Mul", ["f", "one"], ["g"]),
             helper.make_node("QuantizeLinear", ["g", "s", "z"], ["y"])]  # fmt: skip
    artifact = qmlir.compile(model(nodes, {"x": x}, ["y"], parts), target="cpu:znver4")
    assert "flow.dispatch" not in artifact.source("configured")


def test_codes_that_others_read_are_read() -> None:
    """Codes that one chain stores anyway are not computed again by the next."""
    x = _codes("uint8", (4, 64))
    parts = {"s": np.float32(0.02), "z": np.uint8(9), "t": np.float32(0.01)}
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]), helper.make_node("Sigmoid", ["f"], ["g"]),
             helper.make_node("QuantizeLinear", ["g", "t", "z"], ["y"]),
             helper.make_node("DequantizeLinear", ["y", "t", "z"], ["h"]), helper.make_node("Tanh", ["h"], ["i"]),
             helper.make_node("QuantizeLinear", ["i", "t", "z"], ["w"])]  # fmt: skip
    made = model(nodes, {"x": x}, ["y", "w"], parts)
    artifact = qmlir.compile(made, target="cpu")
    first, second = qmlir.load(artifact).main(x)
    f = ((x.astype(np.float32) - 9) * np.float32(0.02)).astype(np.float64)
    want = np.clip(np.rint((1 / (1 + np.exp(-f))).astype(np.float32) / np.float32(0.01)) + 9, 0, 255)
    np.testing.assert_array_equal(first, want)
    g = ((first.astype(np.float32) - 9) * np.float32(0.01)).astype(np.float64)
    np.testing.assert_array_equal(
        second, np.clip(np.rint(np.tanh(g).astype(np.float32) / np.float32(0.01)) + 9, 0, 255)
    )


POOLINGS: dict[str, dict[str, Any]] = {
    "halves": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "padded": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "same": {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]},
    "thirds": {"kernel_shape": [2, 3], "strides": [1, 3], "pads": [0, 1, 1, 0]},
    "ceil": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
}


# The fast tier has padding, an incomplete last window, and strides of one and of two.
@pytest.mark.slow
@pytest.mark.parametrize("name", POOLINGS)
def test_largest_codes(name: str) -> None:
    """A MaxPool between two quantisations, on planes of any width and any number of planes."""
    _needs("cpu:x86-64-v4")
    kind = KINDS[list(POOLINGS).index(name) % 2]
    made = _chain([("MaxPool", ["a"], POOLINGS[name])], {"xa": _codes(kind, (2, 3, 13, 150))}, dynamic=True)
    artifact = qmlir.compile(made, target="cpu:x86-64-v4")
    text = artifact.source("configured")
    assert "_pooling_0" in text
    assert "linalg.pooling" not in text
    for rows in (2, 9):
        inputs = {"xa": _codes(kind, (rows, 3, 13, 150), rows)}
        np.testing.assert_array_equal(qmlir.load(artifact).main(*inputs.values()), _meant(made, inputs))


@pytest.mark.slow
def test_windows_with_holes_are_left() -> None:
    inputs = {"xa": _codes("uint8", (1, 2, 13, 20))}
    made = _chain([("MaxPool", ["a"], {"kernel_shape": [2, 2], "dilations": [2, 2]})], inputs)
    artifact = qmlir.compile(made, target="cpu")
    assert "_pooling_" not in artifact.source("configured")
    np.testing.assert_array_equal(qmlir.load(artifact).main(*inputs.values()), _meant(made, inputs))


_TRANSPOSED = """
func.func @main(%x: tensor<{given}xi8>) -> tensor<{made}xi8> {{
  %scale = arith.constant 0.75 : f32
  %lo = arith.constant -128.0 : f32
  %hi = arith.constant 127.0 : f32
  %axis = arith.constant {axis} : index
  %n = tensor.dim %x, %axis : tensor<{given}xi8>
  %e = tensor.empty({size}) : tensor<{made}xi8>
  %y = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}}
      ins(%x : tensor<{given}xi8>) outs(%e : tensor<{made}xi8>) {{
  ^bb0(%a: i8, %o: i8):
    %1 = arith.sitofp %a : i8 to f32
    %2 = arith.mulf %1, %scale : f32
    %3 = math.roundeven %2 : f32
    %4 = arith.maximumf %3, %lo : f32
    %5 = arith.minimumf %4, %hi : f32
    %6 = arith.fptosi %5 : f32 to i32
    %7 = arith.trunci %6 : i32 to i8
    linalg.yield %7 : i8
  }} -> tensor<{made}xi8>
  return %y : tensor<{made}xi8>
}}"""


@pytest.mark.parametrize(
    ("given", "made", "size", "target"), [("32x32", "32x32", "", "cpu:znver4"), ("32x?", "?x32", "%n", "cpu:x86-64-v3")]
)
def test_codes_that_are_turned(given: str, made: str, size: str, target: str) -> None:
    """Regression: a chain that transposes a square matrix, or a dynamic number of rows, read codes untransposed."""
    _needs(target)
    x = _codes("int8", (32, 32))
    artifact = qmlir.compile(_TRANSPOSED.format(given=given, made=made, size=size, axis=1), target=target)
    expected = np.rint(x.T * np.float32(0.75)).astype(np.int8)
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), expected)


def test_codes_that_are_repeated_for_a_dynamic_number_of_rows() -> None:
    """Regression: the compiler failed if no operand of the chain has the dynamic size of its codes."""
    text = _TRANSPOSED.format(given="32", made="?x32", size="%n", axis=0).replace("(j, i)", "(j)")
    text = text.replace("%x: tensor<32xi8>)", "%x: tensor<32xi8>, %rows: tensor<i32>)").replace(
        "%n = tensor.dim %x, %axis : tensor<32xi8>",
        "%count = tensor.extract %rows[] : tensor<i32>\n  %n = arith.index_cast %count : i32 to index",
    )
    x = _codes("int8", (32,))
    artifact = qmlir.compile(text, target="cpu:x86-64-v3")
    expected = np.broadcast_to(np.rint(x * np.float32(0.75)).astype(np.int8), (3, 32))
    np.testing.assert_array_equal(qmlir.load(artifact).main(x, np.int32(3)), expected)


@pytest.mark.parametrize("read", ["a, b, c, d", "a, b, d, c"])
def test_largest_codes_of_plain_linalg(read: str) -> None:
    """Regression: the compiler failed if the op that dequantises codes reads a constant from outside its body, and read
    codes untransposed if that op transposes square planes."""
    _needs("cpu:x86-64-v4")
    text = f"""
#y = affine_map<(a, b, c, d) -> (a, b, c, d)>
#x = affine_map<(a, b, c, d) -> ({read})>
func.func @main(%x: tensor<1x2x20x20xi8>) -> tensor<1x2x10x10xf32> {{
  %scale = arith.constant 0.5 : f32
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<1x2x20x20xf32>
  %y = linalg.generic {{indexing_maps = [#x, #y],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%x : tensor<1x2x20x20xi8>) outs(%e : tensor<1x2x20x20xf32>) {{
  ^bb0(%a: i8, %o: f32):
    %1 = arith.sitofp %a : i8 to f32
    %2 = arith.mulf %1, %scale : f32
    linalg.yield %2 : f32
  }} -> tensor<1x2x20x20xf32>
  %window = tensor.empty() : tensor<2x2xf32>
  %o = tensor.empty() : tensor<1x2x10x10xf32>
  %f = linalg.fill ins(%least : f32) outs(%o : tensor<1x2x10x10xf32>) -> tensor<1x2x10x10xf32>
  %r = linalg.pooling_nchw_max {{strides = dense<2> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}}
      ins(%y, %window : tensor<1x2x20x20xf32>, tensor<2x2xf32>) outs(%f : tensor<1x2x10x10xf32>)
      -> tensor<1x2x10x10xf32>
  return %r : tensor<1x2x10x10xf32>
}}"""
    x = _codes("int8", (1, 2, 20, 20), 1)
    artifact = qmlir.compile(text, target="cpu:x86-64-v4")
    numbers = (x if read == "a, b, c, d" else x.swapaxes(2, 3)).astype(np.float32) / 2
    expected = numbers.reshape(1, 2, 10, 2, 10, 2).max((3, 5))
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), expected)
