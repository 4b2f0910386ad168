"""BitBLAS's quick start: 4-bit weights with f16 activations, in every zeros_mode, and integer activations.

    python samples/05_bitblas/run.py
    python samples/05_bitblas/run.py --target vulkan:lavapipe

Prints a table; exits with 1 when a result exceeds the bound of docs/semantics.md, or an integer differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from report import Report, target_option, terms

from qmlir import reference
from qmlir.compat.bitblas import Matmul, MatmulConfig

M, N, K, GROUP = 1, 1024, 1024, 128


def main() -> int:
    """The sample; returns the exit code."""
    target = target_option(__doc__)
    rng = np.random.default_rng(0)
    a = rng.random((M, K)).astype(np.float16)
    codes = rng.integers(0, 16, (N, K), np.int8)
    scale = (rng.random((N, K // GROUP)) * 0.01).astype(np.float16)
    zeros = rng.integers(0, 16, (N, K // GROUP)).astype(np.float16)
    report = Report("BitBLAS, Matmul", target)

    def in_groups(x: np.ndarray) -> np.ndarray:
        return np.repeat(x, GROUP, 1).astype(np.float64)

    # A weight is dequantised exactly, then rounded once to the activations' type.
    for mode, values, weight in (
        ("original", zeros, (codes - in_groups(zeros)) * in_groups(scale)),
        ("quantized", reference.pack(zeros.T.astype(np.uint8), "u4"), (codes - in_groups(zeros)) * in_groups(scale)),
        ("rescale", zeros * scale, codes * in_groups(scale) - in_groups(zeros * scale)),
    ):
        config = MatmulConfig(
            M=M, N=N, K=K, W_dtype="uint4", group_size=GROUP, with_scaling=True, with_zeros=True, zeros_mode=mode
        )
        matmul = Matmul(config, target=target)
        packed = matmul.transform_weight(codes)
        real = weight.astype(np.float32).astype(np.float16)
        report.close(
            f"zeros_mode={mode!r}",
            f"f16[{M}, {K}] x uint4[{N}, {K}], groups of {GROUP}",
            lambda m=matmul, w=packed, z=values: m(a, w, scale=scale, zeros=z),
            a.astype(np.float64) @ real.astype(np.float64).T,
            terms(a, real),
        )

    x, signed = rng.integers(-128, 128, (16, K), np.int8), rng.integers(-8, 8, (N, K), np.int8)
    integer = Matmul(MatmulConfig(N=N, K=K, A_dtype="int8", W_dtype="int4", out_dtype="int32"), target=target)
    w4 = integer.transform_weight(signed)
    report.exact(
        "int8 x int4",
        f"i8[16, {K}] x int4[{N}, {K}]",
        lambda: integer(x, w4),
        reference.scaled_matmul(x, signed, rhs_dtype="i4", rhs_transposed=True, out_dtype="i32"),
    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
