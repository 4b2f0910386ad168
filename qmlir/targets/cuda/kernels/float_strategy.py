"""When a built-in kernel takes floats: 16-bit floats by weights of codes, or one-byte floats on both sides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from ....kernels.description import Kernel
from ....kernels.weights import constant_codes
from ...gpu_kernels.scaled import KINDS, lacks_scaled, scaled_product
from ...gpu_kernels.strategy import NOT_CONSTANT
from ...gpu_kernels.weights import CodeFormat, stored_in_rows
from ...strategy import Accept, Contraction, Decline
from .choose import fitting_registers
from .fp8 import LONGEST, Fp8Gemm
from .handed_groups import hands_over
from .scaled_gemm import ScaledGemm, words_of
from .scaled_instructions import SCALED
from .strategy import CudaProductStrategy, no_wgmma
from .tile import FLOAT_TILES, TILES, WGMMA_FP8_TILES, Tile
from .wgmma_fp8 import WgmmaFp8Gemm, fit, takes


@dataclass(frozen=True)
class CudaWeightOnlyStrategy(CudaProductStrategy):
    """16-bit floats by a constant weight of codes, decoded in registers."""

    name: str = "mma-sync-weight-only"
    tiles: tuple[Tile, ...] = FLOAT_TILES

    def unlike(self, c: Contraction) -> Decline | None:
        if c.acc != "f32" or c.lhs not in ("f16", "bf16") or c.rhs != c.lhs:
            return Decline(
                f"unsupported: a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", "a matmul of f16 or bf16 by codes"
            )
        return None

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether a tile computes `kernel`."""
        element = str(kernel.lhs.value.type.element_type)
        if element != c.lhs:
            return Decline(f"the activation is {element} in memory", "f16 or bf16")
        codes = constant_codes(kernel)
        if codes is None:
            return NOT_CONSTANT
        return self.tiled(kernel, c, codes, storages=[stored_in_rows(codes, kernel)], step=32)


# A group's sums are held in addition to the totals: too many for the 128 registers that each of 512 threads may have.
_FP8_TILES = tuple(tile for tile in TILES if tile.threads < 512)
# For kernels with more to hold: totals separate from a tile's sums (twice the registers), or words of scales.
_FEW_SUMS_TILES = tuple(tile for tile in _FP8_TILES if tile.accumulators <= 64 and not tile.stream_k)


@dataclass(frozen=True)
class Fp8Strategy(CudaProductStrategy):
    """Products of one-byte floats by one-byte floats: see `fp8.py`."""

    name: str = "mma-sync-fp8"
    tiles: tuple[Tile, ...] = _FP8_TILES

    @property
    def _has_fp8(self) -> bool:
        return any("_F8" in kind for kind in self.target.capabilities.mma)

    def unlike(self, c: Contraction) -> Decline | None:
        if c.lhs not in KINDS or c.rhs not in KINDS or c.acc != "f32":
            return Decline(f"{c.lhs} x {c.rhs} -> {c.acc}: the kernel multiplies e4m3 and e5m2", "such codes")
        return None

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        return self.tiled(kernel, c, constant_codes(kernel), partial(Fp8Gemm, converts=self._has_fp8))


@dataclass(frozen=True)
class FastFp8Strategy(Fp8Strategy):
    """As `Fp8Strategy`, by the fp8 instruction. This departs from the semantics, so it must be asked for."""

    name: str = "mma-sync-fp8-fast"
    tiles: tuple[Tile, ...] = _FEW_SUMS_TILES

    def unlike(self, c: Contraction) -> Decline | None:
        if declined := super().unlike(c) or self._no_instruction():
            return declined
        if not self.asked:
            how = f"ask for it: qmlir-select{{prefer={self.name}}}"
            return Decline("the instruction keeps fewer bits of a sum than f32 has", how)
        return None

    def _no_instruction(self) -> Decline | None:
        """A refusal if the target does not have the instruction."""
        if not self._has_fp8:
            return Decline(f"{self.target.spelling} has no instruction for fp8", "cuda:sm_89 or newer")
        if "wgmma" in self.target.capabilities.features:
            # Seen in the machine code of ptxas: F2FP and HMMA, where sm_89 and sm_120 have QMMA.
            return Decline("sm_90 multiplies fp8 in wgmma only: its mma.sync converts the codes to f16 first",
                           "wgmma-fp8-fast; mma-sync-fp8 converts in fewer instructions")  # fmt: skip
        return None

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        return self.tiled(kernel, c, constant_codes(kernel), partial(Fp8Gemm, converts=True, fast=True), _short)


def _short(kernel: Kernel, tile: Tile, storage: CodeFormat) -> Tile | None:
    """The tile, shortened so that no sum along K has more than `LONGEST` codes; None if it does not fit."""
    fitting = fitting_registers(kernel, tile, storage)
    if fitting is None or fitting.k <= LONGEST:
        return fitting
    if hands_over(kernel, fitting):
        return fitting if (kernel.group or fitting.k) <= LONGEST else None
    return replace(fitting, k=LONGEST)


@dataclass(frozen=True)
class WgmmaFastFp8Strategy(FastFp8Strategy):
    """As `FastFp8Strategy`, on `wgmma`, which reads both sides from shared memory: see `wgmma_fp8.py`."""

    name: str = "wgmma-fp8-fast"
    tiles: tuple[Tile, ...] = WGMMA_FP8_TILES

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        if declined := no_wgmma(self.target, kernel):
            return declined
        if not takes(kernel):
            return Decline(f"groups of {kernel.group} along a K of {kernel.k} are not whole in tiles of 128 codes",
                           "groups of 32, 64 or 128, and K a multiple of 128")  # fmt: skip
        return self.tiled(kernel, c, constant_codes(kernel), WgmmaFp8Gemm, fit, step=0)

    def _no_instruction(self) -> Decline | None:
        if "wgmma" not in self.target.capabilities.features:
            return Decline(f"{self.target.spelling} has no wgmma", "cuda:sm_90a")
        return None


@dataclass(frozen=True)
class ScaledMmaStrategy(CudaProductStrategy):
    """Products of small floats with one scale per block along K, on instructions that take both."""

    name: str = "mma-sync-scaled"
    tiles: tuple[Tile, ...] = _FEW_SUMS_TILES

    doubles_e2m1 = True

    def unlike(self, c: Contraction) -> Decline | None:
        return lacks_scaled(self.target, c)

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        product = scaled_product(kernel, c, SCALED)
        if isinstance(product, Decline):
            return product
        instruction = product.instruction

        def fit(kernel: Kernel, tile: Tile, storage: CodeFormat) -> Tile | None:
            return tile if words_of(instruction, tile) else None

        make = partial(ScaledGemm, instruction=instruction)
        return product.accepted(self.tiled(product.kernel, c, product.weight, make, fit, step=0))
