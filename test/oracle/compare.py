"""Compare arrays with the oracle's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .interval import Interval
from .tensor import Tensor, read

_NUMPY = {"i8": "int8", "u8": "uint8", "i32": "int32", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def differences(actual: Any, expected: Tensor | Sequence[Tensor]) -> list[str]:
    """Descriptions of the differences; empty if there are none."""
    if not isinstance(expected, Tensor):
        if len(actual) != len(expected):
            return [f"{len(actual)} results instead of {len(expected)}"]
        return [
            f"result {i}: {d}" for i, (a, e) in enumerate(zip(actual, expected, strict=True)) for d in differences(a, e)
        ]
    if tuple(actual.shape) != expected.shape:
        return [f"shape {actual.shape} instead of {expected.shape}"]
    found = [
        f"{float(a)} instead of {_show(e)} at {i}"
        for i, (a, e) in enumerate(zip(read(actual).data, expected.data, strict=True))
        if not _within(a, e)
    ]
    return [*found[:2], f"{len(found)} of {len(expected.data)} differ"] if found else []


def _within(actual: Any, expected: Any) -> bool:
    lo, hi = (expected.lo, expected.hi) if isinstance(expected, Interval) else (expected, expected)
    if lo != lo:
        return bool(actual != actual)
    return bool(lo <= actual <= hi)


def _show(e: Any) -> str:
    if not isinstance(e, Interval):
        return str(float(e))
    return str(float(e.lo)) if e.lo == e.hi else f"{float(e.lo)} .. {float(e.hi)}"
