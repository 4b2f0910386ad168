"""What a kernel computes, independent of how: sizes, operands with the axes they follow, bodies to clone.

part[m, n, g] = sum over the k of group g of lhs[m, k] * rhs[n, k]     (integers)
value_0[m, n] = part[m, n]                                             without groups
              = combine over ascending g, from zero                    with groups
value_i[m, n] = stage_i.body(its sources at (m, n))                    in order
out[m, n]     = value_last[m, n]

With a batch all of this is done for each of its products, each with a separate weight matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.mlir import OpLike, ir

# The axes of a kernel; the axes of every operand are transposed to `ORDER`. If a batch gathers its matrices and rows by
# index, operands may also follow MATRIX (indexed by the values of `Batch.index`), SLOT (a slot of a token, indexed by
# the values of `Batch.rows`), or TOKEN (a row of the activation, indexed by the values of `Batch.rows` divided by
# `Batch.repeats`).
BATCH, GROUP, ROW, COLUMN = "b", "g", "m", "n"
MATRIX, SLOT, TOKEN = "e", "r", "t"
ORDER = BATCH + MATRIX + SLOT + TOKEN + GROUP + ROW + COLUMN


@dataclass(frozen=True)
class Operand:
    """A tensor that a body reads. `source_axes`: for each axis of the tensor in the program, the kernel's axis that it
    follows; several axes that follow rows are the rows of a batched input, outermost first."""

    value: ir.Value
    source_axes: tuple[str, ...]

    @property
    def axes(self) -> str:
        """The axes of the tensor that is passed to the kernel: each at most once, in `ORDER`."""
        return "".join(a for a in ORDER if a in self.source_axes)

    @property
    def element_type(self) -> ir.Type:
        return self.value.type.element_type


@dataclass(frozen=True)
class Previous:
    """The value of an earlier stage; 0 is the accumulator. `half`: after a gate's split, which half of the columns."""

    index: int
    half: int = 0


@dataclass(frozen=True)
class Literal:
    """A constant scalar, as an attribute."""

    value: ir.Attribute


@dataclass(frozen=True)
class RowSum:
    """The sum of the activation's codes along the row, or along the row within the group."""


StageSource = Operand | Previous | Literal | RowSum


@dataclass(frozen=True)
class Stage:
    """A scalar region and the sources of its block arguments, without the argument of the init."""

    body: ir.Block
    sources: tuple[StageSource, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(s for s in self.sources if isinstance(s, Operand))


@dataclass(frozen=True)
class Window:
    """Where the rows of a convolution's activation are in its image `[N, H, W, C]`: row `(n * OH + y) * OW + x` holds,
    for each `(i, j)` of the filter, the channels at `(n, y * stride + i * dilation, x * stride + j * dilation)`."""

    image: tuple[int | None, int, int, int]  # the number of images may be dynamic
    result: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    # Rows above and columns left of the image, which hold the code `padding`; as many below and right as windows need.
    margin: tuple[int, int] = (0, 0)
    padding: int = 0
    # Groups of channels, each with the same number of filters: a row holds only the channels of the column's group.
    groups: int = 1
    planes: bool = False  # whether the image is stored as `[N, C, H, W]`

    @property
    def channels(self) -> int:
        """The number of channels that a filter reads."""
        return self.image[3] // self.groups

    @property
    def overhangs(self) -> bool:
        """Whether any window reads outside its image."""
        sizes = zip(self.result, self.strides, self.kernel, self.dilations, self.image[1:3], strict=True)
        return any((r - 1) * s + (k - 1) * d + 1 > size for r, s, k, d, size in sizes) or self.margin != (0, 0)

    @property
    def run(self) -> int:
        """The number of codes of a row that are contiguous in the image."""
        columns = self.kernel[1] if self.dilations[1] == 1 else 1
        return columns * self.image[3]

    @property
    def runs(self) -> tuple[int, ...]:
        """The offset of each run in the image, relative to the row's first code."""
        _, _, width, channels = self.image
        columns = range(1 if self.dilations[1] == 1 else self.kernel[1])
        return tuple(
            (i * self.dilations[0] * width + j * self.dilations[1]) * channels
            for i in range(self.kernel[0])
            for j in columns
        )


@dataclass(frozen=True)
class Batch:
    """A batch of products, each with a separate weight matrix.

    Attributes:
        size: the number of products, None if dynamic.
        matrices: the number of matrices in the weight, `[matrices, ..]`.
        index: i32 `[size]`, the matrix of each product; outside of `[0, matrices)` if the result is not read. None:
            product i has matrix i.
        rows: i32 `[size, M]`: each row reads row `rows // repeats` of the activation `[R, K]`; None: the activation is
            `[size, M, K]`.
        counts: two i32 `[matrices]`, if the products are blocks of a matrix's rows: the index of each matrix's first
            product, and its number of rows. The last product of a matrix may have fewer than M rows.
        repeats: how many consecutive values of `rows` denote the same row of the activation.
        target: i32 `[size, M]`, the row of the result `[R, N]` that each row is written to, negative for none; None:
            the result is `[size, M, N]`.
        side_by_side: whether the results are concatenated along columns: the result is `[M, size * N]`, operands that
            follow columns have as many, and the activation's window says which channels a product reads.
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
    """One operand of the product: signed 8-bit codes `[rows.., K]`, or floats that `decode` makes from such codes.

    `flipped`: the tensor holds the codes with their top bit inverted, like unsigned codes with a bias of 128.
    `k_last`: the last axis (after the groups are merged into it) is K, else the first is.
    `e2m1`: the codes are e2m1, and the multiplied value is twice their value, an integer.
    `decode`: from the code (`Previous(0)`) and operands of its column and group to the value that is multiplied.
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
    """A split of the columns into two halves, which the next stage combines: the number of stages and operations of the
    kernel before the split, and the element type of the value that is split."""

    stages: int
    operations: int
    value_type: ir.Type


@dataclass(frozen=True)
class Kernel:
    """A product and all ops on its result that are fused with it. Sizes are None if dynamic."""

    m: int | None
    n: int
    k: int
    lhs: Factor
    rhs: Factor
    acc_type: ir.Type
    result_type: ir.Type  # of one element
    group: int | None = None  # codes along K in one partial sum; None: all of them
    # If sums are of integers that represent fractions: the factor that a sum is multiplied by, which makes it f32.
    fraction: float | None = None
    combine: Stage | None = None
    # Scales of both operands, if the instruction multiplies by them: words of four scales along K, per row or column.
    scales: tuple[Operand, ...] = ()
    total_type: ir.Type | None = None  # of the sum over groups
    stages: tuple[Stage, ...] = ()
    # The sizes of the axes of the program's result that are rows (None: dynamic); several for a batch with one weight.
    row_sizes: tuple[int | None, ...] = ()
    batch: Batch | None = None
    gate: Gate | None = None
    planes: bool = False  # the result of a convolution is `[images, N, pixels]`: channels before pixels
    # Operations of the group, which the kernel replaces: the contraction first, unless gathers were put before it.
    operations: tuple[OpLike, ...] = field(default=(), compare=False, repr=False)

    @property
    def columns(self) -> int:
        """The number of columns of the result."""
        columns = self.n if self.gate is None else self.n // 2
        return columns * self.batch.matrices if self.batch is not None and self.batch.side_by_side else columns

    @property
    def side_by_side(self) -> bool:
        """Whether the kernel is a batch whose results are concatenated along columns; see `Batch`."""
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
        """The kernel without `Batch.counts`, for a generator that finds the used rows of a batch in another way."""
        return self if self.batch is None else replace(self, batch=replace(self.batch, counts=None))

    @property
    def groups(self) -> int:
        return 1 if self.group is None else self.k // self.group

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands of all bodies, each tensor once for each choice of axes."""
        seen: dict[Operand, None] = dict.fromkeys(self.scales)
        for stage in (self.rhs.decode, self.combine, *self.stages):
            if stage is None:
                continue
            seen.update(dict.fromkeys(stage.operands))
        return tuple(seen)

    @property
    def dynamic(self) -> bool:
        """Whether the size of the batch is dynamic; without a batch, or side by side, the number of rows."""
        return (self.m if self.batch is None or self.side_by_side else self.batch.size) is None

    @property
    def value_type(self) -> ir.Type:
        """The element type of the first stage's input."""
        if self.combine is None:
            return self.acc_type
        assert self.total_type is not None
        return self.total_type


class Unfit(Exception):
    """Raised for a group of ops that is not a kernel: the reason, and what would make it one."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy
