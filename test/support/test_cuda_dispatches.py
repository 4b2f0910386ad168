"""On CUDA a product with a quantised weight is one dispatch, or two if the form needs a step outside its kernel."""

from __future__ import annotations

import pytest
from support.dispatches import ROWS, computing, names
from support.forms import FORMS

PRODUCTS = {
    f.name: f for f in FORMS if f.product and f.name.startswith(("scaled_matmul", "conv2d_q", "grouped_matmul"))
}
TARGETS = ("cuda:sm_80", "cuda:sm_89", "cuda:sm_90a", "cuda:sm_120")
# Forms with more than one dispatch: how many, and why.
MORE = {
    "scaled_matmul: s8 x s8, weight as an argument": 2,  # [K, N], transposed first
    "scaled_matmul: f32 x s4, group 128, computed in f16": 2,  # rounded to f16 first
    "scaled_matmul: e4m3 x e4m3, MX (32, e8m0)": 2,  # no instruction here has block scales: the sums, then the scaling
    "scaled_matmul: fp4 e2m1 x e2m1, MX (32, e8m0)": 2,
    "scaled_matmul: fp4 e2m1 x e2m1, NVFP4 (16, e4m3)": 2,
    "conv2d_q: s8 x s8, NCHW": 2,  # the image is transposed first
    "conv2d_q: s8 x s8, transposed": 2,  # zeros are put between the pixels
}
# With a dynamic number of rows.
DYNAMIC = {
    "scaled_matmul: s8 x s8, batched": 3,  # both operands are converted to f16, each by its own dispatch
}


def most(name: str, m: int | None) -> int:
    if m is None and name in DYNAMIC:
        return DYNAMIC[name]
    if name.startswith("grouped_matmul") and "routed" in name:
        return 2  # the weighted sum over a token's experts is a dispatch of its own
    return MORE.get(name, 1)


def few(name: str, target: str, m: int | None) -> None:
    found = computing(names(PRODUCTS[name], target, m))
    assert 1 <= len(found) <= most(name, m), (m, found)


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize(
    ("name", "target", "m"),
    [
        ("scaled_matmul: f16 x u4, group 128, zero points", "cuda:sm_80", None),
        ("scaled_matmul: f16 x codebook, group 128", "cuda:sm_89", None),
        ("scaled_matmul: f32 x s4, group 128", "cuda:sm_80", None),  # the weight is decoded when the program is loaded
        ("conv2d_q: u8 x s8, zero point", "cuda:sm_90a", None),
        ("conv2d_q: f16 x s8", "cuda:sm_80", None),
        ("conv2d_q: s8 x s8, 4 groups", "cuda:sm_120", 1),
        ("grouped_matmul: s8 x s4, contiguous", "cuda:sm_89", 33),
        ("grouped_matmul: s8 x s4, contiguous", "cuda:sm_120", 1),
        ("grouped_matmul: f16 x s4, group 128, routed", "cuda:sm_80", None),
    ],
)
def test_products_are_few_dispatches(name: str, target: str, m: int | None) -> None:
    few(name, target, m)


@pytest.mark.sweep(slow=40)
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_all_products_are_few_dispatches(name: str, target: str) -> None:
    for m in ROWS:
        few(name, target, m)
