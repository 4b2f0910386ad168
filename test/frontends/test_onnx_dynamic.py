"""ONNX models with several dynamic sizes, as torch exports them: computed shapes, rows in two axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session

SPLIT = """
    b = Shape<start = 0, end = 1>(x)
    s = Shape<start = 1, end = 2>(x)
    heads = Constant<value = int64[2] {3, 4}>()
    shape = Concat<axis = 0>(b, s, heads)
    h = Reshape<allowzero = 1>(x, shape)
    t = Transpose<perm = [0, 2, 1, 3]>(h)
"""
CASES = {
    "split": ("float[B, S, 12] x", SPLIT + "y = Neg(t)", "float[B, S, 3, 4] h"),
    "merged": ("float[B, S, 3, 4] x", """
        all = Constant<value = int64[3] {0, 0, 12}>()
        h = Reshape(x, all)
        y = Neg(h)
     """, "float[B, S, 12] h"),
    "inferred": ("float[S, 12] x", """
        all = Constant<value = int64[3] {-1, 4, 12}>()
        h = Reshape<allowzero = 1>(x, all)
        y = Neg(h)
     """, "float[T, 4, 12] h"),
    "unsqueeze": ("float[B, S] x", """
        axes = Constant<value = int64[2] {1, -1}>()
        h = Unsqueeze(x, axes)
        y = Neg(h)
     """, "float[B, 1, S, 1] h"),
}  # fmt: skip
SIZES = {"B": 2, "S": 8}


def model(inputs: str, body: str, known: str = "", weights: dict[str, Any] | None = None) -> Any:
    stated = f"<{known}>" if known else ""
    text = f'<ir_version: 9, opset_import: ["" : 18]> graph ({inputs}) => (float y) {stated} {{ {body} }}'
    made = parser.parse_model(text)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    made.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in (weights or {}).items())
    return onnx.shape_inference.infer_shapes(made)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("name", CASES)
def test_shapes_that_are_computed(name: str) -> None:
    """Regression: the model was refused, or its conversion lost the static sizes of the result."""
    made = model(*CASES[name])
    shape = [d.dim_value or SIZES[d.dim_param] for d in made.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    [want] = session(made, threads=1).run(None, {"x": x})
    np.testing.assert_array_equal(opened(qmlir.compile(made)).main(x), want)


def test_rows_that_do_not_fit_an_inferred_size() -> None:
    main = opened(qmlir.compile(model(*CASES["inferred"]))).main
    with pytest.raises(qmlir.errors.QmlirError, match="the size of axis 0 is not a multiple of 4"):
        main(np.zeros((7, 12), np.float32))


@pytest.mark.parametrize("name", ["B*S", "rows"])
def test_two_runs_of_axes_are_merged(name: str) -> None:
    """Regression: with `[-1, 12]` a Reshape to `[B * S, 12]` had B rows."""
    made = model("float[B, S, 3, 4] x", """
        shape = Constant<value = int64[2] {-1, 12}>()
        h = Reshape<allowzero = 1>(x, shape)
        y = Neg(h)
    """, "float[rows, 12] h")  # fmt: skip
    for value in made.graph.value_info:
        if value.name == "h":
            value.type.tensor_type.shape.dim[0].dim_param = name
    x = np.random.default_rng(0).standard_normal((2, 8, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(opened(qmlir.compile(made)).main(x), -x.reshape(16, 12))


@pytest.mark.parametrize(("inputs", "shape"), [("B, S, 12", "10, 12"), ("B, S", "2, 5, -1"), ("B", "2, 5")])
def test_no_element_is_lost(inputs: str, shape: str) -> None:
    """Regression: a Reshape to a constant shape of fewer elements than the input dropped the others."""
    count = shape.count(",") + 1
    made = model(f"float[{inputs}] x", f"""
        shape = Constant<value = int64[{count}] {{{shape}}}>()
        h = Reshape(x, shape)
        y = Neg(h)
    """)  # fmt: skip
    main = opened(qmlir.compile(made)).main
    sizes = [int(s) if s.isdigit() else {"B": 3, "S": 5}[s] for s in inputs.split(", ")]
    with pytest.raises(qmlir.errors.QmlirError, match=r"elements|must be f32\[10\]"):
        main(np.zeros(sizes, np.float32))


def test_rows_in_two_dynamic_axes_have_a_kernel() -> None:
    """Regression: every strategy declined a product whose batch and sequence are both dynamic."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-128, 128, (64, 32)).astype(np.int8)
    made = model("float[B, S, 64] x", """
        q, scale, zero = DynamicQuantizeLinear(x)
        sums = MatMulInteger(q, w, zero)
        y = Cast<to = 1>(sums)
    """, weights={"w": weight})  # fmt: skip
    x = rng.standard_normal((2, 8, 64)).astype(np.float32)
    artifact = qmlir.compile(made, target="cpu:x86-64-v3")
    [found] = artifact.manifest.strategies
    assert found["chosen"] == "avx2-int8"
    [want] = session(made, threads=1).run(None, {"x": x})
    np.testing.assert_array_equal(opened(artifact).main(x), want)


@pytest.mark.parametrize(("b", "s"), [(1, 1), (3, 1), (1, 5), (3, 5)])
def test_expand_of_sizes_that_may_be_one(b: int, s: int) -> None:
    """Regression: the call failed if a dynamic size was 1 at run time."""
    made = model("float[B, S] x, float[C, D] like", """
        shape = Shape(like)
        y = Expand(x, shape)
    """)  # fmt: skip
    x, like = np.random.default_rng(0).standard_normal((b, s)).astype(np.float32), np.zeros((3, 5), np.float32)
    np.testing.assert_array_equal(opened(qmlir.compile(made)).main(x, like), np.broadcast_to(x, (3, 5)))


def test_expand_of_another_size() -> None:
    made = model("float[B, S] x, float[C, D] like", """
        shape = Shape(like)
        y = Expand(x, shape)
    """)  # fmt: skip
    main = opened(qmlir.compile(made)).main
    with pytest.raises(qmlir.errors.QmlirError, match="a size of axis 0 is neither 1 nor that of the shape"):
        main(np.zeros((2, 5), np.float32), np.zeros((3, 5), np.float32))


@pytest.mark.parametrize("known", ["float[B, S] m", ""], ids=["stated", "unknown"])
def test_broadcast_of_sizes_that_may_be_one(known: str) -> None:
    """Regression: the call failed ('mismatched size for broadcast') if a dynamic size was 1 and the other operand's was
    not, as with the biases of MPT's exports."""
    made = model("float[B, S] x, float[C, T] z, bool[D, U] keep", """
        m = Add(x, z)
        y = Where(keep, m, x)
     """, known)  # fmt: skip
    main, reference = opened(qmlir.compile(made)).main, session(made, threads=1)
    rng = np.random.default_rng(0)
    for ours, other, mask in [((2, 5), (2, 5), (2, 5)), ((2, 5), (1, 5), (2, 1)), ((3, 1), (1, 1), (1, 1))]:
        x, z = (rng.standard_normal(shape).astype(np.float32) for shape in (ours, other))
        keep = rng.random(mask) > 0.5
        [want] = reference.run(None, {"x": x, "z": z, "keep": keep})
        np.testing.assert_array_equal(main(x, z, keep), want)
    with pytest.raises(qmlir.errors.QmlirError, match="neither 1 nor that of the other operands"):
        main(np.zeros((2, 5), np.float32), np.zeros((2, 4), np.float32), np.zeros((2, 5), bool))


def test_a_shape_that_is_computed_from_sizes() -> None:
    """Regression: the second size of `[S, S]` was read as 0."""
    made = model("float[B, S] x", """
        zero = Constant<value = int64 {0}>()
        one = Constant<value = int64 {1}>()
        first = Constant<value = int64[1] {0}>()
        last = Constant<value = int64[1] {1}>()
        shape = Shape<start = 1>(x)
        size = Squeeze(shape)
        places = Range(zero, size, one)
        rows = Unsqueeze(places, last)
        columns = Unsqueeze(places, first)
        apart = Sub(rows, columns)
        square = Shape(apart)
        zeros = Expand(zero, square)
        near = Min(apart, zeros)
        y = Cast<to = 1>(near)
    """)  # fmt: skip
    places = np.arange(5)
    want = np.minimum(places[:, None] - places, 0)
    np.testing.assert_array_equal(opened(qmlir.compile(made)).main(np.zeros((2, 5), np.float32)), want)


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("operator", ["LSTM", "GRU"])
def test_layers_whose_inputs_are_of_unknown_width(operator: str) -> None:
    """Regression: a second layer after a Reshape to computed sizes was not imported."""
    gates = {"LSTM": 4, "GRU": 3}[operator]
    rng = np.random.default_rng(0)
    weights = {"w": (1, gates * 8, 6), "r": (1, gates * 8, 8)}
    made = model("float[B, 3, 6] x, int64[3] shape", f"""
        t = Reshape(x, shape)
        all = {operator}<hidden_size = 8>(t, w, r)
        axis = Constant<value = int64[1] {{1}}>()
        h = Squeeze(all, axis)
        y = Transpose<perm = [1, 0, 2]>(h)
    """, weights={n: rng.standard_normal(s).astype(np.float32) for n, s in weights.items()})  # fmt: skip
    x, shape = rng.standard_normal((2, 3, 6)).astype(np.float32), np.array([3, 2, 6])
    [want] = session(made, threads=1).run(None, {"x": x, "shape": shape})
    np.testing.assert_allclose(opened(qmlir.compile(made)).main(x, shape), want, rtol=1e-5, atol=1e-6)


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize("opset", [10, 11, 13, 14, 15])
def test_batch_norms_of_every_opset(opset: int) -> None:
    """Regression: "the operator BatchNormalization, as it is used here, is not converted", before opset 15."""
    text = f"""<ir_version: 6, opset_import: ["" : {opset}]> graph (float[N, 3, 4, 5] x) => (float[N, 3, 4, 5] y)
        <float[3] a = {{1.5, -2.0, 0.25}}, float[3] b = {{0.5, 1.0, -1.0}}, float[3] m = {{0.1, 0.2, 0.3}},
         float[3] v = {{1.0, 4.0, 0.5}}> {{ y = BatchNormalization<epsilon = 0.001>(x, a, b, m, v) }}"""
    made = parser.parse_model(text)
    main = qmlir.load(qmlir.compile(made)).main
    for count in (1, 3):
        x = np.random.default_rng(count).standard_normal((count, 3, 4, 5)).astype(np.float32)
        [want] = session(made, threads=1).run(None, {"x": x})
        np.testing.assert_allclose(main(x), want, rtol=1e-5, atol=1e-6)
