"""Layouts of a matrix's elements in lanes and registers, as linear maps of bits.

After Triton's linear layouts (arXiv 2505.23819) and CuTe's layouts (arXiv 2603.02298). Each bit of the index of a lane,
or of a value in it, is one bit of an element's row or column. A table of these bits describes a matrix instruction
completely: the packing of a weight, the elements that each lane reads, and the places of results follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from .. import emit as e

Bit = tuple[str, int]  # an axis and the number of its bit; 0 is the lowest
Images = tuple[Bit | None, ...]


@dataclass(frozen=True)
class Layout:
    """A map from places, such as (lane, value), to elements, such as (m, k); all sizes are powers of two.

    Attributes:
        inputs: for each bit of each input, lowest first, the bit of an output that it is; None if the element does not
            depend on the bit.
    """

    inputs: tuple[tuple[str, Images], ...]

    @staticmethod
    def of(**inputs: str) -> Layout:
        """From a table: `lane="m0 m1 . k2", value="k0 k1"`; a dot is a bit on which the element does not depend.

        Raises:
            ValueError: the text is not such a table, or names a bit twice.
        """
        made = Layout(tuple((name, tuple(map(_bit, text.split()))) for name, text in inputs.items()))
        named = [bit for _, images in made.inputs for bit in images if bit is not None]
        for axis in {axis for axis, _ in named}:
            if sorted(bit for a, bit in named if a == axis) != list(range(made.bits(axis))):
                raise ValueError(f"the bits of {axis!r} are not each named once: {inputs}")
        return made

    def __getitem__(self, name: str) -> Images:
        """The bits of outputs that the bits of an input are."""
        return dict(self.inputs)[name]

    def size(self, name: str) -> int:
        """The number of values of an input."""
        return 1 << len(self[name])

    def bits(self, axis: str) -> int:
        """The number of bits of an output."""
        return max((bit[1] + 1 for _, images in self.inputs for bit in images if bit and bit[0] == axis), default=0)

    def extent(self, axis: str) -> int:
        """The number of values of an output."""
        return 1 << self.bits(axis)

    def along(self, name: str, axis: str) -> list[int]:
        """The bits of `axis` in an input, lowest input bit first."""
        return [bit[1] for bit in self[name] if bit is not None and bit[0] == axis]

    @overload
    def place(self, axis: str, **index: int) -> int: ...
    @overload
    def place(self, axis: str, **index: e.Index) -> e.Index: ...
    def place(self, axis: str, **index: e.Index) -> e.Index:
        """The position on `axis` of the element at an index: an int, or index arithmetic at the insertion point. Inputs
        that are not given are 0. Each run of adjacent bits takes one quotient, remainder and product."""
        found: e.Index = 0
        for name, images in self.inputs:
            for low, count, to in _runs(images, axis):
                part = e.divide(index.get(name, 0), 1 << low)
                if low + count < len(images):
                    part = e.remainder(part, 1 << count)
                found = e.add(found, e.multiply(part, 1 << to))
        return found

    def renamed(self, axes: Mapping[str, str]) -> Layout:
        """The layout with renamed outputs."""
        return self._mapped(lambda bit: (axes.get(bit[0], bit[0]), bit[1]))

    def renumbered(self, axis: str, order: Sequence[int]) -> Layout:
        """The layout with the bits of an output permuted: the new bit `i` is the old bit `order[i]`."""
        return self._mapped(lambda bit: (axis, list(order).index(bit[1])) if bit[0] == axis else bit)

    def counted_in(self, axis: str, unit: int) -> Layout:
        """The layout with an output in units of a power of two: lower bits are dropped."""
        low = unit.bit_length() - 1
        return self._mapped(lambda bit: bit if bit[0] != axis else (axis, bit[1] - low) if bit[1] >= low else None)

    def tiled(self, name: str, axis: str, count: int) -> Layout:
        """The layout repeated `count` times along `axis`: the input `name` has `count` times as many values."""
        more = tuple((axis, self.bits(axis) + i) for i in range(count.bit_length() - 1))
        known = name in dict(self.inputs)
        inputs = self.inputs if known else (*self.inputs, (name, ()))
        return Layout(tuple((n, (*images, *more) if n == name else images) for n, images in inputs))

    def distinct(self, name: str) -> Layout:
        """A layout from an input's values to numbers ("number"), equal for values that hold the same element."""
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
    """Runs of adjacent bits that are adjacent on `axis`: the first bit, the number of bits, and the first bit on
    `axis`."""
    at = 0
    while at < len(images):
        bit = images[at]
        count = 1
        if bit is not None and bit[0] == axis:
            while at + count < len(images) and images[at + count] == (axis, bit[1] + count):
                count += 1
            yield at, count, bit[1]
        at += count
