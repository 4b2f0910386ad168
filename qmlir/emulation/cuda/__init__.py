"""CUDA kernels as PTX, interpreted: the executor of emulated CUDA devices.

| file | what |
|---|---|
| `instructions.py`, `text.py` | PTX as data classes, and the parser of its text |
| `grid.py` | a launch, a number of blocks at a time |
| `threads.py` | state of the threads, reads and writes of operands |
| `machine.py` | execution of threads at one instruction, barriers |
| `memory.py` | bounds, alignment, races (vector clocks), copies and products in flight, bank conflicts |
| `device.py` | memory at the device's addresses |
| `ordering.py` | order between workgroups: releases and acquires of global atomics, fences |
| `limits.py` | launches that a device would refuse |
| `arithmetic.py`, `bits.py`, `movement.py`, `matrix.py`, `warps.py`, `synchronisation.py` | the instructions |

An unknown instruction is an error that names it; a new instruction is a function in one of these files. Not checked:
races between lanes of one warp, and races between blocks with stores of less than four bytes, except that threads must
not store different values to one place with one instruction. Tensor cores drop bits of float sums; sums here are f64,
rounded once. `ex2.approx` and the other approximate instructions return the correctly rounded value. Tensor maps,
clusters and `wmma.*` are not interpreted.
"""

from __future__ import annotations

from ..launch import ArgumentLayout, Executor
from .execute import CudaExecutor, module_of
from .grid import places


def executor() -> Executor:
    """The executor of PTX."""

    return CudaExecutor()


def layout(code: bytes, function: str) -> ArgumentLayout | None:
    """Offsets and sizes of a kernel's parameters; None if the module has no such entry."""

    entry = module_of(code).entries.get(function)
    if entry is None:
        return None
    found = places(entry)
    return ArgumentLayout(found, max((at + size for at, size in found), default=0))
