"""Which tile a product gets: the one whose time, from figures of the architecture, is least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ....kernels.description import Kernel
from ....kernels.emit import bits
from ...base import Target
from ...cost import Cost, Figures, Work
from ...gpu_kernels.tile_choice import best_first, seconds_of_sharing
from .executable import WARP
from .gemv import Gemv
from .mma_gemm import MmaGemm
from .shared_tile import CHUNK
from .tile import TILES, Tile
from .weights import Storage

# K of a tile, where groups are shorter than it or no multiple of it.
_STEPS = (512, 256, 128, 64, 32, 16)

_TYPICAL_ROWS = 512  # what a dynamic M is taken as
# Of the rate that `wgmma` has (Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, 2024).
_MMA_SYNC_ON_HOPPER = 0.63
_SHORT_TILE = 64  # codes along K
_ACCUMULATORS = 128  # registers of a lane that may hold sums: more of them spill
_REGISTERS = 1 << 16  # of a multiprocessor
_OTHER_REGISTERS = 64  # of a lane, beside its sums


def spills(kernel: Kernel, tile: Tile, storage: Storage) -> bool:
    """Whether sums, those of groups apart from their total and beside what combines them, do not fit the registers."""
    if kernel.combine is None:
        return tile.accumulators > _ACCUMULATORS
    # Codes of two bits are taken apart with more in registers.
    return tile.accumulators > _ACCUMULATORS // (4 if storage.fields < 4 else 8)


def fitting(kernel: Kernel, tile: Tile) -> Tile | None:
    """The tile with its K cut to what the groups allow, None where none does."""
    if kernel.group is None:
        return tile
    if kernel.group % _STEPS[-1]:
        return None
    for step in _STEPS:
        # What combines groups takes registers that a long tile's addresses would need.
        if step <= (tile.k if kernel.combine is None else min(tile.k, _SHORT_TILE)) and (
            kernel.group % step == 0 or step % kernel.group == 0
        ):
            # Warps along K ask for whole tiles, and combine no groups.
            warps = tile.warps if step == tile.k and kernel.combine is None else (*tile.warps[:2], 1)
            return Tile(tile.m, tile.n, step, warps, tile.stages, tile.stream_k)
    return None


def fitting_registers(kernel: Kernel, tile: Tile, storage: Storage) -> Tile | None:
    """The same, None where its sums do not fit the registers."""
    cut = fitting(kernel, tile)
    return None if cut is None or spills(kernel, cut, storage) else cut


def work(gemm: MmaGemm, target: Target, f: Figures, reached: float = 1.0) -> Work:
    """What a product on a tile keeps busy, with `reached` of the architecture's rate."""
    kernel, tile, fields = gemm.kernel, gemm.tile, gemm.storage.fields
    m = f.rows(kernel.m, _TYPICAL_ROWS)
    tiles = -(-m // tile.m) * -(-kernel.n // tile.n) * _products(kernel)
    each = -(-tiles // f.units)
    together = max(1, min(each, target.capabilities.shared_memory // gemm.shared_bytes, 1024 // tile.threads))
    if gemm.workgroups:
        together = gemm.workgroups // f.units
    # Of one code along K.
    multiply = f.multiply(2 * tile.m * tile.n / reached, gemm.rate)
    promote = f.operations(tile.m * tile.n * gemm.promotions) if gemm.promotions else 0.0
    busy = {
        # Another warpgroup multiplies meanwhile, if there is one.
        "multiply": max(multiply, promote) if tile.threads * together >= 256 else multiply + promote,
        "shared memory": f.shared(gemm.shared_reads),
        "cache": f.cache(min(m, tile.m) * gemm.unit + tile.n / fields),
        "decode": f.operations(tile.warps[0] * tile.n * gemm.decoding) if gemm.decoding else 0.0,
        # Fewer bytes under way than the latency of memory asks for: a workgroup waits.
        "latency": f.latency / ((tile.stages - 1) * tile.k) / together,
    }
    if (sharing := gemm.sharing) is None:
        return Work(each, gemm.padded_k, busy, fixed=f.latency)
    steps = -(-tiles * gemm.k_steps // gemm.workgroups) * together  # of a multiprocessor
    once = seconds_of_sharing(sharing, together, f)
    return Work(1, steps * gemm.padded_k / gemm.k_steps, busy, once=once)


def shared_among(gemm: MmaGemm, target: Target) -> MmaGemm:
    """The kernel with as many workgroups as run at the same time, two on a multiprocessor where they fit."""
    registers = (gemm.tile.accumulators + _OTHER_REGISTERS) * gemm.tile.threads
    fit = 2 * gemm.shared_bytes <= target.capabilities.shared_memory and 2 * registers <= _REGISTERS
    return replace(gemm, workgroups=Figures(target.capabilities).units * (2 if fit else 1))


def least_seconds(gemm: MmaGemm, target: Target) -> float:
    """That the operands and the result take from memory and to it."""
    kernel, f = gemm.kernel, Figures(target.capabilities)
    m = f.rows(kernel.m, _TYPICAL_ROWS)
    return (m * kernel.k * gemm.unit + kernel.n * kernel.k / gemm.storage.fields + 2 * m * kernel.n) / f.bandwidth


def gemv_work(gemv: Gemv, target: Target, f: Figures) -> Work:
    """The same for a kernel of a few rows."""
    threads, fields, columns = gemv.launch.threads, gemv.storage.fields, gemv.columns
    each = -(-gemv.blocks // f.units)
    together = max(1, min(each, target.capabilities.shared_memory // gemv.shared_bytes, 1024 // threads))
    rounds = -(-gemv.chunks // (WARP * gemv.k_warps))
    busy = {
        "multiply": f.dots(threads * columns * (CHUNK // 4) * fields * gemv.rows),
        "cache": f.cache(threads * columns * CHUNK),
        "activations": f.shared(threads * CHUNK * fields * gemv.rows),  # in the L1 cache
        "latency": f.latency / together,
    }
    return Work(each, rounds, busy, once=f.latency)


def estimate(generator: MmaGemm | Gemv, target: Target) -> Cost:
    """The time of a product whose operands are in memory."""
    kernel, f = generator.kernel, Figures(target.capabilities)
    m = f.rows(kernel.m, _TYPICAL_ROWS)
    unit = 1 if kernel.rhs.decode is None else 2
    moved = kernel.n * generator.padded_k / generator.storage.fields + m * kernel.k * unit
    moved += m * kernel.columns * bits(kernel.result_type) / 8
    if isinstance(generator, Gemv):
        return f.cost(replace(gemv_work(generator, target, f), memory=moved))
    slower = "wgmma" in target.capabilities.features and not generator.asynchronous
    return f.cost(replace(work(generator, target, f, _MMA_SYNC_ON_HOPPER if slower else 1.0), memory=moved))


def _products(kernel: Kernel) -> int:
    """How many products there are, about: of a dynamic number of blocks one for each matrix."""
    return 1 if kernel.batch is None else kernel.batch.size or kernel.batch.matrices


def _usable(gemm: MmaGemm) -> bool:
    """Whether warps along K get whole chunks of the weight, and rows of it are whole chunks; and groups of channels
    whole tiles."""
    tile, fields, window = gemm.tile, gemm.storage.fields, gemm.kernel.lhs.window
    if window is not None and window.groups > 1 and gemm.kernel.n // window.groups % tile.n:
        return False
    return tile.k % (16 * fields * tile.warps[2]) == 0


def choose(
    kernel: Kernel, storage: Storage, constant: bool, target: Target, tiles: Sequence[Tile] = TILES,
    make: Callable[[Kernel, Tile, Storage, bool], MmaGemm] = MmaGemm,
    fit: Callable[[Kernel, Tile, Storage], Tile | None] = fitting_registers,
) -> Chosen | None:  # fmt: skip
    """The fastest tile that fits, None where groups allow none. Workgroups share K only where that pays."""
    found: dict[bool, list[tuple[float, MmaGemm]]] = {False: [], True: []}
    for whole in tiles:
        tile = fit(kernel, whole, storage)
        if tile is None:
            continue
        gemm = make(kernel, tile, storage, constant)
        if not _usable(gemm) or gemm.shared_bytes > target.capabilities.shared_memory:
            continue
        if tile.stream_k:
            if not gemm.sharable:
                continue
            gemm = shared_among(gemm, target)
        found[tile.stream_k].append((work(gemm, target, Figures(target.capabilities)).compute, gemm))
    # Of tiles that all wait for memory the smallest: more workgroups ask for it, and no row is multiplied for nothing.
    plain, shared = (
        sorted(found[kind], key=lambda pair: (pair[0], pair[1].tile.m * pair[1].tile.n)) for kind in (False, True)
    )
    # Neither is faster than memory is.
    least = least_seconds(plain[0][1], target) if plain and shared else 0.0
    gemms, because = best_first(plain, shared, kernel, least)
    if not gemms:
        return None
    return Chosen(replace(gemms[0], because=because), gemms[1] if len(gemms) > 1 else None)


@dataclass(frozen=True)
class Chosen:
    """The kernel on the best tile, and on the one that is next."""

    gemm: MmaGemm
    next: MmaGemm | None


def gemv_for(kernel: Kernel, storage: Storage, target: Target) -> Gemv | str:
    """The kernel for a few rows, with two workgroups for each multiprocessor where there are columns for it; or why
    there is none."""
    units, shared_memory = Figures(target.capabilities).units, target.capabilities.shared_memory
    gemv = Gemv(kernel, storage, 4, 1)
    for columns, k_warps in ((4, 1), (4, 2), (4, 4), (2, 4), (1, 4)):
        gemv = Gemv(kernel, storage, columns, k_warps)
        if gemv.blocks >= 2 * units and gemv.shared_bytes <= shared_memory:
            break
    if kernel.group is not None:
        lanes, rest = divmod(kernel.group, gemv.chunk_codes)
        if rest or lanes not in (1, 2, 4, 8, 16, 32):
            return f"groups of {kernel.group} along K are not a power of two times {gemv.chunk_codes} codes"
    if gemv.shared_bytes > shared_memory:
        return f"{gemv.parts} parts of {gemv.rows} rows do not fit shared memory"
    return gemv
