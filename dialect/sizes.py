"""Sizes that are not known when a program is compiled: their names, and which of them are equal.

Operations state which axes of their operands share a size (`Op.sizes`); `Solver` joins these statements over a whole
program. A size that follows from another one by arithmetic, such as the bytes of packed codes or the height of a
convolution's result, is written `(N + 1)//2`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

_TEXT = re.compile(r"(\()?([A-Za-z_]\w*)(?:\*(\d{1,18}))?([+-]\d{1,18})?(?(1)\))(?://(\d{1,18}))?")
_FRESH = "%"  # prefix of the names that `Solver.fresh` makes


@dataclass(frozen=True)
class Size:
    """`(name * mul + add) // div`, rounded down."""

    name: str
    mul: int = 1
    add: int = 0
    div: int = 1

    @classmethod
    def parse(cls, text: str) -> Size:
        """The size whose `str` is this text.

        Raises:
            ValueError: for any other text.
        """
        found = _TEXT.fullmatch(text.replace(" + ", "+").replace(" - ", "-"))
        if found is None or found[3] == "0" or found[5] == "0":
            raise ValueError(f"{text!r} is not the name of a size")
        return cls(found[2], int(found[3] or 1), int(found[4] or 0), int(found[5] or 1))

    def __str__(self) -> str:
        text = self.name if self.mul == 1 else f"{self.name}*{self.mul}"
        if self.add:
            text += f" {'+' if self.add > 0 else '-'} {abs(self.add)}"
        if self.div == 1:
            return text
        return f"({text})//{self.div}" if self.add else f"{text}//{self.div}"

    @property
    def plain(self) -> bool:
        """Whether this is the named size itself."""
        return (self.mul, self.add, self.div) == (1, 0, 1)

    def of(self, value: int) -> int:
        """The value of this size if the named size is `value`."""
        return (value * self.mul + self.add) // self.div

    def can_be(self, number: int) -> bool:
        """Whether this size is `number` for a named size that is not negative; only valid without `div`."""
        return number >= self.add and (number - self.add) % self.mul == 0

    def after(self, inner: Term) -> Term | None:
        """This size if the named size is `inner`; None if it cannot be written as a `Size`."""
        if isinstance(inner, int):
            return self.of(inner)
        if inner.div == 1:
            return _reduced(inner.name, self.mul * inner.mul, self.mul * inner.add + self.add, self.div)
        if self.mul == 1:
            return _reduced(inner.name, inner.mul, inner.add + self.add * inner.div, inner.div * self.div)
        return None


Term = Size | int


def _reduced(name: str, mul: int, add: int, div: int) -> Size:
    if mul % div == 0:
        return Size(name, mul // div, add // div)
    common = math.gcd(mul, add, div)
    return Size(name, mul // common, add // common, div // common)


def names_of(texts: Sequence[str]) -> dict[str, str]:
    """Map each name that a model gives to a size, which may be any text, to a distinct name that `Size` takes."""
    found: dict[str, str] = {}
    for text in texts:
        if text not in found:
            name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "D"
            name = f"D{name}" if name[0].isdigit() else name
            every = (name if i < 2 else f"{name}_{i}" for i in itertools.count(1))
            found[text] = next(n for n in every if n not in found.values())
    return found


def _solved(size: Size, other: Term) -> Term | None:
    """Solve `size` = `other` for its named size x, x * mul + add = other; None if the solution is not a `Term`."""
    mul, add, div = (0, other, 1) if isinstance(other, int) else (other.mul, other.add, other.div)
    if (size.div, div) != (1, 1) or mul % size.mul or (add - size.add) % size.mul:
        return None
    made = (add - size.add) // size.mul
    return made if isinstance(other, int) else Size(other.name, mul // size.mul, made)


class Solver:
    """Derives which sizes are equal from statements about pairs of sizes. A statement it cannot express is ignored."""

    def __init__(self) -> None:
        self._bound: dict[str, Term] = {}
        self._hints: dict[str, str] = {}
        self._count = 0

    def fresh(self, hint: str = "") -> Size:
        """A new size about which nothing is known; `hint` is the name to show unless the program names it."""
        self._count += 1
        size = Size(f"{_FRESH}{self._count}")
        if hint:
            self._hints[size.name] = hint
        return size

    def resolve(self, size: Term) -> Term:
        """The size in terms of sizes that no statement determines."""
        while isinstance(size, Size) and size.name in self._bound:
            made = size.after(self._bound[size.name])
            if made is None:
                return size
            size = made
        return size

    def same(self, a: Term, b: Term) -> None:
        """State that two sizes are equal."""
        a, b = self.resolve(a), self.resolve(b)
        if isinstance(a, Size) and isinstance(b, Size) and a.name == b.name:
            return
        if isinstance(a, Size) and isinstance(b, Size) and a.plain and b.plain:
            keep, gone = (b, a) if a.name.startswith(_FRESH) and not b.name.startswith(_FRESH) else (a, b)
            self._bind(gone, keep)
            return
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Size) and x.plain:
                self._bind(x, y)
                return
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Size) and (found := _solved(x, y)) is not None:
                self._bind(Size(x.name), found)
                return

    def _bind(self, size: Size, to: Term) -> None:
        self._bound[size.name] = to
        if isinstance(to, Size) and to.plain and size.name in self._hints:
            self._hints.setdefault(to.name, self._hints[size.name])

    def hint(self, name: str) -> str:
        """The name to show for a size made by `fresh`, "" for a size that the program names."""
        return (self._hints.get(name) or "D") if name.startswith(_FRESH) else ""
