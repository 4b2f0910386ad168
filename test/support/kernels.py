"""Forcing one kernel, and random codes that reach the ends of their range."""

from __future__ import annotations

from typing import Any

import numpy as np

from qmlir.compiler.stages import default_pipeline
from qmlir.targets import resolve


def forced(name: str, target: str = "cpu") -> str:
    """The passes of a target, `name` asked first."""
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
