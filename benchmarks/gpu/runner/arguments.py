"""Arguments of programs: those stored in the folder, and those drawn at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


class Arrays:
    """`stored`: the arrays of the folder, by name."""

    def __init__(self, file: Path) -> None:
        with np.load(file) as found:
            self.stored = {name: found[name] for name in found.files}


def drawn(argument: dict[str, Any], seed: int) -> Any:
    """Random values of an argument; types that numpy lacks as their bits."""
    rng = np.random.default_rng(seed)
    shape, dtype, fill = argument["shape"], argument["dtype"], argument["fill"]
    if fill == "scale":
        return (rng.random(shape) * 0.01 + 0.001).astype({"f16": np.float16}.get(dtype, np.float32))
    if fill == "ids":  # distinct experts in each row
        return np.argsort(rng.random((shape[0], argument["limit"])), axis=1)[:, : shape[1]].astype(np.int32)
    if fill == "normal":
        return rng.standard_normal(shape, np.float32).astype(np.float16)
    raw = np.frombuffer(rng.bytes(int(np.prod(shape))), np.uint8).reshape(shape)
    if dtype == "e4m3":
        return raw & np.uint8(0xBF)  # below 2, and no NaN
    return raw.view(np.int8)
