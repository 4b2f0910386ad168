"""Kernels and the 128 KiB stacks of the threads of IREE's task system."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.attention import FORMS

import qmlir
from qmlir import TensorSpec as T

STACK = 128 << 10
KEPT = 16 << 10  # for the runtime's frames below the kernel's


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(("activations", "k"), [("f32", 1536), ("i8", 4096)])
def test_a_kernel_fits_the_stack_of_a_thread(activations: str, k: int) -> None:
    """Regression: the function for a chunk was inlined into both of its callers, so the frame had its buffers twice."""
    weight = np.random.default_rng(0).integers(-128, 128, (384, k), dtype=np.int8)
    scales: dict[str, Any] = {"lhs_scale": T((None, 1), "f32")} if activations == "i8" else {}
    artifact = qmlir.ops.scaled_matmul.compile(
        T((None, k), activations), weight, rhs_transposed=True, rhs_scale=np.ones((384, 1), np.float32),
        target="cpu:znver4", **scales)  # fmt: skip
    assert artifact.manifest.strategies[0]["chosen"] in ("avx512-fma", "avx512-vnni")
    frames = [int(size) for size in re.findall(r"subq\s+\$(\d+), %rsp", artifact.source("asm"))]
    assert 32 << 10 < max(frames) < STACK - KEPT, frames


@pytest.mark.slow
def test_attention_fits_the_stack_of_a_thread() -> None:
    artifact = qmlir.compile(replace(FORMS["heads-first"], width=256).text(), target="cpu:znver4")
    frames = [int(size) for size in re.findall(r"subq\s+\$(\d+), %rsp", artifact.source("asm"))]
    assert 64 << 10 < max(frames) < STACK - KEPT, frames
