"""Kernels of Vulkan run on lavapipe; kernels of AMD's GPUs run in the interpreter. Both against the reference."""

from __future__ import annotations

from typing import Any

import pytest
from kernels.gpu_products import PRODUCTS, check, chosen, interpreted, values

import qmlir

ROWS = (1, 5, 33, None)  # None: dynamic, called with 18 and with 1
AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
# Each scheme once with few rows and once with more, and two of them with rows that are dynamic.
QUICK = [(name, (1, 33, None, 5)[i % 4]) for i, name in enumerate(PRODUCTS)]


def _compiled(name: str, m: int | None, target: str) -> Any:
    return qmlir.ops.scaled_matmul.compile(target=target, **PRODUCTS[name].arguments(m))


def _on_lavapipe(name: str, m: int | None, target: str) -> None:
    product = PRODUCTS[name]
    artifact = _compiled(name, m, target)
    assert chosen(artifact) == ["cooperative" if m is not None and m <= 8 else "tiled"]
    program = qmlir.load(artifact)
    for rows in (18, 1) if m is None else (m,):
        arguments = product.arguments(m)
        given = values(arguments, rows)
        check(product, program.main(*given.values()), qmlir.reference.scaled_matmul(**{**arguments, **given}))


def _interpreted(name: str, m: int | None, arch: str) -> None:
    product = PRODUCTS[name]
    artifact = _compiled(name, m, f"rocm:{arch}")
    if not {"matrix", "cooperative"} & set(chosen(artifact)):
        pytest.fail(f"{chosen(artifact)}: no kernel of ours")
    for rows in (18, 1) if m is None else (m,):
        arguments = product.arguments(m)
        given = values(arguments, rows)
        want = qmlir.reference.scaled_matmul(**{**arguments, **given})
        check(product, interpreted(artifact, given, want.shape, want.dtype, rows), want)


def _for_vulkan(names: Any) -> Any:
    """bf16 has no arithmetic in SPIR-V: those products become others."""
    return [(name, m) for name, m in names if "bf16" not in name]


def _for_amd(names: Any) -> Any:
    """What IREE's own tiles do in one dispatch is not ours."""
    stock = ("w8a8", "w8a8, ragged", "w8a8, K of no words", "w8a8, requantised", "w8a8, residual, gelu", "w4a8", "w2a8",
             "w8a16", "w8a32, K of no words")  # fmt: skip
    few = {name for name in stock if "a8" in name}
    return [(name, m) for name, m in names if name not in stock or (name in few and m is not None and m <= 8)]


EVERY = [(name, m) for name in PRODUCTS for m in ROWS]


@pytest.mark.parametrize(("name", "m"), _for_vulkan(QUICK))
def test_on_lavapipe(name: str, m: int | None, lavapipe: str) -> None:
    _on_lavapipe(name, m, lavapipe)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "m"), _for_vulkan(case for case in EVERY if case not in QUICK))
def test_all_on_lavapipe(name: str, m: int | None, lavapipe: str) -> None:
    _on_lavapipe(name, m, lavapipe)


SOME = [("w4a8, group 64, zero points", None), ("w4a16, group 32", 33)]


@pytest.mark.parametrize(
    ("name", "m", "arch"),
    [(*case, "gfx942") for case in _for_amd(QUICK)]
    + [(*case, arch) for case in SOME for arch in ("gfx90a", "gfx950", "gfx1100", "gfx1201")],
)
def test_on_amd(name: str, m: int | None, arch: str) -> None:
    _interpreted(name, m, arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", AMD)
@pytest.mark.parametrize(("name", "m"), _for_amd(EVERY))
def test_all_on_amd(name: str, m: int | None, arch: str) -> None:
    _interpreted(name, m, arch)
