"""Plans that rewrite a contraction compute the same integers: they are applied for their target and run on the CPU."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.cover import diagonal

from qmlir.targets.aligned import fitting_block
from qmlir.targets.cuda.exact_f16 import longest_exact_k, split_k

pytestmark = pytest.mark.sweep(fast=3, slow=40)


@pytest.mark.parametrize("k", [1, 2, 15, 1023, 1024, 1025, 1031, 2048, 2049, 4095, 4096, 5000, 11008, 65536])
@pytest.mark.parametrize("limit", [514, 1024, 1032, 16384])
def test_chunks_cover_k_within_the_bound(k: int, limit: int) -> None:
    split = split_k(k, limit)
    assert split.length <= limit
    assert split.chunks * split.length >= k
    assert (split.chunks - 1) * split.length < k  # no chunk is only padding
    if split.chunks > 1:
        assert split.length % 16 == 0


def test_bounds() -> None:
    assert longest_exact_k(128, 128) == 1024
    assert longest_exact_k(128, 8) == 16384
    assert longest_exact_k(255, 128) == 514


@pytest.mark.parametrize("size", range(1, 200))
def test_blocks_waste_little(size: int) -> None:
    block = fitting_block(size, 16)
    padded, least = -(-size // block) * block, -(-size // 16) * 16
    assert padded <= least * 9 // 8


def _codes(shape: tuple[int, ...], rng: np.random.Generator, kind: str) -> Any:
    if kind == "saturated":
        return np.full(shape, -128, np.int8)
    return rng.integers(-128, 128, shape).astype(np.int8)


def _arguments(text: str, kind: str, rows: int = 5) -> list[Any]:
    """One array per tensor of `f`'s signature; a dynamic size is `rows`."""
    rng = np.random.default_rng(0)
    signature = text[text.index("@f(") : text.index("->")]
    found = []
    for spelled in re.findall(r"tensor<([^>]*)>", signature):
        *sizes, dtype = spelled.split("x")
        shape = tuple(rows if size == "?" else int(size) for size in sizes)
        found.append(np.ones(shape, np.float32) if dtype == "f32" else _codes(shape, rng, kind))
    return found


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(5, 7, 1), (5, 7, 1024), (5, 7, 1025), (None, 7, 1500), (4, 4, 2048), (3, 4, 5000)]
)
def test_f16_matmul_is_exact(m: int | None, n: int, k: int, forms: Any, select: Any, on_cpu: Any) -> None:
    text = forms.matmul(m, n, k, scale=False)
    selected = select(text, "cuda:sm_80", prefer="exact-f16")
    assert selected.chosen == "exact-f16"
    run = on_cpu(selected.text)
    for kind in ("random", "saturated"):
        x, w, s = _arguments(text, kind)
        assert np.array_equal(run(x, w, s), x.astype(np.int32) @ w.astype(np.int32).T)


def test_f16_matmul_of_unsigned_codes_is_exact(forms: Any, select: Any, on_cpu: Any) -> None:
    text = forms.matmul(5, 7, 1500, scale=False, extension="arith.extui")
    selected = select(text, "cuda:sm_80", prefer="exact-f16")
    assert selected.plan["k_chunks"] == 6  # 258 products of 255 x 255 at most
    x, w, s = (a if a.dtype != np.int8 else np.full(a.shape, -1, np.int8) for a in _arguments(text, "random"))
    reference = x.view(np.uint8).astype(np.int32) @ w.view(np.uint8).astype(np.int32).T
    assert np.array_equal(on_cpu(selected.text)(x, w, s), reference)


@pytest.mark.slow
def test_f16_matmul_adds_to_what_it_accumulates_onto(forms: Any, select: Any, on_cpu: Any) -> None:
    for k in (64, 2100):
        text = forms.matmul(5, 7, k, scale=False)
        text = text.replace("%s: tensor<7xf32>", "%c0: tensor<5x7xi32>")
        text = text.replace("outs(%f : tensor", "outs(%c0 : tensor")
        x, w = _arguments(text.replace("5x7xi32", "5x7xf32"), "random")[:2]
        start = np.arange(35, dtype=np.int32).reshape(5, 7)
        result = on_cpu(select(text, "cuda:sm_80", prefer="exact-f16").text)(x, w, start)
        assert np.array_equal(result, start + x.astype(np.int32) @ w.astype(np.int32).T)


@pytest.mark.parametrize(
    ("target", "name"), diagonal(["cuda:sm_80", "rocm:gfx942", "rocm:gfx1100"], ["f8E4M3FN", "f8E5M2"])
)
def test_widened_matmul_is_exact(target: str, name: str, forms: Any, select: Any, on_cpu: Any) -> None:
    text = forms.matmul(6, 5, 96, dtype=name, scale=False)
    selected = select(text, target)
    assert selected.chosen == "widened"
    dtype = np.dtype({"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}[name])
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, s).astype(np.float32).astype(dtype) for s in ((6, 96), (5, 96)))
    reference = x.astype(np.float32) @ w.astype(np.float32).T
    result = on_cpu(selected.text)(x, w, np.ones(5, np.float32))
    assert np.array_equal(result, reference)


CONVOLUTIONS = {
    "plain": {},
    "one channel": {"h": 12, "c": 1, "f": 5},
    "strided": {"n": 2, "h": 9, "c": 3, "f": 4, "stride": 2},
    "one by one": {"h": 6, "c": 20, "f": 7, "window": 1},
    "grouped": {"h": 6, "c": 13, "f": 3, "groups": 4},
    "dynamic batch": {"n": None, "h": 6, "c": 4, "f": 3},
    "long": {"h": 5, "c": 300, "f": 3},
    "long grouped": {"h": 4, "c": 260, "f": 2, "groups": 2},
}


def _convolved(x: Any, w: Any, stride: int) -> Any:
    """The reference, for [N,H,W,C] and for [N,H,W,G,C]."""
    grouped = x.ndim == 5
    window = w.shape[-3]
    o = (x.shape[1] - window) // stride + 1
    total: Any = 0
    for i in range(window):
        for j in range(window):
            part = x[:, i : i + stride * (o - 1) + 1 : stride, j : j + stride * (o - 1) + 1 : stride].astype(np.int32)
            taps = w[..., i, j, :].astype(np.int32)
            total = total + np.einsum("nhwgc,gfc->nhwgf" if grouped else "nhwc,fc->nhwf", part, taps)
    return total


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize(("name", "target"), diagonal(sorted(CONVOLUTIONS), ["vulkan:lavapipe", "cpu", "cuda:sm_80"]))
def test_convolutions_are_exact(target: str, name: str, forms: Any, select: Any, on_cpu: Any) -> None:
    text = forms.conv(**CONVOLUTIONS[name])
    selected = select(text, target, prefer="exact-f16" if target == "cuda:sm_80" else None)
    assert selected.chosen in ("im2col", "exact-f16")
    x, w = _arguments(text, "random")
    assert np.array_equal(on_cpu(selected.text)(x, w), _convolved(x, w, CONVOLUTIONS[name].get("stride", 1)))


@pytest.mark.parametrize("transposed", [True, False])
def test_aligned_matmul(transposed: bool, forms: Any, select: Any, on_cpu: Any) -> None:
    text = forms.matmul(259, 51, 70, scale=False, transposed=transposed)
    selected = select(text, "vulkan:rdna3")
    assert selected.plan["route"] == "aligned"
    x, w, s = _arguments(text, "random")
    reference = x.astype(np.int32) @ (w.T if transposed else w).astype(np.int32)
    assert np.array_equal(on_cpu(selected.text)(x, w, s), reference)


def test_aligned_k_groups(forms: Any, select: Any, on_cpu: Any) -> None:
    text = forms.k_groups(9, 5, 3, 20)
    selected = select(text, "vulkan:ada")
    assert selected.plan["route"] == "aligned"
    x, w = _arguments(text, "random")
    reference = np.einsum("mgk,ngk->gmn", x.astype(np.int32), w.astype(np.int32))
    assert np.array_equal(on_cpu(selected.text)(x, w), reference)


@pytest.mark.slow
def test_detached_dynamic_sizes(forms: Any, select: Any, on_cpu: Any) -> None:
    text = forms.matmul(None, 9, 40).replace("%x: tensor<?x40xi8>", "%x0: tensor<?x7x40xi8>", 1)
    collapse = "%x = tensor.collapse_shape %x0 [[0, 1], [2]] : tensor<?x7x40xi8> into tensor<?x40xi8>\n"
    text = text.replace("%zero =", collapse + "%zero =", 1)
    x, w, s = _arguments(text, "random", rows=3)
    reference = (x.reshape(21, 40).astype(np.int32) @ w.astype(np.int32).T).astype(np.float32)
    for target, stock in (("rocm:gfx942", "mma"), ("cuda:sm_80", "exact-f16")):
        assert np.array_equal(on_cpu(select(text, target, prefer=stock).text)(x, w, s), reference)
