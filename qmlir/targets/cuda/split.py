"""K cut into chunks whose sums stay exact."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """K cut into `chunks` of `length`, `chunks * length >= K`; the rest is padding with zeros."""

    chunks: int
    length: int


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def split_k(k: int, limit: int, unit: int = 16) -> Split:
    """The fewest chunks within `limit`; up to twice as many when that needs no padding.

    `unit` is the instruction's K: a length that is a multiple of it wastes nothing.
    """
    if k <= limit:
        return Split(1, k)
    limit = max(limit // unit * unit, 1)
    fewest = ceil_div(k, limit)
    for chunks in range(fewest, 2 * fewest + 1):
        if k % chunks == 0 and (k // chunks) % unit == 0:
            return Split(chunks, k // chunks)
    length = min(limit, ceil_div(ceil_div(k, fewest), unit) * unit)
    return Split(ceil_div(k, length), length)
