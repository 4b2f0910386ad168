"""Compares two arrays: their errors, and whether these are within a tolerance."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from ..dialect.dtypes import Array
from ..errors import UsageError

# Relative to the largest expected value: the rounding of the result's dtype, and of the sums that precede it.
DEFAULT_TOLERANCE = {"float64": 1e-6, "float32": 1e-5, "float16": 2**-9, "bfloat16": 2**-6}


@dataclass(frozen=True)
class Tolerance:
    """The errors that `check` accepts. Floats: at most `relative` times the largest expected magnitude (None: a default
    for each dtype). Codes and other integers: at most `codes`, in at most the fraction `share` of the elements."""

    relative: float | None = None
    codes: int = 0
    share: float = 0.001

    def __post_init__(self) -> None:
        for name, value in (("relative", self.relative or 0.0), ("codes", self.codes), ("share", self.share)):
            if not value >= 0:
                raise UsageError(f"the tolerance {name} is {value}; it must be at least 0")

    def __str__(self) -> str:
        floats = "by type" if self.relative is None else f"{self.relative:g}"
        codes = "exact" if not self.codes else f"{self.codes} in at most {self.share:.2%}"
        return f"floats {floats}, integers {codes}"


@dataclass(frozen=True)
class Comparison:
    """Errors of `got` against `expected`; `differ` is the fraction of elements that differ."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_error: float
    mean_error: float
    differ: float
    cosine: float
    ok: bool
    first_bad: tuple[int, ...] | None = None
    got: str = ""
    expected: str = ""
    location: str = ""
    limit: float = 0.0  # the largest error that passes

    def to_json(self) -> dict[str, object]:
        """The fields as JSON values; JSON has no infinity, so infinite errors become null."""
        found = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in found.items()}


def compare(name: str, got: Array, expected: Array, tolerance: Tolerance, location: str = "") -> Comparison:
    """Compare two arrays. NaN equals NaN; a NaN or an infinity on one side only is an infinite error."""
    got, expected = np.asarray(got), np.asarray(expected)
    dtype = str(expected.dtype)
    if got.shape != expected.shape:
        return Comparison(name, expected.shape, dtype, np.inf, np.inf, 1.0, 0.0, False, (), _shape(got),
                          _shape(expected), location)  # fmt: skip
    if not got.size:
        return Comparison(name, expected.shape, dtype, 0.0, 0.0, 0.0, 1.0, True, location=location)
    integer = expected.dtype.kind in "iub" and got.dtype.kind in "iub"
    wide = np.int64 if integer else np.float64
    a, b = got.astype(wide), expected.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        same = (a == b) | ((a != a) & (b != b))
        error = np.where(same, 0.0, np.abs(a - b).astype(np.float64))
    error = np.where(np.isnan(error), np.inf, error)
    if integer:
        limit = float(tolerance.codes)
        ok = bool(error.max() <= limit) and (not limit or float(1 - same.mean()) <= tolerance.share)
    else:
        finite = np.abs(b[np.isfinite(b)])
        relative = tolerance.relative if tolerance.relative is not None else DEFAULT_TOLERANCE.get(dtype, 2.0**-2)
        limit = relative * float(finite.max(initial=0.0))
        ok = bool(error.max() <= limit)
    bad = error > limit if not ok and (error > limit).any() else ~same if not ok else None
    first = None if bad is None else tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    return Comparison(
        name, tuple(expected.shape), dtype, float(error.max()), float(error.mean()), float(1 - same.mean()),
        _cosine(a.astype(np.float64), b.astype(np.float64)), ok, first, "" if first is None else str(got[first]),
        "" if first is None else str(expected[first]), location, limit,
    )  # fmt: skip


def _shape(x: Array) -> str:
    return "shape " + ("x".join(map(str, x.shape)) or "scalar")


def _cosine(a: Array, b: Array) -> float:
    a, b = (np.nan_to_num(x.ravel(), posinf=0.0, neginf=0.0) for x in (a, b))
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norm == 0:
        return 1.0 if not a.any() and not b.any() else 0.0
    return float(np.clip(np.dot(a, b) / norm, -1, 1))
