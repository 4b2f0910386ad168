"""Attention in torch programs becomes one op without transposes, and its results agree with torch's in f64."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import qmlir
import qmlir.frontends.torch.attention
from conformance.opened import opened
from qmlir.compiler.front_end import ImportOptions
from qmlir.core.mlir import context
from qmlir.frontends.torch import TorchFrontEnd

from support import torch_models as models  # isort: skip

BATCH, QUERIES, KEYS = models.BATCH, models.LENGTH, torch.export.Dim("keys", min=2, max=512)
HEADS = 4


def heads(x: Any) -> Any:
    """[B, T, C] -> [B, H, T, C / H]"""
    return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)


def joined(x: Any) -> Any:
    return x.transpose(1, 2).flatten(2)


def sdpa(x: Any, y: Any, mask: Any = None, **options: Any) -> Any:
    return joined(F.scaled_dot_product_attention(heads(x), heads(y), heads(y * 2), attn_mask=mask, **options))


def eager(x: Any, y: Any, mask: Any) -> Any:
    """Attention as transformers writes it."""
    scores = torch.matmul(heads(x), heads(y).transpose(2, 3)) * 0.25 + mask
    return joined(torch.matmul(F.dropout(F.softmax(scores, dim=-1), 0.1, False), heads(y * 2)))


def divided(x: Any, y: Any, mask: Any) -> Any:
    """The scale is a divisor, and the mask is the first operand of the sum."""
    scores = mask + heads(x) @ heads(y).permute(0, 1, 3, 2) / 4.0
    return joined(torch.softmax(scores, 3) @ heads(y))


def exported(function: Callable[..., Any], args: Any, axes: Any = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = None if axes is None else (tuple(axes),)
        return torch.export.export(models.Called(function), args, dynamic_shapes=shapes)


def imported(program: Any) -> str:
    with context() as ctx:
        return str(TorchFrontEnd().import_(program, context=ctx, options=ImportOptions("model")))


def tensors(*mask: int, kind: Any = torch.float32) -> Any:
    torch.manual_seed(len(mask))
    x, y = torch.randn(3, 33, 64), torch.randn(3, 20, 64)
    if not mask:
        return x, y
    made = torch.randn(mask)
    return x, y, made > 0 if kind == torch.bool else made


X, Y = {0: BATCH, 1: QUERIES}, {0: BATCH, 1: KEYS}
CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "sdpa": (sdpa, tensors(), (X, Y)),
    "eager-mask-of-keys": (eager, tensors(3, 1, 1, 20), (X, Y, {0: BATCH, 3: KEYS})),
    "divided-mask-of-all": (divided, tensors(3, 4, 33, 20), (X, Y, {0: BATCH, 2: QUERIES, 3: KEYS})),
    "bool-mask": (sdpa, tensors(33, 20, kind=torch.bool), (X, Y, {0: QUERIES, 1: KEYS})),
    "mask-of-queries": (sdpa, tensors(33, 1), None),  # torch-mlir does not convert it
    "causal": (lambda x, y: sdpa(x, y, is_causal=True), tensors(), (X, Y)),
    "scale-static": (lambda x, y: sdpa(x, y, scale=0.5), tensors(), None),
}


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize("name", CASES)
def test_attention_is_one_op(name: str) -> None:
    function, args, axes = CASES[name]
    program = exported(function, args, axes)
    artifact = qmlir.compile(program)
    text = artifact.source("import")
    assert text.count("iree_linalg_ext.attention ") == 1
    assert "linalg.transpose" not in text
    assert "matmul" not in text
    found = np.asarray(opened(artifact).main(*args))
    wide = [a if a.dtype == torch.bool else a.double() for a in args]
    np.testing.assert_allclose(found, function(*wide).numpy(), rtol=1e-5, atol=1e-5)


def read_twice(x: Any, y: Any) -> Any:
    weights = torch.softmax(heads(x) @ heads(y).transpose(2, 3), -1)
    return weights @ heads(y), weights


def other_axis(x: Any, y: Any) -> Any:
    return torch.softmax(heads(x) @ heads(y).transpose(2, 3), -2) @ heads(y)


def added_bools(x: Any, y: Any) -> Any:
    """Regression: the added bools were taken for a mask of the keys instead of being added as ones."""
    return torch.softmax(heads(x) @ heads(y).transpose(2, 3) + torch.ones(33, 20).tril().bool(), -1) @ heads(y)


@pytest.mark.parametrize("function", [read_twice, other_axis, added_bools])
def test_other_forms_stay(function: Callable[..., Any]) -> None:
    text = imported(exported(function, tensors()))
    assert "iree_linalg_ext.attention" not in text
    assert text.count("matmul") >= 2


@pytest.mark.sweep(fast=4, slow=60)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [sdpa, lambda x, y: eager(x, y, torch.zeros(20, dtype=x.dtype))])
def test_halves_are_computed_in_f32(function: Callable[..., Any], kind: Any) -> None:
    """f16 and bf16 attention is rounded once, at the end; torch's eager products round in between."""
    args = tuple(t.to(kind) for t in tensors())
    artifact = qmlir.compile(exported(function, args))
    assert artifact.source("import").count("iree_linalg_ext.attention ") == 1
    found = opened(artifact).main(*args)
    assert found.dtype == kind
    expected = function(*(a.double() for a in args))
    assert (found.double() - expected).abs().max() <= torch.finfo(kind).eps * expected.abs().max()


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("axes", [None, ({0: BATCH, 1: QUERIES}, {0: BATCH, 1: KEYS})], ids=["static", "dynamic"])
def test_grouped_queries(axes: Any) -> None:
    """Several heads of queries share a head of keys and values."""

    def grouped(x: Any, y: Any) -> Any:
        k, v = (y[..., a : a + 32].view(*y.shape[:2], 2, 16).transpose(1, 2) for a in (0, 32))
        return joined(F.scaled_dot_product_attention(heads(x), k, v, enable_gqa=True))

    args = tensors()
    artifact = qmlir.compile(exported(grouped, args, axes))
    assert artifact.source("import").count("iree_linalg_ext.attention ") == 1
    found = np.asarray(opened(artifact).main(*args))
    np.testing.assert_allclose(found, grouped(*(a.double() for a in args)).numpy(), rtol=1e-5, atol=1e-5)


def test_heads_without_elements() -> None:
    """Every score is 0. Regression: a ZeroDivisionError."""
    args = (torch.zeros(2, 3, 5, 0), torch.zeros(2, 3, 7, 0), torch.randn(2, 3, 7, 4))
    found = opened(qmlir.compile(exported(F.scaled_dot_product_attention, args))).main(*args)
    np.testing.assert_allclose(np.asarray(found), F.scaled_dot_product_attention(*args).numpy(), rtol=1e-5, atol=1e-5)


def test_the_operator_computes_what_it_stands_for() -> None:
    """The operator also runs eagerly, for users who run a fused graph in torch."""
    x, y = tensors()
    q, k, v = (t.view(*t.shape[:2], HEADS, -1) for t in (x, y, y * 2))
    found = torch.ops.qmlir.attention(q, k, v, None, 0.25, False, ["AmBd", "AkBd", "AkBn", "", "AmBn"])
    torch.testing.assert_close(found.flatten(2), sdpa(x, y))


@pytest.mark.sweep(fast=18, slow=60)
@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64", "cuda:sm_80", "rocm:gfx942", "vulkan:ada"])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_batch_of_one_and_a_query_whose_keys_are_all_masked(target: str, kind: Any) -> None:
    """Regression: on targets without a kernel, IREE crashed on the products, and the attention weights were NaN where
    torch has zeros."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 8, 16) for _ in range(3))
    mask = torch.rand(1, 1, 8, 8) > 0.3
    mask[..., 3, :] = False
    given = (q, k, v, mask if kind == torch.bool else torch.where(mask, 0.0, float("-inf")))

    def function(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    artifact = qmlir.compile(exported(function, given), target=target)
    if target.startswith("cpu"):
        np.testing.assert_allclose(
            np.asarray(opened(artifact).main(*given)), function(*given).numpy(), rtol=1e-5, atol=1e-5
        )
