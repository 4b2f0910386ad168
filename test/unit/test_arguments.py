"""Arguments of each operation that it does not take: other numbers of axes, types, sizes and values. Each is an error
that names it, or a program."""

from __future__ import annotations

from typing import Any

import pytest

import qmlir
from qmlir import ops
from qmlir.compiler.run import run_compiler
from qmlir.dialect.dtypes import DTYPES
from qmlir.errors import QmlirError, UsageError, VerifyError
from qmlir.spec import TensorSpec as T

pytestmark = pytest.mark.sweep(fast=3)

F = "f32"
CALLS: dict[str, tuple[str, dict[str, T], dict[str, Any]]] = {
    "requantised": ("scaled_matmul", {
        "lhs": T((4, 64), "i8"), "rhs": T((64, 8), "i8"), "lhs_scale": T((4, 1), F), "rhs_scale": T((1, 8), F),
        "lhs_zero_point": T((), "i32"), "rhs_zero_point": T((), "i32"), "bias": T((8,), F), "out_scale": T((), F),
        "out_zero_point": T((), "i32")}, {"out_dtype": "i8"}),
    "packed": ("scaled_matmul", {
        "lhs": T((4, 64), "u8"), "rhs": T((8, 32), "u8"), "lhs_scale": T((4, 2), F), "rhs_scale": T((8, 2), F),
        "rhs_zero_point": T((8, 2), "i32"), "act_scale": T((), F)},
        {"rhs_dtype": "u4", "rhs_packing": "low_first", "rhs_transposed": True}),
    "codebook": ("scaled_matmul", {"lhs": T((4, 64), F), "rhs": T((64, 8), "u8"), "codebook": T((16,), F)},
                 {"rhs_dtype": "codebook"}),
    "fp8": ("scaled_matmul", {
        "lhs": T((4, 64), "e4m3"), "rhs": T((64, 8), "e4m3"), "lhs_scale": T((4, 2), F), "rhs_scale": T((2, 8), F),
        "lhs_global_scale": T((), F), "rhs_global_scale": T((), F)}, {}),
    "conv2d_q": ("conv2d_q", {
        "input": T((1, 8, 8, 16), "i8"), "weight": T((8, 3, 3, 16), "i8"), "input_scale": T((), F),
        "weight_scale": T((8, 1, 1, 1), F), "bias": T((8,), F), "input_zero_point": T((), "i32"),
        "weight_zero_point": T((8, 1, 1, 1), "i32"), "out_scale": T((), F), "out_zero_point": T((), "i32")},
        {"out_dtype": "i8"}),
    "routed": ("grouped_matmul", {
        "lhs": T((8, 64), "i8"), "rhs": T((4, 64, 8), "i8"), "expert_ids": T((8, 1), "i32"), "lhs_scale": T((8, 1), F),
        "rhs_scale": T((4, 1, 8), F), "bias": T((4, 8), F)}, {}),
    "weighted": ("grouped_matmul", {
        "lhs": T((8, 64), "i8"), "rhs": T((4, 64, 8), "i8"), "expert_ids": T((8, 1), "i32"),
        "routing_weights": T((8, 1), F)}, {}),
    "groups": ("grouped_matmul", {
        "lhs": T((8, 64), "i8"), "rhs": T((4, 64, 8), "i8"), "group_sizes": T((4,), "i32"), "lhs_scale": T((8, 1), F),
        "rhs_scale": T((4, 1, 8), F)}, {}),
    "moe": ("moe", {
        "input": T((8, 64), F), "w1": T((4, 64, 32), "i8"), "w2": T((4, 32, 64), "i8"), "expert_ids": T((8, 2), "i32"),
        "routing_weights": T((8, 2), F), "w1_scale": T((4, 1, 32), F), "w2_scale": T((4, 1, 64), F)}, {}),
    "dequantize": ("dequantize", {"input": T((8, 64), "i8"), "scale": T((8, 1), F), "zero_point": T((8, 1), "i32")},
                   {}),
    "quantize": ("quantize", {"input": T((8, 64), F), "scale": T((8, 1), F), "zero_point": T((8, 1), "i32")},
                 {"out_dtype": "i8"}),
    "dynamic_quantize": ("dynamic_quantize", {"input": T((8, 64), F)}, {}),
    "unpack": ("unpack", {"input": T((8, 64), "u8")}, {"dtype": "u4"}),
    "route": ("route", {"logits": T((8, 4), F)}, {"topk": 2}),
    "moe_align_block_size": ("moe_align_block_size", {"expert_ids": T((8, 2), "i32")},
                             {"block_size": 16, "experts": 4}),
}  # fmt: skip


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs end behind the verifier: what is accepted here is compiled elsewhere."""
    monkeypatch.setattr(ops, "compile_built", lambda build, target, options, key: run_compiler(
        build, target, options, until="qmlir"))  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_every_number_of_axes(call: str, verified: None) -> None:
    """18 of these were an IndexError."""
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


@pytest.mark.parametrize("call", CALLS)
def test_every_type(call: str, verified: None) -> None:
    """`moe` of 4-bit activations ended in an error of the builder."""
    name, specs, attributes = CALLS[call]
    for operand, spec in specs.items():
        for dtype in DTYPES:
            said = said_of(getattr(qmlir.ops, name), **specs | {operand: T(spec.shape, dtype)}, **attributes)
            assert not said or "'" in said, said


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
    """Negative sizes were errors of MLIR's bindings, a size of zero a division by it, and what an operation needs a
    KeyError."""
    name, specs, attributes = CALLS[call]
    operation = getattr(qmlir.ops, name)
    values = (None, -1, 0, 3, 1 << 40, -2.5, "zzz", "i8", True, [], [1, 2], {}, object())
    for field in operation.definition.FIELDS:
        for value in values if field.kind == "attr" else ():
            said = said_of(operation, **specs, **attributes | {field.name: value})
            assert not said or field.name in said or "'" in said, said


@pytest.mark.parametrize(
    ("call", "operand", "shape", "message"),
    [
        ("requantised", "lhs", (64,), r"^scaled_matmul: 'lhs' and 'rhs' must have at least two axes, but are"),
        ("routed", "expert_ids", (8,), r"^grouped_matmul: 'expert_ids' has shape \[8\], but must be \[T, topk\]"),
        ("groups", "rhs", (64, 8), r"^grouped_matmul: needs 'lhs' \[M, K\] and 'rhs' \[G, K, N\] or \[G, N, K\]"),
        ("moe", "w2", (32, 64), r"^moe: 'w1' and 'w2' must have three axes, experts first"),
        ("moe", "w2", (4, 16, 64), r"'w1' \[4, 64, 32\] gives 32 columns, but 'w2' \[4, 16, 64\] takes 16 rows"),
        ("moe_align_block_size", "expert_ids", (8,), r"'expert_ids' has shape \[8\], but must be \[T, topk\]"),
        ("dynamic_quantize", "input", (), "^dynamic_quantize: 'input' is a scalar; use granularity 'tensor'"),
    ],
)  # fmt: skip
def test_messages(call: str, operand: str, shape: tuple[int, ...], message: str, verified: None) -> None:
    name, specs, attributes = CALLS[call]
    with pytest.raises((UsageError, VerifyError), match=message):
        getattr(qmlir.ops, name).compile(**specs | {operand: T(shape, specs[operand].dtype)}, **attributes)


@pytest.mark.parametrize(
    ("call", "changed", "message"),
    [
        ("moe", {"input": T((8, 64), "i4")}, r"^moe: input_dtype='i4' is not known; did you mean 'i8'"),
        ("moe", {"input": T((), "i4")}, r"^moe: input_dtype='i4' is not known; did you mean 'i8'"),
        ("weighted", {"rhs": T((0, 64, 8), "i8")}, r"axis 0 of 'rhs' \[0, 64, 8\], must be static and at least 1"),
        ("route", {"topk": -1}, "^route: 'topk' is -1"),
        ("route", {"topk": None}, "^route needs the argument 'topk'"),
        ("unpack", {"dtype": None}, "^unpack needs the argument 'dtype'"),
        ("moe_align_block_size", {"block_size": 0}, "^moe_align_block_size: 'block_size' is 0, but must be at least 1"),
    ],
)
def test_messages_of_types_and_values(call: str, changed: dict[str, Any], message: str, verified: None) -> None:
    name, specs, attributes = CALLS[call]
    with pytest.raises((UsageError, VerifyError), match=message):
        getattr(qmlir.ops, name).compile(**{**specs, **attributes, **changed})


def test_a_result_with_too_few_axes() -> None:
    """In a program's text nothing infers the result. The rules read its axes."""
    text = """
    func.func @main(%x: tensor<8x64xi8>, %w: tensor<4x64x8xi8>, %n: tensor<4xi32>) -> tensor<f32> {
      %0 = "qmlir.grouped_matmul"(%x, %w, %n) {operand_names = ["lhs", "rhs", "group_sizes"]}
        : (tensor<8x64xi8>, tensor<4x64x8xi8>, tensor<4xi32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    """
    with pytest.raises(VerifyError, match=r"'qmlir\.grouped_matmul' op has an operand or a result with too few axes: "):
        qmlir.compile(text)
