"""qmlir.grouped_matmul: rows multiplied by the weight of their group, as in mixture-of-experts layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ods import (
    ANY,
    BOOL,
    FLOAT,
    INDEX,
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
from ..shapes import Shape, show
from .common import Intermediate, check_result, logical_shape, same, shape_of
from .product import ProductOp, columns, gated_width

if TYPE_CHECKING:
    from ...core.mlir import ir


class GroupedMatmulOp(ProductOp, name="grouped_matmul"):
    """A product of each row with the weight of its group (expert).

    Contiguous: `lhs [M, K]` sorted by group, `group_sizes [G]` at run time, `rhs [G, K, N]`, result `[M, N]`.

    Routed: `lhs [T, K]` or `[T, topk, K]`, `expert_ids [T, topk]`, result `[T, topk, N]`, or `[T, N]` with
    `routing_weights [T, topk]`. `rhs` is `[G, N, K]` with `rhs_transposed`.
    Raises InputError when group_sizes do not add up to M or an id is outside [0, G).
    """

    SIDES = product_sides("lhs", "rhs")

    lhs = operand(ANY, doc="codes or floats `[M, K]`; routed `[T, K]` or `[T, topk, K]`")
    rhs = operand(ANY, doc="the weights of the groups, codes or floats `[G, K, N]`")
    group_sizes = operand(INDEX, optional=True, doc="rows of each group `[G]`, which add up to M")
    expert_ids = operand(INDEX, optional=True, doc="the groups of each token `[T, topk]`, in place of `group_sizes`")
    routing_weights = operand(FLOAT, optional=True, doc="`[T, topk]`, for the sum over topk")
    rhs_transposed = attr(BOOL, default=False, doc="whether `rhs` is `[G, N, K]`")
    skip_invalid = attr(BOOL, default=False, doc="whether ids outside [0, G) are skipped")
    result = result(RESULT, doc="`[M, N]`; routed: `[T, topk, N]`, with `routing_weights` `[T, N]`")

    @staticmethod
    def infer(operands: Operands, attributes: Attributes) -> list[Spec]:
        n = gated_width(columns(operands, attributes, 1 if attributes["rhs_transposed"] else 2), attributes)
        rows = operands["lhs"][0][0]
        out = attributes["out_dtype"]
        if "expert_ids" not in operands or "routing_weights" in operands:
            return [((rows, n), out)]
        return [((rows, operands["expert_ids"][0][1], n), out)]

    @property
    def sides(self) -> tuple[Intermediate | ir.Value, ir.Value]:
        return self.lhs, self.rhs

    def rhs_codes_shape(self) -> Shape:
        """Shape of `rhs` in codes, packed or not."""
        if self.rhs_transposed:
            length = shape_of(self.lhs)[-1]
        else:
            n = shape_of(self.result)[-1]
            length = n * 2 if n is not None and self.gated else n
        return logical_shape(shape_of(self.rhs), self.rhs_code, self.rhs_packing, length, "rhs")

    def sizes(self) -> Sizes:
        shape = shape_of(self.lhs)
        lhs: AxisSizes = (
            ("M", "K") if self.expert_ids is None else ("T", "topk", "K") if len(shape) == 3 else ("T", "K")
        )
        rhs: AxisSizes = ("G", "N", "K") if self.rhs_transposed else ("G", "K", "N")
        found = self.side_sizes(("lhs", "rhs"), lhs, rhs, (shape, self.rhs_codes_shape()))
        per_group: AxisSizes | None = ("G", "N") if self.bias is not None and len(shape_of(self.bias)) == 2 else None
        if self.expert_ids is None:
            return {**found, "group_sizes": ("G",), **self.epilogue_sizes(("M", "N"), per_group)}
        found |= {"expert_ids": ("T", "topk"), **self.epilogue_sizes(("T", "topk", "N"), per_group)}
        if self.routing_weights is not None:
            result = found["result"]
            found |= {"routing_weights": ("T", "topk"), "result": (result[0], result[2])}
        return found

    def verify_semantics(self) -> None:
        lhs = shape_of(self.lhs)
        routed = self.expert_ids is not None
        if routed == (self.group_sizes is not None):
            fail("needs either 'group_sizes' (contiguous rows) or 'expert_ids' (routed), and not both")
        if len(shape_of(self.rhs)) != 3 or len(lhs) not in ((2, 3) if routed else (2,)):
            fail(
                f"needs 'lhs' [M, K] and 'rhs' [G, K, N] or [G, N, K], but they are {self.lhs.type} and {self.rhs.type}"
            )
        rhs = self.rhs_codes_shape()
        experts, k, n = rhs[0], lhs[-1], rhs[1 if self.rhs_transposed else 2]
        rhs_k = 2 if self.rhs_transposed else 1
        if not experts:
            fail(f"the number of groups, axis 0 of 'rhs' {show(rhs)}, must be static and at least 1")
        if not same(k, rhs[rhs_k]):
            fail(f"K differs: 'lhs' {show(lhs)} has {k}, 'rhs' {show(rhs)} has {rhs[rhs_k]} along axis {rhs_k}")
        self.verify_sides(lhs, rhs, len(lhs) - 1, rhs_k, k, ("lhs", "rhs"))
        columns = n // 2 if self.gated and n is not None else n
        if routed:
            assert self.expert_ids is not None
            expected = self._routed_shape(lhs, columns)
            self._verify_group_bias(experts, (*lhs[:1], shape_of(self.expert_ids)[1], n), n)
            for name in ("c", "act_scale", "out_scale", "out_multiplier", "out_zero_point"):
                value = getattr(self, name)
                if value is not None and len(shape_of(value)) == 2 and shape_of(value)[0] != 1:
                    fail(f"'{name}' has shape {show(shape_of(value))}; the routed form takes [N] or [T, topk, N]")
            if self.routing_weights is not None and self.out_code.is_int:
                fail(f"a sum weighted by 'routing_weights' is float, but the result is {self.result.type}")
        else:
            assert self.group_sizes is not None
            if shape_of(self.group_sizes) != (experts,):
                fail(f"'group_sizes' has shape {show(shape_of(self.group_sizes))}, but there are {experts} groups")
            for name in ("routing_weights",):
                if getattr(self, name) is not None:
                    fail(f"'{name}' belongs to the routed form ('expert_ids')")
            if self.skip_invalid:
                fail("'skip_invalid' belongs to the routed form ('expert_ids')")
            expected = (lhs[0], columns)
            self._verify_group_bias(experts, (lhs[0], n), n)
        check_result(self.result, expected)

    def _verify_group_bias(self, experts: int, shape: Shape, n: int | None) -> None:
        """Verify the epilogue: a bias `[G, N]` has one row per group, any other bias broadcasts as usual."""
        bias = None if self.bias is None else shape_of(self.bias)
        per_group = bias is not None and len(bias) > 1
        if bias is not None and per_group and bias[:-1] != (experts,) and bias[:-1] != (1,):
            fail(f"'bias' has shape {show(bias)}; write [N], or [{experts}, N] for one row per group")
        self.verify_epilogue(shape, n, bias_rows=(experts,) if per_group else None)

    def _routed_shape(self, lhs: Shape, n: int | None) -> Shape:
        assert self.expert_ids is not None
        ids = shape_of(self.expert_ids)
        if len(ids) != 2 or not same(ids[0], lhs[0]) or (len(lhs) == 3 and not same(ids[1], lhs[1])):
            fail(f"'expert_ids' has shape {show(ids)}, but must be [T, topk] for 'lhs' {show(lhs)}")
        if self.routing_weights is None:
            return (lhs[0], ids[1], n)
        weights = shape_of(self.routing_weights)
        if len(weights) != 2 or not all(same(x, y) for x, y in zip(weights, ids, strict=True)):
            fail(f"'routing_weights' has shape {show(weights)}, but 'expert_ids' has {show(ids)}")
        return (lhs[0], n)
