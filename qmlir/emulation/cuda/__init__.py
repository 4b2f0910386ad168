"""CUDA kernels as PTX, interpreted: the executor of emulated CUDA devices.

| file | what |
|---|---|
| `instructions.py`, `text.py` | PTX as data, and what reads its text |
| `grid.py` | a launch, so many blocks at a time |
| `threads.py` | what threads hold, and how operands are read and written |
| `machine.py` | fragments of threads at one instruction, barriers |
| `memory.py` | bounds, alignment, races (vector clocks), copies and products on their way, banks |
| `device.py` | memory at the device's addresses |
| `ordering.py` | what workgroups may know of each other: releases and acquires of global atomics, fences |
| `limits.py` | what a device would refuse |
| `arithmetic.py`, `bits.py`, `movement.py`, `matrix.py`, `warps.py`, `synchronisation.py` | what instructions do |

An instruction that is not known is an error that names it; a new one is a function in one of these files. Not checked:
lanes of one warp against each other, stores of less than four bytes between blocks but for two values in one place,
and the bits that tensor cores drop of float sums (sums here are f64, rounded once). `ex2.approx` and the other
approximate instructions return the correctly rounded value. Tensor maps, clusters and `wmma.*` are not interpreted.
"""

from __future__ import annotations

from ..launch import ArgumentLayout, Executor
from .execute import CudaExecutor, module_of
from .grid import places


def executor() -> Executor:
    """Executes PTX."""

    return CudaExecutor()


def layout(code: bytes, function: str) -> ArgumentLayout | None:
    """Where a kernel's parameters lie; None where the module has no such entry."""

    entry = module_of(code).entries.get(function)
    if entry is None:
        return None
    found = places(entry)
    return ArgumentLayout(found, max((at + size for at, size in found), default=0))
