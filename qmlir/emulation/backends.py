"""Differences between the emulated drivers: library, device attributes, and layout of kernel arguments."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import UsageError
from ..targets import all_targets
from ..targets.base import Target
from .launch import ArgumentLayout, Executor

# The oldest Python that the executors' packages support.
_OLDEST_PYTHON = (3, 11)

# Limits that all devices have: threads per block, and sizes of blocks and grids along x, y, z.
_THREADS, _BLOCK, _GRID = 1024, (1024, 1024, 64), (2147483647, 65535, 65535)


@dataclass(frozen=True)
class EmulatedDriver:
    """One vendor's driver.

    Attributes:
        driver: its name in IREE.
        source: the C file of its library.
        soname: the name under which IREE asks the loader for it.
        package: package of its executor, with the functions `executor()` and `layout(code, function)`.
        needs: PyPI packages that the executor needs.
        attributes: device attributes of a target, keyed by the vendor's enumeration.
    """

    driver: str
    source: str
    soname: str
    package: str
    needs: tuple[str, ...]
    attributes: Callable[[Target], dict[int, int]]

    @property
    def complete(self) -> bool:
        """Whether there is an executor."""
        return importlib.util.find_spec(self.package) is not None

    def check(self) -> None:
        """Raises UsageError if a package is missing."""
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if missing:
            wanted = f"emulating {self.driver.upper()} devices needs the package {missing[0]}"
            if sys.version_info < _OLDEST_PYTHON:
                here, oldest = (".".join(map(str, version[:2])) for version in (sys.version_info, _OLDEST_PYTHON))
                raise UsageError(f"{wanted}, which needs Python {oldest} or newer; this is Python {here}")
            raise UsageError(f"{wanted}: pip install 'qmlir[emulate]'")

    def executor(self) -> Executor:
        made: Executor = importlib.import_module(self.package).executor()
        return made

    def layout(self, code: bytes, function: str) -> ArgumentLayout | None:
        found: ArgumentLayout | None = importlib.import_module(self.package).layout(code, function)
        return found


def _cuda(target: Target) -> dict[int, int]:
    """Device attributes, keyed by `CUdevice_attribute`."""
    has = target.capabilities
    assert has.compute_capability is not None
    major, minor = has.compute_capability
    return {
        1: _THREADS, 2: _BLOCK[0], 3: _BLOCK[1], 4: _BLOCK[2], 5: _GRID[0], 6: _GRID[1], 7: _GRID[2],
        8: has.static_shared_memory, 10: has.subgroup_sizes[0], 12: has.unit_registers, 16: 1, 19: 1, 41: 1,
        75: major, 76: minor, 83: 1, 89: 1, 97: has.shared_memory, 113: 1, 115: 1,
    }  # fmt: skip


def _hip(target: Target) -> dict[int, int]:
    """Device attributes, keyed by `hipDeviceAttribute_t`."""
    return {
        9: 1, 24: 1, 26: _BLOCK[0], 27: _BLOCK[1], 28: 1024, 29: _GRID[0], 30: _GRID[1], 31: _GRID[2],
        56: _THREADS, 63: 1, 74: target.capabilities.shared_memory, 87: target.capabilities.subgroup_sizes[0], 88: 1,
    }  # fmt: skip


BACKENDS = {
    "cuda": EmulatedDriver("cuda", "cuda.c", "libcuda.so", "qmlir.emulation.cuda", (), _cuda),
    "rocm": EmulatedDriver("hip", "hip.c", "libamdhip64.so", "qmlir.emulation.amd", ("tinygrad",), _hip),
}

# Backends without an emulated driver, and why.
INSTEAD = {
    "cpu": "which needs no emulated device",
    "vulkan": "which is not emulated: Mesa's lavapipe is a Vulkan device on any CPU (docs/targets/vulkan-lavapipe.md)",
}


def emulated_targets() -> tuple[str, ...]:
    """The targets whose devices are emulated."""
    return tuple(t.spelling for t in all_targets() if t.backend in BACKENDS)
