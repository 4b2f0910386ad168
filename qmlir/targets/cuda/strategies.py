"""How contractions are compiled for NVIDIA GPUs through CUDA."""

from __future__ import annotations

from ...kernels.tile.instruction import Fragments
from ..base import Target
from ..gpu import MatrixInstruction
from ..gpu_kernels.multi_version import MultiVersionStrategy
from ..gpu_kernels.scaled import KINDS
from ..im2col import Im2colStrategy
from ..stock import StockStrategy, no_f32_matrix
from ..strategy import Contraction, Strategy
from ..tile_and_fuse import MmaStrategy, TileAndFuseLimits
from ..widened import WidenedStrategy
from .exact_f16 import ExactF16Strategy
from .kernels.float_strategy import (
    CudaWeightOnlyStrategy,
    FastFp8Strategy,
    Fp8Strategy,
    ScaledMmaStrategy,
    WgmmaFastFp8Strategy,
)
from .kernels.instructions import MMA
from .kernels.machine import nvidia
from .kernels.scaled_instructions import SCALED
from .kernels.strategy import GemvStrategy, MmaSyncStrategy, WgmmaStrategy, convolutions


def _mma_sync(mma: MatrixInstruction) -> bool:
    """Whether IREE may use an instruction: any `mma.sync` except fp8, whose sums keep about 14 bits up to Hopper
    (DeepSeek-V3 technical report, section 3.3), while the semantics require f32."""
    return mma.name.startswith("NV_MMA_SYNC") and not mma.lhs.startswith("f8")


def limits(target: Target) -> TileAndFuseLimits:
    """Limits of IREE's tiles: 64 of 255 registers for accumulators, and 40 of the 48 KiB of shared memory that every
    kernel has without opting in to more."""
    return TileAndFuseLimits(32, 64, target.capabilities.static_shared_memory * 5 // 6)


def matrix_instructions(target: Target) -> dict[str, tuple[str, Fragments]]:
    """See `Backend.matrix_instructions`."""
    names = {"s8": "I8", "f16": "F16", "bf16": "BF16"}
    if any("_F8" in kind for kind in target.capabilities.mma):
        names |= {kind: name.upper() for name, kind in KINDS.items()}
    plain = {
        i.name: (f"NV_MMA_SYNC_{i.acc.upper()}_16x8x{i.depth}_{names[i.lhs_kind]}", i.fragments)
        for i in MMA
        if i.lhs_kind in names
    }
    scaled = [i for i in SCALED if i.kind in target.capabilities.scaled_mma]  # IREE has no names for these
    return plain | {i.name: (i.name, i.fragments) for i in scaled}


def stock_facts(target: Target, c: Contraction) -> dict[str, str]:
    """How IREE compiles a contraction that is left to it."""
    if 1 in (c.m, c.n) and c.kind == "matmul":
        return {"codegen": "reduction across lanes, no tensor core"}
    if c.kind == "depthwise_conv2d":
        return {"codegen": "scalar multiply-add: a depthwise convolution has no matrix product"}
    if c.lhs.lstrip("u").startswith("i"):
        return {"codegen": "scalar multiply-add", "slow": "IREE has no int8 tensor core instruction for NVIDIA"}
    if slow := no_f32_matrix(target, c):
        return {"codegen": "f32 multiply-add", "slow": slow}
    return {"codegen": "implicit GEMM on tensor cores" if c.kind == "conv2d" else "IREE's choice"}


def strategies(target: Target) -> tuple[Strategy, ...]:
    """The strategies of a target, best first."""
    mma = MmaStrategy(target, limits(target), usable=_mma_sync)
    code = nvidia(target)
    wgmma = "wgmma" in target.capabilities.features
    int8 = (WgmmaStrategy(target, code),) if wgmma else ()
    int8 = (*int8, MmaSyncStrategy(target, code))
    weight_only = CudaWeightOnlyStrategy(target, code)
    images = tuple(convolutions(strategy) for strategy in (*int8, weight_only))
    fp8: tuple[Strategy, ...] = (Fp8Strategy(target, code), FastFp8Strategy(target, code))
    if wgmma:
        fp8 = (*fp8, WgmmaFastFp8Strategy(target, code))
    scaled = (ScaledMmaStrategy(target, code),) if target.capabilities.scaled_mma else ()
    kernels = (GemvStrategy(target, code), *int8, *images, *scaled, *fp8, weight_only)
    sized = (GemvStrategy(target, code), *int8, *images, Fp8Strategy(target, code), weight_only)
    multi_version = MultiVersionStrategy(sized)
    exact = ExactF16Strategy(target, mma)
    patches = Im2colStrategy((exact, mma), only_dynamic=True)
    return (
        multi_version,
        *kernels,
        patches,
        exact,
        mma,
        WidenedStrategy("bf16", (mma,)),
        StockStrategy(target, stock_facts),
    )
