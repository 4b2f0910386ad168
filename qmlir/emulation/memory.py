"""Memory of an emulated device: host memory at its real addresses, with a record of the bytes that were written."""

from __future__ import annotations

import bisect
import ctypes
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class ArgumentTensor:
    """An argument of a program's function, stored row-major from the start of an allocation.

    Attributes:
        name: name in the signature.
        dtype: type of its elements.
        shape: shape of the array that was passed.
        item: bytes per element.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    item: int

    def element(self, offset: int) -> str:
        """Names the element at a byte offset, inside of the tensor or beyond its end."""
        index, rest = [], offset // self.item
        for size in reversed(self.shape[1:]):
            index.append(rest % size)
            rest //= size
        at = [rest, *reversed(index)]
        return f"element {at} of {self.name}, {self.dtype}{list(self.shape)}"


@dataclass
class Allocation:
    """Memory that the driver allocated.

    Attributes:
        start: its address.
        size: in bytes.
        data: the bytes themselves, `uint8[size]`, not a copy.
        written: `bool[size]`, which bytes were written; None if the host can write without being seen.
        tensor: the program's argument that it contains, if any.
        causes: first byte, last byte, and the origin of the unwritten values that were stored there.
        origins: `uint16[size]`, for private memory, to which registers are spilled even if they are unwritten: the
            emulator's numbers of the origins of unwritten values.
    """

    start: int
    size: int
    data: npt.NDArray[np.uint8]
    written: npt.NDArray[np.bool_] | None
    tensor: ArgumentTensor | None = None
    causes: list[tuple[int, int, str]] = field(default_factory=list)
    origins: npt.NDArray[np.uint16] | None = None

    @property
    def end(self) -> int:
        return self.start + self.size

    def element(self, offset: int, size: int) -> str:
        """Names the element at a byte offset; in units of the access's `size` if the type is not known."""
        if self.tensor is not None:
            return self.tensor.element(offset)
        return f"element {offset // size} of {size} bytes" if offset % size == 0 else f"byte {offset}"

    def cause(self, offset: int) -> str:
        """Why a byte counts as unwritten; "" if nothing was stored there."""
        return next((text for low, high, text in reversed(self.causes) if low <= offset <= high), "")


@dataclass(frozen=True)
class Unwritten:
    """An unwritten byte that the host read: its offset in the read, and its cause if a kernel stored it."""

    offset: int
    cause: str


@dataclass
class Memory:
    """All allocations of a device."""

    read: list[Unwritten] = field(default_factory=list)  # by the host, since the last check
    newest: Allocation | None = None  # of those that the host cannot access
    _starts: list[int] = field(default_factory=list)
    _allocations: list[Allocation] = field(default_factory=list)

    def add(self, start: int, size: int, *, host_visible: bool = False) -> Allocation:
        """Add an allocation at an address of this process. `host_visible`: the host may write to it directly."""
        data = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start)) if size else np.empty(0, np.uint8)
        made = Allocation(start, size, data, None if host_visible else np.zeros(size, np.bool_))
        if not host_visible:
            self.newest = made
        at = bisect.bisect(self._starts, start)
        self._starts.insert(at, start)
        self._allocations.insert(at, made)
        return made

    def remove(self, start: int) -> None:
        at = bisect.bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start:
            if self._allocations[at] is self.newest:
                self.newest = None
            del self._starts[at], self._allocations[at]

    def find(self, address: int) -> Allocation | None:
        """The allocation that contains an address, if any."""
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
        """Bytes were copied: those of the target count as written if those of the source were."""
        into, of = self.find(target), self.find(source)
        if into is None or into.written is None:
            self._read_by_host(of, source, size)
            return
        known = True if of is None or of.written is None else of.written[source - of.start :][:size]
        into.written[target - into.start : target - into.start + size] = known

    def _read_by_host(self, of: Allocation | None, source: int, size: int) -> None:
        if of is None or of.written is None:
            return
        missing = ~of.written[source - of.start :][:size]
        if missing.any():
            at = int(missing.argmax())
            self.read.append(Unwritten(at, of.cause(source - of.start + at)))

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        return tuple(self._allocations)
