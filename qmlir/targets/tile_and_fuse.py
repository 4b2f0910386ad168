"""Tiles for matrix instructions on IREE's TileAndFuse pipeline, chosen from shapes.

A `Config` is the content of a `compilation_info`: the MMA kind, the workgroup's tile, how its subgroups share
it, the step along K, and padding. IREE 3.13 keeps this attribute of a program's linalg op up to code
generation, but drops a `lowering_config` alone.

Requirements of IREE 3.13, each seen on gfx942:
  * a dim that its tile does not divide, or that is dynamic, needs `padding`, else "op was not bufferized";
  * with `padding` and an accumulator that is not a fill, `convert_acc_gemm` is needed, else the compiler
    unrolls without bound (minutes of compilation, kilobytes of spills).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from ..core.faults import Fault
from ..core.mlir import ir
from ..ir.barriers import Reason, fusion_barrier
from ..ir.walk import made_by
from .base import Target
from .cost import Cost, Figures, Work
from .detach import detached
from .gpu import MatrixInstruction, parse_mma
from .roofline import element_bytes, roofline
from .row_masks import UNIT_SUM, loses_masks, with_unit_sum
from .strategy import Accept, Contraction, Decline, Facts, RunnerUp
from .transposed import transposed

if TYPE_CHECKING:
    from ..core.mlir import OpLike


FAULTS = (
    Fault(
        "IREE turns a constant operand of equal elements into a scalar inside the product, and then cannot distribute "
        "the product to WMMA.",
        canary="splat_operand",
    ),
)


@dataclass(frozen=True)
class Config:
    """A tiling of a contraction for matrix instructions; sizes in elements."""

    mma: MatrixInstruction
    subgroup_size: int
    waves: tuple[int, int]  # subgroups of a workgroup along M and N
    tiles: tuple[int, int]  # instructions per subgroup along M and N
    k_steps: int  # instructions along K per step of the main loop
    prefetch_stages: int = 2

    @property
    def m(self) -> int:
        return self.waves[0] * self.tiles[0] * self.mma.m

    @property
    def n(self) -> int:
        return self.waves[1] * self.tiles[1] * self.mma.n

    @property
    def k(self) -> int:
        return self.k_steps * self.mma.k

    @property
    def threads(self) -> int:
        return self.waves[0] * self.waves[1] * self.subgroup_size

    @property
    def accumulators(self) -> int:
        """32-bit registers per lane for the result's tile."""
        return self.tiles[0] * self.tiles[1] * self.mma.m * self.mma.n // self.subgroup_size

    def shared_bytes(self) -> float:
        """Bytes of shared memory for the tiles of both operands; rows are padded against bank conflicts."""
        return (self.m + self.n) * (self.k * element_bytes(self.mma.lhs) + 16)


@dataclass(frozen=True)
class Placement:
    """The iteration dims that are tiled along M, N and K; the other dims have tiles of 1."""

    m: int
    n: int
    k: int


def place(c: Contraction) -> Placement | None:
    """The largest M and N dims and the innermost K dim; None if one of them is missing."""

    def largest(role: str) -> int | None:
        dims = [d for d, r in enumerate(c.roles) if r == role]
        if not dims:
            return None
        # A dynamic dim counts as the largest: it is the program's number of rows.
        return max(dims, key=lambda d: (c.sizes[d] is None, c.sizes[d] or 0, d))

    m, n = largest("m"), largest("n")
    ks = [d for d, r in enumerate(c.roles) if r == "k"]
    return None if m is None or n is None or not ks else Placement(m, n, ks[-1])


def padded_dims(config: Config, c: Contraction, where: Placement) -> set[int]:
    """The iteration dims that the tile does not divide, or that are dynamic."""
    steps = {where.m: config.m, where.n: config.n, where.k: config.k}
    return {dim for dim, step in steps.items() if (size := c.sizes[dim]) is None or size % step}


def compilation_info(config: Config, c: Contraction, where: Placement, unit_sum: int | None = None) -> str:
    """The text of the `#iree_codegen.compilation_info` for `c`. `unit_sum`: the iteration dim of a further reduction
    that is not tiled (`row_masks.with_unit_sum`)."""

    def row(default: int, outer_k: int, unit: int = 0, **chosen: int) -> list[int]:
        values = [outer_k if role == "k" else default for role in c.roles]
        for letter, value in chosen.items():
            values[getattr(where, letter)] = value
        return values if unit_sum is None else [*values[:unit_sum], unit, *values[unit_sum:]]

    tile = {"m": config.m, "n": config.n, "k": config.k}
    fields = [
        f"workgroup = {row(1, 0, m=config.m, n=config.n, k=0)}",
        f"reduction = {row(0, 1, m=0, n=0, k=config.k_steps)}",
        f"subgroup = {row(0, 0, m=config.tiles[0], n=config.tiles[1], k=0)}",
        f"mma_kind = #iree_gpu.mma_layout<{config.mma.name}>",
        "promote_operands = [0, 1]",
    ]
    if padded_dims(config, c, where):
        fields += [f"padding = {row(1, 1, unit=1, **tile)}", "convert_acc_gemm"]
    if unit_sum is not None:
        fields.append(UNIT_SUM)
    return (
        "#iree_codegen.compilation_info<"
        f"lowering_config = #iree_gpu.lowering_config<{{{', '.join(fields)}}}>, "
        "translation_info = <pipeline = #iree_gpu.pipeline<TileAndFuse> "
        f"workgroup_size = [{config.threads}, 1, 1] subgroup_size = {config.subgroup_size}, "
        "{gpu_pipeline_options = #iree_gpu.pipeline_options<"
        f"prefetch_num_stages = {config.prefetch_stages}>}}>>"
    )


@dataclass(frozen=True)
class TileAndFuseLimits:
    """Limits of an architecture for the choice of a config."""

    subgroup_size: int
    accumulators: int  # registers per lane for the result's tile: more of them spill
    shared_memory: int
    k_bytes: int = 128  # of one row per step of the main loop
    # Bounds checks of a ragged or dynamic problem take registers. If accumulators come out of the same register file
    # as everything else (RDNA), 16-bit operands leave only this many for them.
    ragged_accumulators: int | None = None


# Cost of loading one element of a tile's row or column, in multiply-accumulates.
_LOAD_COST = 32


def candidates(mma: MatrixInstruction, limits: TileAndFuseLimits, c: Contraction, where: Placement) -> Iterator[Config]:
    """Configs that fit the registers and the shared memory and are not much larger than the problem."""
    m, n, k = (c.sizes[d] for d in (where.m, where.n, where.k))

    def steps(size: int | None, unit: int) -> int:
        return 1 << 30 if size is None else -(-size // unit)

    budget = limits.accumulators
    if limits.ragged_accumulators is not None and None in c.sizes and element_bytes(mma.lhs) > 1:
        budget = limits.ragged_accumulators
    most = max(1, min(int(limits.k_bytes / element_bytes(mma.lhs)) // mma.k, steps(k, mma.k)))
    # A step that divides K needs no padding, so it is preferred even if it is shorter, down to half the length.
    whole = [s for s in range(most, most // 2, -1) if k is not None and k % (s * mma.k) == 0]
    k_steps = whole[0] if whole else most
    for waves in ((2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (1, 1)):
        for tiles in ((4, 4), (2, 4), (4, 2), (2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (1, 1)):
            config = Config(mma, limits.subgroup_size, waves, tiles, k_steps)
            # Waste: a workgroup's tile that is more than twice the problem along M or N.
            wasteful = waves[0] * tiles[0] > 2 * steps(m, mma.m) or waves[1] * tiles[1] > 2 * steps(n, mma.n)
            fits = config.accumulators <= budget
            if fits and not wasteful and config.shared_bytes() <= limits.shared_memory:
                yield config


# Configs are compared as if dynamic sizes had this many elements.
_TYPICAL = 512


def cost(config: Config, target: Target, c: Contraction, where: Placement) -> Cost:
    """Estimated time: rounds of workgroups over the device, times one workgroup's work for each element of K."""
    workgroups, f = 1.0, Figures(target.capabilities)
    for dim, (role, size) in enumerate(zip(c.roles, c.sizes, strict=True)):
        tile = config.m if dim == where.m else config.n if dim == where.n else 1
        if role != "k":
            workgroups *= -(-f.rows(size, _TYPICAL) // tile)
    k = prod(f.rows(size, _TYPICAL) for role, size in zip(c.roles, c.sizes, strict=True) if role == "k")
    waves = config.waves[0] * config.waves[1]
    alone = {
        # Fewer than four subgroups leave SIMDs of a unit idle.
        "multiply": f.multiply(2 * config.m * config.n * 4 / min(4, waves), config.mma.lhs),
        "loads": f.multiply(2 * _LOAD_COST * (config.m + config.n), config.mma.lhs),
    }
    return f.cost(Work(-(-workgroups // f.units), k, alone=alone))


def choose(
    kinds: Sequence[MatrixInstruction], limits: TileAndFuseLimits, target: Target, c: Contraction, where: Placement
) -> list[tuple[Cost, Config]]:
    """Configs, the fastest first; equally fast ones in the order of `kinds`. MMA kinds longer along K than the problem
    are used only if there is no shorter kind: operands padded in shared memory may end up in scratch memory."""
    k = c.sizes[where.k]
    short = [mma for mma in kinds if k is None or mma.k <= k]
    every = [config for mma in short or kinds for config in candidates(mma, limits, c, where)]
    return sorted(((cost(config, target, c, where), config) for config in every), key=lambda pair: pair[0].rank)


@dataclass(frozen=True)
class MmaPlan:
    """Set `compilation_info` on the op."""

    config: Config
    contraction: Contraction
    where: Placement

    def apply(self, op: OpLike) -> None:
        op, loops = transposed(detached(op))
        _keep_splats(op)
        before, at = self.contraction, self.where
        c = replace(before, roles=tuple(before.roles[i] for i in loops), sizes=tuple(before.sizes[i] for i in loops))
        where = Placement(*(loops.index(i) for i in (at.m, at.n, at.k)))
        unit_sum = None
        if loses_masks(op, padded_dims(self.config, c, where), {where.m, where.n, where.k}):
            unit_sum = c.roles.index("k")
            op = with_unit_sum(op, unit_sum)
        info = compilation_info(self.config, c, where, unit_sum)
        op.attributes["compilation_info"] = ir.Attribute.parse(info, context=op.context)

    def describe(self) -> Facts:
        c = self.config
        return {
            "route": "compilation_info",
            "mma": c.mma.name,
            "workgroup": [c.m, c.n, c.k],
            "threads": c.threads,
            "subgroup_size": c.subgroup_size,
            "padded": bool(padded_dims(c, self.contraction, self.where)),
        }


def _keep_splats(op: OpLike) -> None:
    """Hide operands that are constants of equal elements behind barriers. IREE 3.13 turns such a constant into a scalar
    inside the product, and then has no operand for WMMA ("failed to distribute")."""
    for i, value in enumerate(list(op.operands)[:2]):
        constant = made_by(value, "arith.constant")
        if constant is not None and getattr(constant.attributes["value"], "is_splat", False):
            with op.location, ir.InsertionPoint(op):
                op.operands[i] = fusion_barrier(value, Reason.SPLAT)


def _any(mma: MatrixInstruction) -> bool:
    return True


@dataclass(frozen=True)
class MmaStrategy:
    """Matmuls on matrix instructions, with tiles chosen by qmlir.

    Convolutions are left to the stock route, which compiles them as implicit GEMM with the same instructions.
    """

    target: Target
    limits: TileAndFuseLimits
    name: str = "mma"
    usable: Callable[[MatrixInstruction], bool] = _any  # which of the target's kinds the pipeline can lower

    def kinds(self, c: Contraction) -> list[MatrixInstruction]:
        """The target's MMA kinds for the operands' types, preferred ones first."""
        every = [parse_mma(name) for name in self.target.capabilities.mma]
        fitting = [k for k in every if (k.lhs, k.rhs, k.acc) == (c.lhs, c.rhs, c.acc) and self.usable(k)]
        # 16 x 16 first: as fast as 32 x 32, with less waste at a ragged edge.
        return sorted(fitting, key=lambda k: (k.m, -k.k))

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        if c.kind != "matmul":
            return Decline(f"a {c.kind}: left to IREE's implicit GEMM", "write it as a matmul")
        kinds = self.kinds(c)
        if not kinds:
            return Decline(
                f"{self.target.spelling} has no matrix instruction for {c.lhs} x {c.rhs} -> {c.acc}",
                f"it has {', '.join(self.target.capabilities.mma) or 'none at all'}",
            )
        where = place(c)
        if where is None or c.m == 1 or c.n == 1:
            return Decline(
                "one row or column: a matrix instruction would compute a tile for it",
                "none needed: the stock route reduces across lanes and is bound by memory",
            )
        if c.k is None:
            # A precaution, not a workaround: IREE's iree-codegen-gpu-pad-operands once failed in some programs in which
            # another size is dynamic too. No program is known that still shows it; an i8 matmul with dynamic M, N and K
            # compiles.
            return Decline("K is dynamic: IREE's padding of it fails in some programs", "a static K")
        if c.k == 1:
            return Decline("K is one: an outer product, nothing to sum", "none needed: elementwise code fits")
        found = choose(kinds, self.limits, self.target, c, where)
        if not found:
            return Decline("no tile fits the registers and the shared memory", "smaller sizes")
        bound = replace(roofline(self.target, c), cost=found[0][0])
        if len(found) > 1:
            seconds, other = found[1]
            bound = replace(bound, runner_up=RunnerUp(f"workgroup {other.m}x{other.n}x{other.k}", seconds))
        return Accept(MmaPlan(found[0][1], c, where), bound)
