"""Exact int8 products on f16 tensor cores.

IREE has no int8 MMA kind for NVIDIA: an int8 contraction becomes scalar multiply-adds. But integers up to 2048
are exact in f16, products of two int8 codes are exact in the tensor core, and its f32 sums of integers
are exact as long as no partial sum exceeds 2^24: `K * max|lhs| * max|rhs| <= 2^24`. Tensor cores align the
terms of a sum to the largest and keep at least 24 bits of it (Fasi, Higham, Mikaitis, Pranesh, "Numerical
behavior of NVIDIA tensor cores", 2021), which drops nothing of integers below that bound. A longer K is cut
into chunks within the bound, as one more batch dim, and the chunks' sums are added in i32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.faults import Fault
from ...core.mlir import arith, ir, linalg
from ...dialect.constants import is_zero_fill
from ...ir.affine import indexing_maps
from ...ir.walk import defining_op
from ..base import Target
from ..cost import Figures
from ..detach import detached
from ..roofline import roofline
from ..strategy import Accept, Contraction, Decline, Estimate, Fact, Facts, Plan
from ..tensors import (
    elementwise,
    filled,
    generic,
    merge,
    multiply_add,
    pad_end,
    permuted,
    sizes_of,
    split,
    sum_over,
    type_of,
)
from ..tile_and_fuse import MmaStrategy

if TYPE_CHECKING:
    from ...core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE has no int8 matrix instruction for NVIDIA: a product of int8 codes becomes scalar multiply-adds.",
        canary="int8_product",
    ),
)
EXACT_SUM = 1 << 24  # the largest integer up to which f32 holds every integer
EXACT_CODE = 1 << 11  # the same for f16
_INTEGERS = {"i8": "arith.sitofp", "ui8": "arith.uitofp"}


def longest_exact_k(lhs_magnitude: int, rhs_magnitude: int) -> int:
    """How many products can be added in f32 without rounding."""
    return EXACT_SUM // max(1, lhs_magnitude * rhs_magnitude)


@dataclass(frozen=True)
class Split:
    """K cut into `chunks` of `length`, `chunks * length >= K`; the rest is padding with zeros."""

    chunks: int
    length: int


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def split_k(k: int, limit: int, unit: int = 16) -> Split:
    """The fewest chunks within `limit`; up to twice as many when that needs no padding.

    `unit` is the instruction's K: a length that is a multiple of it wastes nothing.
    """
    if k <= limit:
        return Split(1, k)
    limit = max(limit // unit * unit, 1)
    fewest = ceil_div(k, limit)
    for chunks in range(fewest, 2 * fewest + 1):
        if k % chunks == 0 and (k // chunks) % unit == 0:
            return Split(chunks, k // chunks)
    length = min(limit, ceil_div(ceil_div(k, fewest), unit) * unit)
    return Split(ceil_div(k, length), length)


# ---- the IR


def _as_f16(value: ir.Value, dtype: str) -> ir.Value:
    """The codes of an i8 tensor as f16; `dtype` says whether they are signed."""
    f16 = ir.F16Type.get()
    convert = arith.uitofp if dtype == "ui8" else arith.sitofp
    return elementwise(value, f16, lambda x: convert(f16, x))


def _as_i32(x: ir.Value) -> ir.Value:
    return arith.fptosi(ir.IntegerType.get_signless(32), x)


def _add_init(value: ir.Value, init: ir.Value) -> ir.Value:
    """Convert the f32 sums to i32 and add `init`, unless that is zero."""
    i32 = ir.IntegerType.get_signless(32)
    if is_zero_fill(init):
        return elementwise(value, i32, _as_i32)
    identity = ir.AffineMap.get_identity(type_of(value).rank)
    parallel = ["parallel"] * type_of(value).rank
    return generic([value], init, [identity] * 2, parallel, lambda x, acc: arith.addi(_as_i32(x), acc))


def matmul_in_f16(op: OpLike, c: Contraction, cut: Split, dim: int) -> tuple[ir.Value, OpLike]:
    """The i32 result of a matmul-like op computed in f16, and the f16 contraction's op."""
    maps = indexing_maps(op)
    kinds = ["reduction" if role == "k" else "parallel" for role in c.roles]
    operands = [op.operands[0], op.operands[1]]
    init = op.operands[2]
    f32 = ir.F32Type.get()
    out_sizes = sizes_of(init)
    if cut.chunks == 1:
        casts = [_as_f16(operands[0], c.lhs), _as_f16(operands[1], c.rhs)]
        sums = generic(casts, filled(out_sizes, f32), maps, kinds, multiply_add)
        return _add_init(sums, init), defining_op(sums)

    new_maps = []
    for position, affine_map in enumerate(maps):
        exprs = []
        for axis, result in enumerate(affine_map.results):
            old = ir.AffineDimExpr(result).position
            if old == dim:
                padding = cut.chunks * cut.length - (c.sizes[dim] or 0)
                operands[position] = pad_end(operands[position], axis, padding)
                operands[position] = split(operands[position], axis, cut.chunks, cut.length)
                exprs.append(ir.AffineDimExpr.get(0))
            exprs.append(ir.AffineDimExpr.get(old + 1))
        if position == 2:
            exprs.insert(0, ir.AffineDimExpr.get(0))
        new_maps.append(ir.AffineMap.get(affine_map.n_dims + 1, 0, exprs))
    # Cast after padding: the padded operand is stored in memory, and int8 takes half the bytes of f16.
    casts = [_as_f16(operands[0], c.lhs), _as_f16(operands[1], c.rhs)]
    partial = filled([cut.chunks, *out_sizes], f32)
    sums = generic(casts, partial, new_maps, ["parallel", *kinds], multiply_add)
    return sum_over(sums, 0, init, _as_i32), defining_op(sums)


def convolution_in_f16(op: OpLike, c: Contraction, cut: Split) -> ir.Value:
    """The i32 result of a 2-D convolution computed in f16.

    Chunks of the channels become groups: [N,H,W,C] -> [N,H,W,P,C/P], with one result per chunk. They are added in i32.
    """
    data, weight = op.operands[0], op.operands[1]
    init = op.operands[2]
    window = {name: op.attributes[name] for name in ("strides", "dilations") if name in op.attributes}
    out_sizes = sizes_of(init)
    f32 = ir.F32Type.get()
    if cut.chunks == 1:
        build = getattr(linalg, op.name.removeprefix("linalg."))
        return _add_init(
            build(_as_f16(data, c.lhs), _as_f16(weight, c.rhs), outs=[filled(out_sizes, f32)], **window), init
        )

    grouped = "nhwgc" in op.name
    channels_last = "hwcf" not in op.name
    channel = 4 if grouped else 3
    axis = type_of(weight).rank - 1 if channels_last else 2
    channels = type_of(data).get_dim_size(channel)
    padding = cut.chunks * cut.length - channels
    data = split(pad_end(data, channel, padding), channel, cut.chunks, cut.length)
    weight = split(pad_end(weight, axis, padding), axis, cut.chunks, cut.length)
    if grouped:
        # [N,H,W,G,P,C] -> [N,H,W,G*P,C]; [G,F,KH,KW,P,C] -> [G,P,F,KH,KW,C] -> [G*P,F,KH,KW,C]
        data = merge(data, 3)
        weight = merge(permuted(weight, (0, 4, 1, 2, 3, 5)), 0)
        groups = out_sizes[3]
        assert isinstance(groups, int)
        sums = filled([*out_sizes[:3], groups * cut.chunks, out_sizes[4]], f32)
        sums = linalg.conv_2d_nhwgc_gfhwc(_as_f16(data, c.lhs), _as_f16(weight, c.rhs), outs=[sums], **window)
        return sum_over(split(sums, 3, groups, cut.chunks), 4, init, _as_i32)
    # [F,KH,KW,P,C] or [KH,KW,P,C,F] -> [P,F,KH,KW,C]
    weight = permuted(weight, (3, 0, 1, 2, 4) if channels_last else (2, 4, 0, 1, 3))
    sums = filled([*out_sizes[:3], cut.chunks, out_sizes[3]], f32)
    sums = linalg.conv_2d_nhwgc_gfhwc(_as_f16(data, c.lhs), _as_f16(weight, c.rhs), outs=[sums], **window)
    return sum_over(sums, 3, init, _as_i32)


# ---- the strategy


@dataclass(frozen=True)
class ExactF16Plan:
    """Replace an integer matmul by casts, an f16 contraction and a cast back; sum chunks of K in i32."""

    contraction: Contraction
    split: Split
    split_dim: int  # the iteration dim that is cut
    mma: Plan | None = None  # the MmaPlan of the f16 contraction, None: IREE chooses

    def apply(self, op: OpLike) -> None:
        op = detached(op)  # before the casts, so that its barriers store int8
        with ir.InsertionPoint(op):
            result, inner = matmul_in_f16(op, self.contraction, self.split, self.split_dim)
        if self.mma is not None:
            self.mma.apply(inner)
        op.results[0].replace_all_uses_with(result)
        op.erase()

    def describe(self) -> Facts:
        facts: dict[str, Fact] = {"route": "exact f16", "k_chunks": self.split.chunks, "k_chunk": self.split.length}
        return {**facts, **({"f16": dict(self.mma.describe())} if self.mma is not None else {})}


@dataclass(frozen=True)
class ExactF16ConvPlan:
    """As `ExactF16Plan`, for a convolution: chunks of the input channels become groups of a grouped convolution."""

    contraction: Contraction
    split: Split  # of the channels

    def apply(self, op: OpLike) -> None:
        with ir.InsertionPoint(op):
            result = convolution_in_f16(op, self.contraction, self.split)
        op.results[0].replace_all_uses_with(result)
        op.erase()

    def describe(self) -> Mapping[str, int | str]:
        return {
            "route": "exact f16",
            "codegen": "implicit GEMM on tensor cores",
            "channel_chunks": self.split.chunks,
            "channel_chunk": self.split.length,
        }


@dataclass(frozen=True)
class ExactF16Strategy:
    """Integer matmuls and convolutions with known bounds on tensor cores, through f16."""

    target: Target
    mma: MmaStrategy
    name: str = "exact-f16"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        if c.lhs not in _INTEGERS or c.rhs not in _INTEGERS or c.acc != "i32":
            return Decline(f"{c.lhs} x {c.rhs} -> {c.acc} is not a product of int8 codes", "cast the codes to i8")
        if max(c.lhs_magnitude, c.rhs_magnitude) > EXACT_CODE:
            return Decline("codes beyond 2048 are not exact in f16", "smaller magnitudes")
        if c.k is None:
            return Decline("K is dynamic, so the sums cannot be shown to be exact in f32", "a static K")
        if c.kind == "depthwise_conv2d":
            return Decline("a depthwise convolution has no matrix product", "none needed: it is bound by memory")
        limit = longest_exact_k(c.lhs_magnitude, c.rhs_magnitude)
        return self._convolution(c, limit) if c.kind == "conv2d" else self._matmul(c, limit)

    def _matmul(self, c: Contraction, limit: int) -> Accept | Decline:
        if c.m == 1 or c.n == 1:
            return Decline(
                "one row or column: a tensor core would compute a tile for it",
                "none needed: the stock route reduces int8 across lanes and is bound by memory",
            )
        ks = [(size or 1, dim) for dim, (role, size) in enumerate(zip(c.roles, c.sizes, strict=True)) if role == "k"]
        size, dim = max(ks)
        rest = (c.k or 1) // size
        if rest > limit:
            return Decline(f"K is spread over {len(ks)} dims, and all but one are beyond the bound", "fewer dims")
        cut = split_k(size, limit // rest)
        inner = in_f16(c, cut, dim)
        answer = self.mma.consider(inner)
        plan = ExactF16Plan(c, cut, dim, answer.plan if isinstance(answer, Accept) else None)
        extra = 8.0 * (c.m or 0) * (c.n or 0) * cut.chunks if cut.chunks > 1 else 0.0
        bound = self._estimate(c, extra, cut)
        if not isinstance(answer, Accept) or answer.estimate.cost is None:
            return Accept(plan, bound)
        # The chunks of a long K are batches of the inner product; this adds the cost of summing them.
        f, cost = Figures(self.target.capabilities), answer.estimate.cost
        return Accept(plan, replace(bound, cost=replace(cost, seconds=cost.seconds + extra / f.bandwidth)))

    def _convolution(self, c: Contraction, limit: int) -> Accept | Decline:
        if c.op is None:
            return Decline("the convolution's op is needed to see its window", "")
        window, channels = window_and_channels(c)
        if window > limit:
            return Decline(f"a window of {window} positions is beyond the bound {limit}", "a smaller window")
        cut = split_k(channels, limit // window)
        extra = 8.0 * (c.m or 0) * (c.n or 0) * cut.chunks if cut.chunks > 1 else 0.0
        return Accept(ExactF16ConvPlan(c, cut), self._estimate(c, extra, cut))

    def _estimate(self, c: Contraction, extra: float, cut: Split) -> Estimate:
        bound = roofline(self.target, c, rate_dtype="f16", extra_bytes=extra)
        chunks = f", K in {cut.chunks} chunks" if cut.chunks > 1 else ""
        return Estimate(bound.seconds, f"{bound.note}, at the rate of f16{chunks}")


def window_and_channels(c: Contraction) -> tuple[int, int]:
    """Positions of the filter's window, and input channels (per group), from the type of the filter."""
    shape = c.operation.operands[1].type
    size = [shape.get_dim_size(d) for d in range(shape.rank)]
    if "hwcf" in c.operation.name:
        return size[0] * size[1], size[2]
    return size[-3] * size[-2], size[-1]


def in_f16(c: Contraction, cut: Split, split_dim: int) -> Contraction:
    """The f16 contraction inside the plan, with a new first dim for the chunks if there are several."""
    sizes = list(c.sizes)
    sizes[split_dim] = cut.length
    roles, batch, k = c.roles, c.batch, (c.k or 1)
    if cut.chunks > 1:
        k = k // (c.sizes[split_dim] or 1) * cut.length
        sizes.insert(0, cut.chunks)
        roles, batch = ("b", *roles), (cut.chunks, *batch)
    f16 = replace(c, lhs="f16", rhs="f16", acc="f32", roles=roles, sizes=tuple(sizes), batch=batch, k=k, op=None)
    return f16
