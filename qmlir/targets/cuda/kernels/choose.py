"""Which tile a product gets: the one whose time, from figures of the architecture, is least."""

from __future__ import annotations

from dataclasses import dataclass

from ....kernels.description import Kernel
from ...base import Target
from .gemv import Gemv
from .mma_gemm import MmaGemm
from .tile import Tile
from .weights import Storage

# Tiles that are shipped, largest first. A warp's part of 64 x 64 reads shared memory half as fast as tensor cores of
# an A100 multiply; narrow ones are for few rows.
TILES = (
    Tile(128, 256, 128, (2, 4), 3),
    Tile(128, 256, 64, (2, 4), 4),
    Tile(256, 128, 64, (4, 2), 4),
    Tile(128, 128, 128, (2, 2), 3),
    Tile(128, 128, 64, (2, 2), 4),
    Tile(128, 128, 128, (2, 4), 3),
    Tile(128, 64, 128, (2, 2), 3),
    Tile(64, 128, 128, (2, 2), 3),
    Tile(64, 64, 128, (2, 2), 4),
    Tile(32, 128, 128, (1, 4), 4),
    Tile(32, 64, 128, (1, 4), 4),
    Tile(16, 128, 128, (1, 4), 4),
    Tile(16, 64, 128, (1, 4), 4),
)
# Where groups along K are shorter than a tile, or no multiple of one.
_STEPS = (128, 64, 32, 16)

_CLOCK = 1.5e9
_SHARED_BYTES_PER_CLOCK = 128  # of one multiprocessor (CUDA programming guide, shared memory)
_L2_BYTES_PER_CLOCK = 48  # that reach one multiprocessor; A100 and H100 measure 40 to 64
_TYPICAL_ROWS = 512  # what a dynamic M is taken as
_LATENCY = 1.0e-6  # from one dependent load of memory to the next
_ACCUMULATORS = 128  # registers of a lane that may hold sums: more of them spill


@dataclass(frozen=True)
class Machine:
    """What the choice needs to know of an architecture."""

    units: int  # multiprocessors
    shared_memory: int  # that one workgroup may use


def accumulators(kernel: Kernel, tile: Tile) -> int:
    """Registers of a lane for sums: of groups apart from their total."""
    return tile.accumulators * (1 if kernel.combine is None else 2)


def fitting(kernel: Kernel, tile: Tile) -> Tile | None:
    """The tile with its K cut to what the groups allow, None where none does."""
    if kernel.group is None:
        return tile
    if kernel.group % _STEPS[-1]:
        return None
    for step in _STEPS:
        if step <= tile.k and (kernel.group % step == 0 or step % kernel.group == 0):
            return Tile(tile.m, tile.n, step, tile.warps, tile.stages)
    return None


def seconds(gemm: MmaGemm, target: Target, units: int) -> float:
    """An estimate of the time of a product on a tile."""
    kernel, tile = gemm.kernel, gemm.tile
    m = kernel.m if kernel.m is not None else _TYPICAL_ROWS
    workgroups = -(-m // tile.m) * -(-kernel.n // tile.n)
    rate = (target.peak.rate("i8") if target.peak is not None else None) or 5e14
    multiply = 2 * tile.m * tile.n / (rate / units)
    rows, columns = tile.warp
    warps = tile.warps[0] * tile.warps[1]
    read = warps * (rows + columns / gemm.storage.fields) / _SHARED_BYTES_PER_CLOCK / _CLOCK
    load = (tile.m + tile.n / gemm.storage.fields) / _L2_BYTES_PER_CLOCK / _CLOCK
    # Fewer bytes under way than the latency of memory asks for: a workgroup waits.
    under_way = (tile.stages - 1) * (tile.m + tile.n / gemm.storage.fields) * tile.k
    wait = _LATENCY * (tile.m + tile.n / gemm.storage.fields) / under_way
    together = max(1, min(-(-workgroups // units), 4 * 32 // max(tile.accumulators, 32)))
    per_code = max(multiply, read, load, wait / together)
    return -(-workgroups // units) * (gemm.padded_k * per_code + _LATENCY)


def choose(kernel: Kernel, storage: Storage, constant: bool, target: Target, machine: Machine) -> MmaGemm | None:
    """The fastest tile that fits, None where groups allow none."""
    found: list[tuple[float, MmaGemm]] = []
    for whole in TILES:
        tile = fitting(kernel, whole)
        if tile is None or accumulators(kernel, tile) > _ACCUMULATORS:
            continue
        if tile.k // storage.fields < 16:  # a chunk
            continue
        gemm = MmaGemm(kernel, tile, storage, constant)
        if gemm.shared_bytes <= machine.shared_memory:
            found.append((seconds(gemm, target, machine.units), gemm))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def gemv_for(kernel: Kernel, storage: Storage, units: int, shared_memory: int) -> Gemv | str:
    """The kernel for a few rows: as many columns a warp as leave two workgroups for each multiprocessor; or why none."""
    gemv = Gemv(kernel, storage, 4, 1)
    for columns, k_warps in ((4, 1), (4, 2), (4, 4), (2, 4), (1, 4)):
        gemv = Gemv(kernel, storage, columns, k_warps)
        if gemv.blocks >= 2 * units and gemv.shared_bytes <= shared_memory:
            break
    if kernel.group is not None:
        lanes, rest = divmod(kernel.group, gemv.chunk_codes)
        if rest or lanes not in (1, 2, 4, 8, 16, 32):
            return f"groups of {kernel.group} along K are no power of two of {gemv.chunk_codes} codes"
    if gemv.shared_bytes > shared_memory:
        return f"{gemv.parts} parts of {gemv.rows} rows do not fit shared memory"
    return gemv
