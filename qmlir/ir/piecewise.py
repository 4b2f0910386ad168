"""Piecewise linear integer functions of one unknown: how an index is computed, such as `x < 0 ? x + 100 : x`, and for
which `x` it is inside a table."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """`x * mul + add` for x in [first, last]."""

    first: int
    last: int
    mul: int
    add: int

    def where(self, least: int, most: int) -> tuple[int, int]:
        """The first and the last x at which this is in [least, most]; the last is the smaller one if it never is."""
        if self.mul == 0:
            return (self.first, self.last) if least <= self.add <= most else (0, -1)
        if self.mul < 0:
            return Piece(self.first, self.last, -self.mul, -self.add).where(-most, -least)
        return max(self.first, -((self.add - least) // self.mul)), min(self.last, (most - self.add) // self.mul)


@dataclass(frozen=True)
class Piecewise:
    """A function of the unknown that `of` identifies. The pieces are in order and have no gaps."""

    of: Hashable
    pieces: tuple[Piece, ...]

    def where(self, least: int, most: int) -> list[tuple[int, int]]:
        """The intervals of the unknown, in order and with a gap between them, where this is in [least, most]."""
        found: list[tuple[int, int]] = []
        for piece in self.pieces:
            first, last = piece.where(least, most)
            if first > last:
                continue
            if found and found[-1][1] == first - 1:
                first = found.pop()[0]
            found.append((first, last))
        return found


IndexValue = Piecewise | int


def unknown(of: Hashable, first: int, last: int) -> Piecewise:
    """The unknown itself, a number in [first, last]."""
    return Piecewise(of, (Piece(first, last, 1, 0),))


def add(a: IndexValue, b: IndexValue, sign: int = 1) -> IndexValue | None:
    """`a + sign * b`; None if that is not a function of one unknown."""
    return _combined((a, b), lambda x, y: [Piece(x.first, x.last, x.mul + sign * y.mul, x.add + sign * y.add)])


def multiply(a: IndexValue, b: IndexValue) -> IndexValue | None:
    """`a * b`; None if that is not linear."""

    def product(x: Piece, y: Piece) -> list[Piece] | None:
        if x.mul and y.mul:
            return None
        return [Piece(x.first, x.last, x.mul * y.add + y.mul * x.add, x.add * y.add)]

    return _combined((a, b), product)


def compare(predicate: str, a: IndexValue, b: IndexValue) -> IndexValue | None:
    """1 where the comparison of arith.cmpi holds, else 0; None for an unsigned comparison."""
    holds = _HOLDS.get(predicate)
    if holds is None:
        return None

    def split(x: Piece, y: Piece) -> list[Piece]:
        difference = Piece(x.first, x.last, x.mul - y.mul, x.add - y.add)
        ends = ((None, -1), (0, 0), (1, None))
        parts = []
        for (low, high), true in zip(ends, holds, strict=True):
            least, most = (-_FAR if low is None else low), (_FAR if high is None else high)
            first, last = difference.where(least, most)
            if first <= last:
                parts.append(Piece(first, last, 0, int(true)))
        return sorted(parts, key=lambda p: p.first)

    return _combined((a, b), split)


def select(condition: IndexValue, a: IndexValue, b: IndexValue) -> IndexValue | None:
    """`a` where the condition, 0 or 1, is 1, else `b`."""
    return _combined((condition, a, b), lambda c, x, y: [x if c.add else y])


def least(a: IndexValue, b: IndexValue) -> IndexValue | None:
    """The smaller of two numbers."""
    smaller = compare("slt", a, b)
    return None if smaller is None else select(smaller, a, b)


def greatest(a: IndexValue, b: IndexValue) -> IndexValue | None:
    """The larger of two numbers."""
    larger = compare("sgt", a, b)
    return None if larger is None else select(larger, a, b)


_FAR = 1 << 130  # larger than sums and products of 64-bit numbers
# Whether a comparison holds if the difference of its operands is negative, 0, positive.
_HOLDS = {"eq": (False, True, False), "ne": (True, False, True), "slt": (True, False, False),
          "sle": (True, True, False), "sgt": (False, False, True), "sge": (False, True, True)}  # fmt: skip


def _combined(values: tuple[IndexValue, ...], function: Callable[..., list[Piece] | None]) -> IndexValue | None:
    """`function` applied to the pieces of `values` over each common interval of their one unknown; None if it fails."""
    named = [v for v in values if isinstance(v, Piecewise)]
    if len({v.of for v in named}) > 1:
        return None
    if not named:
        made = function(*(_over(v, 0, 0) for v in values))
        return None if made is None else made[0].add
    starts = sorted({p.first for v in named for p in v.pieces})
    ends = [*(s - 1 for s in starts[1:]), named[0].pieces[-1].last]
    pieces: list[Piece] = []
    for first, last in zip(starts, ends, strict=True):
        if first > last:  # an empty interval
            return None
        parts = function(*(_over(v, first, last) for v in values))
        if parts is None:
            return None
        pieces += parts
    return Piecewise(named[0].of, tuple(_joined(pieces)))


def _over(value: IndexValue, first: int, last: int) -> Piece:
    """A value restricted to [first, last], which is inside one of its pieces."""
    if isinstance(value, int):
        return Piece(first, last, 0, value)
    piece = next(p for p in value.pieces if p.first <= first <= p.last)
    return Piece(first, last, piece.mul, piece.add)


def _joined(pieces: list[Piece]) -> list[Piece]:
    found = pieces[:1]
    for piece in pieces[1:]:
        before = found[-1]
        if (before.mul, before.add) == (piece.mul, piece.add):
            found[-1] = Piece(before.first, piece.last, piece.mul, piece.add)
        else:
            found.append(piece)
    return found
