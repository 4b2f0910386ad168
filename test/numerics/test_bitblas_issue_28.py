"""BitBLAS issue 28: int8 activations with scaled int8 and int4 weights, which crash or are unsupported there.

Every product is exact: integer sums, and scales that are powers of two where sums over groups are formed in f32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmlir
from conformance.program import Program, reference

pytestmark = pytest.mark.sweep(fast=3, slow=40)

R = qmlir.reference
# M, N, K: the issue's own row times a matrix (with a smaller N), ragged ones, and a batch of tokens.
SHAPES = ((1, 128, 4096), (1, 33, 256), (7, 65, 384), (64, 96, 512))
GROUP = 128


def _powers(d: Any, *shape: int) -> Any:
    return (2.0 ** d.rng.integers(-7, -5, shape)).astype(np.float32)


def _int4(d: Any, n: int, k: int) -> dict[str, Any]:
    return {"rhs": R.pack(d.codes(n, k, dtype="i4"), "i4", "low_first"), "rhs_dtype": "i4", "rhs_packing": "low_first",
            "rhs_transposed": True}  # fmt: skip


def _scaled_int8(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
    """The issue's first program: `randint(0, 7)` on both sides and a per-channel f16 scale."""
    return {"lhs": d.rng.integers(0, 7, (m, k)).astype(np.int8), "rhs": d.rng.integers(0, 7, (n, k)).astype(np.int8),
            "rhs_transposed": True, "rhs_scale": d.scales(n, 1).astype(np.float16), "out_dtype": "f16"}  # fmt: skip


def _plain_int4(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
    """The second: int8 x int4 into f32, no scale; sums below 2^24."""
    return {"lhs": d.codes(m, k), **_int4(d, n, k), "out_dtype": "f32"}


def _per_channel(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
    return {"lhs": d.codes(m, k), **_int4(d, n, k), "lhs_scale": d.scales(m, 1), "rhs_scale": d.scales(n, 1),
            "out_dtype": "f16"}  # fmt: skip


def _group(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
    return {"lhs": d.codes(m, k), **_int4(d, n, k), "lhs_scale": _powers(d, m, 1),
            "rhs_scale": _powers(d, n, k // GROUP), "out_dtype": "f16"}  # fmt: skip


SCHEMES = {"int8_scaled": _scaled_int8, "int4_plain": _plain_int4, "int4_per_channel": _per_channel,
           "int4_group_128": _group}  # fmt: skip
# Fast tier: a shape with a tail in every axis, and on the CPU also the issue's own.
FAST = {"cpu": (SHAPES[0], SHAPES[2]), "vulkan:lavapipe": (SHAPES[2],)}


def _on(target: str) -> list[Any]:
    slow = [s for s in SHAPES if s not in FAST[target]]
    return [pytest.param(s, id="x".join(map(str, s)), marks=pytest.mark.slow if s in slow else ()) for s in SHAPES]


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize("shape", _on("cpu"))
@pytest.mark.parametrize("name", SCHEMES)
def test_product_on_the_cpu(name: str, shape: tuple[int, int, int], data: Any, same: Any) -> None:
    _product(name, shape, "cpu", data, same)


@pytest.mark.parametrize("shape", _on("vulkan:lavapipe"))
@pytest.mark.parametrize("name", SCHEMES)
def test_product_on_lavapipe(name: str, shape: tuple[int, int, int], lavapipe: str, data: Any, same: Any) -> None:
    _product(name, shape, lavapipe, data, same)


def _product(name: str, shape: tuple[int, int, int], target: str, data: Any, same: Any) -> None:
    kw = SCHEMES[name](data, *shape)
    same(qmlir.ops.scaled_matmul(target=target, **kw), R.scaled_matmul(**kw))


@pytest.mark.parametrize("shape", _on("cpu"))
@pytest.mark.parametrize("group", [None, GROUP], ids=["per_channel", "group_128"])
def test_per_token_dynamic_on_the_cpu(group: int | None, shape: tuple[int, int, int], data: Any, same: Any) -> None:
    _dynamic(group, shape, "cpu", data, same)


@pytest.mark.parametrize("shape", _on("vulkan:lavapipe"))
@pytest.mark.parametrize("group", [None, GROUP], ids=["per_channel", "group_128"])
def test_per_token_dynamic_on_lavapipe(
    group: int | None, shape: tuple[int, int, int], lavapipe: str, data: Any, same: Any
) -> None:  # fmt: skip
    _dynamic(group, shape, lavapipe, data, same)


def _dynamic(group: int | None, shape: tuple[int, int, int], target: str, data: Any, same: Any) -> None:
    """f16 activations quantised by token and multiplied with int4 weights, in one program."""
    m, n, k = shape
    x = (data.rng.integers(-126, 127, (m, k)) / 64).astype(np.float16)
    if group is not None:
        # Each token's largest value is 127/64, so that its scale is 2^-6.
        x[:, 0] = 127 / 64
    scale = data.scales(n, 1) if group is None else _powers(data, n, k // group)
    weight = _int4(data, n, k)
    p = Program()
    p.step("dynamic_quantize", ("q", "q_scale"), {"input": x}, recipe="amax", granularity="token")
    p.step("scaled_matmul", ("y",), {"lhs": "q", "lhs_scale": "q_scale", "rhs": weight.pop("rhs"), "rhs_scale": scale},
           **weight, out_dtype="f16")  # fmt: skip
    made = qmlir.load(p.compile(target)).main(*[p.arrays[name] for name in p.arguments()])
    values = dict(p.arrays)
    for step in p.steps:
        values.update(zip(step.results, reference(step, values), strict=True))
    for name, array in zip(p.results(), made, strict=True):
        same(array, values[name])
