"""What a kernel computes, with no word about how: sizes, operands with the axes they follow, bodies to clone.

part[m, n, g] = sum over the k of group g of lhs[m, k] * rhs[n, k]     (integers)
value_0[m, n] = part[m, n]                                             without groups
              = combine over ascending g, from zero                    with groups
value_i[m, n] = stage_i.body(its sources at (m, n))                    in order
out[m, n]     = value_last[m, n]

With a batch all of this is done for each of its products, which have weights of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.mlir import OpLike, ir

# The axes of a kernel, in the order in which the axes of every operand are brought. Where a batch says which matrix
# each product has and which row each of its rows is, operands may follow these: the matrix (the numbers in
# `Batch.index`), the row (a slot of a token: those in `Batch.rows`), or the row of the activation (those over
# `Batch.repeats`).
BATCH, GROUP, ROW, COLUMN = "b", "g", "m", "n"
MATRIX, SLOT, TOKEN = "e", "r", "t"
ORDER = BATCH + MATRIX + SLOT + TOKEN + GROUP + ROW + COLUMN


@dataclass(frozen=True)
class Operand:
    """A tensor that a body reads. `source_axes` says which axis of the kernel each of its axes follows, as it stands in
    the program; several axes that follow rows are the rows of a batch, outermost first."""

    value: ir.Value
    source_axes: tuple[str, ...]

    @property
    def axes(self) -> str:
        """The axes of the tensor that the kernel is given: each at most once, in `ORDER`."""
        return "".join(a for a in ORDER if a in self.source_axes)

    @property
    def element_type(self) -> ir.Type:
        return self.value.type.element_type


@dataclass(frozen=True)
class Previous:
    """The value of an earlier stage; 0 is the accumulator. Behind a gate's split: the one of the first or the second
    half of the columns."""

    index: int
    half: int = 0


@dataclass(frozen=True)
class Literal:
    """A constant, the same everywhere: an attribute."""

    value: ir.Attribute


@dataclass(frozen=True)
class RowSum:
    """The sum of the activation's codes of the row, or of the row within the group."""


StageSource = Operand | Previous | Literal | RowSum


@dataclass(frozen=True)
class Stage:
    """A scalar region and what its block arguments stand for, its init left out."""

    body: ir.Block
    sources: tuple[StageSource, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(s for s in self.sources if isinstance(s, Operand))


@dataclass(frozen=True)
class Window:
    """How the rows of a convolution's activation lie in its image `[N, H, W, C]`: row `(n * OH + y) * OW + x` holds,
    for each `(i, j)` of the filter, the channels at `(n, y * stride + i * dilation, x * stride + j * dilation)`."""

    image: tuple[int | None, int, int, int]  # the number of images may be dynamic
    result: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    # Rows and columns above and left of the image that hold the code `padding`, as many below and right as it takes.
    margin: tuple[int, int] = (0, 0)
    padding: int = 0
    # Groups of channels, each with as many filters of its own: a row holds only the channels of the column's group.
    groups: int = 1
    planes: bool = False  # whether the image lies as `[N, C, H, W]`

    @property
    def channels(self) -> int:
        """That a filter reads."""
        return self.image[3] // self.groups

    @property
    def overhangs(self) -> bool:
        """Whether some window reaches past its image."""
        sizes = zip(self.result, self.strides, self.kernel, self.dilations, self.image[1:3], strict=True)
        return any((r - 1) * s + (k - 1) * d + 1 > size for r, s, k, d, size in sizes) or self.margin != (0, 0)

    @property
    def run(self) -> int:
        """Codes of a row that are neighbours in the image."""
        columns = self.kernel[1] if self.dilations[1] == 1 else 1
        return columns * self.image[3]

    @property
    def runs(self) -> tuple[int, ...]:
        """Where in an image, from the row's first code on, each run starts."""
        _, _, width, channels = self.image
        columns = range(1 if self.dilations[1] == 1 else self.kernel[1])
        return tuple(
            (i * self.dilations[0] * width + j * self.dilations[1]) * channels
            for i in range(self.kernel[0])
            for j in columns
        )


@dataclass(frozen=True)
class Batch:
    """Products side by side, each with a matrix of its own.

    Attributes:
        size: how many, None where dynamic.
        matrices: how many the weight holds, `[matrices, ..]`.
        index: i32 `[size]`, which matrix each product has; outside of the matrices where nobody reads the result.
            None: each its own.
        rows: i32 `[size, M]`, which row of the activation `[R, K]` each row is; None: the activation is `[size, M, K]`.
        counts: i32 `[matrices]` each, where products are blocks of the rows of a matrix: the number of the matrix's
            first product, and how many rows it has; so the last of its products may have fewer than M.
        repeats: how many of the numbers in `rows` stand for one row of the activation, one behind the other.
        target: i32 `[size, M]`, which row of the result `[R, N]` each row is, a negative number where it is none; None:
            the result is `[size, M, N]`.
        side_by_side: the products are: the result is `[M, size * N]`, what follows columns has as many, and the
            activation's window says which channels a product reads.
    """

    size: int | None
    matrices: int
    index: ir.Value | None = None
    rows: ir.Value | None = None
    counts: tuple[ir.Value, ir.Value] | None = None
    repeats: int = 1
    target: ir.Value | None = None
    side_by_side: bool = False


@dataclass(frozen=True)
class Factor:
    """One side of the product: `[rows.., K]` codes of 8 bits, signed; or floats, which `decode` makes of such codes.

    `flipped`: the tensor holds the codes with their top bit inverted, as unsigned codes that were biased.
    `k_last`: the last axis (after the groups are merged into it) is K, else the first is.
    `e2m1`: the codes are of e2m1, and what is multiplied is twice the number that they stand for, an integer.
    `decode`: from the code (`Previous(0)`) and operands of its column and group to the number that is multiplied.
    """

    value: ir.Value
    source_axes: tuple[str, ...]  # "m" or "n", "g", "k"
    magnitude: int = 128  # the largest |code|
    flipped: bool = False
    decode: Stage | None = None
    e2m1: bool = False
    window: Window | None = None  # where the rows overlap in an image

    @property
    def k_last(self) -> bool:
        return self.source_axes[-1] == "k"


@dataclass(frozen=True)
class Gate:
    """The columns are two halves from here on, which the next stage makes one of: stages and operations of the kernel
    in front of that, and the type of their value."""

    stages: int
    operations: int
    value_type: ir.Type


@dataclass(frozen=True)
class Kernel:
    """A product with everything that is done to its result. Sizes are None where dynamic."""

    m: int | None
    n: int
    k: int
    lhs: Factor
    rhs: Factor
    acc_type: ir.Type
    result_type: ir.Type  # of one element
    group: int | None = None  # codes along K that one part sums; None: all of them
    # Where sums are of integers that stand for fractions, what a sum is multiplied with; it is f32 then.
    fraction: float | None = None
    combine: Stage | None = None
    # Of both sides, where the instruction multiplies by them: words of four scales along K, by the row or column.
    scales: tuple[Operand, ...] = ()
    total_type: ir.Type | None = None  # of the sum over groups
    stages: tuple[Stage, ...] = ()
    # How many axes of the program's result are rows, and their sizes (None: dynamic): a batch with common weights.
    row_sizes: tuple[int | None, ...] = ()
    batch: Batch | None = None
    gate: Gate | None = None
    planes: bool = False  # the result of a convolution is `[images, N, pixels]`: its channels are in front
    # Operations of the group, the contraction first: what the kernel takes the place of.
    operations: tuple[OpLike, ...] = field(default=(), compare=False, repr=False)

    @property
    def columns(self) -> int:
        """Of the result."""
        columns = self.n if self.gate is None else self.n // 2
        return columns * self.batch.matrices if self.batch is not None and self.batch.side_by_side else columns

    @property
    def side_by_side(self) -> bool:
        """Whether it is products side by side; see `Batch`."""
        return self.batch is not None and self.batch.side_by_side

    def without_gate(self) -> Kernel:
        """The kernel up to the gate."""
        if self.gate is None:
            return self
        return replace(
            self, gate=None, stages=self.stages[: self.gate.stages], result_type=self.gate.value_type,
            operations=self.operations[: self.gate.operations],
        )  # fmt: skip

    def without_counts(self) -> Kernel:
        """The kernel for a generator that learns in another way which rows of a batch are used."""
        return self if self.batch is None else replace(self, batch=replace(self.batch, counts=None))

    @property
    def groups(self) -> int:
        return 1 if self.group is None else self.k // self.group

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What the bodies read, each tensor once for each way of reading it."""
        seen: dict[Operand, None] = dict.fromkeys(self.scales)
        for stage in (self.rhs.decode, self.combine, *self.stages):
            if stage is None:
                continue
            seen.update(dict.fromkeys(stage.operands))
        return tuple(seen)

    @property
    def dynamic(self) -> bool:
        """Whether a size is known at run time only: of the batch, or the rows where there is none."""
        return (self.m if self.batch is None or self.side_by_side else self.batch.size) is None

    @property
    def value_type(self) -> ir.Type:
        """Of what the first stage takes."""
        if self.combine is None:
            return self.acc_type
        assert self.total_type is not None
        return self.total_type


class Unfit(Exception):
    """A group of ops that is not a kernel: the reason, and what would make it one."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy
