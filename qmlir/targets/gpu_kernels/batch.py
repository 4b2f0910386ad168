"""Batches of products, each with a separate matrix: which product a workgroup computes, and where its rows are.

Without a batch there is one product. With one, the workgroups of product `i` have `i` as their third coordinate. If the
products are blocks of experts' rows, some blocks are unused, and the last block of an expert may have fewer rows.
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
        """The size that may be dynamic: the number of products, or of rows without a batch or side by side."""
        batch = self.kernel.batch
        return self.kernel.m if batch is None or batch.side_by_side else batch.size

    @property
    def tokens(self) -> bool:
        """Whether the activation's number of rows is passed as a scalar."""
        return has_tokens(self.kernel)

    @property
    def views(self) -> list[View]:
        """Views of the tensors that select matrices and rows; see `outline.gather_indices`."""
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
        """The number of rows of the activation in memory."""
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
        """The product of this workgroup. `memory`: the memrefs of `views`; `product`: its number, by default the third
        coordinate of the workgroup; `first_row`: the first row of the workgroup's tile in the product, if tiles without
        rows are to be marked unused."""
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
            # With an index of no matrix, the last matrix's counts are read and not used.
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
        # The used rows of a block come first: a tile whose first row is not written anywhere has none.
        if target is None or first_row is None:
            return place
        return replace(place, used=e.both(used, place.goes(place.inside(first_row))[1]))


@dataclass(frozen=True)
class Place:
    """A product: its number of rows, its number, its matrix, and whether its result is used, a bool or an i1."""

    rows: e.Index
    product: e.Index = 0
    matrix: e.Index = 0
    used: e.Condition = True
    kernel: Kernel | None = None  # of a batch
    gathered: ir.Value | None = None  # the memref with the row of the activation for each row
    target: ir.Value | None = None  # the memref with the row of the result for each row
    last_token: int | None = None  # the activation's last row, if `gathered` may have any number for unused rows

    def of_matrix(self, *where: e.Index) -> list[e.Index]:
        """Indices into a tensor that has a part for each matrix of a batch."""
        return [*where] if self.kernel is None else [self.matrix, *where]

    def inside(self, row: e.Index) -> e.Index:
        """The row, or the product's last row if it is past the end."""
        return e.minimum(row, e.subtract(self.rows, 1))

    def token(self, row: e.Index) -> e.Index:
        """The row of the activation for a row of the product."""
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
        """The index that gathers a row: its value in `gathered`."""
        assert self.gathered is not None
        return e.as_index(e.load(self.gathered, [self.product, row]))

    def goes(self, row: e.Index) -> tuple[e.Index, ir.Value]:
        """The row of the result that a row is written to, and whether it is written at all."""
        assert self.target is not None
        number = e.load(self.target, [self.product, row])
        there = arith.cmpi(arith.CmpIPredicate.sge, number, e.word(0))
        return e.as_index(number), there
