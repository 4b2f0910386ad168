"""Force one kernel, and make random codes that reach the low end of their range."""

from __future__ import annotations

from typing import Any

import numpy as np

from qmlir.compiler.stages import default_pipeline
from qmlir.targets import resolve


def forced(name: str, target: str = "cpu") -> str:
    """Return the passes of a target, with the kernel `name` preferred."""
    text = default_pipeline(resolve(target))
    chosen = f"qmlir-select{{target={target}}}"
    assert chosen in text
    return text.replace(chosen, f"{chosen[:-1]} prefer={name}}}")


class RandomCodes:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, lo: int = -128, hi: int = 127, unsigned: bool = False) -> Any:
        if unsigned:
            return self.rng.integers(0, 256, shape).astype(np.uint8)
        codes = self.rng.integers(lo, hi + 1, shape).astype(np.int8)
        if codes.size:
            codes.flat[0] = lo
        return codes

    def powers(self, *shape: int) -> Any:
        return (2.0 ** self.rng.integers(-9, -3, shape)).astype(np.float32)


def depthwise(
    image: Any, kernel: Any, strides: Any, dilations: Any, padding: Any, unsigned: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """Return image and filters of a depthwise convolution, and its attributes: per-channel scales, a bias, an
    activation and requantisation; for unsigned codes also a zero point."""
    codes, channels = RandomCodes(1), image[-1]
    x, w = codes(*image, unsigned=unsigned), codes(channels, *kernel, 1)
    kw: dict[str, Any] = {
        "input_scale": np.float32(0.5), "weight_scale": codes.powers(channels, 1, 1, 1), "out_dtype": "i8",
        "out_scale": np.float32(16), "out_zero_point": np.int8(3), "activation": "relu6", "strides": strides,
        "bias": codes.rng.standard_normal(channels).astype(np.float32), "dilations": dilations, "padding": padding,
        "input_layout": "NHWC", "weight_layout": "FHWC", "groups": channels,
    }  # fmt: skip
    if unsigned:
        kw |= {"input_zero_point": np.uint8(9), "input_zero_mode": "int"}
    return x, w, kw
