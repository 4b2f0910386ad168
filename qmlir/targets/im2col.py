"""Convolutions as matmuls of their patches, for targets whose code generation has no implicit GEMM.

`[N,H,W,C] -> patches [N*OH*OW, KH*KW*C]`, times the filter `[F, KH*KW*C]`. The patches are written to memory once, in
int8: KH*KW times the size of the input. A 1x1 window without strides needs no copy: its patches are the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.mlir import arith, ir, tensor
from ..dialect.constants import is_zero_fill
from ..ir.attributes import window_pair
from ..ir.barriers import Reason, fusion_barrier, opaque
from ..ir.walk import defining_op
from .strategy import Accept, Contraction, Decline, Facts, Plan, Strategy, decide
from .tensors import filled, generic, merge, permuted, sizes_of, split, type_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike


@dataclass(frozen=True)
class Im2colPlan:
    """Rewrite the convolution to patches and a matmul, and apply the plan `inner` to the matmul."""

    inner: Plan
    strategy: str  # the name of the inner plan's strategy
    keep: bool  # whether there is also a barrier after the matmul

    def apply(self, op: OpLike) -> None:
        with ir.InsertionPoint(op):
            result, matmul = convolution_as_matmul(op, self.keep)
        op.results[0].replace_all_uses_with(result)
        op.erase()
        self.inner.apply(matmul)

    def describe(self) -> Facts:
        return {"route": "im2col", "strategy": self.strategy, "matmul": dict(self.inner.describe())}


def as_matmul(c: Contraction) -> Contraction:
    """The description of the matmul that a convolution is rewritten to."""
    sizes = (*c.batch, c.m, c.n, c.k)
    return replace(c, kind="matmul", roles=("b",) * len(c.batch) + ("m", "n", "k"), sizes=sizes, op=None)


def _dynamic_image(op: OpLike) -> bool:
    result = op.results[0].type
    return any(result.is_dynamic_dim(d) for d in range(1, result.rank))


@dataclass(frozen=True)
class Im2colStrategy:
    """Convolutions whose sizes, except the batch, are static, by the first of `matmuls` that accepts the matmul."""

    matmuls: Sequence[Strategy]
    # Decline static sizes: the stock route of this target has an implicit GEMM for them, and only for them.
    only_dynamic: bool = False
    # Whether the matmul must keep its form for its tiles to fit: to fuse the consumers, IREE would expand M to the
    # image's three dims again. On a CPU that is welcome.
    keep: bool = True
    name: str = "im2col"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        if c.kind != "conv2d":
            return Decline(f"a {c.kind}, not a convolution over channels", "none needed")
        if self.only_dynamic and c.m is not None:
            return Decline("all sizes are static: an implicit GEMM needs no patches in memory", "none needed")
        if c.k is None or c.n is None or c.op is None or _dynamic_image(c.op):
            return Decline("a size other than the batch is dynamic", "static sizes of image and filter")
        decision, plan = decide(as_matmul(c), self.matmuls)
        if plan is None:
            reasons = "; ".join(f"{n}: {a.reason}" for n, a in decision.answers if isinstance(a, Decline))
            return Decline(f"its matmul was declined ({reasons})", "see the reasons")
        accepted = next(a for n, a in decision.answers if n == decision.chosen and isinstance(a, Accept))
        return Accept(Im2colPlan(plan, decision.chosen, self.keep), accepted.estimate)


def _times(size: ir.Value | int, factor: ir.Value | int) -> ir.Value | int:
    assert isinstance(factor, int)
    if isinstance(size, int):
        return size * factor
    return arith.muli(size, arith.constant(ir.IndexType.get(), factor))


def _image(rows: ir.Value, image: list[ir.Value | int]) -> ir.Value:
    """`[N*OH*OW, ..]` -> `[N, OH, OW, ..]`."""
    return split(split(rows, 0, _times(image[0], image[1]), image[2]), 0, image[0], image[1])


def _rows(value: ir.Value, first: int) -> ir.Value:
    """Merge the three dims from `first` on into one."""
    return merge(merge(value, first), first)


def convolution_as_matmul(op: OpLike, keep: bool) -> tuple[ir.Value, OpLike]:
    """Build a 2-D convolution as a matmul, followed by a barrier if `keep`; returns the convolution's result and the
    matmul's op."""
    data, weight, init = op.operands
    grouped = "nhwgc" in op.name
    if "hwcf" in op.name:
        weight = permuted(weight, (3, 0, 1, 2))
    kernel = sizes_of(weight)[-3:-1]
    image = sizes_of(init)[:3]
    # [G.., N, OH, OW, KH, KW, C] -> [G.., N*OH*OW, KH*KW*C]; [G.., F, KH, KW, C] -> [G.., F, KH*KW*C]
    lead = 1 if grouped else 0
    columns = _patches(data, image, kernel, window_pair(op, "strides"), window_pair(op, "dilations"), grouped)
    columns = _rows(_rows(columns, lead + 3), lead)
    groups = sizes_of(weight)[:lead]
    rows = sizes_of(columns)[lead]
    hidden = opaque(rows) if keep else rows
    columns = fusion_barrier(columns, Reason.PATCHES, [*groups, hidden, sizes_of(columns)[-1]])
    weight = _rows(weight, lead + 1)
    filters = sizes_of(weight)[lead]
    element = type_of(init).element_type
    if is_zero_fill(init):
        start = filled([*groups, hidden, filters], element)
    else:
        start = _rows(permuted(init, (3, 0, 1, 2, 4)) if grouped else init, lead)
    product = _matmul(columns, weight, start, lead)
    matmul = defining_op(product)
    product = fusion_barrier(product, Reason.PATCHES, [*groups, rows, filters]) if keep else product
    back = permuted(product, (1, 0, 2)) if grouped else product
    return _image(back, image), matmul


def _patches(
    data: ir.Value,
    image: list[ir.Value | int],
    kernel: list[ir.Value | int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    grouped: bool,
) -> ir.Value:
    """The patches of an image: [N,H,W,G..,C] -> [G..,N,OH,OW,KH,KW,C]."""
    sizes = sizes_of(data)
    if not grouped and kernel == [1, 1] and strides == (1, 1):
        return split(split(data, 3, 1, sizes[3]), 3, 1, 1)  # the patches are the image
    groups = sizes[3:-1]
    lead = len(groups)
    dims = [ir.AffineDimExpr.get(d) for d in range(lead + 6)]
    n, oh, ow, kh, kw, c = dims[lead:]
    y, x = oh * strides[0] + kh * dilations[0], ow * strides[1] + kw * dilations[1]
    source = ir.AffineMap.get(lead + 6, 0, [n, y, x, *dims[:lead], c])
    init = tensor.empty([*groups, *image, *kernel, sizes[-1]], type_of(data).element_type)
    maps = [source, ir.AffineMap.get_identity(lead + 6)]
    return generic([data], init, maps, ["parallel"] * (lead + 6), lambda value, _: value)


def _matmul(lhs: ir.Value, rhs: ir.Value, init: ir.Value, lead: int) -> ir.Value:
    """`[G.., M, K] x [G.., N, K] -> [G.., M, N]` in the accumulator's type."""
    batch = list(range(lead))
    m, n, k = lead, lead + 1, lead + 2
    maps = [
        ir.AffineMap.get(lead + 3, 0, [ir.AffineDimExpr.get(d) for d in (*batch, *dims)])
        for dims in ((m, k), (n, k), (m, n))
    ]
    result = type_of(init).element_type
    integer = isinstance(result, ir.IntegerType)

    def extended(x: ir.Value) -> ir.Value:
        if x.type == result:
            return x
        return arith.extsi(result, x) if integer else arith.extf(result, x)

    def body(x: ir.Value, y: ir.Value, acc: ir.Value) -> ir.Value:
        if integer:
            return arith.addi(acc, arith.muli(extended(x), extended(y)))
        return arith.addf(acc, arith.mulf(extended(x), extended(y)))

    return generic([lhs, rhs], init, maps, ["parallel"] * (lead + 2) + ["reduction"], body)
