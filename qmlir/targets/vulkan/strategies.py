"""How contractions are compiled for Vulkan.

IREE's SPIR-V path compiles plain layouts and whole tiles well, and everything else to one thread per element. Sizes are
therefore aligned, layouts made plain, and convolutions become matmuls of patches. For a dynamic M there is no remedy:
the result is correct, but is a reduction by one workgroup per output element, and the plan says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.mlir import ir
from ...ir.affine import indexing_maps
from ...ir.barriers import Reason, fusion_barrier
from ...ir.build import dims
from ...ir.checks import assert_short_sum
from ..aligned import AlignedPlan, fitting_block
from ..base import Target
from ..gpu import parse_mma
from ..gpu_kernels.dot_strategy import TILED, DotStrategy
from ..gpu_kernels.multi_version import MultiVersionStrategy
from ..gpu_kernels.rows_strategy import GpuRowsStrategy
from ..gpu_kernels.strategy import FixedTile
from ..im2col import Im2colStrategy
from ..roofline import roofline
from ..stock import StockPlan, StockStrategy, unsupported_dtype
from ..strategy import Accept, Contraction, Decline, Facts, Plan, Strategy
from ..tensors import computed
from ..widened import WidenedPlan
from .description import known_to_iree
from .kernels.machine import Spirv
from .kernels.strategy import CooperativeKernelStrategy

if TYPE_CHECKING:
    from ...core.mlir import OpLike


def too_long(target: Target, c: Contraction) -> bool:
    """Whether the device may leave the stock reduction over K, a loop of one term per iteration, before its end."""
    limit = target.capabilities.loop_limit
    return limit is not None and c.kind == "matmul" and (c.k is None or c.k > limit)


@dataclass(frozen=True)
class SeparatePlan:
    """The stock route, with computed operands stored to memory first.

    IREE's SPIR-V path unrolls a producer that it fuses into a float matmul (dequantised weights) over all of K: 85 s of
    compilation and 150 KB of code for f32 4x128x256 with int8 weights, and the driver never finishes. For small results
    it distributes both wrongly: elements stay zero (f16 36x72 with int8 weights 4x72). With a dynamic M, most columns
    of a ragged N are wrong (int8 ?x512 with f16 weights 512x63).
    """

    facts: tuple[tuple[str, str], ...] = ()

    def apply(self, op: OpLike) -> None:
        with ir.InsertionPoint(op):
            for i in (0, 1):
                if computed(op.operands[i]):
                    op.operands[i] = fusion_barrier(op.operands[i], Reason.IN_MEMORY)

    def describe(self) -> Mapping[str, str]:
        return {"route": "stock", "operands": "in memory", **dict(self.facts)}


@dataclass(frozen=True)
class BoundedPlan:
    """A plan for a sum of dynamic length; the program ends with an error if it is longer than a loop of the device."""

    inner: Plan
    longest: int
    loops: tuple[int, ...]  # the op's loops over K

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`. The check runs on the host; the device computes nothing for it."""
        axes = [e.position if isinstance(e, ir.AffineDimExpr) else None for e in indexing_maps(op)[0].results]
        with ir.InsertionPoint(op), op.location:
            for loop, size in zip(axes, dims(op.operands[0]), strict=True):
                if loop in self.loops and not isinstance(size, int):
                    assert_short_sum([size], self.longest)
        self.inner.apply(op)

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return {**self.inner.describe(), "longest_sum": self.longest}


@dataclass(frozen=True)
class ShortReductionStrategy:
    """The stock route, on devices that leave long loops early: sums of static length are divided into shorter loops
    (qmlir-cut-loops), others are checked when the program runs."""

    target: Target
    stock: StockStrategy
    name: str = "stock"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        answer = self.stock.consider(c)
        if too_long(self.target, c) and c.k is None and isinstance(answer, Accept):
            assert self.target.capabilities.loop_limit is not None
            loops = tuple(d for d, role in enumerate(c.roles) if role == "k")
            return Accept(BoundedPlan(answer.plan, self.target.capabilities.loop_limit, loops), answer.estimate)
        tiled = c.kind == "matmul" and 1 not in (c.m, c.n)
        if isinstance(answer, Accept) and tiled and not c.acc.startswith("i"):
            return Accept(SeparatePlan(tuple(self.stock.facts(self.target, c).items())), answer.estimate)
        return answer


@dataclass(frozen=True)
class Bfloat16Strategy:
    """bf16 matmuls as f32 matmuls: SPIR-V has no bf16 arithmetic, and every bf16 value is an f32 value."""

    inner: Strategy
    name: str = "bf16"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        if c.kind != "matmul" or "bf16" not in (c.lhs, c.rhs):
            return Decline(f"{c.lhs} x {c.rhs} is not a product of bf16", "none needed")
        answer = self.inner.consider(replace(c, lhs="f32", rhs="f32"))
        if isinstance(answer, Decline):
            return answer
        return Accept(WidenedPlan("f32", answer.plan, self.inner.name, separate=True), answer.estimate)


def is_plain(c: Contraction) -> bool:
    """Whether the operands are `[b.., m, k]`, `[b.., n, k]` and the result `[b.., m, n]`."""
    if c.op is None:
        return True  # described only: it will be built plain

    space = [d for role in "bmnk" for d, r in enumerate(c.roles) if r == role]
    for indexing in indexing_maps(c.op):
        places = [space.index(ir.AffineDimExpr(result).position) for result in indexing.results]
        if places != sorted(places):
            return False
    return True


def consider_aligned(target: Target, c: Contraction, units: Mapping[str, int], codegen: str) -> Accept | Decline:
    """The aligned plan, or the stock plan if there is nothing to align."""
    if c.kind != "matmul":
        return Decline(f"a {c.kind}, not a matmul", "im2col rewrites a convolution to a matmul")
    if None in c.sizes:
        return Decline(
            "a size is dynamic, and IREE's SPIR-V path tiles static sizes only",
            "a static size, or one program for each of the usual sizes",
        )
    if (c.m == 1 or c.n == 1) and not too_long(target, c):
        return Decline("one row or column: a tile would be computed for it", "the stock reduction fits")
    blocks = tuple(
        fitting_block(size or 1, units[role]) if role in units and (role != "k" or d == c.roles.index("k")) else 1
        for d, (role, size) in enumerate(zip(c.roles, c.sizes, strict=True))
    )
    whole = all((size or 0) % block == 0 for size, block in zip(c.sizes, blocks, strict=True))
    estimate = roofline(target, c)
    if whole and is_plain(c):
        return Accept(StockPlan((("codegen", codegen),)), estimate)
    return Accept(AlignedPlan(c, blocks, codegen), estimate)


# From this number of rows on, padding costs little compared to the product.
_MANY_ROWS = 256


@dataclass(frozen=True)
class CooperativeMatrixStrategy:
    """Matmuls on cooperative matrices, if the device has them for the operands' types. A matmul of few rows that needs
    padding or transposing before, and slicing after, is left to `tiles`: that takes longer than the product."""

    target: Target
    tiles: Strategy | None = None
    name: str = "cooperative-matrix"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        if declined := unsupported_dtype(self.target, c):
            return declined
        kinds = [parse_mma(kind) for kind in known_to_iree(self.target.capabilities.mma)]
        fitting = [k for k in kinds if (k.lhs, k.rhs, k.acc) == (c.lhs, c.rhs, c.acc)]
        if not fitting:
            return Decline(
                f"{self.target.spelling} has no cooperative matrix for {c.lhs} x {c.rhs} -> {c.acc}",
                f"it has {', '.join(k.name for k in kinds) or 'none at all'}",
            )
        answer = consider_aligned(self.target, c, {"m": 16, "n": 16, "k": 16}, "cooperative matrix")
        moved = isinstance(answer, Accept) and isinstance(answer.plan, AlignedPlan) and (c.m or 0) < _MANY_ROWS
        if moved and c.op is not None and self.tiles is not None and isinstance(self.tiles.consider(c), Accept):
            return Decline("its operands would be padded or transposed first", f"{_MANY_ROWS} rows, or tiles take it")
        return answer


@dataclass(frozen=True)
class VulkanDotStrategy:
    """int8 matmuls by the packed dot product instruction (`OpSDotAccSat` of four codes)."""

    target: Target
    name: str = "dot"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        if (c.lhs, c.rhs, c.acc) != ("i8", "i8", "i32"):
            return Decline(f"{c.lhs} x {c.rhs} -> {c.acc} is not a signed int8 product", "cast the codes to i8")
        rows = 16 if (c.m or 0) > 8 else 4
        return consider_aligned(self.target, c, {"m": rows, "n": 32, "k": 16}, "packed int8 dot product")


def stock_facts(target: Target, c: Contraction) -> dict[str, str]:
    """How IREE compiles the contractions that are left to it."""
    if c.kind != "matmul":
        facts = {"codegen": "one thread per element"}
        return facts if c.kind == "depthwise_conv2d" else {**facts, "slow": "the size of the image is dynamic"}
    if None in c.sizes:
        return {
            "codegen": "one workgroup per output element",
            "slow": "a size is dynamic, and IREE's SPIR-V path tiles static sizes only",
        }
    if "f" in c.lhs and 1 not in (c.m, c.n) and any(parse_mma(kind).lhs == "f16" for kind in target.capabilities.mma):
        return {"codegen": "f32 multiply-add", "slow": "IREE makes no f16 cooperative matrix that a device could run"}
    return {"codegen": "reduction across lanes" if 1 in (c.m, c.n) else "IREE's choice"}


def strategies(target: Target) -> tuple[Strategy, ...]:
    """The strategies for contractions, best first."""
    stock = ShortReductionStrategy(target, StockStrategy(target, stock_facts))
    code = Spirv(target.capabilities.subgroup_sizes[0])
    few = DotStrategy(target=target, machine=code, name="cooperative", few=True, any_argument=True)
    tiles = (FixedTile(*TILED.tile), FixedTile(*TILED.tile, stream_k=True))
    tiled = DotStrategy(target=target, machine=code, name="tiled", few=False, any_argument=True, tiles=tiles)
    matrix, dot = CooperativeMatrixStrategy(target, tiled), VulkanDotStrategy(target)
    matmuls = (matrix, dot, Bfloat16Strategy(stock))
    own_matrix = CooperativeKernelStrategy(target=target, machine=code)
    multi_version = MultiVersionStrategy((few, own_matrix, tiled))
    return (multi_version, few, own_matrix, matrix, tiled, dot, matmuls[-1], Im2colStrategy((*matmuls, stock)), stock)


def rows_strategies(target: Target) -> tuple[GpuRowsStrategy, ...]:
    """Kernels for rows."""
    return (GpuRowsStrategy(Spirv(target.capabilities.subgroup_sizes[0]), sums=True),)
