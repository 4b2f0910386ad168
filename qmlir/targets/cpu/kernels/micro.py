"""What a register tile is to the loops around it: how it wants weights stored, one call of it, and its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ....kernels.layouts import WeightLayout
from . import emit as e

if TYPE_CHECKING:
    from ....core.mlir import ir

QUAD = 4  # codes along K of one column that one lane multiplies
PIECE = 8  # codes of a row, where several are copied by turns


@dataclass(frozen=True)
class Weights:
    """How weights are stored. A stored code `u` stands for `u + offset`, or with `codes` for `codes[u]`, which is
    multiplied as the byte `codes[u] - offset`."""

    bits: int
    offset: int
    codes: tuple[int, ...] | None = None
    exact: bool = False  # `u` is multiplied as the signed byte that it stands for
    signed: bool = False  # `u` is read as two's complement
    # Of weights that are multiplied as floats and scaled behind the sum (kernels/scaled.py): the number that each `u`
    # stands for; a zero point is taken off it in front of the product.
    values: tuple[float, ...] | None = None
    largest_zero: int = 0  # of those zero points, where the micro-kernel asks for it

    @property
    def fields(self) -> int:
        """Codes that share a byte."""
        return 8 // self.bits

    @property
    def table(self) -> tuple[int, ...] | None:
        if self.exact:
            return tuple((self.offset + u) & 255 for u in range(1 << self.bits))
        return None if self.codes is None else tuple((code - self.offset) & 255 for code in self.codes)

    @property
    def short(self) -> int:
        """What a byte that is multiplied is short of its code: it is added for each activation, so to their sum."""
        return 0 if self.exact else self.offset


@dataclass(frozen=True)
class MicroCall:
    """One call of a micro-kernel: addresses, and sizes in elements.

    Attributes:
        lhs: `[rows][lhs_stride]` bytes.
        rhs: the panel from the first step on.
        steps: how many rows of stored weights, each `QUAD * fields` codes deep.
        sums: what each row's accumulators start from, i32 `[rows]`, None for zero.
        out: `[rows][panel]` i32.
        add: whether to add to `out`, rather than to overwrite it.
        present: how many of the rows there are at `lhs`; None for all.
        line_stride: lines from one of a row's to the next.
        ahead: what each turn asks the second-level cache for: bytes from its weights on, and lines.
    """

    rows: int
    lhs: ir.Value
    lhs_stride: int
    rhs: ir.Value
    steps: e.Index
    sums: ir.Value | None
    out: ir.Value
    add: bool
    present: e.Index | None = None
    ahead: tuple[e.Index, int] | None = None
    line_stride: int = 1


class Micro(Protocol):
    """An instruction set's register tile: its sizes."""

    @property
    def name(self) -> str: ...

    @property
    def features(self) -> tuple[frozenset[str], ...]:
        """Sets of CPU features, one of which must be there."""

    @property
    def lanes(self) -> int:
        """Of a vector of i32, for epilogues too."""

    @property
    def panel(self) -> int:
        """Columns."""

    @property
    def bits(self) -> tuple[int, ...]:
        """Widths of stored weights."""

    @property
    def offset(self) -> int:
        """What a stored byte of 8-bit weights is short of its code: -128 where bytes are multiplied as unsigned."""

    @property
    def lhs_bytes(self) -> int:
        """Of one activation, as it is copied to the stack."""

    @property
    def reads_rows(self) -> bool:
        """Whether activations may be multiplied from where they lie, the rows of the last tile too."""

    def together(self, rows: int) -> int:
        """How many rows of a tile of `rows` are copied by turns, `PIECE` codes of each; 1 where rows lie apart."""

    def permit(self) -> None:
        """Emit what a call has to ask the system for."""

    def begin(self, rows: int) -> None:
        """Emit what precedes the products of tiles of `rows` rows."""

    def end(self) -> None:
        """Emit what follows the last product."""

    def rows(self, weights: Weights) -> int:
        """The most rows of a tile."""

    def depth(self, weights: Weights) -> int:
        """Codes along K of one turn of the main loop: K is padded to a multiple."""

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        """How a weight `[N, K]`, or `[K, N]` without `k_last`, is stored."""


class IntegerMicro(Micro, Protocol):
    """A register tile of integers."""

    @property
    def signed_short(self) -> bool:
        """Whether short codes are multiplied as the signed bytes that they stand for."""

    @property
    def in_registers(self) -> bool:
        """Whether `accumulate` is there."""

    def dot(self, acc: ir.Value, unsigned: ir.Value, signed: ir.Value, largest: int = 255) -> ir.Value:
        """Each i32 lane of `acc` plus the dot product of its four pairs of bytes, of which the unsigned ones are
        `largest` at most."""

    def accumulate(self, tile: MicroCall, weights: Weights) -> list[list[ir.Value]]:
        """Emit the tile's product, but not its way to `out`; returns the vectors of each row."""

    def multiply(self, tile: MicroCall, weights: Weights) -> None:
        """Emit the tile's product."""

    def unpack(self, stored: ir.Value, codes: int, weights: Weights, out: ir.Value, ahead: int) -> None:
        """Emit what brings `codes` along K of a panel to `out`, as bytes that `multiply` takes with weights of 8 bits,
        and asks for what is `ahead` bytes behind them. Where `reads_rows`."""


def panels(n: int, k: int, k_last: bool, panel: int, depth: int, weights: Weights, unit: int = QUAD) -> WeightLayout:
    """The layout of a weight `[N, K]`, or `[K, N]` without `k_last`, in panels, K padded to a multiple of `depth`;
    `unit` codes of a column are neighbours."""
    np_, kp = -(-n // panel) * panel, -(-k // depth) * depth
    columns = (np_ // panel, panel)
    if weights.bits == 8:
        inner = (kp // unit, unit)
        if k_last:  # [N/p, p, K/u, u] -> [N/p, K/u, p, u]
            return WeightLayout((np_, kp), (columns, inner), (0, 2, 1, 3), offset=weights.offset)
        return WeightLayout((kp, np_), (inner, columns), (2, 0, 3, 1), offset=weights.offset)
    # [N/p, p, K/uf, f, u] -> [N/p, K/uf, f, p, u]; short codes are constants, which are brought to [N, K].
    assert k_last
    shared = (kp // (unit * weights.fields), weights.fields, unit)
    offset = 0 if weights.codes else weights.offset
    return WeightLayout((np_, kp), (columns, shared), (0, 2, 3, 1, 4), bits=weights.bits, field=2, offset=offset)
