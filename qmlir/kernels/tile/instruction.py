"""Matrix instructions as data."""

from __future__ import annotations

from dataclasses import dataclass

from .layout import Layout


@dataclass(frozen=True)
class Fragments:
    """Of `d[m, n] += a[m, k] * b[k, n]`, which element each lane holds as which of its values.

    Attributes:
        a, b, d: (lane, value) to (m, k), to (n, k), to (m, n). Values of operands are in the order of the bits of their
            registers; those of the result are its registers.
        a_scale, b_scale: where blocks of operands along K have scales: (lane, value) to (m, s), to (n, s), s being the
            block. Values are the bytes that are read of a register; a dot is a lane whose register nobody reads if its
            bit is set.
    """

    a: Layout
    b: Layout
    d: Layout
    a_scale: Layout | None = None
    b_scale: Layout | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Sizes of m, n and k."""
        return self.d.extent("m"), self.d.extent("n"), self.a.extent("k")

    @property
    def blocks(self) -> int:
        """Scales along K of a row or column; 0 of an instruction without scales."""
        return 0 if self.a_scale is None else self.a_scale.extent("s")

    @property
    def lanes(self) -> int:
        """That compute one product together."""
        return self.d.size("lane")


def alike(lane: str, value: str) -> tuple[Layout, Layout]:
    """Both operands, which are held alike: `x` is the row of the one and the column of the other."""
    left, right = (Layout.of(lane=lane.replace("x", axis), value=value) for axis in "mn")
    return left, right


@dataclass(frozen=True)
class TiledMma:
    """Instructions side by side as one product of rows by columns; the columns are those of the weight.

    Columns may be numbered anew, as long as weight and result agree, and K, as long as both operands do. Both follow
    one rule: what a lane holds are neighbours, of the result along its columns and of the operands along K.

    Attributes:
        weight_side: the operand that is the weight, "a" or "b".
        depth: along K, a power of two.
        run: neighbours along K that a lane holds, a power of two; of further ones the next lanes hold a run first.
            None: K as the instruction numbers it.
        interleave: instructions along the columns, a power of two, that neighbouring columns go to in turn.
    """

    fragments: Fragments
    weight_side: str
    depth: int
    run: int | None = None
    interleave: int = 1

    @property
    def weight(self) -> Layout:
        """(lane, value, fragment) to (column, k)."""
        operand = self.fragments.a if self.weight_side == "a" else self.fragments.b
        return self._columns(self._along_k(operand))

    @property
    def activation(self) -> Layout:
        """(lane, value) to (row, k)."""
        operand = self.fragments.b if self.weight_side == "a" else self.fragments.a
        return self._along_k(operand).renamed({self._axes[1]: "row"})

    @property
    def result(self) -> Layout:
        """(lane, value, fragment) to (row, column)."""
        return self._columns(self.fragments.d).renamed({self._axes[1]: "row"})

    @property
    def columns(self) -> Layout:
        """From a column of the instructions side by side ("index") to the column of the product."""
        axis = self._axes[0]
        bits = self.fragments.d.bits(axis) + self.interleave.bit_length() - 1
        whole = Layout((("index", tuple((axis, i) for i in range(bits))),))
        return whole.renumbered(axis, self._order).renamed({axis: "column"})

    @property
    def held(self) -> list[tuple[int, int]]:
        """Of each column that a lane holds of a row of the result, in order: which value, of which fragment."""
        result = self.result
        every = [(v, f) for v in range(result.size("value")) for f in range(self.interleave)]
        row = {result.place("column", value=v, fragment=f): (v, f)
               for v, f in every if result.place("row", value=v) == 0}  # fmt: skip
        return [row[column] for column in sorted(row)]

    @property
    def _axes(self) -> tuple[str, str]:
        """The instruction's axes that are columns and rows."""
        return ("m", "n") if self.weight_side == "a" else ("n", "m")

    @property
    def _order(self) -> list[int]:
        """Of the columns' bits: those interleaved, then a lane's own, then those of lanes."""
        d, axis = self.fragments.d, self._axes[0]
        whole = d.bits(axis)
        turns = range(whole, whole + self.interleave.bit_length() - 1)
        return [*turns, *sorted(d.along("value", axis)), *sorted(d.along("lane", axis))]

    def _columns(self, layout: Layout) -> Layout:
        axis = self._axes[0]
        return layout.tiled("fragment", axis, self.interleave).renumbered(axis, self._order).renamed({axis: "column"})

    def _along_k(self, operand: Layout) -> Layout:
        tiled = operand.tiled("value", "k", self.depth // operand.extent("k"))
        if self.run is None:
            return tiled
        own, shared = tiled.along("value", "k"), tiled.along("lane", "k")
        inner = self.run.bit_length() - 1
        return tiled.renumbered("k", [*own[:inner], *shared, *own[inner:]])
