"""qmlir.scaled_matmul: `epilogue(sum_k A[m,k] * B[k,n])` of quantised operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ods import (
    ANY,
    BOOL,
    RESULT,
    Attributes,
    AxisSizes,
    Operands,
    Sizes,
    Spec,
    attr,
    fail,
    operand,
    product_sides,
    result,
)
from ..shapes import Shape, broadcast, show
from .common import axes_along, check_result, logical_shape, same, shape_of
from .product import ProductOp, columns, gated_width

if TYPE_CHECKING:
    from ...core.mlir import ir


class ScaledMatmulOp(ProductOp, name="scaled_matmul"):
    """A matrix product of quantised operands: `epilogue(sum_k A[m,k] * B[k,n])`.

    lhs: [B.., M, K]; rhs: [B.., K, N], or [.., N, K] with rhs_transposed; scales broadcast in blocks: [] per tensor,
    [M, 1] per token, [1, N] per channel, [K/g, N] groups along K; group_size states g where it is less than 8. Result:
    [B.., M, N].
    Raises UsageError and VerifyError for arguments that do not fit. Source: docs/semantics.md, section 4.
    """

    SIDES = product_sides("lhs", "rhs")

    lhs = operand(ANY, doc="codes or floats `[B.., M, K]`")
    rhs = operand(ANY, doc="codes or floats `[B.., K, N]`")
    lhs_transposed = attr(BOOL, default=False, doc="whether `lhs` is `[B.., K, M]`")
    rhs_transposed = attr(BOOL, default=False, doc="whether `rhs` is `[B.., N, K]`")
    result = result(RESULT, doc="`[B.., M, N]`, of a gated activation `[B.., M, N/2]`")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        lhs, rhs = operands["lhs"][0], operands["rhs"][0]
        m = lhs[-1 if attributes["lhs_transposed"] else -2]
        n = columns(operands, attributes, len(rhs) - (2 if attributes["rhs_transposed"] else 1))
        batch = broadcast(lhs[:-2], rhs[:-2]) or ()
        return [((*batch, m, gated_width(n, attributes)), attributes["out_dtype"])]

    @property
    def sides(self) -> tuple[ir.Value, ir.Value]:
        return self.lhs, self.rhs

    def rhs_codes_shape(self) -> Shape:
        """Shape of `rhs` in codes, packed or not."""
        lhs = shape_of(self.lhs)
        if self.rhs_transposed:
            length = lhs[-2 if self.lhs_transposed else -1]
        else:
            n = shape_of(self.result)[-1]
            length = n * 2 if n is not None and self.gated else n
        return logical_shape(shape_of(self.rhs), self.rhs_code, self.rhs_packing, length, "rhs")

    def sizes(self) -> Sizes:
        lhs, rhs = shape_of(self.lhs), self.rhs_codes_shape()
        rank = max(len(lhs), len(rhs)) - 2
        batch = tuple(f"B{i}" for i in range(rank))

        def outer(shape: Shape) -> AxisSizes:
            return axes_along(shape[:-2], batch, shape[:-2]) if len(shape) > 2 else ()

        a: AxisSizes = (*outer(lhs), *(("K", "M") if self.lhs_transposed else ("M", "K")))
        b: AxisSizes = (*outer(rhs), *(("N", "K") if self.rhs_transposed else ("K", "N")))
        return {
            **self.side_sizes(("lhs", "rhs"), a, b, (lhs, rhs)),
            **self.epilogue_sizes((*batch, "M", "N")),
        }

    def verify_semantics(self) -> None:
        lhs = shape_of(self.lhs)
        if len(lhs) < 2 or len(shape_of(self.rhs)) < 2:
            fail(f"'lhs' and 'rhs' must have at least two axes, but are {self.lhs.type} and {self.rhs.type}")
        rhs = self.rhs_codes_shape()
        lhs_k, rhs_k = (
            len(lhs) - (2 if self.lhs_transposed else 1),
            len(rhs) - (1 if self.rhs_transposed else 2),
        )
        m = lhs[-1 if self.lhs_transposed else -2]
        n = rhs[-2 if self.rhs_transposed else -1]
        k = lhs[lhs_k]
        if not same(k, rhs[rhs_k]):
            fail(
                f"K differs: 'lhs' {show(lhs)} has {k} along axis {lhs_k}, 'rhs' {show(rhs)} has {rhs[rhs_k]} along "
                f"axis {rhs_k}"
            )
        batch = broadcast(lhs[:-2], rhs[:-2])
        if batch is None:
            fail(f"the batch axes of 'lhs' {show(lhs)} and 'rhs' {show(rhs)} do not broadcast")
        self.verify_sides(lhs, rhs, lhs_k, rhs_k, k if k is not None else rhs[rhs_k], ("lhs", "rhs"))
        shape = (*batch, m, n)
        self.verify_epilogue(shape, n)
        check_result(self.result, (*batch, m, n // 2 if self.gated and n is not None else n))
