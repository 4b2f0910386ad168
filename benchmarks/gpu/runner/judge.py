"""Compares results with the expected ones."""

from __future__ import annotations

from typing import Any

import numpy as np


def judged(calls: list[list[Any]], expected: list[Any], dtypes: list[str], tolerance: float) -> dict[str, Any]:
    """`right` or `wrong`, with the reason. `calls` are the results of several calls, which must be identical. With a
    tolerance of 0 results must be bit-exact; otherwise errors are relative to the largest expected value."""
    error = 0.0
    for i, (want, dtype) in enumerate(zip(expected, dtypes, strict=True)):
        got = calls[0][i]
        if got.shape != want.shape:
            return {"result": "wrong", "why": f"result {i}: shape {got.shape} instead of {want.shape}"}
        for n, call in enumerate(calls):
            if call[i].tobytes() != got.tobytes():
                return {"result": "wrong", "why": f"result {i}: {_first(call[i], got)} in call {n}, not in call 0"}
        if got.tobytes() == want.tobytes():
            continue
        a, b = numbers(got, dtype), numbers(want, dtype)
        largest = max(float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), 1e-30)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        off = np.where(same, 0.0, np.abs(np.where(same, 0.0, a) - np.where(same, 0.0, b)))
        worst = float(np.nan_to_num(off, nan=np.inf).max(initial=0.0)) / largest
        error = max(error, worst)
        if worst > tolerance:
            return {"result": "wrong", "error": worst, "why": f"result {i}: {_first(a, b)}, error {worst:.3g}"}
    return {"result": "right", "error": error}


def numbers(bits: Any, dtype: str) -> Any:
    """Float64 values of an array; `bits` holds the bits of float types that numpy lacks."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "e5m2":
        return (bits.astype(np.uint16) << 8).view(np.float16).astype(np.float64)
    if dtype == "e4m3":
        exponent, fraction = (bits >> 3) & 15, (bits & 7).astype(np.float64) / 8
        size = np.where(exponent, np.ldexp(1 + fraction, exponent.astype(int) - 7), np.ldexp(fraction, -6))
        return np.where(bits & 128, -1, 1) * np.where((bits & 127) == 127, np.nan, size)
    return bits.astype(np.float64)


def _first(got: Any, want: Any) -> str:
    differ = (got != want) & ~((got != got) & (want != want))
    if not differ.any():
        return "bits of NaN or zero differ"
    at = np.argwhere(differ)[0].tolist()
    return f"{int(differ.sum())} of {differ.size} differ, first at {at}: {got[tuple(at)]} instead of {want[tuple(at)]}"
