"""Arguments of other ranks, types, sizes and values for each operation: each gives either an error that names the
argument, or a program. The words of messages are in `robustness/operations.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from robustness.operations import CALLS, LHS, RHS

import qmlir
from qmlir.compiler.run import run_compiler
from qmlir.dialect.dtypes import DTYPES
from qmlir.errors import InputError, QmlirError, UsageError, VerifyError
from qmlir.spec import TensorSpec as T

pytestmark = pytest.mark.sweep(fast=3, slow=40)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop compilations after the verifier: other tests compile the programs that are accepted here."""
    monkeypatch.setattr("qmlir.ops.operation.compile_built", lambda build, target, options, key: run_compiler(
        build, target, options, until="qmlir"))  # fmt: skip


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("call", CALLS)
def test_every_number_of_axes(call: str, verified: None) -> None:
    """Regression: 18 of these raised IndexError."""
    name, specs, attributes = CALLS[call]
    operation = getattr(qmlir.ops, name)
    operation.compile(**specs, **attributes)
    for operand, spec in specs.items():
        for rank in range(6):
            more = (2,) * (rank - len(spec.shape))
            for shape in {(*more, *spec.shape)[len(spec.shape) + len(more) - rank :], (*spec.shape, *more)[:rank]}:
                said = said_of(operation, **specs | {operand: T(shape, spec.dtype)}, **attributes)
                assert not said or "'" in said, said


def said_of(operation: Any, **given: Any) -> str:
    try:
        operation.compile(**given)
    except QmlirError as e:
        return str(e)
    return ""


@pytest.mark.sweep(fast=15, slow=40)
@pytest.mark.parametrize("call", CALLS)
def test_every_type(call: str, verified: None) -> None:
    """Regression: `moe` with 4-bit activations ended in an error of the builder."""
    name, specs, attributes = CALLS[call]
    for operand, spec in specs.items():
        for dtype in DTYPES:
            said = said_of(getattr(qmlir.ops, name), **specs | {operand: T(spec.shape, dtype)}, **attributes)
            assert not said or "'" in said, said


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("call", CALLS)
def test_every_size(call: str, verified: None) -> None:
    name, specs, attributes = CALLS[call]
    for operand, spec in specs.items():
        for axis in range(len(spec.shape)):
            for size in (0, 1, 3, None):
                shape = (*spec.shape[:axis], size, *spec.shape[axis + 1 :])
                said = said_of(getattr(qmlir.ops, name), **specs | {operand: T(shape, spec.dtype)}, **attributes)
                assert not said or "'" in said, said


@pytest.mark.parametrize("call", [c for c in CALLS if c not in ("packed", "fp8", "routed", "weighted")])
def test_every_value(call: str, verified: None) -> None:
    """Regression: negative sizes raised errors of MLIR's bindings, a size of zero was divided by, and the absence of a
    required attribute was a KeyError."""
    name, specs, attributes = CALLS[call]
    operation = getattr(qmlir.ops, name)
    values = (None, -1, 0, 3, 1 << 40, -2.5, "zzz", "i8", True, [], [1, 2], {}, object())
    for field in operation.definition.FIELDS:
        for value in values if field.kind == "attr" else ():
            said = said_of(operation, **specs, **attributes | {field.name: value})
            assert not said or field.name in said or "'" in said, said


def test_a_result_with_too_few_axes() -> None:
    """In a program's text the result type is stated, not inferred. The rules read its axes."""
    text = """
    func.func @main(%x: tensor<8x64xi8>, %w: tensor<4x64x8xi8>, %n: tensor<4xi32>) -> tensor<f32> {
      %0 = "qmlir.grouped_matmul"(%x, %w, %n) {operand_names = ["lhs", "rhs", "group_sizes"]}
        : (tensor<8x64xi8>, tensor<4x64x8xi8>, tensor<4xi32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    """
    with pytest.raises(VerifyError, match=r"'qmlir\.grouped_matmul' op has an operand or a result with too few axes: "):
        qmlir.compile(text)


def test_a_call_takes_no_spec() -> None:
    spec, w = qmlir.TensorSpec((4, 8), "i8"), np.ones((8, 4), np.int8)
    with pytest.raises(UsageError, match=r"'lhs' is a TensorSpec, which is for qmlir\.ops\.scaled_matmul\.compile"):
        qmlir.ops.scaled_matmul(spec, w)
    with pytest.raises(InputError, match="argument 'rhs' is a object, which is not an array"):
        qmlir.ops.scaled_matmul.compile(spec, object())


def test_attributes_may_be_arrays() -> None:
    image, weight = np.ones((1, 4, 4, 8), np.int8), np.ones((8, 3, 3, 8), np.int8)
    expected = qmlir.reference.conv2d_q(image, weight, strides=(2, 1), padding=(1, 1, 1, 1), out_dtype="i32")
    for strides in (np.array([2, 1]), [2, 1], [np.int32(2), 1]):
        found = qmlir.ops.conv2d_q(image, weight, strides=strides, padding=np.ones(4, np.int64), out_dtype=np.int32)
        assert np.array_equal(found, expected)


def test_the_reference_cuts_no_zero_point() -> None:
    for call in (
        lambda: qmlir.reference.scaled_matmul(LHS, RHS, rhs_zero_point=2.7),
        lambda: qmlir.reference.dequantize(LHS, 0.5, 1.5),
        lambda: qmlir.reference.quantize(LHS.astype(np.float32), 0.5, 1.9),
        lambda: qmlir.reference.grouped_matmul(LHS, RHS[None], expert_ids=np.zeros((2, 1), np.float32)),
    ):
        with pytest.raises(ValueError, match="holds integers, but is float"):
            call()


@pytest.mark.parametrize("activation", ["clamp(0)", "clamp(0, six)", "clamp(0, 1, 2)"])
@pytest.mark.parametrize("api", [qmlir.ops, qmlir.reference], ids=["ops", "reference"])
def test_an_activation_without_two_bounds(api: Any, activation: str) -> None:
    x, w = np.ones((2, 8), np.int8), np.ones((8, 4), np.int8)
    said = r"activation='clamp\(0.* must have two bounds, as 'clamp\(0, 6\)'"
    with pytest.raises((UsageError, ValueError), match=said):
        api.scaled_matmul(x, w, activation=activation)


@pytest.mark.parametrize(
    ("name", "of", "given"),
    [
        ("lhs_zero_point", "its codes are i8", {"lhs_zero_point": np.uint8(200)}),
        ("out_zero_point", "its codes are u8", {"out_zero_point": np.int8(-20), "out_dtype": "u8"}),
    ],
)
def test_zero_points_have_the_signedness_of_their_codes(name: str, of: str, given: dict[str, Any]) -> None:
    """Regression: 200 was read as -56, and by the reference as 200."""
    x = np.ones((2, 8), np.int8)
    with pytest.raises(UsageError, match=f"'{name}' is .8, but {of}: give it as .8 or i32"):
        qmlir.ops.scaled_matmul(x, x.T.copy(), **given)
    with pytest.raises(UsageError, match="'zero_point' is u8, but its codes are i8"):
        qmlir.ops.quantize.compile(T((2, 8), "f32"), np.float32(1), T((), "u8"))


def test_the_reference_reads_bytes_as_the_codes_are_stated() -> None:
    """Regression: bytes of an int8 array were negative numbers though the codes are u8."""
    w = np.array([[-1, 3], [-128, 127]], np.int8)
    x = np.eye(2, dtype=np.int8)
    got = qmlir.reference.scaled_matmul(x, w, rhs_dtype="u8", out_dtype="i32")
    assert np.array_equal(got, w.view(np.uint8))
    assert np.array_equal(qmlir.ops.scaled_matmul(x, w, rhs_dtype="u8", out_dtype="i32"), got)
