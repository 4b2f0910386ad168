"""Buffers of global memory, vector clocks of warps, and the error raised for an illegal access."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..memory import ArgumentTensor
from .formats import Array
from .instructions import PtxError


class AccessFault(PtxError):
    """An illegal access; `lane` is its index among the accesses of the instruction."""

    def __init__(self, message: str, lane: int) -> None:
        super().__init__(message)
        self.lane = lane


@dataclass
class GlobalBuffer:
    """A named buffer of global memory: `size` bytes of `data` from `start` on; `data` extends to whole words.

    Attributes:
        written: `bool[size]`, which bytes were written; None if that is not known, or if all of them were.
        marks: sorted offsets, each with the name of the argument or variable that starts there; the first is 0.
        tensor: the program's argument that the buffer contains, if any.
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
        """Describe an offset: `12 of argument 0`."""
        mark, name = self._mark(offset)
        return f"{offset - mark} of {name}"

    def element(self, offset: int, width: int) -> str:
        """Name an element: `element [3, 4] of lhs, i8[8, 64]`; in units of the access if the type is unknown."""
        if self.tensor is not None:
            return self.tensor.element(offset)
        at = offset - self._mark(offset)[0]
        return f"element {at // width} of {width} bytes" if at % width == 0 else f"byte {at}"

    def size_at(self, offset: int) -> int:
        """Bytes from the last mark at or before an offset to the end of the buffer."""
        return self.size - self._mark(offset)[0]

    def _mark(self, offset: int) -> tuple[int, str]:
        before = [m for m in self.marks if m[0] <= offset]
        return before[-1] if before else self.marks[0] if self.marks else (0, self.name)


class Clocks:
    """Vector clocks of the warps of each block: `time[block, warp, other]` is the time of `other` known to `warp`."""

    def __init__(self, blocks: int, warps: int) -> None:
        self.time = np.zeros((blocks, warps, warps), np.int32)
        self.time[:, np.arange(warps), np.arange(warps)] = 1

    def join(self, block: int, warps: Array) -> None:
        """A barrier of these warps: each then knows what any of them knew."""
        self.time[block, warps] = self.time[block, warps].max(axis=0)
        self.tick(block, warps)

    def tick(self, block: int, warps: Array) -> None:
        """Advance the time of these warps: what they do from now on is later than what others know of them."""
        self.time[block, warps, warps] += 1

    def learn(self, block: int, warps: Array, time: Array) -> None:
        """These warps learn of everything up to the clocks `time`."""
        self.time[block, warps] = np.maximum(self.time[block, warps], time)
