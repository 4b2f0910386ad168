"""Choose the cases of a sweep for the fast tier: enough to cover each value. The slow tier runs every combination."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def diagonal(*axes: Sequence[Any]) -> list[Any]:
    """For `parametrize`: every combination. As many are fast as the longest axis has values, the others are slow.

    The n-th fast one has the n-th value of each axis, and shorter axes start again, so that each value is covered. A
    value that is a tuple gives several parameters.
    """
    if not all(axes):
        return []
    length = max(map(len, axes))
    fast = {tuple(i % len(axis) for axis in axes) for i in range(length)}
    return [
        pytest.param(
            *_flat(axis[i] for axis, i in zip(axes, at, strict=True)), marks=() if at in fast else pytest.mark.slow
        )
        for at in itertools.product(*(range(len(axis)) for axis in axes))
    ]


def others_slow(values: Sequence[Any], *fast: Any) -> list[Any]:
    """For `parametrize`: all values, those that are not `fast` marked as slow."""
    assert all(value in values for value in fast), fast
    return [pytest.param(*_flat([v]), marks=() if v in fast else pytest.mark.slow) for v in values]


def _flat(values: Any) -> list[Any]:
    return [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
