"""Matrix instructions as data."""

from __future__ import annotations

from dataclasses import dataclass

from .layout import Layout


@dataclass(frozen=True)
class Fragments:
    """The fragments of an instruction `d[m, n] += a[m, k] * b[k, n]`: which element each value of each lane is.

    Attributes:
        a, b, d: (lane, value) to (m, k), to (n, k), to (m, n). Values of operands are in the order of the bits of their
            registers; values of the result are its registers.
        a_scale, b_scale: if blocks of operands along K have scales: (lane, value) to (m, s), to (n, s), s being the
            block. Values are the bytes of a register that are read; a dot is a bit of the lane whose setting makes the
            instruction ignore the lane's register.
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
        """The number of scales along K per row or column; 0 for an instruction without scales."""
        return 0 if self.a_scale is None else self.a_scale.extent("s")

    @property
    def lanes(self) -> int:
        """The number of lanes that compute one product together."""
        return self.d.size("lane")


def alike(lane: str, value: str) -> tuple[Layout, Layout]:
    """The layouts of `a` and `b` if they differ only in the axis `x`: the row m of `a`, the column n of `b`."""
    left, right = (Layout.of(lane=lane.replace("x", axis), value=value) for axis in "mn")
    return left, right


@dataclass(frozen=True)
class TiledMma:
    """Several instructions as one product of rows by columns; the columns are those of the weight.

    Columns may be renumbered if weight and result use the same numbers, and K if both operands do. Both renumberings
    follow one rule: a lane holds consecutive elements, of the result along columns and of the operands along K.

    Attributes:
        weight_side: the operand that is the weight, "a" or "b".
        depth: the size along K, a power of two.
        run: the number of consecutive k that a lane holds, a power of two; the other lanes hold the next runs before
            this lane holds its second one. None: K is numbered as in the instruction.
        interleave: the number of instructions along columns, a power of two; consecutive columns are assigned to them
            in turn.
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
        """From a column of the concatenated instructions ("index") to the column of the product."""
        axis = self._axes[0]
        bits = self.fragments.d.bits(axis) + self.interleave.bit_length() - 1
        whole = Layout((("index", tuple((axis, i) for i in range(bits))),))
        return whole.renumbered(axis, self._order).renamed({axis: "column"})

    @property
    def held(self) -> list[tuple[int, int]]:
        """The (value, fragment) of each column that a lane holds of a row of the result, in the order of columns."""
        result = self.result
        every = [(v, f) for v in range(result.size("value")) for f in range(self.interleave)]
        row = {result.place("column", value=v, fragment=f): (v, f)
               for v, f in every if result.place("row", value=v) == 0}  # fmt: skip
        return [row[column] for column in sorted(row)]

    @property
    def _axes(self) -> tuple[str, str]:
        """The instruction's axes of columns and of rows."""
        return ("m", "n") if self.weight_side == "a" else ("n", "m")

    @property
    def _order(self) -> list[int]:
        """The order of the columns' bits: those of interleaved instructions, of a lane's values, of lanes."""
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
