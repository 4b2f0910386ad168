"""Composable Kernel's quantised GEMM (example 14): int8 in and out, requantised by its functors.

    python samples/02_composable_kernel_gemm/run.py
    python samples/02_composable_kernel_gemm/run.py --target vulkan:lavapipe

The sizes are those of the example; the factor is smaller than its 0.03, which saturates almost every result.
Prints a table; exits with 1 when a code differs from the reference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from report import Report, target_option

from qmlir import ops, reference
from qmlir.compat import composable_kernel as ck

M = N = K = 1024


def main() -> int:
    """The sample; returns the exit code."""
    target = target_option(__doc__)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 127, (M, K), np.int8), rng.integers(-128, 127, (N, K), np.int8)
    bias = rng.integers(-100_000, 100_000, N, np.int32)
    per_channel = np.linspace(1e-4, 4e-4, N).astype(np.float32)
    report = Report("Composable Kernel, GEMM", target)
    operands = f"i8[{M}, {K}] x i8[{N}, {K}]"

    def gemm(functor: ck.Functor, *ds: np.ndarray) -> Callable[[], np.ndarray]:
        return lambda: ops.scaled_matmul(a, b, **functor.matmul(*ds), target=target)

    # The attributes of the functors, written out: an i32 bias and relu on the sum, a multiplier, truncation.
    spelled = {"rhs_transposed": True, "out_dtype": "i8", "rounding": "trunc"}
    report.exact(
        "Activation_Mul_Clamp<PassThrough>",
        operands,
        gemm(ck.Activation_Mul_Clamp(2e-4, ck.PassThrough)),
        reference.scaled_matmul(a, b, out_multiplier=np.float32(2e-4), **spelled),
    )
    report.exact(
        "Add_Activation_Mul_Clamp<Relu>",
        operands,
        gemm(ck.Add_Activation_Mul_Clamp(2e-4, ck.Relu), bias),
        reference.scaled_matmul(
            a, b, bias=bias, bias_stage="acc", activation="relu", out_multiplier=np.float32(2e-4), **spelled
        ),
    )
    report.exact(
        "Add_Activation_Mul2_Clamp<Relu>",
        operands,
        gemm(ck.Add_Activation_Mul2_Clamp(ck.Relu), bias, per_channel),
        reference.scaled_matmul(
            a, b, bias=bias, bias_stage="acc", activation="relu", out_multiplier=per_channel, **spelled
        ),
    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
