"""int8 products on f16 tensor cores, exact.

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
from ...core.mlir import ir
from ..base import Target
from ..cost import Figures
from ..detach import detached
from ..roofline import roofline
from ..strategy import Accept, Contraction, Decline, Estimate, Fact, Facts, Plan
from ..tile_and_fuse import MmaStrategy
from .rewrite import convolution_in_f16, matmul_in_f16
from .split import Split, split_k

if TYPE_CHECKING:
    from ...core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE has no int8 matrix instruction for NVIDIA: a product of int8 codes becomes scalar multiply-adds.",
        canary="int8_product",
    ),
)
EXACT_SUM = 1 << 24  # the largest integer up to which f32 holds every integer
EXACT_CODE = 1 << 11  # the same of f16
_INTEGERS = {"i8": "arith.sitofp", "ui8": "arith.uitofp"}


def longest_exact_k(lhs_magnitude: int, rhs_magnitude: int) -> int:
    """How many products can be added in f32 without rounding."""
    return EXACT_SUM // max(1, lhs_magnitude * rhs_magnitude)


@dataclass(frozen=True)
class ExactF16Plan:
    """Replace an integer matmul by casts, an f16 contraction and a cast back; sum chunks of K in i32."""

    contraction: Contraction
    split: Split
    split_dim: int  # the iteration dim that is cut
    mma: Plan | None = None  # the MmaPlan of the f16 contraction, None: IREE chooses

    def apply(self, op: OpLike) -> None:
        op = detached(op)  # here, where what a barrier keeps in memory is int8
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
    """The same for a convolution: chunks of the input channels become groups of a grouped convolution."""

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
            return Decline("the length of the sum is dynamic, so no bound holds it in f32", "a static K")
        if c.kind == "depthwise_conv2d":
            return Decline("a depthwise convolution has no matrix product", "none needed: it is bound by memory")
        limit = longest_exact_k(c.lhs_magnitude, c.rhs_magnitude)
        return self._convolution(c, limit) if c.kind == "conv2d" else self._matmul(c, limit)

    def _matmul(self, c: Contraction, limit: int) -> Accept | Decline:
        if c.m == 1 or c.n == 1:
            return Decline(
                "one row or column: a tensor core would compute a tile for it",
                "the stock route reduces int8 across lanes, which is bound by memory as it must be",
            )
        ks = [(size or 1, dim) for dim, (role, size) in enumerate(zip(c.roles, c.sizes, strict=True)) if role == "k"]
        size, dim = max(ks)
        rest = (c.k or 1) // size
        if rest > limit:
            return Decline(f"K is spread over {len(ks)} dims, and all but one are beyond the bound", "fewer dims")
        split = split_k(size, limit // rest)
        inner = in_f16(c, split, dim)
        answer = self.mma.consider(inner)
        plan = ExactF16Plan(c, split, dim, answer.plan if isinstance(answer, Accept) else None)
        extra = 8.0 * (c.m or 0) * (c.n or 0) * split.chunks if split.chunks > 1 else 0.0
        bound = self._estimate(c, extra, split)
        if not isinstance(answer, Accept) or answer.estimate.cost is None:
            return Accept(plan, bound)
        # The parts of a long K are batches of the inner product; here they are added up.
        f, cost = Figures(self.target.capabilities), answer.estimate.cost
        return Accept(plan, replace(bound, cost=replace(cost, seconds=cost.seconds + extra / f.bandwidth)))

    def _convolution(self, c: Contraction, limit: int) -> Accept | Decline:
        if c.op is None:
            return Decline("the convolution's op is needed to see its window", "")
        window, channels = window_and_channels(c)
        if window > limit:
            return Decline(f"a window of {window} positions is beyond the bound {limit}", "a smaller window")
        split = split_k(channels, limit // window)
        extra = 8.0 * (c.m or 0) * (c.n or 0) * split.chunks if split.chunks > 1 else 0.0
        return Accept(ExactF16ConvPlan(c, split), self._estimate(c, extra, split))

    def _estimate(self, c: Contraction, extra: float, split: Split) -> Estimate:
        bound = roofline(self.target, c, rate_dtype="f16", extra_bytes=extra)
        chunks = f", K in {split.chunks} chunks" if split.chunks > 1 else ""
        return Estimate(bound.seconds, f"{bound.note}, at the rate of f16{chunks}")


def window_and_channels(c: Contraction) -> tuple[int, int]:
    """Positions of the filter's window, and input channels (per group), from the type of the filter."""
    shape = c.operation.operands[1].type
    size = [shape.get_dim_size(d) for d in range(shape.rank)]
    if "hwcf" in c.operation.name:
        return size[0] * size[1], size[2]
    return size[-3] * size[-2], size[-1]


def in_f16(c: Contraction, split: Split, split_dim: int) -> Contraction:
    """What the f16 contraction inside the plan is: a new first dim for the chunks, when there are several."""
    sizes = list(c.sizes)
    sizes[split_dim] = split.length
    roles, batch, k = c.roles, c.batch, (c.k or 1)
    if split.chunks > 1:
        k = k // (c.sizes[split_dim] or 1) * split.length
        sizes.insert(0, split.chunks)
        roles, batch = ("b", *roles), (split.chunks, *batch)
    f16 = replace(c, lhs="f16", rhs="f16", acc="f32", roles=roles, sizes=tuple(sizes), batch=batch, k=k, op=None)
    return f16
