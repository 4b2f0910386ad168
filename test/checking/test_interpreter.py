"""The numpy evaluation of programs: the ops of the dialect give the results of `qmlir.reference`, and so do the same
programs lowered to linalg, by the rules of arith, math, tensor and linalg."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.attention import FORMS as ATTENTION
from support.forms import FORMS as EVERY_FORM, Form, Operands

import qmlir
from qmlir import TensorSpec
from qmlir.checking import reference
from qmlir.checking.interpreter import NotEvaluated
from qmlir.core.mlir import context
from qmlir.dialect.dtypes import from_numpy
from qmlir.ops import Operation
from qmlir.ops.arguments import normalized
from qmlir.runtime import inputs

M = 16
# A sparse weight is several operands, which the forms do not spell out; test/numerics/test_sparse_matmul.py has them.
FORMS = [f for f in EVERY_FORM if f.op != "sparse_matmul"]


def text_of(form: Form) -> tuple[str, dict[str, Any]]:
    """The form as a program, and its constant operands and attributes."""
    made = form.build(Operands(form.name, 128 if form.op == "dequant" else M))
    if form.op == "program":
        return made, {}
    op: Operation = qmlir.ops.BY_NAME[form.op]
    specs = {k: v for k, v in made.items() if isinstance(v, TensorSpec)}
    arrays = {k: np.asarray(v) for k, v in made.items() if k in op.operands and k not in specs}
    attributes = {k: v for k, v in made.items() if k not in op.operands}
    every = {**specs, **{k: TensorSpec(v.shape, from_numpy(v.dtype)) for k, v in arrays.items()}}
    with context():
        return str(op.module(specs, arrays, normalized(op.definition, every, attributes))), {**arrays, **attributes}


def close(got: Any, expected: Any, dtype: str, form: Form) -> None:
    """Integers are exact; the order of float sums changes when the op is lowered to linalg."""
    if dtype in ("i8", "u8", "i32"):
        np.testing.assert_array_equal(got, expected)
        return
    scale = float(np.abs(np.asarray(expected, np.float64)).max(initial=1e-30))
    tolerance = {"f32": 2e-5, "f16": 2e-3, "bf16": 2e-2}.get(dtype, 0.1)
    if form.op == "moe":
        tolerance = 2e-2  # a last bit before the intermediate's quantisation changes a code
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(expected, np.float64), atol=tolerance * scale)


@pytest.mark.sweep(slow=6)
@pytest.mark.parametrize("form", [
    pytest.param(f, marks=() if i % 3 == 0 else pytest.mark.slow) for i, f in enumerate(FORMS)], ids=lambda f: f.name,
)  # fmt: skip
def test_a_form_means_what_the_reference_says(form: Form) -> None:
    text, given = text_of(form)
    way = reference.open(text, "main", {})
    arguments = inputs.make(way.signature, way.roles)
    got = way.run(arguments)
    if form.op != "program":
        named = {name: x for (name, _), x in zip(way.signature.inputs, arguments, strict=True)}
        expected = qmlir.reference.BY_NAME[form.op](**named, **given)
        every = [x for x in (expected if isinstance(expected, tuple) else (expected,)) if x is not None]
        for x, y in zip(got, every, strict=True):
            np.testing.assert_array_equal(np.asarray(x).view(y.dtype), y)


# These forms loop over K in Python: the fast tier runs only some.
QUICK = [f for f in FORMS if f.op not in ("conv2d_q", "moe")][::8]


@pytest.mark.sweep(fast=8, slow=4)
@pytest.mark.parametrize("form", [
    pytest.param(f, marks=() if f in QUICK else pytest.mark.slow) for f in FORMS], ids=lambda f: f.name,
)  # fmt: skip
def test_a_form_means_the_same_once_it_is_linalg(form: Form) -> None:
    text, _ = text_of(form)
    before = reference.open(text, "main", {})
    after = reference.open(qmlir.source(text, "linalg"), "main", {"start": "linalg"})
    arguments = inputs.make(before.signature, before.roles)
    for x, y, spec in zip(after.run(arguments), before.run(arguments), before.signature.outputs, strict=True):
        close(x, y, spec.dtype, form)


def run(body: str, signature: str, *arguments: Any) -> list[Any]:
    return reference.open(f"func.func @main{signature} {{\n{body}\n}}", "main", {}).run(list(arguments))


def test_conversions_and_comparisons_follow_arith() -> None:
    x = np.array([-1, 0, 127, -128], np.int8)
    [wide, unsigned, less] = run(
        """%a = arith.extsi %x : tensor<4xi8> to tensor<4xi32>
           %b = arith.extui %x : tensor<4xi8> to tensor<4xi32>
           %z = arith.constant dense<0> : tensor<4xi8>
           %c = arith.cmpi ult, %z, %x : tensor<4xi8>
           %d = arith.extui %c : tensor<4xi1> to tensor<4xi32>
           return %a, %b, %d : tensor<4xi32>, tensor<4xi32>, tensor<4xi32>""",
        "(%x: tensor<4xi8>) -> (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>)", x,
    )  # fmt: skip
    assert wide.tolist() == [-1, 0, 127, -128]
    assert unsigned.tolist() == [255, 0, 127, 128]
    assert less.tolist() == [1, 0, 1, 1]


def test_integers_wrap_and_nan_is_unordered() -> None:
    [total, isnan] = run(
        """%a = arith.addi %x, %x : tensor<2xi8>
           %b = arith.cmpf uno, %f, %f : tensor<2xf32>
           %c = arith.extui %b : tensor<2xi1> to tensor<2xi8>
           return %a, %c : tensor<2xi8>, tensor<2xi8>""",
        "(%x: tensor<2xi8>, %f: tensor<2xf32>) -> (tensor<2xi8>, tensor<2xi8>)",
        np.array([100, -100], np.int8), np.array([np.nan, 1], np.float32),
    )  # fmt: skip
    assert total.tolist() == [-56, 56]
    assert isnan.tolist() == [1, 0]


def test_integer_powers() -> None:
    [y] = run(
        """%n = arith.constant dense<[2, 3, -1]> : tensor<3xi32>
           %y = math.fpowi %x, %n : tensor<3xf32>, tensor<3xi32>
           return %y : tensor<3xf32>""",
        "(%x: tensor<3xf32>) -> tensor<3xf32>", np.array([-3, 2, 4], np.float32),
    )  # fmt: skip
    assert y.tolist() == [9, 8, 0.25]


def test_slices_pads_and_loops() -> None:
    [y] = run(
        """%s = tensor.extract_slice %x[1, 0] [1, 3] [1, 1] : tensor<2x3xf32> to tensor<3xf32>
           %p = tensor.pad %s low[1] high[0] {
           ^bb0(%i: index):
             %c = arith.constant 7.0 : f32
             tensor.yield %c : f32
           } : tensor<3xf32> to tensor<4xf32>
           %c0 = arith.constant 0 : index
           %c1 = arith.constant 1 : index
           %c3 = arith.constant 3 : index
           %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%a = %p) -> (tensor<4xf32>) {
             %n = arith.addf %a, %a : tensor<4xf32>
             scf.yield %n : tensor<4xf32>
           }
           return %r : tensor<4xf32>""",
        "(%x: tensor<2x3xf32>) -> tensor<4xf32>", np.arange(6, dtype=np.float32).reshape(2, 3),
    )  # fmt: skip
    assert y.tolist() == [56, 24, 32, 40]


def test_attention() -> None:
    form = ATTENTION["heads-mixed"]
    sizes = form.sizes(2, 5, 7)
    rng = np.random.default_rng(0)
    arguments = [
        rng.standard_normal([sizes[a] for a in axes]).astype(np.float32) for axes in (form.q, form.k, form.v, form.mask)
    ]
    [found] = reference.open(form.text(), "main", {}).run(arguments)
    np.testing.assert_allclose(found, form.expected(*arguments), rtol=1e-5, atol=1e-5)


def test_an_unknown_op_is_named_with_its_place() -> None:
    with pytest.raises(NotEvaluated, match=r"-:2:6: error: the reference does not know 'math.ctpop'; '--against cpu:"):
        run(
            "%0 = math.ctpop %x : tensor<4xi32>\nreturn %0 : tensor<4xi32>",
            "(%x: tensor<4xi32>) -> tensor<4xi32>",
            np.zeros(4, np.int32),
        )


def test_values_that_an_op_refuses() -> None:
    x, w = np.zeros((2, 4), np.int8), np.zeros((3, 4, 2), np.int8)
    text = """func.func @main(%x: tensor<2x4xi8>, %w: tensor<3x4x2xi8>, %n: tensor<3xi32>) -> tensor<2x2xi32> {
      %0 = "qmlir.grouped_matmul"(%x, %w, %n) {
        operand_names = ["lhs", "rhs", "group_sizes"]
      } : (tensor<2x4xi8>, tensor<3x4x2xi8>, tensor<3xi32>) -> tensor<2x2xi32>
      return %0 : tensor<2x2xi32>
    }"""
    way = reference.open(text, "main", {})
    assert int(inputs.make(way.signature, way.roles)[2].sum()) == 2
    with pytest.raises(qmlir.InputError, match=r"group_sizes \[1, 2, 3\] must be non-negative and add up to M = 2"):
        way.run([x, w, np.array([1, 2, 3], np.int32)])
