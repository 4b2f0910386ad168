"""Composable Kernel's quantised convolution (example 40): NHWGC int8 images, stride 2, padding 1.

    python samples/03_composable_kernel_conv/run.py
    python samples/03_composable_kernel_conv/run.py --target vulkan:lavapipe

The sizes are those of the example for one image. Prints a table; exits with 1 when a code differs from the reference
(with tanh, which no two libraries round alike, one code in a few places is allowed).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from report import Report, target_option

from qmlir import reference
from qmlir.compat.composable_kernel import conv2d_fwd_quantization

G, C, K, HI, WI = 1, 192, 64, 71, 71
GEOMETRY: dict[str, Any] = {
    "conv_filter_strides": (2, 2),
    "input_left_pads": (1, 1),
    "input_right_pads": (1, 1),
}


def main() -> int:
    """The sample; returns the exit code."""
    target = target_option(__doc__)
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 127, (1, HI, WI, G, C), np.int8), rng.integers(-128, 127, (G, K, 3, 3, C), np.int8)
    bias = rng.integers(-100_000, 100_000, (G, K), np.int32)
    requant_scale, scale_acc = (np.linspace(1, 2, G * K).astype(np.float32) * np.float32(f) for f in (2e-4, 5e-6))
    report = Report("Composable Kernel, conv2d_fwd_quantization", target)
    operands = f"i8[1, {HI}, {WI}, {G}, {C}] * i8[{G}, {K}, 3, 3, {C}]"

    def ours(functor: str, **kw: Any) -> Any:
        return lambda: conv2d_fwd_quantization(x, w, functor, **kw, **GEOMETRY, target=target)

    def spelled(**kw: Any) -> Any:
        """One group is a plain NHWC convolution."""
        y = reference.conv2d_q(
            x[:, :, :, 0], w[0], strides=(2, 2), padding=(1, 1, 1, 1), out_dtype="i8", rounding="trunc", **kw
        )
        return y[:, :, :, None]

    report.exact(
        "Activation_Mul_Clamp<PassThrough>",
        operands,
        ours("Activation_Mul_Clamp", requant_scale=2e-4),
        spelled(out_multiplier=np.float32(2e-4)),
    )
    report.exact(
        "Add_Activation_Mul2_Clamp<Relu>",
        operands,
        ours("Add_Activation_Mul2_Clamp", activation="Relu", bias=bias, requant_scale=requant_scale),
        spelled(bias=bias[0], bias_stage="acc", activation="relu", out_multiplier=requant_scale),
    )
    report.exact(
        "Add_Mul2_Activation_Mul_Clamp<TanH>",
        operands,
        ours("Add_Mul2_Activation_Mul_Clamp", activation="TanH", bias=bias, scale_acc=scale_acc, scale_z_inv=127.0),
        spelled(
            bias=bias[0], bias_stage="acc", weight_scale=scale_acc, activation="tanh", out_multiplier=np.float32(127)
        ),
        codes=1,
    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
