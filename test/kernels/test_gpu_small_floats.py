"""Built-in kernels for products of one-byte floats: experts, and scales in groups along K; on lavapipe, and for AMD in
the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import gpu_programs
from support.cover import others_slow

import qmlir
from qmlir import TensorSpec as T
from qmlir.dialect.dtypes import DTYPES

pytestmark = pytest.mark.sweep(fast=3, slow=40)

PAIRS = (
    ("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3fnuz", "e4m3fnuz"), ("e5m2fnuz", "e5m2fnuz"), ("e4m3", "e5m2"),
    ("e5m2fnuz", "e4m3"),
)  # fmt: skip
AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


def _finite(rng: Any, dtype: str, *shape: int) -> Any:
    codes = rng.integers(0, 256, shape).astype(np.uint8).view(DTYPES[dtype].numpy)
    return np.where(np.isfinite(codes.astype(np.float32)), codes, np.zeros((), DTYPES[dtype].numpy))


def _powers(rng: Any, *shape: int) -> Any:
    return (2.0 ** rng.integers(-9, -3, shape)).astype(np.float32)


def _run(artifact: Any, target: str, *inputs: Any) -> Any:
    (choice,) = {decision["chosen"] for decision in artifact.manifest.strategies}
    assert choice in ("cooperative", "tiled", "matrix", "multi-version-m"), artifact.manifest.strategies
    return qmlir.load(artifact).main(*inputs) if target.endswith("lavapipe") else gpu_programs.run(artifact, *inputs)[0]


def _near(got: Any, want: Any, terms: Any) -> None:
    """Compare f32 sums, which may be in any order: docs/semantics.md, section 5."""
    assert (np.abs(got.astype(np.float64) - want) <= 2.0**-22 * np.abs(want) + 2.0**-19 * terms).all()


def _sorted(target: str, pair: tuple[str, str], sizes: list[int]) -> None:
    rng, k, n = np.random.default_rng(1), 96, 21
    x, w = _finite(rng, pair[0], sum(sizes), k), _finite(rng, pair[1], len(sizes), n, k)
    scale, rows = _powers(rng, len(sizes), n, 1), _powers(rng, sum(sizes), 1)
    counts = np.array(sizes, np.int32)
    kw: dict[str, Any] = {"rhs_scale": scale, "rhs_transposed": True}
    artifact = qmlir.ops.grouped_matmul.compile(
        T(x.shape, pair[0]), w, group_sizes=T(counts.shape, "i32"), lhs_scale=T(rows.shape, "f32"), target=target, **kw
    )
    assert len(gpu_programs.dispatches(artifact)) == 2  # the product, and the rows put back in order
    got = _run(artifact, target, x, counts, rows)
    want = qmlir.reference.grouped_matmul(x, w, group_sizes=counts, lhs_scale=rows, **kw)
    sides = [np.abs(side.astype(np.float32)) for side in (x, w)]
    _near(got, want, qmlir.reference.grouped_matmul(*sides, group_sizes=counts, lhs_scale=rows, **kw))


def _routed(target: str, tokens: int | None) -> None:
    rng = np.random.default_rng(3)
    rows, experts, n, k = tokens or 19, 5, 40, 64
    ids = np.stack([rng.permutation(experts)[:2] for _ in range(rows)]).astype(np.int32)
    x, w = _finite(rng, "e4m3", rows, k), _finite(rng, "e4m3", experts, n, k)
    scale, share = _powers(rng, experts, n, 1), _powers(rng, rows, 1)
    kw: dict[str, Any] = {"rhs_scale": scale, "rhs_transposed": True}
    artifact = qmlir.ops.grouped_matmul.compile(
        T((tokens, k), "e4m3"),
        w,
        expert_ids=T((tokens, 2), "i32"),
        lhs_scale=T((tokens, 1), "f32"),
        target=target,
        **kw,
    )
    got = _run(artifact, target, x, ids, share)
    want = qmlir.reference.grouped_matmul(x, w, expert_ids=ids, lhs_scale=share, **kw)
    sides = [np.abs(side.astype(np.float32)) for side in (x, w)]
    _near(got, want, qmlir.reference.grouped_matmul(*sides, expert_ids=ids, lhs_scale=share, **kw))


def _groups(target: str, m: int | None, group: int) -> None:
    """Both operands have one scale per group along K. The activation's are read in their layout, `[M, K / group]`."""
    rng, rows, k, n = np.random.default_rng(5), m or 18, max(128, 2 * group), 36
    x, w = _finite(rng, "e4m3", rows, k), _finite(rng, "e4m3", n, k)
    scale, share = _powers(rng, n, k // group), _powers(rng, rows, k // group)
    kw: dict[str, Any] = {"rhs_scale": scale, "rhs_transposed": True}
    artifact = qmlir.ops.scaled_matmul.compile(
        T((m, k), "e4m3"), w, lhs_scale=T((m, k // group), "f32"), target=target, **kw
    )
    assert len(gpu_programs.dispatches(artifact)) == 1
    got = _run(artifact, target, x, share)
    sides = [np.abs(side.astype(np.float32)) for side in (x, w)]
    terms = qmlir.reference.scaled_matmul(*sides, lhs_scale=share, **kw)
    _near(got, qmlir.reference.scaled_matmul(x, w, lhs_scale=share, **kw), terms)


def _codes(target: str, dtype: str) -> None:
    """Every code of the activation times 1, and 1 times every code of the weight, including NaN and infinities."""
    kind = DTYPES[dtype].numpy
    every = np.arange(256, dtype=np.uint8).view(kind)
    ones = np.zeros((16, 32), kind)
    ones[:, 5] = 1
    row = np.zeros((256, 32), kind)
    row[:, 5] = every
    for x, w in ((row, ones), (ones, row)):
        artifact = qmlir.ops.grouped_matmul.compile(
            T(x.shape, dtype), w[None], group_sizes=T((1,), "i32"), rhs_transposed=True, target=target
        )
        got = _run(artifact, target, x, np.array([len(x)], np.int32))
        want = np.broadcast_to(every.astype(np.float32), (16, 256))
        np.testing.assert_array_equal(got.T if x is row else got, want)


# The type of both operands, the number of codes per scale, the type of the scales.
BLOCKS = {"MXFP8": ("e4m3", 32, "e8m0"), "MXFP4": ("e2m1", 32, "e8m0"), "NVFP4": ("e2m1", 16, "e4m3")}


def _blocks(target: str, name: str, m: int | None) -> None:
    """Both operands have one-byte scales. e2m1 codes are multiplied as integers, so that their sums are exact."""
    dtype, group, scale_type = BLOCKS[name]
    rng, rows, n, k = np.random.default_rng(2), m or 18, 37, 160

    def scales(*shape: int) -> Any:
        kind = DTYPES[scale_type].numpy
        return (
            (2.0 ** rng.integers(-6, 3, shape)).astype(kind) if scale_type == "e8m0" else rng.random(shape).astype(kind)
        )

    kw: dict[str, Any] = {"rhs_scale": scales(n, k // group), "rhs_transposed": True}
    if dtype == "e2m1":
        # The other four bits of a byte that holds one 4-bit code are ignored.
        x = rng.integers(-128, 128, (rows, k)).astype(np.int8)
        w = qmlir.reference.pack(rng.integers(0, 16, (n, k)).astype(np.uint8), "e2m1", "low_first")
        kw |= {
            "lhs_dtype": "e2m1",
            "rhs_dtype": "e2m1",
            "rhs_packing": "low_first",
            "lhs_global_scale": np.float32(0.5),
        }
    else:
        x, w = _finite(rng, dtype, rows, k), _finite(rng, dtype, n, k)
    share = scales(rows, k // group)
    artifact = qmlir.ops.scaled_matmul.compile(
        T((m, k), "i8" if dtype == "e2m1" else dtype), w, lhs_scale=T((m, k // group), scale_type), target=target, **kw
    )
    assert len(gpu_programs.dispatches(artifact)) == 1
    got = _run(artifact, target, x, share)
    want = qmlir.reference.scaled_matmul(x, w, lhs_scale=share, **kw)
    if dtype == "e2m1":
        np.testing.assert_array_equal(got, want)
        return
    sides = [np.abs(side.astype(np.float32)) for side in (x, w)]
    _near(got, want, qmlir.reference.scaled_matmul(*sides, lhs_scale=share, **kw))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "m"), [("MXFP8", 5), ("MXFP4", None), ("NVFP4", 33)])
def test_blocks_with_scales_of_a_byte_on_lavapipe(name: str, m: int | None, lavapipe: str) -> None:
    _blocks(lavapipe, name, m)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "m", "arch"), [("MXFP4", None, "gfx942"), ("NVFP4", 17, "gfx1100")])
def test_blocks_with_scales_of_a_byte_on_amd(name: str, m: int | None, arch: str) -> None:
    _blocks(f"rocm:{arch}", name, m)


@pytest.mark.sweep(slow=40)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "name", "m"),
    [
        (target, name, m)
        for target in ("vulkan:lavapipe", *(f"rocm:{arch}" for arch in AMD))
        for name in BLOCKS
        for m in (1, 5, None)
        # A lane of a CDNA wave has at least 8 codes along K, and a wave 32: too many for a scale per 16.
        if not (name == "NVFP4" and m != 1 and "gfx9" in target)
    ],
)
def test_all_blocks_with_scales_of_a_byte(target: str, name: str, m: int | None) -> None:
    _blocks(target, name, m)


@pytest.mark.parametrize("dtype", others_slow(["e4m3", "e5m2", "e5m2fnuz"], "e4m3"))
def test_every_code_on_lavapipe(dtype: str, lavapipe: str) -> None:
    _codes(lavapipe, dtype)


@pytest.mark.slow
def test_every_code_on_amd() -> None:
    _codes("rocm:gfx942", "e4m3")


@pytest.mark.slow
@pytest.mark.parametrize("arch", AMD)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"])
def test_every_code_on_all_of_amd(dtype: str, arch: str) -> None:
    _codes(f"rocm:{arch}", dtype)


@pytest.mark.parametrize("pair", PAIRS[:1])
def test_experts_on_lavapipe(pair: tuple[str, str], lavapipe: str) -> None:
    _sorted(lavapipe, pair, [3, 0, 20, 9])


def test_routed_experts_on_lavapipe(lavapipe: str) -> None:
    _routed(lavapipe, None)


@pytest.mark.parametrize(("m", "group"), [(1, 32), pytest.param(None, 64, marks=pytest.mark.slow)])
def test_groups_along_k_on_lavapipe(m: int | None, group: int, lavapipe: str) -> None:
    _groups(lavapipe, m, group)


@pytest.mark.slow
def test_experts_on_amd() -> None:
    _sorted("rocm:gfx942", PAIRS[0], [3, 0, 9])


def test_groups_along_k_on_amd() -> None:
    _groups("rocm:gfx942", 33, 64)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["vulkan:lavapipe", *(f"rocm:{arch}" for arch in AMD)])
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("sizes", [[3, 0, 20, 9], [3, 0, 70, 23]])
def test_all_experts(target: str, pair: tuple[str, str], sizes: list[int]) -> None:
    _sorted(target, pair, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("arch", AMD)
@pytest.mark.parametrize("tokens", [4, 33])
def test_routed_experts_on_amd(arch: str, tokens: int) -> None:
    _routed(f"rocm:{arch}", tokens)


@pytest.mark.slow
@pytest.mark.parametrize("arch", AMD)
@pytest.mark.parametrize("m", [1, 5, 33, None])
@pytest.mark.parametrize("group", [32, 128])
def test_all_groups_along_k_on_amd(arch: str, m: int | None, group: int) -> None:
    _groups(f"rocm:{arch}", m, group)
