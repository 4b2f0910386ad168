"""Device memory of an emulated device: host memory at its real addresses, with who wrote what."""

from __future__ import annotations

import bisect
import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Allocation:
    """Memory that the driver handed out.

    Attributes:
        start: its address.
        size: in bytes.
        data: the bytes themselves, `uint8[size]`, not a copy.
        written: `bool[size]`, which bytes somebody wrote; None where the host can write without being seen.
    """

    start: int
    size: int
    data: np.ndarray[Any, np.dtype[np.uint8]]
    written: np.ndarray[Any, np.dtype[np.bool_]] | None

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass
class Memory:
    """All allocations of a device."""

    _starts: list[int] = field(default_factory=list)
    _allocations: list[Allocation] = field(default_factory=list)

    def add(self, start: int, size: int, *, host_visible: bool = False) -> Allocation:
        """An allocation at an address of this process. `host_visible`: the host may write to it directly."""
        data = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start)) if size else np.empty(0, np.uint8)
        made = Allocation(start, size, data, None if host_visible else np.zeros(size, np.bool_))
        at = bisect.bisect(self._starts, start)
        self._starts.insert(at, start)
        self._allocations.insert(at, made)
        return made

    def remove(self, start: int) -> None:
        at = bisect.bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start:
            del self._starts[at], self._allocations[at]

    def find(self, address: int) -> Allocation | None:
        """The allocation that an address is in."""
        at = bisect.bisect(self._starts, address) - 1
        if at < 0 or address >= self._allocations[at].end:
            return None
        return self._allocations[at]

    def mark_written(self, start: int, size: int) -> None:
        """The host wrote these bytes."""
        found = self.find(start)
        if found is not None and found.written is not None:
            found.written[start - found.start : start - found.start + size] = True

    def copy_written(self, target: int, source: int, size: int) -> None:
        """Bytes were copied: the target's are written where the source's were."""
        into, of = self.find(target), self.find(source)
        if into is None or into.written is None:
            return
        known = True if of is None or of.written is None else of.written[source - of.start :][:size]
        into.written[target - into.start : target - into.start + size] = known

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        return tuple(self._allocations)
