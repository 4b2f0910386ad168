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

# Instructions that the fragments of one batch of blocks may execute; a longer run counts as endless.
_LIMIT = 2_000_000_000


@lru_cache(maxsize=32)
def module_of(code: bytes) -> PtxModule:
    """The parsed module of the PTX that the driver received."""
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
            # IREE's own kernels load out of bounds: they read ragged tiles whole and mask them afterwards, and LLVM
            # widens their loads.
            seen.lenient = "_dispatch_" in launch.function
            report = run_grid(
                module, entry, launch.grid, launch.arguments, seen, block=launch.block,
                dynamic_shared=launch.shared_bytes, seed=settings.seed, limit=_LIMIT, progress=settings.progress,
            )  # fmt: skip
        except EmulationError as e:
            raise type(e)(f"{settings.target}: kernel {launch.function}: {e}") from None
        return report.counts
