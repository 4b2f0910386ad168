"""A product with a quantised weight is one dispatch if a qmlir kernel computes it, and at most two otherwise, for few,
many and a dynamic number of rows."""

from __future__ import annotations

import pytest
from support.dispatches import ROWS, computing, names
from support.forms import FORMS

PRODUCTS = {
    f.name: f for f in FORMS if f.product and f.name.startswith(("scaled_matmul", "conv2d_q", "grouped_matmul"))
}
TARGETS = ("rocm:gfx90a", "rocm:gfx942", "rocm:gfx950", "rocm:gfx1100", "rocm:gfx1201", "vulkan:lavapipe", "vulkan:ada",
           "vulkan:rdna3")  # fmt: skip
# Integer codes on both sides, and f16 by codes: the forms that qmlir's kernels compute in one dispatch.
ONE = tuple(
    name
    for name in PRODUCTS
    if name.startswith(("scaled_matmul: s8 x s", "scaled_matmul: s8 x u", "scaled_matmul: u8", "scaled_matmul: f16 x"))
    and not any(text in name for text in ("as an argument", "batched", "blocks", "MX"))
) + tuple(
    f"conv2d_q: {x}"
    for x in (
        "s8 x s8, 3x3",
        "u8 x s8, zero point",
        "s8 x s4",
        "s8 x s8, dilated",
        "s8 x s8, stride 2",
        "s8 x s8, 4 groups",
        "f16 x s8",
    )
)
# Kernels for matrix instructions read an NCHW image in its stored layout; the others need it transposed first.
PLANES = "conv2d_q: s8 x s8, NCHW"
DOTS = ("vulkan:lavapipe", "vulkan:ada")


def most(name: str, target: str) -> int:
    if name == PLANES:
        return 2 if target in DOTS else 1
    if name in ONE:
        return 1
    if name.startswith("grouped_matmul") and "contiguous" in name:
        return 1  # routed products are followed by the weighted sum
    return 2


def sorting(name: str) -> int:
    """How many dispatches arrange rows in blocks by expert: checks of the sizes or ids, and one that sorts."""
    if name.startswith("grouped_matmul"):
        return 3 if "contiguous" in name else 2
    return 0


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.parametrize("target", ["rocm:gfx942", "vulkan:rdna3"])
@pytest.mark.parametrize(
    ("name", "m"),
    [
        ("scaled_matmul: s8 x s8, per token and channel", None),
        ("scaled_matmul: s8 x u4, zero points, group 128", 33),
        ("scaled_matmul: f16 x u4, group 128, zero points", 4),
        ("conv2d_q: u8 x s8, zero point", None),
        ("conv2d_q: s8 x s8, NCHW", None),
        ("conv2d_q: s8 x s8, 4 groups", None),
        ("conv2d_q: f16 x s8", 4),
        ("grouped_matmul: s8 x s4, group 128, routed", 16),
    ],
)
def test_products_are_few_dispatches(name: str, m: int | None, target: str) -> None:
    every = names(PRODUCTS[name], target, m)
    found = computing(every)
    assert 1 <= len(found) <= most(name, target), found
    assert len(every) - len(found) <= sorting(name), every


@pytest.mark.sweep(slow=66)
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_all_products_are_few_dispatches(name: str, target: str) -> None:
    from qmlir import QmlirError

    for m in ROWS:
        try:
            every = names(PRODUCTS[name], target, m)
            found = computing(every)
        except QmlirError:  # the target has no such product: docs/support.md says why
            continue
        assert len(found) <= most(name, target), (m, found)
        assert len(every) - len(found) <= sorting(name), (m, every)
