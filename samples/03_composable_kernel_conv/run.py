"""Composable Kernel's quantised convolution (example 40): NHWGC int8 images, stride 2, padding 1.

    python samples/03_composable_kernel_conv/run.py
    python samples/03_composable_kernel_conv/run.py --target vulkan:lavapipe

The sizes are those of the example for one image. Prints a table; exits with 1 when a code differs from the reference
(with tanh, which no two libraries round alike, at most one result in 1000 may differ, by one code).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from report import Report, target_option

from qmlir import ops, reference
from qmlir.compat import composable_kernel as ck

G, C, K, HI, WI = 1, 192, 64, 71, 71
GEOMETRY: dict[str, Any] = {"groups": G, "strides": (2, 2), "padding": (1, 1, 1, 1)}


def main() -> int:
    """The sample; returns the exit code."""
    target = target_option(__doc__)
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 127, (1, HI, WI, G, C), np.int8), rng.integers(-128, 127, (G, K, 3, 3, C), np.int8)
    bias = rng.integers(-100_000, 100_000, (G, K), np.int32)
    requant_scale, scale_acc = (np.linspace(1, 2, G * K).astype(np.float32) * np.float32(f) for f in (2e-4, 5e-6))
    report = Report("Composable Kernel, convolution", target)
    operands = f"i8[1, {HI}, {WI}, {G}, {C}] * i8[{G}, {K}, 3, 3, {C}]"

    def ours(functor: ck.Functor, *ds: np.ndarray) -> Any:
        """A convolution by a functor. NHWGC is NHWC with groups; GKYXC has the filters of all groups."""
        image, filters = x.reshape(1, HI, WI, G * C), w.reshape(G * K, 3, 3, C)
        keywords = {**functor.conv2d(*ds), **GEOMETRY}
        return lambda: ops.conv2d_q(image, filters, **keywords, target=target).reshape(1, 36, 36, G, K)

    def spelled(**kw: Any) -> Any:
        """The reference with written-out attributes. One group is a plain NHWC convolution."""
        y = reference.conv2d_q(
            x[:, :, :, 0], w[0], strides=(2, 2), padding=(1, 1, 1, 1), out_dtype="i8", rounding="trunc", **kw
        )
        return y[:, :, :, None]

    report.exact(
        "Activation_Mul_Clamp<PassThrough>",
        operands,
        ours(ck.Activation_Mul_Clamp(2e-4, ck.PassThrough)),
        spelled(out_multiplier=np.float32(2e-4)),
    )
    report.exact(
        "Add_Activation_Mul2_Clamp<Relu>",
        operands,
        ours(ck.Add_Activation_Mul2_Clamp(ck.Relu), bias[0], requant_scale),
        spelled(bias=bias[0], bias_stage="acc", activation="relu", out_multiplier=requant_scale),
    )
    report.exact(
        "Add_Mul2_Activation_Mul_Clamp<TanH>",
        operands,
        ours(ck.Add_Mul2_Activation_Mul_Clamp(127.0, ck.TanH), bias[0], scale_acc),
        spelled(
            bias=bias[0], bias_stage="acc", weight_scale=scale_acc, activation="tanh", out_multiplier=np.float32(127)
        ),
        codes=1,
    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
