"""Experts on AMD and Vulkan: one kernel for all of them, ragged and empty groups, a dynamic number of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import gpu_programs
from support.kernels import RandomCodes

import qmlir
from qmlir import TensorSpec as T

AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
SIZES = ([3, 0, 20, 9], [0, 0, 0, 32], [8, 8, 8, 8])
ROUTED = [(1, 8, 2), (5, 4, 2), (40, 3, 1), (33, 16, 4)]  # tokens, experts, experts per token


def _weights(codes: RandomCodes, scheme: str, groups: int, n: int, k: int) -> dict[str, Any]:
    """The weight's arguments for a scheme, and the type of the activation as `lhs`."""
    bits, activation, *more = scheme.split()
    made: dict[str, Any] = {"rhs_transposed": True, "lhs": activation}
    along = k // 32 if "groups" in more else 1
    made["rhs_scale"] = codes.powers(groups, n, along)
    if bits == "w8":
        made["rhs"] = codes(groups, n, k)
    else:
        low = 0 if "zeros" in more else -8
        made["rhs"] = codes(groups, n, k, lo=low, hi=low + 15)
        made["rhs_dtype"] = "u4" if low == 0 else "i4"
        if low == 0:
            made["rhs"] = qmlir.reference.pack(made["rhs"].view(np.uint8), "u4", "low_first")
            made["rhs_packing"] = "low_first"
    if "zeros" in more:
        made["rhs_zero_point"] = codes.rng.integers(-9, 9, (groups, n, along)).astype(np.int32)
    if activation == "f16":
        made["out_dtype"] = "f16"
    return made


def _given(codes: RandomCodes, activation: str, rows: int, k: int) -> dict[str, Any]:
    if activation == "f16":
        return {"lhs": codes.rng.standard_normal((rows, k)).astype(np.float16)}
    given: dict[str, Any] = {"lhs": codes(rows, k, unsigned=activation == "u8"), "lhs_scale": codes.powers(rows, 1)}
    if activation == "u8":
        given["lhs_zero_point"] = codes.rng.integers(0, 200, (rows, 1)).astype(np.int32)
    return given


def _check(
    target: str, given: dict[str, Any], picks: dict[str, Any], made: dict[str, Any], *, dynamic: bool = False
) -> None:
    """Check the results and the two dispatches besides the sort: the product, and the reordering of its rows."""
    activation = made.pop("lhs")
    rhs = made.pop("rhs")
    specs = {
        name: T((None, *a.shape[1:]) if dynamic else a.shape, activation if name == "lhs" else qmlir_type(a))
        for name, a in {**given, **picks}.items()
    }
    artifact = qmlir.ops.grouped_matmul.compile(specs.pop("lhs"), rhs, target=target, **specs, **made)
    (choice,) = {decision["chosen"] for decision in artifact.manifest.strategies}
    assert choice in ("cooperative", "tiled", "matrix"), artifact.manifest.strategies
    assert len(gpu_programs.dispatches(artifact)) == 2
    lhs = given.pop("lhs")
    want = qmlir.reference.grouped_matmul(lhs, rhs, **picks, **given, **made)
    inputs = [lhs, *picks.values(), *given.values()]
    if target == "vulkan:lavapipe":
        got = qmlir.load(artifact).main(*inputs)
    else:
        (got,) = gpu_programs.run(artifact, *inputs)
    if activation == "f16":
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=2e-3, atol=2e-2)
    else:
        np.testing.assert_array_equal(got, want)


def qmlir_type(array: Any) -> str:
    return {"float32": "f32", "int32": "i32"}[str(array.dtype)]


def _sorted(target: str, scheme: str, sizes: list[int], k: int = 64) -> None:
    codes = RandomCodes(3)
    made = _weights(codes, scheme, len(sizes), 21, k)
    _check(target, _given(codes, made["lhs"], sum(sizes), k), {"group_sizes": np.array(sizes, np.int32)}, made)


def _routed(target: str, scheme: str, tokens: int, experts: int, topk: int, *, dynamic: bool = False) -> None:
    codes = RandomCodes(4)
    made = _weights(codes, scheme, experts, 21, 40)
    ids = np.stack([codes.rng.permutation(experts)[:topk] for _ in range(tokens)]).astype(np.int32)
    _check(target, _given(codes, made["lhs"], tokens, 40), {"expert_ids": ids}, made, dynamic=dynamic)


SCHEMES = ("w8 i8", "w4 i8", "w4 i8 groups", "w4 u8 zeros", "w4 i8 groups zeros", "w8 f16", "w4 f16 groups")


def test_sorted_rows_on_lavapipe(lavapipe: str) -> None:
    _sorted(lavapipe, "w4 i8 groups zeros", [3, 0, 20, 9])


@pytest.mark.sweep(slow=6)
@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("sizes", SIZES)
def test_all_sorted_rows_on_lavapipe(scheme: str, sizes: list[int], lavapipe: str) -> None:
    _sorted(lavapipe, scheme, sizes, 128)


def test_routed_rows_on_lavapipe(lavapipe: str) -> None:
    _routed(lavapipe, "w4 u8 zeros", 33, 16, 4)


@pytest.mark.sweep(slow=6)
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["w8 i8", "w4 u8 zeros", "w8 f16"])
@pytest.mark.parametrize(("tokens", "experts", "topk"), ROUTED)
def test_all_routed_rows_on_lavapipe(scheme: str, tokens: int, experts: int, topk: int, lavapipe: str) -> None:
    _routed(lavapipe, scheme, tokens, experts, topk)


def test_a_dynamic_number_of_tokens_on_lavapipe(lavapipe: str) -> None:
    """One program, called with few tokens and with many."""
    codes = RandomCodes(5)
    rhs, scale = codes(4, 21, 40), codes.powers(4, 21, 1)
    artifact = qmlir.ops.grouped_matmul.compile(
        T((None, 40), "i8"), rhs, expert_ids=T((None, 2), "i32"), lhs_scale=T((None, 1), "f32"), rhs_scale=scale,
        rhs_transposed=True, target=lavapipe,
    )  # fmt: skip
    assert len(gpu_programs.dispatches(artifact)) == 2
    program = qmlir.load(artifact)
    for tokens in (1, 9, 70):
        lhs, ids = codes(tokens, 40), codes.rng.integers(0, 4, (tokens, 2)).astype(np.int32)
        rows = codes.powers(tokens, 1)
        want = qmlir.reference.grouped_matmul(
            lhs, rhs, expert_ids=ids, lhs_scale=rows, rhs_scale=scale, rhs_transposed=True
        )
        np.testing.assert_array_equal(program.main(lhs, ids, rows), want)


@pytest.mark.slow
def test_sorted_rows_on_matrices() -> None:
    _sorted("rocm:gfx942", "w4 i8 groups zeros", [3, 0, 40, 9])


@pytest.mark.sweep(slow=40)
@pytest.mark.slow
@pytest.mark.parametrize("arch", AMD)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("sizes", [[3, 0, 20, 9], [3, 0, 70, 23]])
def test_all_sorted_rows_on_amd(scheme: str, sizes: list[int], arch: str) -> None:
    _sorted(f"rocm:{arch}", scheme, sizes)


@pytest.mark.sweep(slow=6)
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("scheme", ["w8 i8", "w4 u8 zeros", "w8 f16"])
def test_all_routed_rows_on_amd(scheme: str, dynamic: bool, arch: str) -> None:
    _routed(f"rocm:{arch}", scheme, 40, 3, 2, dynamic=dynamic)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [s for s in SCHEMES if "f16" not in s])
def test_all_sorted_rows_on_cooperative_matrices(scheme: str) -> None:
    _sorted("vulkan:rdna3", scheme, [3, 0, 70, 23])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["vulkan:lavapipe", "rocm:gfx942"])
def test_a_batch_with_its_own_weights(target: str) -> None:
    """There is no index: each product has its own matrix."""
    codes = RandomCodes(1)
    lhs, rhs = codes(3, 14, 96), codes(3, 37, 96, lo=-8, hi=7)
    kw: dict[str, Any] = {"rhs_transposed": True, "rhs_dtype": "i4", "rhs_scale": codes.powers(3, 37, 3)}
    artifact = qmlir.ops.scaled_matmul.compile(T(lhs.shape, "i8"), rhs, target=target, **kw)
    assert {d["chosen"] for d in artifact.manifest.strategies} <= {"tiled", "matrix"}
    got = qmlir.load(artifact).main(lhs) if "lavapipe" in target else gpu_programs.run(artifact, lhs)[0]
    np.testing.assert_array_equal(got, qmlir.reference.scaled_matmul(lhs, rhs, **kw))


@pytest.mark.parametrize(("m", "n", "k"), [(33, 47, 65), pytest.param(128, 256, 512, marks=pytest.mark.slow)])
def test_a_batch_whose_size_alone_is_dynamic(m: int, n: int, k: int) -> None:
    """The program compiles to matrix instructions."""
    source = f"""
    func.func @main(%a: tensor<?x{m}x{k}xi8>, %b: tensor<?x{k}x{n}xi8>) -> tensor<?x{m}x{n}xi32> {{
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0 : i32
      %size = tensor.dim %a, %c0 : tensor<?x{m}x{k}xi8>
      %empty = tensor.empty(%size) : tensor<?x{m}x{n}xi32>
      %init = linalg.fill ins(%zero : i32) outs(%empty : tensor<?x{m}x{n}xi32>) -> tensor<?x{m}x{n}xi32>
      %r = linalg.batch_matmul ins(%a, %b : tensor<?x{m}x{k}xi8>, tensor<?x{k}x{n}xi8>)
          outs(%init : tensor<?x{m}x{n}xi32>) -> tensor<?x{m}x{n}xi32>
      return %r : tensor<?x{m}x{n}xi32>
    }}"""
    artifact = qmlir.compile(source, target="rocm:gfx942")
    assert [d["chosen"] for d in artifact.manifest.strategies] == ["mma"]
