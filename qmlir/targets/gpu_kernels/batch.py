"""Products side by side, each with a matrix of its own: which one a workgroup makes, and where its rows are.

Without a batch there is one product. With one, the workgroups of product `i` have `i` as their third coordinate. Of
blocks that belong to experts some are used by nobody, and the last one of an expert has fewer rows than the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.mlir import arith, ir
from ...kernels.description import Kernel
from ...kernels.outline import gather_indices, has_tokens
from . import emit as e
from .executable import RuntimeSize, View


@dataclass(frozen=True)
class Products:
    """The products of a kernel."""

    kernel: Kernel

    @property
    def size(self) -> int | None:
        """What may be known at run time only: how many products, or the rows of the only one."""
        batch = self.kernel.batch
        return self.kernel.m if batch is None or batch.side_by_side else batch.size

    @property
    def tokens(self) -> bool:
        """Whether the number of rows that the activation has is given beside it."""
        return has_tokens(self.kernel)

    @property
    def views(self) -> list[View]:
        """Of what picks matrices and rows; see `outline.gather_indices`."""
        batch = self.kernel.batch
        if batch is None:
            return []
        shapes = {
            "index": (batch.size,), "start": (batch.matrices,), "count": (batch.matrices,),
            "rows": (batch.size, self.kernel.m), "target": (batch.size, self.kernel.m),
        }  # fmt: skip
        there = [
            *(["index"] if batch.index is not None else []),
            *(["start", "count"] if batch.counts is not None else []),
            *(["rows"] if batch.rows is not None else []),
            *(["target"] if batch.target is not None else []),
        ]
        assert len(there) == len(gather_indices(self.kernel))
        return [View(shapes[name], e.integer(32)) for name in there]

    @property
    def activation_rows(self) -> int | RuntimeSize | None:
        """How many rows the activation has in memory."""
        batch = self.kernel.batch
        if batch is None or batch.side_by_side:
            return self.kernel.m
        if batch.rows is not None:
            rows = ir.RankedTensorType(self.kernel.lhs.value.type)
            return RuntimeSize(tokens=True) if rows.is_dynamic_dim(0) else int(rows.get_dim_size(0))
        assert self.kernel.m is not None
        return RuntimeSize(times=self.kernel.m) if batch.size is None else batch.size * self.kernel.m

    def place(
        self, size: e.Index, memory: Sequence[ir.Value], product: e.Index | None = None,
        first_row: e.Index | None = None,
    ) -> Place:  # fmt: skip
        """Where this workgroup is. `memory`: the memrefs of `views`; `product`: its number, by default the third
        coordinate of the workgroup; `first_row`: of its tile in its product, where tiles without rows are to be left
        out."""
        batch = self.kernel.batch
        if batch is None:
            return Place(size)
        if product is None:
            product = e.block(2)
        if batch.side_by_side:
            return Place(size, product, product, True, self.kernel)
        assert self.kernel.m is not None
        matrix: e.Index = product
        used: e.Condition = True
        rows: e.Index = self.kernel.m
        if batch.index is not None:
            index = e.load(memory[0], [product])
            used = arith.cmpi(arith.CmpIPredicate.ult, index, e.word(batch.matrices))
            # An index of no matrix reads the last one's counts, and makes nothing of them.
            matrix = e.as_index(arith.minui(index, e.word(batch.matrices - 1)))
        if batch.counts is not None:
            start, count = (e.as_index(e.load(m, [matrix])) for m in memory[1:3])
            there = e.subtract(count, e.multiply(e.subtract(product, start), rows))
            used = e.both(used, True if first_row is None else e.less(first_row, there))
            rows = e.minimum(rows, there)
        left = list(memory)
        target = left.pop() if batch.target is not None else None
        gathered = left.pop() if batch.rows is not None else None
        place = Place(rows, product, matrix, used, self.kernel, gathered, target)
        # Rows of a block stand at its start: a tile whose first row goes nowhere has none.
        if target is None or first_row is None:
            return place
        return replace(place, used=e.both(used, place.goes(place.inside(first_row))[1]))


@dataclass(frozen=True)
class Place:
    """A product: how many rows it has, its number, its matrix, and whether anyone reads it, a bool or an i1."""

    rows: e.Index
    product: e.Index = 0
    matrix: e.Index = 0
    used: e.Condition = True
    kernel: Kernel | None = None  # of a batch
    gathered: ir.Value | None = None  # the memref that says which row of the activation each row is
    target: ir.Value | None = None  # the memref that says which row of the result each row is
    last_token: int | None = None  # of the activation, where rows that hold none may say any number

    def of_matrix(self, *where: e.Index) -> list[e.Index]:
        """A place in what each matrix has."""
        return [*where] if self.kernel is None else [self.matrix, *where]

    def inside(self, row: e.Index) -> e.Index:
        """The row, or where the product has ended, its last one."""
        return e.minimum(row, e.subtract(self.rows, 1))

    def token(self, row: e.Index) -> e.Index:
        """The row of the activation that a row of the product is."""
        if self.kernel is None or self.kernel.side_by_side:
            return row
        batch = self.kernel.batch
        assert batch is not None
        assert self.kernel.m is not None
        if self.gathered is None:
            return e.add(e.multiply(self.product, self.kernel.m), row)
        token = e.divide(self.slot(row), batch.repeats)
        return token if self.last_token is None else e.minimum(token, self.last_token)

    def slot(self, row: e.Index) -> e.Index:
        """The number that picks a row."""
        assert self.gathered is not None
        return e.as_index(e.load(self.gathered, [self.product, row]))

    def goes(self, row: e.Index) -> tuple[e.Index, ir.Value]:
        """The row of the result that a row is, and whether it is one."""
        assert self.target is not None
        number = e.load(self.target, [self.product, row])
        there = arith.cmpi(arith.CmpIPredicate.sge, number, e.word(0))
        return e.as_index(number), there
