"""Launches of PTX kernels on device memory."""

from __future__ import annotations

from functools import lru_cache

from ...targets import resolve
from ..launch import Counts, EmulationError, KernelLaunch, Settings
from ..memory import Memory
from .device import DeviceMemory
from .grid import places, run_grid
from .instructions import PtxModule
from .limits import check
from .text import parse

# Of one launch, in instructions of its fragments: what runs longer does not end.
_LIMIT = 2_000_000_000


@lru_cache(maxsize=32)
def module_of(code: bytes) -> PtxModule:
    """PTX as the driver was given it, parsed."""
    return parse(code.decode())


class CudaExecutor:
    """Executes launches of PTX."""

    def run(self, launch: KernelLaunch, memory: Memory, settings: Settings) -> Counts:
        """See `Executor.run`."""
        module = module_of(launch.code)
        entry = module.entries[launch.function]
        try:
            check(module, entry, launch, resolve(settings.target))
            seen = DeviceMemory(memory, launch.arguments, places(entry))
            # IREE's own kernels read ragged tiles whole and mask them afterwards, and LLVM widens their loads.
            seen.lenient = "_dispatch_" in launch.function
            report = run_grid(
                module, entry, launch.grid, launch.arguments, seen, block=launch.block,
                dynamic_shared=launch.shared_bytes, seed=settings.seed, limit=_LIMIT, progress=settings.progress,
            )  # fmt: skip
        except EmulationError as e:
            raise type(e)(f"{settings.target}: kernel {launch.function}: {e}") from None
        return report.counts
