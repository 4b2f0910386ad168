"""ExecuTorch's Vulkan operators: 4-bit and 8-bit weights, static and dynamic 8-bit activations.

    python samples/04_executorch/run.py
    python samples/04_executorch/run.py --target vulkan:lavapipe

A projection of a small language model (K = 1024, N = 1024) for eight tokens, and one convolution. Prints a table; exits
with 1 when a result differs from the reference.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from report import Report, target_option, terms

from qmlir import ops, reference
from qmlir.compat import executorch as et

M, N, K, GROUP = 8, 1024, 1024, 128
F32 = np.float32


def main() -> int:
    """The sample; returns the exit code."""
    target = target_option(__doc__)
    rng = np.random.default_rng(0)
    report = Report("ExecuTorch, et_vk", target)
    w4, w8 = rng.integers(0, 16, (N, K), np.uint8), rng.integers(-127, 128, (N, K), np.int8)
    low = reference.pack(w4, "u4", "low_first")
    groups, per_channel = (2.0 ** -rng.integers(6, 9, shape).astype(F32) for shape in ((K // GROUP, N), N))
    x, codes = rng.standard_normal((M, K)).astype(F32), rng.integers(-128, 128, (M, K), np.int8)
    real = (w4.astype(F32) - 8) * np.repeat(groups.T, GROUP, 1)
    report.close(
        "linear_q4gsw",
        f"f32[{M}, {K}] x u4[{N}, {K}], groups of {GROUP}",
        lambda: et.linear_q4gsw(x, low, groups, GROUP, target=target),
        x.astype(np.float64) @ real.T,
        terms(x, real),
    )
    # The scales and zero points of ExecuTorch's shader `choose_qparams_per_row`.
    _, scale, zeros = ops.dynamic_quantize(x, symmetric=False, recipe="fbgemm", target=target)
    quantised = reference.quantize(x, scale, zeros)
    dequantised = (quantised.astype(np.float64) - zeros) * scale
    report.close(
        "linear_dq8ca_q4gsw",
        f"f32[{M}, {K}] as i8 x u4[{N}, {K}]",
        lambda: et.linear_dq8ca_q4gsw(x, scale, zeros, low, None, groups, GROUP, target=target),
        dequantised @ real.T,
        terms(dequantised, real),
    )
    report.exact(
        "q8ta_linear",
        f"i8[{M}, {K}] x i8[{N}, {K}]",
        lambda: et.q8ta_linear(codes, 2.0**-7, -2, w8, None, per_channel, 0.5, -1, None, "relu", target=target),
        reference.scaled_matmul(
            codes, w8, rhs_transposed=True, lhs_scale=F32(2.0**-7), lhs_zero_point=np.int32(-2),
            rhs_scale=per_channel[:, None], activation="relu", out_dtype="i8", out_scale=F32(0.5),
            out_zero_point=np.int32(-1), rounding="half_away",
        ),
    )  # fmt: skip
    image, filters = rng.integers(-128, 128, (1, 32, 28, 28), np.int8), rng.integers(-127, 128, (64, 3, 3, 32), np.int8)
    geometry = ([3, 3], [1, 1], [1, 1], [1, 1], 1)
    report.exact(
        "q8ta_conv2d",
        "i8[1, 32, 28, 28] * i8[64, 3*3*32]",
        lambda: et.q8ta_conv2d(image, 2.0**-7, 2, filters.reshape(64, -1), None, per_channel[:64], 0.25, -1, None,
                               *geometry, "none", target=target),
        reference.conv2d_q(
            image, filters, input_layout="NCHW", padding=(1, 1, 1, 1), input_scale=F32(2.0**-7),
            input_zero_point=np.int32(2), weight_scale=per_channel[:64], out_dtype="i8", out_scale=F32(0.25),
            out_zero_point=np.int32(-1), rounding="half_away",
        ),
    )  # fmt: skip
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
