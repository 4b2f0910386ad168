"""What a device of a target refuses to launch, or a driver to compile for it."""

from __future__ import annotations

import math
import re

from ...targets.base import Target
from ..launch import EmulationError, KernelLaunch
from .instructions import PtxEntry, PtxInstruction, PtxModule

_GRID = (2147483647, 65535, 65535)
_BLOCK = (1024, 1024, 64)
_THREADS = 1024
_STATIC_SHARED = 48 * 1024

# From which compute capability on an instruction is there (PTX ISA, "Target ISA Notes" of each), and whether only on
# that architecture with its features (`sm_90a`).
_SINCE: tuple[tuple[str, tuple[str, ...], int, bool], ...] = (
    ("wgmma", (), 90, True),
    ("setmaxnreg", (), 90, True),
    ("elect", (), 90, False),
    ("stmatrix", (), 90, False),
    ("griddepcontrol", (), 90, False),
    ("fence", ("proxy",), 90, False),
    ("cp", ("bulk",), 90, False),
    ("cp", ("async",), 80, False),
    ("mbarrier", ("try_wait",), 90, False),
    ("mbarrier", (), 80, False),
    ("redux", (), 80, False),
    ("mma", ("block_scale",), 120, True),
    ("mma", ("e4m3",), 89, False),
    ("mma", ("e5m2",), 89, False),
    ("mma", ("bf16",), 80, False),
    ("cvt", ("e4m3x2",), 89, False),
    ("cvt", ("e5m2x2",), 89, False),
    ("ldmatrix", (), 75, False),
)


def check(module: PtxModule, entry: PtxEntry, launch: KernelLaunch, target: Target) -> None:
    """Raises EmulationError where the device of `target` would not run the launch."""
    threads = math.prod(launch.block)
    if 0 in launch.grid:  # IREE 3.13 leaves such launches out for HIP, and not for CUDA
        raise EmulationError(
            f"the device refuses an empty grid of {_shape(launch.grid)} blocks: an axis of an argument has size 0, and "
            "IREE's CUDA driver launches the kernel nevertheless"
        )
    for what, sizes, most in (("grid", launch.grid, _GRID), ("block", launch.block, _BLOCK)):
        if any(s > m for s, m in zip(sizes, most, strict=True)):
            raise EmulationError(f"the device refuses a {what} of {_shape(sizes)}: at most {_shape(most)}")
    if threads > _THREADS:
        raise EmulationError(f"the device refuses blocks of {threads} threads: at most {_THREADS}")
    if entry.block is not None and threads > math.prod(entry.block):
        raise EmulationError(
            f"the device refuses blocks of {threads} threads: the kernel is compiled for {math.prod(entry.block)}"
        )
    static = sum(
        v.size
        for v in (*module.variables.values(), *entry.variables.values())
        if v.space == "shared" and (v.name in entry.variables or v.name in entry.text)
    )
    if static > _STATIC_SHARED:
        raise EmulationError(f"the driver refuses {static} bytes of static shared memory: at most {_STATIC_SHARED}")
    if static + launch.shared_bytes > target.capabilities.shared_memory:
        raise EmulationError(
            f"the device refuses {static + launch.shared_bytes} bytes of shared memory in a block: at most "
            f"{target.capabilities.shared_memory}"
        )
    _check_architecture(module, entry, target)


def _shape(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


def _number(name: str) -> int:
    return int(re.sub(r"\D", "", name))


def _check_architecture(module: PtxModule, entry: PtxEntry, target: Target) -> None:
    mine, its = _number(target.name), _number(module.target)
    if its > mine or (module.target.endswith("a") and its != mine):
        raise EmulationError(f"the driver refuses PTX for {module.target} on a device of {target.name}")
    for ins in entry.instructions:
        for since, specific in _needs(ins):
            if mine < since or (specific and module.target != f"sm_{since}a"):
                raise EmulationError(
                    f"line {ins.line}: {ins.text}: {ins.opcode} needs sm_{since}{'a' if specific else ''}, the kernel "
                    f"is compiled for {module.target}"
                )


def _needs(ins: PtxInstruction) -> list[tuple[int, bool]]:
    return [
        (since, specific)
        for opcode, modifiers, since, specific in _SINCE
        if ins.opcode == opcode and all(m in ins.modifiers for m in modifiers)
    ]
