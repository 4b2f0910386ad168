"""Arguments by their old names: the same result, and a warning that states the new name."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir import ops
from qmlir.dialect.ods import OPS
from qmlir.dialect.renamed import RENAMED
from qmlir.errors import UsageError, VerifyError

# Elsewhere in the tests a warning of an old name is an error.
pytestmark = [pytest.mark.filterwarnings("default::DeprecationWarning"), pytest.mark.sweep(fast=3, slow=40)]

RNG = np.random.default_rng(0)
F = np.float32
X, W = RNG.integers(-128, 128, (3, 16)).astype(np.int8), RNG.integers(0, 256, (16, 8)).astype(np.uint8)
IMAGE, FILTERS = (RNG.integers(0, 256, s).astype(np.uint8) for s in ((1, 5, 5, 4), (6, 3, 3, 2)))
IDS = np.array([[0, 2], [1, 1], [2, 0]], np.int32)
# By operation: arguments whose names stay, and those that changed, as (old, new, value).
CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str, Any]]]] = {
    "scaled_matmul": (
        {"lhs": X, "rhs": W, "rhs_scale": np.full((1, 16), 0.5, F), "rhs_zero_point": np.int32(3), "rhs_dtype": "u4"},
        [("packing", "rhs_packing", "low_first"), ("zero_mode", "rhs_zero_mode", "offset_int")],
    ),
    "grouped_matmul": (
        {"lhs": X, "rhs": np.stack([W, W]), "group_sizes": np.array([1, 2], np.int32), "rhs_dtype": "u4"},
        [("packing", "rhs_packing", "low_first"), ("zero_mode", "rhs_zero_mode", "offset_int")],
    ),
    "moe": (
        {"input": X.astype(F), "w1": np.stack([W] * 3), "w2": np.stack([W] * 3), "expert_ids": IDS,
         "routing_weights": np.ones((3, 2), F), "weight_dtype": "u4"},
        [("packing", "weight_packing", "high_first"), ("zero_mode", "weight_zero_mode", "offset_int")],
    ),
    "conv2d_q": (
        {"input": IMAGE, "weight": FILTERS, "padding": (1, 1, 1, 1)},
        [("lhs_scale", "input_scale", F(0.5)), ("rhs_scale", "weight_scale", np.full(6, 0.25, F)),
         ("lhs_zero_point", "input_zero_point", np.int32(7)), ("rhs_zero_point", "weight_zero_point", np.int32(2)),
         ("lhs_dtype", "input_dtype", "u8"), ("rhs_dtype", "weight_dtype", "u4"),
         ("lhs_global_scale", "input_global_scale", F(2)), ("rhs_global_scale", "weight_global_scale", F(0.5)),
         ("lhs_zero_mode", "input_zero_mode", "int"), ("zero_mode", "weight_zero_mode", "int"),
         ("packing", "weight_packing", "low_first"), ("filter_layout", "weight_layout", "FHWC")],
    ),
}  # fmt: skip
WEIGHTS = [(op, api) for op in CASES for api in (ops, qmlir.reference)]


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize(("op", "api"), WEIGHTS, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_old_names_do_the_same(op: str, api: Any) -> None:
    same, changed = CASES[op]
    with warnings.catch_warnings(record=True) as none:
        warnings.simplefilter("always", DeprecationWarning)
        want = getattr(api, op)(**same, **{new: value for _, new, value in changed})
    assert not none
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", DeprecationWarning)
        got = getattr(api, op)(**same, **{old: value for old, _, value in changed})
    np.testing.assert_array_equal(got, want)
    assert [str(w.message) for w in found] == [f"{op}: '{old}' is deprecated: use '{new}'" for old, new, _ in changed]
    assert {w.filename for w in found} == {__file__}


@pytest.mark.slow
@pytest.mark.sweep(slow=40)
@pytest.mark.parametrize("op", CASES)
def test_compile_takes_old_names(op: str) -> None:
    """Old and new names give one program, in the cache too; the program's own arguments have the new names."""
    same, changed = CASES[op]
    first = next(iter(same))
    given = {**same, first: qmlir.TensorSpec(same[first].shape, str(same[first].dtype))}
    want = getattr(ops, op).compile(**given, **{new: value for _, new, value in changed})
    with pytest.warns(DeprecationWarning, match=f"use '{changed[0][1]}'"):
        got = getattr(ops, op).compile(**given, **{old: value for old, _, value in changed})
    assert got.manifest == want.manifest
    spec = qmlir.TensorSpec((), "f32")
    with pytest.warns(DeprecationWarning, match="use 'input_scale'"):
        program = ops.conv2d_q.compile(
            qmlir.TensorSpec((1, 5, 5, 2), "i8"), np.ones((6, 3, 3, 2), np.int8), lhs_scale=spec
        )
    assert "input_scale: f32[]" in str(qmlir.load(program).main.signature)


@pytest.mark.parametrize("api", [ops, qmlir.reference], ids=["ops", "reference"])
def test_both_names_are_refused(api: Any) -> None:
    said = "'packing' is the old name of 'rhs_packing', and both are given; leave 'packing' out"
    with pytest.raises((UsageError, ValueError), match=said):
        api.scaled_matmul(X, W, rhs_dtype="i4", packing="low_first", rhs_packing="low_first")


@pytest.mark.slow
def test_a_sparse_product_says_the_new_name() -> None:
    weight = qmlir.SparseWeight.from_dense(np.eye(16, dtype=np.int8))
    with pytest.warns(DeprecationWarning, match="use 'rhs_zero_mode'"):
        found = ops.sparse_matmul(X, weight, zero_mode="none")
    np.testing.assert_array_equal(found, ops.sparse_matmul(X, weight))


def test_messages_say_the_names_of_the_operation() -> None:
    """Messages of rules that all products share name a convolution's operands input and weight."""
    kw = {"input": IMAGE.view(np.int8), "weight": np.ones((6, 3, 3, 4), np.int8)}
    with pytest.raises(VerifyError, match=r"'input_scale' of a convolution must be per tensor"):
        ops.conv2d_q(**kw, input_scale=np.ones((5, 1), F))
    with pytest.raises(
        VerifyError, match="attribute 'weight_zero_mode' is 'rescale', which needs operand 'weight_zero"
    ):
        ops.conv2d_q(**kw, weight_zero_mode="rescale")


def test_renamed_names_are_of_the_definitions() -> None:
    for op, names in RENAMED.items():
        fields = {f.name for f in OPS[f"qmlir.{op}"].FIELDS}
        assert set(names.values()) <= fields
        assert not set(names) & fields


@pytest.mark.slow
def test_torch_operators_take_old_names() -> None:
    torch = pytest.importorskip("torch")
    import qmlir.frontends.torch.custom_ops as custom

    custom.register()
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    want = torch.ops.qmlir.scaled_matmul(x, w, rhs_dtype="u4", rhs_packing="low_first")
    with pytest.warns(DeprecationWarning, match="use 'rhs_packing'"):
        got = torch.ops.qmlir.scaled_matmul(x, w, rhs_dtype="u4", packing="low_first")
    assert torch.equal(got, want)
    image, filters = (torch.ones(s, dtype=torch.int8) for s in ((1, 5, 5, 4), (6, 3, 3, 4)))
    scale = torch.tensor(0.5)
    with pytest.warns(DeprecationWarning, match="use 'input_scale'"):
        got = torch.ops.qmlir.conv2d_q(image, filters, lhs_scale=scale)
    assert torch.equal(got, torch.ops.qmlir.conv2d_q(image, filters, input_scale=scale))


def test_the_exception_of_patterns_has_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"qmlir\.frontends\.Decline is deprecated: use PatternDeclined"):
        assert qmlir.frontends.Decline is qmlir.frontends.PatternDeclined
