"""How contractions are compiled for AMD GPUs."""

from __future__ import annotations

from dataclasses import replace

from ...kernels.tile.instruction import Fragments
from ..base import Target
from ..gpu import parse_mma
from ..gpu_kernels.dot_strategy import DotStrategy
from ..gpu_kernels.multi_version import MultiVersionStrategy
from ..gpu_kernels.rows_strategy import GpuRowsStrategy
from ..im2col import Im2colStrategy
from ..stock import StockStrategy, no_f32_matrix
from ..strategy import Contraction, Strategy
from ..tile_and_fuse import MmaStrategy, TileAndFuseLimits
from ..widened import WidenedStrategy
from .kernels.instructions import INSTRUCTIONS, SCALED
from .kernels.machine import amd
from .kernels.scaled import ScaledMatrixStrategy
from .kernels.strategy import MatrixStrategy


def matrix_instructions(target: Target) -> dict[str, tuple[str, Fragments]]:
    """See `Backend.matrix_instructions`."""
    scaled = {i.table_name: (i.iree_name, i.fragments) for i in SCALED.get(target.name, ())}
    return {i.name: (i.iree_name, i.fragments) for i in INSTRUCTIONS[target.name]} | scaled


def limits(target: Target) -> TileAndFuseLimits:
    """The architecture's limits; on RDNA half of the shared memory, so that two workgroups fit a unit.

    Registers: on CDNA a lane has 512 and the accumulators live in the second half; on RDNA it has 256 for everything,
    and IREE's own choice of 64 x 128 with twice these accumulators spills in f16.
    """
    has = target.capabilities
    if "mfma" in has.features:
        return TileAndFuseLimits(64, 64, has.shared_memory * 3 // 4)
    return TileAndFuseLimits(32, 64, has.shared_memory // 2, k_bytes=64, ragged_accumulators=32)


def stock_facts(target: Target, c: Contraction) -> dict[str, str]:
    """How IREE compiles a contraction that is left to it."""
    if c.kind == "depthwise_conv2d":
        return {"codegen": "scalar multiply-add: a depthwise convolution has no matrix product"}
    if 1 in (c.m, c.n) and c.kind == "matmul":
        return {"codegen": "reduction across lanes"}
    if not any((k.lhs, k.rhs, k.acc) == (c.lhs, c.rhs, c.acc) for k in map(parse_mma, target.capabilities.mma)):
        reason = no_f32_matrix(target, c) or f"no matrix instruction takes {c.lhs} x {c.rhs}"
        return {"codegen": "scalar multiply-add", "slow": reason}
    if c.kind == "conv2d":
        if c.m is None:
            return {"codegen": "scalar multiply-add", "slow": "the size of the image is dynamic"}
        return {"codegen": "implicit GEMM on matrix instructions"}
    return {"codegen": "IREE's choice"}


def strategies(target: Target) -> tuple[Strategy, ...]:
    """The strategies of a target, best first."""
    mma = MmaStrategy(target, limits(target))
    # bf16, because MI200's f16 instructions flush subnormals, which e5m2 codes may be.
    widened = WidenedStrategy("bf16", (mma,))
    code = amd(target)
    few = DotStrategy(target=target, machine=code, name="cooperative", few=True, most_float_rows=2)
    matrix = MatrixStrategy(target=target, machine=code)
    scaled = ScaledMatrixStrategy(target=target, machine=code)
    return (
        scaled,
        MultiVersionStrategy((replace(matrix, always=True),)),
        few,
        matrix,
        Im2colStrategy((mma,), only_dynamic=True),
        mma,
        widened,
        StockStrategy(target, stock_facts),
    )


def rows_strategies(target: Target) -> tuple[GpuRowsStrategy, ...]:
    """Row kernels: a dynamic quantisation with the producers of its input. Norms are left to IREE."""
    return (GpuRowsStrategy(amd(target), sums=False),)
