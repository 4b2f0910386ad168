"""Where lanes keep the elements of a matrix, as linear maps of bits.

After Triton's linear layouts (arXiv 2505.23819) and CuTe's layouts (arXiv 2603.02298). An index of a lane, or of a
value in it, is a number of bits, and each bit is one bit of an element's row or column. A table of these bits is all
that is said of a matrix instruction; how a weight is packed, which lane reads what, and where the results lie follow
from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from .. import emit as e

Bit = tuple[str, int]  # of an axis; 0 is the lowest
Images = tuple[Bit | None, ...]


@dataclass(frozen=True)
class Layout:
    """From places, such as (lane, value), to elements, such as (m, k); all sizes are powers of two.

    Attributes:
        inputs: of each input its bits, lowest first: the bit of an output that each stands for, None where both values
            of the bit hold the same element.
    """

    inputs: tuple[tuple[str, Images], ...]

    @staticmethod
    def of(**inputs: str) -> Layout:
        """From a table: `lane="m0 m1 . k2", value="k0 k1"`; a dot is a bit that makes no difference.

        Raises:
            ValueError: for a text that is no such table, or names a bit twice.
        """
        made = Layout(tuple((name, tuple(map(_bit, text.split()))) for name, text in inputs.items()))
        named = [bit for _, images in made.inputs for bit in images if bit is not None]
        for axis in {axis for axis, _ in named}:
            if sorted(bit for a, bit in named if a == axis) != list(range(made.bits(axis))):
                raise ValueError(f"the bits of {axis!r} are not each named once: {inputs}")
        return made

    def __getitem__(self, name: str) -> Images:
        """The bits of an input."""
        return dict(self.inputs)[name]

    def size(self, name: str) -> int:
        """How many values an input has."""
        return 1 << len(self[name])

    def bits(self, axis: str) -> int:
        """Of an output."""
        return max((bit[1] + 1 for _, images in self.inputs for bit in images if bit and bit[0] == axis), default=0)

    def extent(self, axis: str) -> int:
        """How many values an output has."""
        return 1 << self.bits(axis)

    def along(self, name: str, axis: str) -> list[int]:
        """The bits of `axis` that an input stands for, lowest input bit first."""
        return [bit[1] for bit in self[name] if bit is not None and bit[0] == axis]

    @overload
    def place(self, axis: str, **index: int) -> int: ...
    @overload
    def place(self, axis: str, **index: e.Index) -> e.Index: ...
    def place(self, axis: str, **index: e.Index) -> e.Index:
        """Where on `axis` the element of an index is: a number, or index arithmetic at the insertion point. Inputs that
        are not named are at 0. Bits that stay neighbours become one quotient, remainder and product."""
        found: e.Index = 0
        for name, images in self.inputs:
            for low, count, to in _runs(images, axis):
                part = e.divide(index.get(name, 0), 1 << low)
                if low + count < len(images):
                    part = e.remainder(part, 1 << count)
                found = e.add(found, e.multiply(part, 1 << to))
        return found

    def renamed(self, axes: Mapping[str, str]) -> Layout:
        """Outputs under other names."""
        return self._mapped(lambda bit: (axes.get(bit[0], bit[0]), bit[1]))

    def renumbered(self, axis: str, order: Sequence[int]) -> Layout:
        """The bits of an output in another order: the new bit `i` is the old bit `order[i]`."""
        return self._mapped(lambda bit: (axis, list(order).index(bit[1])) if bit[0] == axis else bit)

    def counted_in(self, axis: str, unit: int) -> Layout:
        """An output in units of a power of two: bits below vanish."""
        low = unit.bit_length() - 1
        return self._mapped(lambda bit: bit if bit[0] != axis else (axis, bit[1] - low) if bit[1] >= low else None)

    def tiled(self, name: str, axis: str, count: int) -> Layout:
        """More of the same side by side along `axis`: an input has `count` times as many values."""
        more = tuple((axis, self.bits(axis) + i) for i in range(count.bit_length() - 1))
        known = name in dict(self.inputs)
        inputs = self.inputs if known else (*self.inputs, (name, ()))
        return Layout(tuple((n, (*images, *more) if n == name else images) for n, images in inputs))

    def distinct(self, name: str) -> Layout:
        """From an input's values to numbers ("number") of those that hold different elements."""
        counted, found = 0, []
        for bit in self[name]:
            found.append(None if bit is None else ("number", counted))
            counted += bit is not None
        return Layout(((name, tuple(found)),))

    def _mapped(self, change: Callable[[Bit], Bit | None]) -> Layout:
        return Layout(tuple((n, tuple(b if b is None else change(b) for b in images)) for n, images in self.inputs))


def _bit(text: str) -> Bit | None:
    found = re.fullmatch(r"([a-z]+)(\d+)", text)
    if found is None and text != ".":
        raise ValueError(f"{text!r} is not a bit of an axis, such as k2, and no dot")
    return None if found is None else (found[1], int(found[2]))


def _runs(images: Images, axis: str) -> Iterator[tuple[int, int, int]]:
    """Neighbouring bits that are neighbours on `axis`: the first, how many, and where on the axis."""
    at = 0
    while at < len(images):
        bit = images[at]
        count = 1
        if bit is not None and bit[0] == axis:
            while at + count < len(images) and images[at + count] == (axis, bit[1] + count):
                count += 1
            yield at, count, bit[1]
        at += count
