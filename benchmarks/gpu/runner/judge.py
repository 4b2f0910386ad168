"""Whether a result is right."""

from __future__ import annotations

from typing import Any

import numpy as np


def judged(got: Any, want: Any, tolerance: float) -> dict[str, Any]:
    """`right` or `wrong`, with what is wrong. Without a tolerance every bit counts; with one, errors relative to the
    largest expected value."""
    if got.shape != want.shape:
        return {"result": "wrong", "why": f"shape {got.shape} instead of {want.shape}"}
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not a.size:
        return {"result": "right"}
    error = float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
    if np.array_equal(got, want) or (tolerance and error <= tolerance):
        return {"result": "right", "error": error}
    differ = got != want
    at = np.argwhere(differ)[0].tolist()
    why = f"{int(differ.sum())} of {differ.size} differ, first at {at}: {got[tuple(at)]} instead of {want[tuple(at)]}"
    return {"result": "wrong", "error": error, "why": why}
