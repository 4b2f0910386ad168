"""Which tiles a product may get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ....kernels.description import Kernel
from ...base import Target
from ...cost import Figures
from ...gpu_kernels.weights import CodeFormat
from . import handed_groups
from .gemv import Gemv, gemv
from .machine import Nvidia, nvidia
from .mma_gemm import MmaGemm
from .product import TiledProduct
from .tile import TILES, Tile

# Candidates for a tile's K, longest first, if the groups do not allow its own.
_TILE_KS = (512, 256, 128, 64, 32, 16)

_SHORT_TILE = 64  # codes along K
_MAX_ACCUMULATORS = 128  # registers of a lane that may hold sums; with more, it spills


def spills(kernel: Kernel, tile: Tile, storage: CodeFormat) -> bool:
    """Whether a lane's sums do not fit its registers. With groups, their totals and the operands that combine them need
    registers as well."""
    if kernel.combine is None or handed_groups.hands_over(kernel, tile):
        return tile.accumulators > _MAX_ACCUMULATORS
    # Unpacking 2-bit codes takes more registers.
    return tile.accumulators > _MAX_ACCUMULATORS // (4 if storage.fields < 4 else 8)


def fitting(kernel: Kernel, tile: Tile) -> Tile | None:
    """The tile, its K shortened to one that the groups allow; None if there is none."""
    if kernel.group is None:
        return tile
    if kernel.group % _TILE_KS[-1]:
        return None
    if handed_groups.hands_over(kernel, tile) and handed_groups.fits(kernel, tile):
        return tile
    most = tile.k
    if kernel.combine is not None:
        # With many sums, combining takes the registers that the addresses of a long tile would need.
        most = min(most, max(kernel.group, _SHORT_TILE) if tile.is_small else _SHORT_TILE)
    for step in _TILE_KS:
        if step <= most and (kernel.group % step == 0 or step % kernel.group == 0):
            # Otherwise the tile gets one warp along K, as several need its whole K and cannot combine groups. If groups
            # are combined, only a narrow tile is kept, which one warp then multiplies alone.
            if step == tile.k and kernel.combine is None:
                return tile
            if kernel.combine is not None and tile.warps[2] > 1 and tile.warps[:2] != (1, 1):
                return None
            return replace(tile, k=step, warps=(*tile.warps[:2], 1))
    return None


def fitting_registers(kernel: Kernel, tile: Tile, storage: CodeFormat) -> Tile | None:
    """As `fitting`, but None if the sums do not fit the registers."""
    cut = fitting(kernel, tile)
    return None if cut is None or spills(kernel, cut, storage) else cut


def _usable(gemm: TiledProduct) -> bool:
    """Whether each warp along K gets whole chunks of the weight's rows, and each group of channels whole tiles."""
    tile, fields, window = gemm.tile, gemm.storage.fields, gemm.kernel.lhs.window
    if window is not None and window.groups > 1 and gemm.kernel.n // window.groups % tile.n:
        return False
    return tile.k % (16 * fields * tile.warps[2]) == 0


def candidates(
    kernel: Kernel, storage: CodeFormat, constant: bool, target: Target, tiles: Sequence[Tile] = TILES,
    make: Callable[[Kernel, Nvidia, CodeFormat, bool, Tile], TiledProduct] = MmaGemm,
    fit: Callable[[Kernel, Tile, CodeFormat], Tile | None] = fitting_registers,
) -> Iterator[TiledProduct]:  # fmt: skip
    """Yield the kernel on each tile that fits, smallest tiles first. If all tiles are bound by memory, the smallest are
    best: more workgroups issue loads, and fewer padding rows are multiplied."""
    for whole in sorted(tiles, key=lambda tile: tile.m * tile.n):
        tile = fit(kernel, whole, storage)
        if tile is None:
            continue
        made = make(kernel, nvidia(target), storage, constant, tile)
        if not _usable(made) or made.shared_bytes > target.capabilities.shared_memory:
            continue
        if not tile.stream_k:
            yield made
        elif made.sharable:
            yield made.shared_among(target)


def gemv_for(kernel: Kernel, storage: CodeFormat, constant: bool, target: Target) -> Gemv | str:
    """The kernel for a few rows, or the reason why there is none. At least two workgroups run per multiprocessor, if N
    is large enough."""
    units, shared_memory = Figures(target.capabilities).units, target.capabilities.shared_memory
    for columns, k_warps in ((4, 1), (4, 2), (4, 4), (2, 4), (1, 4)):
        made = gemv(kernel, nvidia(target), storage, constant, columns, k_warps)
        if made.blocks >= 2 * units and made.shared_bytes <= shared_memory:
            break
    if kernel.group is not None:
        lanes, rest = divmod(kernel.group, storage.depth)
        if rest or lanes not in (1, 2, 4, 8, 16, 32):
            return f"groups of {kernel.group} along K are not a power of two times {storage.depth} codes"
    if made.shared_bytes > shared_memory:
        return f"{made.parts} parts of {made.most_rows} rows do not fit shared memory"
    return made
