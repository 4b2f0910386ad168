"""Global memory of a launch at the device's real addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from ..memory import Allocation, Memory
from .buffers import AccessFault, GlobalBuffer
from .formats import Array
from .memory import GlobalMemory

_NEAR = 1 << 16  # bytes: an address closer than this to an allocation is taken for an access to it


class DeviceMemory(GlobalMemory):
    """The allocations of a device, each as a buffer named after the launch's arguments that point into it.

    Args:
        memory: memory of the device.
        arguments: bytes of the launch's arguments; `places`: offset and size of each.
    """

    def __init__(self, memory: Memory, arguments: bytes, places: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self._allocations = memory.allocations
        self._starts = np.array([a.start for a in self._allocations], np.int64)
        self._made: dict[int, GlobalBuffer] = {}
        self._own: list[GlobalBuffer] = []  # variables of the module
        self._pointers = [
            (int.from_bytes(arguments[at : at + size], "little"), f"argument {i}")
            for i, (at, size) in enumerate(places)
            if size == 8
        ]

    def add(self, name: str, content: Array, writable: bool) -> int:
        """Add a variable of the module; returns its address."""
        super().add(name, content, writable)
        made = self.buffers[-1]
        made.marks = ((0, name),)
        self._own.append(made)
        return made.data.ctypes.data

    def parts(self, addresses: Array) -> Iterator[tuple[GlobalBuffer, int, Array | slice]]:
        left = np.ones(addresses.size, np.bool_)
        for buffer in self._own:
            start = buffer.data.ctypes.data
            mine = (addresses >= start) & (addresses < start + buffer.size) & left
            if mine.any():
                left &= ~mine
                yield buffer, start, np.flatnonzero(mine)
        rest = np.flatnonzero(left)
        if not rest.size:
            return
        numbers = self._numbers(addresses[rest])
        whole = rest.size == addresses.size and (numbers == numbers[0]).all()
        for number in [int(numbers[0])] if whole else np.unique(numbers).tolist():
            which = slice(None) if whole else rest[numbers == number]
            if number < 0:
                lane = int(np.arange(addresses.size)[which][0])
                raise AccessFault(f"the address {int(addresses[lane]):#x} is in no buffer of the device", lane)
            yield self._buffer(number), self._allocations[number].start, which

    def _numbers(self, addresses: Array) -> Array:
        """Index of each address's allocation, or of one that it misses by less than `_NEAR` bytes; else -1."""
        if not self._starts.size:
            return np.full(addresses.size, -1)
        found = np.searchsorted(self._starts, addresses, side="right") - 1
        ends = np.array([a.end for a in self._allocations], np.int64)
        behind = np.where(found >= 0, addresses - ends[found], _NEAR)  # negative: inside
        following = np.minimum(found + 1, self._starts.size - 1)
        before = self._starts[following] - addresses
        before = np.where((before > 0) & (before < _NEAR), before, _NEAR)
        return np.where(behind < 0, found, np.where(before < behind, following, np.where(behind < _NEAR, found, -1)))

    def _buffer(self, number: int) -> GlobalBuffer:
        if number not in self._made:
            self._made[number] = self._named(self._allocations[number])
        return self._made[number]

    def _named(self, a: Allocation) -> GlobalBuffer:
        marks = sorted((p - a.start, name) for p, name in self._pointers if a.start <= p < a.end)
        # Views of words may extend beyond the end, where nothing is accessed.
        data = np.ctypeslib.as_array((ctypes.c_uint8 * ((a.size + 31) // 32 * 32)).from_address(a.start))
        written = None if a.written is None or a.written.all() else a.written
        if not marks or marks[0][0]:
            marks.insert(0, (0, "memory that no argument points to"))
        return GlobalBuffer(marks[0][1], data, 0, a.size, True, written, tuple(marks), a.tensor)
