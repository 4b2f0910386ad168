"""The attention kernel against attention in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.attention import FORMS, Form
from support.cover import diagonal

import qmlir
from qmlir.targets import resolve

pytestmark = pytest.mark.sweep(fast=3, slow=40)

# Batch, queries, keys: queries of less than a vector, one, two, and a ragged one; keys of less than a tile, of a block,
# and of several blocks.
SHAPES = [(2, 33, 129), (1, 1, 1), (3, 7, 5), (2, 1, 300), (1, 32, 32), (1, 70, 256)]


def _arguments(form: Form, shape: tuple[int, int, int]) -> list[Any]:
    rng = np.random.default_rng(sum(shape))
    sizes = form.sizes(*shape)
    made = [
        (1.5 * rng.standard_normal([sizes[a] for a in axes])).astype(np.float32) for axes in (form.q, form.k, form.v)
    ]
    if form.mask:
        mask = rng.standard_normal([sizes[a] for a in form.mask]).astype(np.float32)
        mask[rng.random(mask.shape) < 0.3] = -1e9
        made.append(mask)
    return made


def _compiled(form: Form, target: str) -> tuple[Any, Any]:
    artifact = qmlir.compile(form.text(), target=target)
    return artifact, qmlir.load(artifact).main


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize(("name", "target"), diagonal(list(FORMS), ["cpu:x86-64-v4", "cpu:x86-64-v3"]))
def test_the_kernel_is_right(name: str, target: str) -> None:
    if not set(resolve(target).capabilities.cpu_features) <= set(resolve("cpu").capabilities.cpu_features):
        pytest.skip(f"this host does not run {target}")
    artifact, run = _compiled(FORMS[name], target)
    assert "_attention_0" in artifact.source("configured")
    [decision] = artifact.manifest.strategies
    assert (decision["kind"], decision["k"]) == ("attention", FORMS[name].width)
    for shape in SHAPES:
        arguments = _arguments(FORMS[name], shape)
        np.testing.assert_allclose(run(*arguments), FORMS[name].expected(*arguments), rtol=2e-5, atol=2e-5)


@pytest.mark.slow
def test_every_pair_of_sizes() -> None:
    """One program takes numbers of queries and keys around the sizes of vectors, tiles and blocks."""
    form = FORMS["shared-mask"]
    _, run = _compiled(form, "cpu")
    sizes = (1, 3, 7, 13, 16, 17, 77, 128)
    for queries in sizes:
        for keys in sizes:
            arguments = _arguments(form, (2, queries, keys))
            arguments[-1][..., 0] = 0  # f32 cannot distinguish scores of about -1e9
            np.testing.assert_allclose(run(*arguments), form.expected(*arguments), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["heads-mixed", "grouped"])
def test_the_decomposition_is_right(name: str) -> None:
    artifact, run = _compiled(FORMS[name], "cpu:x86-64")
    assert "_attention_0" not in artifact.source("configured")
    for shape in SHAPES[:4]:
        arguments = _arguments(FORMS[name], shape)
        expected = FORMS[name].expected(*arguments)
        np.testing.assert_allclose(run(*arguments), expected, rtol=2e-5, atol=2e-5)


def test_sizes_that_only_some_operands_state() -> None:
    """Only the values have a static batch, only the keys a static number of keys. Regression: a `ValueError`."""
    program = """
#q = affine_map<(b, m, n, d, k) -> (b, m, d)>
#k = affine_map<(b, m, n, d, k) -> (b, k, d)>
#v = affine_map<(b, m, n, d, k) -> (b, k, n)>
#s = affine_map<(b, m, n, d, k) -> ()>
#o = affine_map<(b, m, n, d, k) -> (b, m, n)>
func.func @main(%q: tensor<?x?x16xf32>, %k: tensor<?x7x16xf32>, %v: tensor<2x?x16xf32>, %out: tensor<?x?x16xf32>)
    -> tensor<?x?x16xf32> {
  %scale = arith.constant 0.25 : f32
  %0 = iree_linalg_ext.attention <{indexing_maps = [#q, #k, #v, #s, #o]}>
      ins(%q, %k, %v, %scale : tensor<?x?x16xf32>, tensor<?x7x16xf32>, tensor<2x?x16xf32>, f32)
      outs(%out : tensor<?x?x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<?x?x16xf32>
  return %0 : tensor<?x?x16xf32>
}"""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, n, 16)).astype(np.float32) for n in (5, 7, 7))
    weights = np.exp(0.25 * np.einsum("bmd,bkd->bmk", q, k, dtype=np.float64))
    expected = np.einsum("bmk,bkn->bmn", weights / weights.sum(-1, keepdims=True), v)
    artifact = qmlir.compile(program, target="cpu")
    np.testing.assert_allclose(qmlir.load(artifact).main(q, k, v, np.zeros_like(q)), expected, rtol=2e-5, atol=2e-5)


def test_numbers_at_the_ends_of_the_range() -> None:
    """Keys that are masked by minus infinity have weight 0, a query whose keys are all masked in this way gets zeros,
    and NaN stays NaN."""
    form = FORMS["heads-first"]
    _, run = _compiled(form, "cpu")
    q, k, v, mask = _arguments(form, (1, 20, 40))
    mask[:, 30:] = -np.inf
    v[:, :, 30:] = 1e30
    expected = form.expected(q, k, v, mask)
    mask[3], mask[4] = -np.inf, np.finfo(np.float32).min
    q[0, 1, 5, 0] = np.nan
    found = run(q, k, v, mask)
    assert not found[:, :, 3].any()
    assert np.isnan(found[0, 1, 5]).all()
    # Regression: a mask of the least finite number masks all keys alike, so they have the same weight.
    np.testing.assert_allclose(found[:, :, 4], v.mean(2), rtol=2e-5)
    rest = np.ones(found.shape[:3], bool)
    rest[:, :, 3:5] = rest[0, 1, 5] = False
    np.testing.assert_allclose(found[rest], expected[rest], rtol=2e-5, atol=2e-5)


def test_large_scores_do_not_overflow() -> None:
    form = FORMS["plain"]
    _, run = _compiled(form, "cpu")
    q, k, v = _arguments(form, (1, 5, 200))
    q *= 1000
    np.testing.assert_allclose(run(q, k, v), form.expected(q, k, v), rtol=1e-2, atol=1e-2)
