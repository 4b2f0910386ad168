"""Pieces of global memory, the times of warps, and the error of an access that no kernel may make."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..memory import ArgumentTensor
from .formats import Array
from .instructions import PtxError


class AccessFault(PtxError):
    """An access that no kernel may make; `lane` is its place among the accesses of the instruction."""

    def __init__(self, message: str, lane: int) -> None:
        super().__init__(message)
        self.lane = lane


@dataclass
class GlobalBuffer:
    """A named piece of global memory: `size` bytes from `start` of `data`, which has whole words behind them.

    Attributes:
        written: `bool[size]`, which bytes somebody wrote; None where that is not known, or all of them.
        marks: offsets with the names of what starts there, in their order; the first is 0.
        tensor: the argument of the program that it holds, where it holds one.
    """

    name: str
    data: Array
    start: int
    size: int
    writable: bool
    written: Array | None = None
    marks: tuple[tuple[int, str], ...] = ()
    tensor: ArgumentTensor | None = None

    def at(self, offset: int) -> str:
        """`12 of argument 0`: what is at an offset."""
        mark, name = self._mark(offset)
        return f"{offset - mark} of {name}"

    def element(self, offset: int, width: int) -> str:
        """`element [3, 4] of lhs, i8[8, 64]`; of memory whose type is not known, in units of the access."""
        if self.tensor is not None:
            return self.tensor.element(offset)
        at = offset - self._mark(offset)[0]
        return f"element {at // width} of {width} bytes" if at % width == 0 else f"byte {at}"

    def size_at(self, offset: int) -> int:
        """Bytes from what is at an offset to the end of the buffer."""
        return self.size - self._mark(offset)[0]

    def _mark(self, offset: int) -> tuple[int, str]:
        before = [m for m in self.marks if m[0] <= offset]
        return before[-1] if before else self.marks[0] if self.marks else (0, self.name)


class Clocks:
    """Vector clocks of the warps of each block: `time[block, warp, other]` is what a warp knows of another."""

    def __init__(self, blocks: int, warps: int) -> None:
        self.time = np.zeros((blocks, warps, warps), np.int32)
        self.time[:, np.arange(warps), np.arange(warps)] = 1

    def join(self, block: int, warps: Array) -> None:
        """A barrier of these warps: each knows what any of them knew."""
        self.time[block, warps] = self.time[block, warps].max(axis=0)
        self.tick(block, warps)

    def tick(self, block: int, warps: Array) -> None:
        """What these warps do from now on is later than what others learned from them before."""
        self.time[block, warps, warps] += 1

    def learn(self, block: int, warps: Array, time: Array) -> None:
        """These warps see something that was published at `time`."""
        self.time[block, warps] = np.maximum(self.time[block, warps], time)
