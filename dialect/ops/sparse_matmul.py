"""qmlir.sparse_matmul: `epilogue(sum_k A[m,k] * B[k,n])` with a sparse weight B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..constants import constant_array
from ..dtypes import Array
from ..enums import SPARSE_FORMAT, SPARSE_VALUES
from ..ods import (
    ANY,
    BOOL,
    RESULT,
    SPARSE_INDEX,
    Attributes,
    AxisSizes,
    Enum,
    I64s,
    Operands,
    Sizes,
    Spec,
    attr,
    fail,
    operand,
    product_sides,
    result,
)
from ..packing import signed_codes
from ..shapes import Shape, show
from ..sparse_formats import entries, structure_problem
from .common import check_result, element_of, logical_shape, same, shape_of
from .product import ProductOp, gated_width

if TYPE_CHECKING:
    from ...core.mlir import ir


@dataclass(frozen=True)
class Stored:
    """A constant weight: codes, one per element (those of i1 are -1 and 1), indices and row pointers."""

    codes: Array
    indices: Array
    indptr: Array | None


class SparseMatmulOp(ProductOp, name="sparse_matmul"):
    """A matrix product with a sparse weight, `epilogue(sum_k A[m,k] * B[k,n])`: entries that are not stored are 0.

    `lhs [B.., M, K]`, weight of dense shape `rhs_shape`, `[K, N]` (or `[N, K]` with `rhs_transposed`), result
    `[B.., M, N]`.

    `csr`: `values [E]`, `indices [E]` (columns), `indptr [rows + 1]`. `coo`: `values [E]`, `indices [2, E]`. `bsr`:
    `values [E, r, c]` with `block = [r, c]`, `indices [E]`, `indptr [rows / r + 1]`. `2:4`: `values [N, K/2]`, `indices
    [N, ceil(K/8)]`: two 2-bit positions for each group of four along K. Entries are sorted; each is stored once.

    The function takes the weight as one argument, a `SparseWeight`: eager calls pass its arrays to the program,
    `.compile` folds it as a constant, or takes a `SparseSpec` for a weight that is known only at run time.
    Raises InputError if the indices of a run-time weight are out of range or not sorted.
    """

    SIDES = product_sides("lhs", "values")

    lhs = operand(ANY, doc="codes or floats `[B.., M, K]`")
    values = operand(ANY, doc="the stored codes or floats")
    indices = operand(SPARSE_INDEX, doc="positions of the entries, in the form of `format`")
    indptr = operand(SPARSE_INDEX, optional=True, doc="where each row begins in `indices`, `[rows + 1]`")
    format = attr(Enum(SPARSE_FORMAT), required=True, doc="how entries are stored")
    rhs_shape = attr(I64s(2), required=True, doc="shape of the dense weight, `[K, N]`")
    block = attr(I64s(2), doc="rows and columns of a block of 'bsr'")
    rhs_transposed = attr(BOOL, default=False, doc="whether `rhs_shape` is `[N, K]`")
    result = result(RESULT, doc="`[B.., M, N]`, of a gated activation `[B.., M, N/2]`")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        lhs = operands["lhs"][0]
        n = attributes["rhs_shape"][0 if attributes["rhs_transposed"] else 1]
        return [((*lhs[:-1], gated_width(n, attributes)), attributes["out_dtype"])]

    @property
    def sides(self) -> tuple[ir.Value, ir.Value]:
        return self.lhs, self.values

    @property
    def rows_columns(self) -> tuple[int, int]:
        """Numbers of rows and columns that `indices` address: those of blocks for `bsr`."""
        rows, columns = self.rhs_shape
        return (rows // self.block[0], columns // self.block[1]) if self.block is not None else (rows, columns)

    @property
    def stored(self) -> int:
        """Number of stored entries (`bsr`: blocks)."""
        return int((shape_of(self.indices) or (0,))[-1] or 0)

    def values_shape(self) -> tuple[int, ...]:
        """Shape of `values` in codes, packed or not."""
        if self.format == "2:4":
            return self.rhs_shape[0], self.rhs_shape[1] // 2
        return (self.stored, *self.block) if self.block is not None else (self.stored,)

    def rhs_codes_shape(self) -> Shape:
        """Shape of `values` in codes, checked against the operand."""
        return logical_shape(shape_of(self.values), self.rhs_code, self.rhs_packing, self.values_shape()[-1], "values")

    def constant(self) -> Stored | None:
        """The weight if all of its arrays are constant, else None."""
        values, indices = constant_array(self.values), constant_array(self.indices)
        indptr = None if self.indptr is None else constant_array(self.indptr)
        if values is None or indices is None or (self.indptr is not None and indptr is None):
            return None
        d = self.rhs_code
        if d.bits < 8:
            values = signed_codes(values, d.name, self.rhs_packing, self.values_shape()[-1])
        return Stored(values.view(d.numpy) if d.is_int and d.bits == 8 else values, indices, indptr)

    def groups_along_k(self) -> bool:
        """Whether a scale or zero point varies along K."""
        rhs_axis = -1 if self.rhs_transposed else -2
        for value, axis in ((self.lhs_scale, -1), (self.lhs_zero_point, -1), (self.rhs_scale, rhs_axis)):
            own = () if value is None else shape_of(value)
            if len(own) >= -axis and own[axis] != 1:
                return True
        return False

    def longest(self) -> int:
        """The largest number of terms of one sum; for a weight that is not constant a bound, from K and `stored`."""
        k: int = self.rhs_shape[1 if self.rhs_transposed else 0]
        if self.format == "2:4":
            return k // 2
        r, c = self.block or (1, 1)
        # Which of row and column runs along N, and how many terms one entry adds to a sum.
        axis, depth = (0, c) if self.rhs_transposed else (1, r)
        indices = constant_array(self.indices)
        indptr = None if self.indptr is None else constant_array(self.indptr)
        if indices is None or (self.indptr is not None and indptr is None):
            return min(k, self.stored * depth)
        at = entries(self.format, indices, indptr)[axis]
        return int(np.bincount(at).max()) * depth if at.size else 0

    # ---- rules

    def sizes(self) -> Sizes:
        shape = shape_of(self.lhs)
        outer: AxisSizes = (*(f"B{i}" for i in range(len(shape) - 2)), "M")
        weight = tuple(self.rhs_shape)
        rhs: AxisSizes = ("N", "K") if self.rhs_transposed else ("K", "N")
        k = weight[1 if self.rhs_transposed else 0]
        found = self.side_sizes(("lhs", "values"), (*outer, k), rhs, (shape, weight))
        # The sizes of the weight's own arrays are static.
        return {**found, "values": (None,) * len(shape_of(self.values)), **self.epilogue_sizes((*outer, "N"))}

    def verify_semantics(self) -> None:
        lhs, shape = shape_of(self.lhs), self.rhs_shape
        if len(lhs) < 2:
            fail(f"'lhs' must have at least two axes, but is {self.lhs.type}")
        if min(shape) < 0:
            fail(f"'rhs_shape' {show(shape)} must not be negative")
        rhs_k = 1 if self.rhs_transposed else 0
        k, n = shape[rhs_k], shape[1 - rhs_k]
        if not same(lhs[-1], k):
            fail(f"K differs: 'lhs' {show(lhs)} has {lhs[-1]}, 'rhs_shape' {show(shape)} has {k} along axis {rhs_k}")
        self._verify_values()
        self._verify_structure()
        if self.rhs_zero_point is not None or self.rhs_zero_mode != "none":
            fail(
                "a sparse weight takes no zero point: entries that are not stored are the real value 0, which would "
                "not be code 0; quantise the weight symmetrically (rhs_zero_mode 'none')"
            )
        self.verify_sides(lhs, tuple(shape), len(lhs) - 1, rhs_k, k, ("lhs", "weight"), self.longest())
        self.verify_epilogue((*lhs[:-1], n), n)
        check_result(self.result, (*lhs[:-1], n // 2 if self.gated else n))

    def _verify_values(self) -> None:
        d = self.rhs_code
        if d.name not in SPARSE_VALUES:
            fail(f"'values' is {d.name}, whose code 0 need not be the real value 0; use {', '.join(SPARSE_VALUES)}")
        if (self.format == "bsr") != (self.block is not None):
            fail("format 'bsr' and attribute 'block' go together")
        if (self.format in ("csr", "bsr")) != (self.indptr is not None):
            fail("operand 'indptr' belongs to the formats 'csr' and 'bsr'")
        if self.block is not None and (min(self.block) < 1 or any(s % b for s, b in zip(self.rhs_shape, self.block,
                                                                                        strict=True))):  # fmt: skip
            fail(f"'block' {show(self.block)} does not divide 'rhs_shape' {show(self.rhs_shape)}")
        if self.format == "2:4":
            if not self.rhs_transposed:
                fail("format '2:4' has its groups along K, the last axis: state 'rhs_transposed' with [N, K]")
            if self.rhs_shape[1] % 4:
                fail(f"K = {self.rhs_shape[1]} is not a multiple of 4, which format '2:4' needs")

    def _verify_structure(self) -> None:
        """Check the shapes of the arrays, and their contents if they are constant."""
        indices, structured = shape_of(self.indices), self.format == "2:4"
        if (element_of(self.indices).bits == 8) != structured:
            fail(
                f"'indices' is {self.indices.type}, but format '{self.format}' takes "
                f"{'bytes (i8)' if structured else 'i32 or i64'}"
            )
        if None in indices:
            fail(f"the number of stored entries must be static, but 'indices' is {self.indices.type}")
        rows, columns = self.rhs_shape
        wanted: Shape = (rows, -(-columns // 8)) if structured else (2, self.stored) if self.format == "coo" else (
            self.stored,)  # fmt: skip
        if indices != wanted:
            fail(f"'indices' has shape {show(indices)}, but format '{self.format}' takes {show(wanted)}")
        if self.rhs_codes_shape() != self.values_shape():
            fail(f"'values' has shape {show(shape_of(self.values))}, but the indices give {show(self.values_shape())}")
        pointers = self.rows_columns[0] + 1
        if self.indptr is not None:
            if element_of(self.indptr).bits == 8:
                fail(f"'indptr' must be i32 or i64, but is {self.indptr.type}")
            if shape_of(self.indptr) != (pointers,):
                fail(f"'indptr' has shape {show(shape_of(self.indptr))}, but {pointers - 1} rows need [{pointers}]")
        known = constant_array(self.indices)
        indptr = None if self.indptr is None else constant_array(self.indptr)
        if known is not None and (self.indptr is None or indptr is not None):
            problem = structure_problem(self.format, self.rhs_shape, self.stored, known, indptr, self.block)
            if problem:
                fail(problem)
