"""Launches that a target's device refuses, and kernels that its driver refuses to compile."""

from __future__ import annotations

import math

from ...targets.base import Target
from ..launch import EmulationError, KernelLaunch
from .instructions import PtxEntry, PtxInstruction, PtxModule

_MAX_GRID = (2147483647, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
_MAX_THREADS = 1024

# Opcode and modifiers, the first compute capability that has the instruction (PTX ISA, "Target ISA Notes" of each), and
# whether only the architecture-specific target (`sm_90a`) has it.
_SINCE: tuple[tuple[str, tuple[str, ...], tuple[int, int], bool], ...] = (
    ("wgmma", (), (9, 0), True),
    ("setmaxnreg", (), (9, 0), True),
    ("elect", (), (9, 0), False),
    ("stmatrix", (), (9, 0), False),
    ("griddepcontrol", (), (9, 0), False),
    ("fence", ("proxy",), (9, 0), False),
    ("cp", ("bulk",), (9, 0), False),
    ("cp", ("async",), (8, 0), False),
    ("mbarrier", ("try_wait",), (9, 0), False),
    ("mbarrier", (), (8, 0), False),
    ("redux", (), (8, 0), False),
    ("mma", ("block_scale",), (12, 0), True),
    ("mma", ("e4m3",), (8, 9), False),
    ("mma", ("e5m2",), (8, 9), False),
    ("mma", ("bf16",), (8, 0), False),
    ("cvt", ("e4m3x2",), (8, 9), False),
    ("cvt", ("e5m2x2",), (8, 9), False),
    ("ldmatrix", (), (7, 5), False),
)


def check(module: PtxModule, entry: PtxEntry, launch: KernelLaunch, target: Target) -> None:
    """Raises EmulationError if the device of `target` would not run the launch."""
    threads = math.prod(launch.block)
    if 0 in launch.grid:  # IREE 3.13 skips such launches for HIP, but not for CUDA
        raise EmulationError(
            f"the device refuses an empty grid of {_shape(launch.grid)} blocks: an axis of an argument has size 0, and "
            "IREE's CUDA driver launches the kernel nevertheless"
        )
    for what, sizes, most in (("grid", launch.grid, _MAX_GRID), ("block", launch.block, _MAX_BLOCK)):
        if any(s > m for s, m in zip(sizes, most, strict=True)):
            raise EmulationError(f"the device refuses a {what} of {_shape(sizes)}: at most {_shape(most)}")
    if threads > _MAX_THREADS:
        raise EmulationError(f"the device refuses blocks of {threads} threads: at most {_MAX_THREADS}")
    if entry.block is not None and threads > math.prod(entry.block):
        raise EmulationError(
            f"the device refuses blocks of {threads} threads: the kernel is compiled for {math.prod(entry.block)}"
        )
    static = sum(
        v.size
        for v in (*module.variables.values(), *entry.variables.values())
        if v.space == "shared" and (v.name in entry.variables or v.name in entry.text)
    )
    without_asking = target.capabilities.static_shared_memory
    if static > without_asking:
        raise EmulationError(f"the driver refuses {static} bytes of static shared memory: at most {without_asking}")
    if static + launch.shared_bytes > target.capabilities.shared_memory:
        raise EmulationError(
            f"the device refuses {static + launch.shared_bytes} bytes of shared memory in a block: at most "
            f"{target.capabilities.shared_memory}"
        )
    _check_architecture(module, entry, target)


def _shape(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


def _check_architecture(module: PtxModule, entry: PtxEntry, target: Target) -> None:
    mine, its = target.capabilities.compute_capability, module.compute_capability
    assert mine is not None
    if its > mine or (module.target.endswith("a") and its != mine):
        raise EmulationError(f"the driver refuses PTX for {module.target} on a device of {target.name}")
    for ins in entry.instructions:
        for since, specific in _needs(ins):
            needed = f"sm_{since[0]}{since[1]}{'a' if specific else ''}"
            if mine < since or (specific and module.target != needed):
                raise EmulationError(
                    f"line {ins.line}: {ins.text}: {ins.opcode} needs {needed}, the kernel is compiled for "
                    f"{module.target}"
                )


def _needs(ins: PtxInstruction) -> list[tuple[tuple[int, int], bool]]:
    return [
        (since, specific)
        for opcode, modifiers, since, specific in _SINCE
        if ins.opcode == opcode and all(m in ins.modifiers for m in modifiers)
    ]
