"""The five systems' own test cases, run.

The fast tier runs small cases and miniatures of large ones, the first alternative of each, so that every word of every
scheme occurs on the CPU. It also runs some whole cases, different ones for each commit. The slow tier runs all. The
results are in conformance/results/ and on docs/cases.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from conformance.run import TARGETS, cases, cases_of, results, run_case, size, weights
from qmlir.emulation.backends import emulated_targets

pytestmark = pytest.mark.sweep(fast=3, slow=40)

EVERY = {c["id"]: c for c in cases()}
# Experts with gigabytes of weights run one at a time.
WHOLE = [pytest.param(name, marks=pytest.mark.xdist_group("gigabytes")) if weights(c) > 1 << 28 else name
         for name, c in EVERY.items()]  # fmt: skip
# The fields of a scheme, except its sizes; test/numerics tries the layouts with every scheme.
FIELDS = ("op", "a_dtype", "w_dtype", "a_granularity", "w_granularity", "a_zero_point", "w_zero_point", "packing",
          "rounding", "activation", "bias", "out_dtype", "epilogue")  # fmt: skip


def miniature(case: dict[str, Any]) -> dict[str, Any]:
    """The same scheme with smaller sizes; groups along K still fit."""
    small = dict(case)
    for name, most in (("M", 32), ("N", 64), ("K", 256), ("E", 4), ("topk", 2), ("B", 3)):
        if small.get(name) is not None:
            small[name] = min(small[name], most)
    if "conv" in case and case["op"] == "conv2d_requant":
        small["conv"] = {**case["conv"], "N": 2, "C": 16, "H": 9, "W": 9, "K": 12, "Ho": 5, "Wo": 5}
    return small


def words(case: dict[str, Any]) -> set[tuple[str, str]]:
    return {(f, json.dumps(case[f])) for f in FIELDS if case.get(f) is not None}


def cover(candidates: Iterable[dict[str, Any]], case_words: Any = words) -> list[str]:
    """A few cases that together have every word."""
    left = sorted(candidates, key=size)
    todo = set().union(*(case_words(c) for c in left))
    chosen = []
    while todo:
        best = max(left, key=lambda c: len(case_words(c) & todo))
        chosen.append(best["id"])
        todo -= case_words(best)
    return chosen


# AITER's documentation gives no sizes for the other cases: the example sizes used for them are not a miniature.
RUNNABLE = [c for c in EVERY.values() if c.get("M") is not None or "conv" in c]
ON_CPU = cover(RUNNABLE)
# One of each family that has its own lowering.
ON_LAVAPIPE = ("etvk_qta8a_qga4w_qta8o_4x64x32_g32", "etvk_dq8ca_q4gsw_4x64x32_g16_bias_f32",
               "etvk_q8ta_linear_1x64x32", "bitblas_tl_1x256x256_u4_s1_g32_quantized",
               "etvk_q8csw_conv2d_3x8x8_to_8_k3s1p0d1g1", "qmlir_moe_relu_f32")  # fmt: skip


def test_the_fast_tier_meets_every_word() -> None:
    met = set().union(*(words(EVERY[name]) for name in ON_CPU))
    assert met == set().union(*(words(c) for c in RUNNABLE))


@pytest.mark.sweep(fast=72, slow=40)
@pytest.mark.parametrize("name", ON_CPU)
def test_miniature_on_the_cpu(name: str) -> None:
    expect(miniature(EVERY[name]), "cpu", "passed", 1)


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("name", ON_LAVAPIPE)
def test_small_on_lavapipe(name: str, lavapipe: str) -> None:
    expect(EVERY[name], lavapipe, "passed", 1)


def expect(case: dict[str, Any], target: str, status: str, most: int | None = None) -> None:
    row = run_case(case, target, most=most)
    assert row["status"] == status, row


@pytest.mark.sweep(slow=108)
@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_whole_on_the_cpu(name: str) -> None:
    expect(EVERY[name], "cpu", results("cpu")[name]["status"])


@pytest.mark.sweep(slow=40)
@pytest.mark.slow
@pytest.mark.parametrize("target", emulated_targets())
def test_small_on_an_emulated_device(target: str) -> None:
    for name in cover(cases_of(target)):
        expect(EVERY[name], target, "passed", 1)


@pytest.mark.parametrize("number", range(2))
def test_results_of_emulated_devices(number: int, rotation: int) -> None:
    """Every small case passed, and one case, which depends on the commit, passes again."""
    target = emulated_targets()[(rotation + number) % len(emulated_targets())]
    found = results(target)
    assert list(found) == [c["id"] for c in cases_of(target)]
    assert {row["status"] for row in found.values()} == {"passed"}
    small = cases_of(target)
    expect(small[(rotation + number) % len(small)], target, "passed", 1)


@pytest.mark.parametrize("target", TARGETS)
def test_results_are_of_these_cases_and_none_failed(target: str, rotation: int, request: pytest.FixtureRequest) -> None:
    """Every case has a result, and some cases, which depend on the commit, pass again. A case is refused only because
    of the device's memory, and slow only on the software device."""
    if target != "cpu":
        request.getfixturevalue("lavapipe")
    found = results(target)
    assert list(found) == list(EVERY)
    quick = [c["id"] for c in RUNNABLE if found[c["id"]]["status"] == "passed" and size(c) <= 2**24]
    for number in range(3):
        name = quick[(rotation + 101 * number) % len(quick)]
        expect(EVERY[name], target, "passed")
    allowed = {"passed", "cut"} if target == "cpu" else {"passed", "cut", "slow", "refused"}
    assert {row["status"] for row in found.values()} <= allowed
    assert all(row["reason"] for row in found.values() if row["status"] in ("refused", "slow"))
    assert all("allocation size" in row["reason"] for row in found.values() if row["status"] == "refused")
