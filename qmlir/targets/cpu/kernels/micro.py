"""The interface of a register tile to the loops around it: how its weights are stored, one call, and its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ....kernels.layouts import WeightLayout
from . import emit as e

if TYPE_CHECKING:
    from ....core.mlir import ir

QUAD = 4  # codes along K of one column that one lane multiplies
PIECE = 8  # contiguous codes of a row, if several rows are interleaved


@dataclass(frozen=True)
class Weights:
    """How weights are stored. The value of a stored code `u` is `u + offset`, or with `codes` `codes[u]`, which is
    multiplied as the byte `codes[u] - offset`."""

    bits: int
    offset: int
    codes: tuple[int, ...] | None = None
    exact: bool = False  # `u` is multiplied as its value, a signed byte
    signed: bool = False  # `u` is read as two's complement
    # For weights that are multiplied as floats, with scales applied to the sum (kernels/scaled.py): the value of each
    # `u`; a zero point is subtracted from it before the product.
    values: tuple[float, ...] | None = None
    largest_zero: int = 0  # the largest zero point, if the micro-kernel needs it

    @property
    def fields(self) -> int:
        """The number of codes that share a byte."""
        return 8 // self.bits

    @property
    def table(self) -> tuple[int, ...] | None:
        if self.exact:
            return tuple((self.offset + u) & 255 for u in range(1 << self.bits))
        return None if self.codes is None else tuple((code - self.offset) & 255 for code in self.codes)

    @property
    def short(self) -> int:
        """A code minus the byte that is multiplied for it. The product lacks this times the sum of activations."""
        return 0 if self.exact else self.offset


@dataclass(frozen=True)
class MicroCall:
    """One call of a micro-kernel: addresses, and sizes in elements.

    Attributes:
        lhs: `[rows][lhs_stride]` bytes.
        rhs: the panel from the first step on.
        steps: how many rows of stored weights, each `QUAD * fields` codes deep.
        sums: the initial value of each row's accumulators, i32 `[rows]`; None for zero.
        out: `[rows][panel]` i32.
        add: whether to add to `out`, rather than to overwrite it.
        present: how many of the rows are in memory at `lhs`; None for all.
        line_stride: distance between consecutive lines of a row, in lines.
        ahead: the weights that each iteration prefetches to the second-level cache: the offset in bytes from its own
            weights, and the number of lines.
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
        """The lanes of an i32 vector, also in epilogues."""

    @property
    def panel(self) -> int:
        """The columns of a panel."""

    @property
    def bits(self) -> tuple[int, ...]:
        """The widths of stored weights."""

    @property
    def offset(self) -> int:
        """The code of an 8-bit weight minus its stored byte: -128 if bytes are multiplied as unsigned."""

    @property
    def lhs_bytes(self) -> int:
        """The bytes of one activation in its copy on the stack."""

    @property
    def reads_rows(self) -> bool:
        """Whether activations may be multiplied in place, including those of a partial last tile."""

    def together(self, rows: int) -> int:
        """How many rows of a tile of `rows` the copy interleaves, by `PIECE` codes; 1 if each row is contiguous."""

    def permit(self) -> None:
        """Emit the requests to the operating system that a call needs."""

    def begin(self, rows: int) -> None:
        """Emit the set-up for products of tiles of `rows` rows."""

    def end(self) -> None:
        """Emit the clean-up after the last product."""

    def rows(self, weights: Weights) -> int:
        """The most rows of a tile."""

    def depth(self, weights: Weights) -> int:
        """Codes along K per iteration of the main loop: K is padded to a multiple."""

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        """The layout of a weight `[N, K]`, or `[K, N]` without `k_last`."""


class IntegerMicro(Micro, Protocol):
    """An integer register tile."""

    @property
    def signed_short(self) -> bool:
        """Whether short codes are multiplied as their values, signed bytes."""

    @property
    def in_registers(self) -> bool:
        """Whether `accumulate` is implemented."""

    def dot(self, acc: ir.Value, unsigned: ir.Value, signed: ir.Value, largest: int = 255) -> ir.Value:
        """Each i32 lane of `acc` plus the dot product of its four pairs of bytes; unsigned bytes are at most
        `largest`."""

    def accumulate(self, tile: MicroCall, weights: Weights) -> list[list[ir.Value]]:
        """Emit the tile's product without storing it to `out`; return the vectors of each row."""

    def multiply(self, tile: MicroCall, weights: Weights) -> None:
        """Emit the tile's product and its stores to `out`."""

    def unpack(self, stored: ir.Value, codes: int, weights: Weights, out: ir.Value, ahead: int) -> None:
        """Emit the unpacking of `codes` codes along K of a panel to `out`, as bytes that `multiply` takes as 8-bit
        weights, and prefetch the weights `ahead` bytes behind them. Only if `reads_rows`."""


def panels(n: int, k: int, k_last: bool, panel: int, depth: int, weights: Weights, unit: int = QUAD) -> WeightLayout:
    """The layout of a weight `[N, K]`, or `[K, N]` without `k_last`, in panels, K padded to a multiple of `depth`;
    `unit` codes of a column are contiguous."""
    np_, kp = -(-n // panel) * panel, -(-k // depth) * depth
    columns = (np_ // panel, panel)
    if weights.bits == 8:
        inner = (kp // unit, unit)
        if k_last:  # [N/p, p, K/u, u] -> [N/p, K/u, p, u]
            return WeightLayout((np_, kp), (columns, inner), (0, 2, 1, 3), offset=weights.offset)
        return WeightLayout((kp, np_), (inner, columns), (2, 0, 3, 1), offset=weights.offset)
    # [N/p, p, K/uf, f, u] -> [N/p, K/uf, f, p, u]; short codes are constants, transposed to [N, K].
    assert k_last
    shared = (kp // (unit * weights.fields), weights.fields, unit)
    offset = 0 if weights.codes else weights.offset
    return WeightLayout((np_, kp), (columns, shared), (0, 2, 3, 1, 4), bits=weights.bits, field=2, offset=offset)
