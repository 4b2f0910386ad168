"""When an integer kernel takes a contraction. Every refusal is here; an accepted contraction can be emitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ....dialect.dtypes import Array
from ....kernels.description import Kernel
from ....kernels.row_sums import uses_row_sums
from ....kernels.weights import constant_codes
from ...base import Target
from ...gpu_kernels.plan import accepted, fastest
from ...gpu_kernels.strategy import ProductStrategy, unreadable
from ...gpu_kernels.weights import CodeFormat, byte_codes, stored_in_rows
from ...roofline import roofline
from ...strategy import Accept, Contraction, Decline
from .choose import candidates, fitting_registers, gemv_for
from .gemv import MOST_ROWS
from .handed_groups import fits, hands_over
from .machine import Nvidia
from .mma_gemm import MmaGemm
from .product import TiledProduct
from .shared_tile import copy_size
from .tile import TILES, WGMMA_TILES, Tile
from .wgmma_gemm import WgmmaGemm

if TYPE_CHECKING:
    from typing_extensions import Self

_MIN_ROWS_FOR_WGMMA = 48
# The most rows for which shuffles of every group's sums cost less than handing these over (`handed_groups.py`).
# Measured on an H200: with 4 rows they take 1.25 times as long.
_MAX_ROWS_WITH_GROUPS = 2
BYTES = CodeFormat(order="rows")


@dataclass(frozen=True)
class CudaProductStrategy(ProductStrategy[Tile]):
    """The base of the product strategies. `asked`: whether it was asked for by name, see `strategy.OnRequest`."""

    machine: Nvidia
    kinds: tuple[str, ...] = ("matmul",)
    asked: bool = False

    grouped_floats = True
    doubles_e2m1 = False

    def requested(self) -> Self:
        return replace(self, asked=True)

    def adapted(self, kernel: Kernel) -> Kernel:
        return kernel.without_counts()

    def plan_of(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        answer = _unfit(kernel) or super().plan_of(kernel, c)
        window = kernel.lhs.window
        if window is not None and isinstance(answer, Decline) and kernel.n // window.groups % 16 and window.groups > 1:
            filters = kernel.n // window.groups
            return Decline(f"groups of {filters} filters do not fill whole tiles", "a multiple of 16 filters")
        return answer

    def tiled(
        self, kernel: Kernel, c: Contraction, codes: Array | None, make: Callable[..., TiledProduct] = MmaGemm,
        fit: Callable[[Kernel, Tile, CodeFormat], Tile | None] = fitting_registers,
        storages: Iterable[CodeFormat] = (BYTES,), step: int = 16,
    ) -> Accept | Decline:  # fmt: skip
        """The fastest tile of the first storage for which a tile fits. `step`: codes along K of the instruction's
        shortest step, of which groups must be multiples; 0 if they need not."""
        if kernel.n < 8:
            return Decline(f"N is {kernel.n}: one instruction computes more columns", "other routes sum along K")
        for storage in storages:
            found = candidates(kernel, storage, codes is not None, self.target, self.tiles, make, fit)
            if plans := fastest(found, byte_codes(codes), self.target):
                return accepted(plans, roofline(self.target, c))
        if kernel.batch is not None and all(tile.stream_k for tile in self.tiles):
            return Decline("a batch of products: K is shared by the workgroups of one product", "another tile")
        if kernel.group is not None and step and kernel.group % step:
            return Decline(
                f"groups of {kernel.group} along K fit no step of an instruction",
                f"a group size of {step} or a multiple",
            )
        return Decline("no tile fits shared memory and registers", "mma.sync has smaller ones")


_Strategy = TypeVar("_Strategy", bound=CudaProductStrategy)


def convolutions(strategy: _Strategy) -> _Strategy:
    """The same strategy for convolutions, as products whose activation is read from the image: implicit GEMM."""
    return replace(strategy, name=f"{strategy.name}-conv", kinds=("conv2d",))


def _unfit(kernel: Kernel) -> Decline | None:
    """A refusal of kernels that no strategy here can compute."""
    if unfit := unreadable(kernel, 1):
        return unfit
    if kernel.batch is not None and kernel.batch.size is None and kernel.batch.index is None:
        return Decline("the size of a batch of products is dynamic", "a static batch")
    codes = constant_codes(kernel)
    if codes is None and kernel.rhs.flipped:
        return Decline("the weight is an argument of unsigned codes", "signed codes, or a constant weight")
    grouped = "g" in kernel.rhs.source_axes or (kernel.rhs.source_axes.count("k") > 1 and kernel.lhs.window is None)
    if codes is None and grouped:
        return Decline("the weight is an argument and has groups", "make the weight a constant or a parameter")
    return None


@dataclass(frozen=True)
class IntegerStrategy(CudaProductStrategy):
    """The base of the strategies for int8 by codes of 8 bits or less."""

    def unlike(self, c: Contraction) -> Decline | None:
        if (c.lhs, c.rhs, c.acc) == ("i8", "i8", "i32"):
            return None
        return Decline(f"{c.lhs} x {c.rhs} -> {c.acc}: the kernel multiplies i8 by i8", "integer codes on both sides")


@dataclass(frozen=True)
class MmaSyncStrategy(IntegerStrategy):
    """Integer products on `mma.sync`, exact in i32."""

    name: str = "mma-sync-int8"
    tiles: tuple[Tile, ...] = TILES

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        codes = constant_codes(kernel)
        # Short groups require short tiles, whose rows packed codes may not fill; then bytes are used.
        storages = dict.fromkeys((stored_in_rows(codes, kernel), BYTES))
        return self.tiled(kernel, c, codes, storages=storages)


@dataclass(frozen=True)
class WgmmaStrategy(IntegerStrategy):
    """Integer products on `wgmma`, which reads both sides unchanged from shared memory."""

    name: str = "wgmma-int8"
    tiles: tuple[Tile, ...] = WGMMA_TILES

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        if declined := no_wgmma(self.target, kernel):
            return declined
        if kernel.lhs.flipped or uses_row_sums(kernel) or kernel.combine is not None:
            return Decline(
                "unsigned activations, sums of rows and groups along K need operands in registers, and wgmma reads "
                "shared memory",
                "mma.sync has them there",
            )
        window = kernel.lhs.window
        if window is not None and not copy_size(window.channels):
            return Decline(f"rows of {window.channels} channels are read code by code", "mma.sync pads K less")
        codes = constant_codes(kernel)
        if stored_in_rows(codes, kernel).bits < 8:
            return Decline(
                "codes shorter than 8 bits are unpacked in registers, and wgmma reads shared memory",
                "mma.sync has them there",
            )
        return self.tiled(kernel, c, codes, WgmmaGemm, step=0)


def no_wgmma(target: Target, kernel: Kernel) -> Decline | None:
    if "wgmma" not in target.capabilities.features:
        return Decline(f"{target.spelling} has no wgmma", "cuda:sm_90a")
    if kernel.m is not None and kernel.m < _MIN_ROWS_FOR_WGMMA:
        return Decline(f"{kernel.m} rows would waste most of wgmma's 64", "mma.sync has 16")
    if kernel.n < 64:
        return Decline(f"N is {kernel.n}", "at least 64 columns")
    return None


@dataclass(frozen=True)
class GemvStrategy(IntegerStrategy):
    """Products of a few rows, bound by reading the weight."""

    name: str = "gemv-int8"

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        if kernel.m is None:
            return Decline("M is dynamic", "a static M, at most 8")
        if kernel.batch is not None:
            return Decline("a batch of products with separate weights", "tensor cores take it")
        if kernel.m > MOST_ROWS:
            return Decline(f"{kernel.m} rows are enough for tensor cores", "at most 8 rows")
        handed = (tile for tile in TILES if hands_over(kernel, tile) and fits(kernel, tile))
        if kernel.m > _MAX_ROWS_WITH_GROUPS and not self.asked and any(handed):
            how = f"choice={{'strategy': '{self.name}'}} asks for it"
            return Decline(f"tensor cores are faster with groups of {kernel.m} rows", how, on_request=True)
        codes = constant_codes(kernel)
        if codes is None and (kernel.rhs.source_axes != ("n", "k") or kernel.k % 16):
            return Decline("the weight is an argument, not [N, K] with K a multiple of 16", "make it a constant")
        gemv = gemv_for(kernel, stored_in_rows(codes, kernel), codes is not None, self.target)
        if isinstance(gemv, str):
            return Decline(gemv, "tensor cores take it")
        return accepted(fastest([gemv], codes, self.target), roofline(self.target, c))
