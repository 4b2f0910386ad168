"""Depthwise convolutions by their kernel, forced, against the reference, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.kernels import depthwise, forced

import qmlir
from qmlir import TensorSpec as T
from qmlir.targets.cpu.host import host_features

NAME = "avx512-vnni-depthwise"
pytestmark = [
    pytest.mark.skipif("avx512vnni" not in host_features(), reason="the host has no AVX512-VNNI"),
    pytest.mark.sweep(fast=3, slow=40),
]

# Image [N, H, W, C], filter, strides, dilations, padding, whether codes are unsigned (with a zero point): blocks of
# channels that are full and ragged, filters of one and two quads of rows, edges on every side, no edge at all.
CASES = [
    ((1, 8, 8, 64), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), False),
    ((1, 9, 7, 32), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), False),
    ((2, 12, 11, 144), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), True),
    ((1, 6, 5, 100), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2), True),
    ((1, 7, 7, 70), (3, 3), (1, 2), (2, 1), (0, 0, 0, 0), False),
    ((1, 4, 2, 16), (2, 3), (1, 1), (1, 1), (1, 0, 2, 1), True),
    ((1, 20, 20, 64), (7, 7), (1, 1), (1, 1), (3, 3, 3, 3), False),
    # Padding wider than the columns that results share, an image smaller than the filter, a stride larger than it.
    ((1, 9, 10, 64), (3, 3), (1, 1), (1, 1), (4, 4, 5, 6), True),
    ((1, 2, 2, 80), (5, 5), (1, 1), (1, 1), (3, 3, 3, 3), True),
    ((1, 9, 11, 64), (2, 2), (3, 3), (1, 1), (0, 1, 0, 0), False),
]


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize(("image", "kernel", "strides", "dilations", "padding", "unsigned"), CASES)
def test_depthwise(image: Any, kernel: Any, strides: Any, dilations: Any, padding: Any, unsigned: bool) -> None:
    x, w, kw = depthwise(image, kernel, strides, dilations, padding, unsigned)
    artifact = qmlir.ops.conv2d_q.compile(T(x.shape, "u8" if unsigned else "i8"), w, pipeline=forced(NAME), **kw)
    decision = artifact.manifest.strategies[0]
    assert decision["chosen"] == NAME, decision["answers"]
    assert any(0 < a["cost"] < 1e-3 for a in decision["answers"] if a["strategy"] == NAME), "seconds"
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), qmlir.reference.conv2d_q(x, w, **kw))


def test_raw_sums_of_the_largest_codes() -> None:
    x, w = np.full((1, 5, 9, 66), -128, np.int8), np.full((66, 3, 3, 1), -128, np.int8)
    kw: dict[str, Any] = {"out_dtype": "i32", "padding": (1, 1, 1, 1), "input_layout": "NHWC", "weight_layout": "FHWC"}
    artifact = qmlir.ops.conv2d_q.compile(T(x.shape, "i8"), w, groups=66, pipeline=forced(NAME), **kw)
    want = qmlir.reference.conv2d_q(x, w, groups=66, **kw)
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), want)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"target": "cpu:x86-64-v4"}, "lacks avx512vnni"), ({"kernel": (8, 8)}, "a filter of 64 taps"),
     ({"argument": True}, "the filter is not a constant")],
)  # fmt: skip
def test_refusals(change: dict[str, Any], reason: str) -> None:
    shape = (32, *change.get("kernel", (3, 3)), 1)
    weight: Any = T(shape, "i8") if "argument" in change else np.ones(shape, np.int8)
    artifact = qmlir.ops.conv2d_q.compile(
        T((1, 12, 12, 32), "i8"), weight, groups=32, input_layout="NHWC", weight_layout="FHWC", out_dtype="i32",
        target=change.get("target", "cpu:znver4"),
    )  # fmt: skip
    answers = artifact.manifest.strategies[0]["answers"]
    refused = next(a for a in answers if a["strategy"] == NAME)
    assert not refused["accepted"]
    assert reason in refused["reason"]
