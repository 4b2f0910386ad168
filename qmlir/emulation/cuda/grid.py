"""Launches of whole grids, a number of blocks at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# The unused imports fill `HANDLERS`.
from ..launch import Counts, InstructionProgress
from . import arithmetic, bits, matrix, mbarrier, movement, synchronisation, warps  # noqa: F401
from .instructions import PtxEntry, PtxError, PtxModule
from .machine import PtxMachine, PtxReport
from .memory import GlobalMemory
from .ordering import WarpOrder
from .threads import WARP, re_uses


def run_grid(
    module: PtxModule,
    entry: PtxEntry,
    grid: tuple[int, int, int],
    arguments: Sequence[int] | bytes,
    memory: GlobalMemory,
    *,
    block: tuple[int, int, int] | None = None,
    dynamic_shared: int = 0,
    resident: int = 0,
    limit: int = 20_000_000,
    seed: int | None = None,
    progress: InstructionProgress | None = None,
) -> PtxReport:
    """Launch an entry.

    Args:
        arguments: addresses (of `memory`) and integers, one per parameter, or the bytes of all parameters.
        block: threads per block along x, y, z; None: what the entry demands.
        dynamic_shared: bytes of the `.extern .shared` array.
        resident: number of blocks that run at the same time; 0: as many as have about 8192 threads.
        seed: seed of the order of blocks, and of the warps of each; None: blocks in the order of their numbers.
        progress: see `InstructionProgress`.

    Raises:
        PtxError: a fault; the message names the instruction, the thread and what is wrong.
    """
    block = block or entry.block
    if block is None:
        raise PtxError(f"{entry.name} does not say how many threads a block has")
    parameters = _parameters(entry, arguments)
    symbols = {}
    for v in module.variables.values():
        if v.space in ("global", "const") and re_uses(entry, v.name):
            content = np.zeros(v.size, np.uint8)
            content[: len(v.data)] = np.frombuffer(v.data, np.uint8)
            symbols[v.name] = memory.add(v.name, content, writable=not v.data)
    ids = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    if seed is not None:
        ids = [ids[i] for i in np.random.default_rng(seed).permutation(len(ids))]
    order = WarpOrder(-(-block[0] * block[1] * block[2] // WARP))
    at_once = resident or max(1, 8192 // (block[0] * block[1] * block[2]))
    executed: dict[str, int] = {}
    conflicts: dict[str, int] = {}
    passes: dict[str, int] = {}
    counts = Counts()
    before = memory.bytes_read, memory.bytes_written

    def report_progress(instructions: int) -> None:
        if progress is not None:
            progress(counts.total + instructions)

    for start in range(0, len(ids), at_once):
        machine = PtxMachine(module, entry, grid, block, ids[start : start + at_once], memory, parameters, symbols,
                          dynamic_shared, limit, order, start, report_progress, seed)  # fmt: skip
        report = machine.run()
        for total, part in ((executed, report.executed), (conflicts, report.conflicts), (passes, report.passes)):
            for key, n in part.items():
                total[key] = total.get(key, 0) + n
        counts.add(report.counts)
        report_progress(0)
    counts.bytes_read, counts.bytes_written = memory.bytes_read - before[0], memory.bytes_written - before[1]
    return PtxReport(executed, conflicts, passes, counts)


def _parameters(entry: PtxEntry, arguments: Sequence[int] | bytes) -> dict[str, bytes]:
    """The bytes of each parameter, by name."""
    if isinstance(arguments, bytes):
        return {
            p.name: arguments[offset : offset + p.size]
            for p, (offset, _) in zip(entry.parameters, places(entry), strict=True)
        }
    if len(arguments) != len(entry.parameters):
        raise PtxError(f"{entry.name} has {len(entry.parameters)} parameters, not {len(arguments)}")
    return {
        p.name: (int(a) & ((1 << 8 * p.size) - 1)).to_bytes(p.size, "little")
        for p, a in zip(entry.parameters, arguments, strict=True)
    }


def places(entry: PtxEntry) -> tuple[tuple[int, int], ...]:
    """Offset and size of each parameter, laid out as in a C structure."""
    found, at = [], 0
    for p in entry.parameters:
        at = -(-at // p.align) * p.align
        found.append((at, p.size))
        at += p.size
    return tuple(found)
