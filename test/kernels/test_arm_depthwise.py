"""Depthwise convolutions on 64-bit Arm, executed in an emulator, against the reference, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.arm import Emulator
from support.kernels import depthwise

import qmlir
from qmlir import TensorSpec as T

NAME = "sdot-depthwise"

# Image [N, H, W, C], filter, strides, dilations, padding, whether codes are unsigned (with a zero point): blocks of
# channels that are full and ragged, filters of one and two quads of rows, edges on every side, no edge at all.
CASES = [
    ((2, 12, 11, 40), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), True),
    ((1, 9, 7, 32), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), False),
    ((1, 6, 5, 24), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2), True),
    ((1, 7, 7, 17), (3, 3), (1, 2), (2, 1), (0, 0, 0, 0), False),
    ((1, 4, 2, 16), (2, 3), (1, 1), (1, 1), (1, 0, 2, 1), True),
    ((1, 9, 10, 16), (3, 3), (1, 1), (1, 1), (4, 4, 5, 6), True),
    ((1, 2, 2, 20), (5, 5), (1, 1), (1, 1), (3, 3, 3, 3), True),
    ((1, 9, 11, 16), (2, 2), (3, 3), (1, 1), (0, 1, 0, 0), False),
]


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize(("image", "kernel", "strides", "dilations", "padding", "unsigned"), CASES)
def test_depthwise(
    arm: Emulator, image: Any, kernel: Any, strides: Any, dilations: Any, padding: Any, unsigned: bool
) -> None:
    x, w, kw = depthwise(image, kernel, strides, dilations, padding, unsigned)
    artifact = qmlir.ops.conv2d_q.compile(T(x.shape, "u8" if unsigned else "i8"), w, target="cpu:neoverse-n1", **kw)
    decision = artifact.manifest.strategies[0]
    assert decision["chosen"] == NAME, decision["answers"]
    np.testing.assert_array_equal(arm.run(artifact, [[x]])[0], qmlir.reference.conv2d_q(x, w, **kw))


def test_raw_sums_of_the_largest_codes(arm: Emulator) -> None:
    x, w = np.full((1, 5, 9, 18), -128, np.int8), np.full((18, 3, 3, 1), -128, np.int8)
    kw: dict[str, Any] = {"out_dtype": "i32", "padding": (1, 1, 1, 1), "input_layout": "NHWC", "weight_layout": "FHWC"}
    artifact = qmlir.ops.conv2d_q.compile(T(x.shape, "i8"), w, groups=18, target="cpu:neoverse-v2", **kw)
    want = qmlir.reference.conv2d_q(x, w, groups=18, **kw)
    np.testing.assert_array_equal(arm.run(artifact, [[x]])[0], want)


def test_a_refusal() -> None:
    artifact = qmlir.ops.conv2d_q.compile(
        T((1, 9, 9, 16), "i8"), np.ones((16, 3, 3, 1), np.int8), groups=16, input_layout="NHWC", weight_layout="FHWC",
        out_dtype="i32", target="cpu:aarch64",
    )  # fmt: skip
    refused = next(a for a in artifact.manifest.strategies[0]["answers"] if a["strategy"] == NAME)
    assert not refused["accepted"]
    assert "cpu:aarch64 lacks dotprod" in refused["reason"]
    assert refused["remedy"] == "name a CPU that has it"
