"""Copies between the host and a device that has memory of its own, through buffers that are used again.

Such a device takes a millisecond to hand out a buffer for an argument, and as long for memory that it can copy results
into. IREE has an allocator that keeps buffers, which its CUDA device must not have (core/cuda.py).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..core.bindings import binding
from ..core.drivers import driver_named
from ..dialect.dtypes import Array, NumpyType

if TYPE_CHECKING:
    from iree.runtime import HalBuffer, HalDevice, HalFence, MappedMemory

# Of all idle buffers of one kind: results and weights of some hundred MiB each are usual on a GPU.
_MOST_BYTES, _MOST_BUFFERS = 1 << 30, 64


def rounded(size: int) -> int:
    """The size of the buffer for so many bytes, at most an eighth larger: dynamic sizes meet in few of them."""
    step = max(256, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


@dataclass
class Kept:
    """A buffer that is lent to one call at a time."""

    buffer: HalBuffer
    size: int
    mapped: MappedMemory | None = None
    bytes: Array | None = None  # of the host, to be written to


class Pool:
    """Idle buffers of one kind, the last used one last."""

    def __init__(self, make: Callable[[int], Kept]) -> None:
        self._make = make
        self._idle: list[Kept] = []
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> Kept:
        """An idle buffer of the size, or a new one. Raises RuntimeError where the device has no memory left."""
        with self._lock:
            for at in range(len(self._idle) - 1, -1, -1):
                if self._idle[at].size == size:
                    self._bytes -= size
                    return self._idle.pop(at)
        return self._make(size)

    def give(self, kept: Kept) -> None:
        """Take a buffer back that nobody reads or writes any more."""
        with self._lock:
            self._idle.append(kept)
            self._bytes += kept.size
            while len(self._idle) > _MOST_BUFFERS or self._bytes > _MOST_BYTES:
                self._bytes -= self._idle.pop(0).size

    def clear(self) -> int:
        """Returns how many bytes were idle."""
        with self._lock:
            idle, self._bytes = self._bytes, 0
            self._idle.clear()
            return idle


@dataclass
class Upload:
    """What one call has copied to the device, or is copying."""

    targets: list[Kept] = field(default_factory=list)
    sources: list[Kept] = field(default_factory=list)
    done: list[HalFence] = field(default_factory=list)

    def wait(self) -> None:
        """Until everything has arrived."""
        for fence in self.done:
            fence.wait()
        self.done.clear()


class Transfers:
    """The copies of one device.

    Attributes:
        shares: the device sees what the host writes to memory that both have, without being told.
    """

    def __init__(self, device: HalDevice, shares: bool) -> None:
        self._device, self.shares = device, shares
        self._host = Pool(self._host_buffer)
        self._own = Pool(self._device_buffer)

    def upload(self, array: Array, into: Upload) -> HalBuffer:
        """A buffer with an array's bytes, when `into` has been waited for; for devices with `shares`."""
        size = rounded(array.nbytes)
        source = self._take(self._host, size)
        target = self._take(self._own, size)
        if source.bytes is None:
            source.mapped = source.buffer.map()
            address = np.frombuffer(source.mapped, np.uint8).ctypes.data
            # IREE's bindings map buffers for reading only. This one is memory of the host's, whoever writes to it.
            source.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        source.bytes[: array.nbytes] = array.reshape(-1).view(np.uint8)
        into.sources.append(source)
        into.targets.append(target)
        into.done.append(self.copy(source.buffer, target.buffer))
        return target.buffer

    def give_back(self, upload: Upload, *, everything: bool) -> None:
        """What a call has uploaded and does not need any more; without `everything`, the program may."""
        for kept in upload.sources:
            self._host.give(kept)
        for kept in upload.targets if everything else ():
            self._own.give(kept)

    def download(self, source: HalBuffer, shape: tuple[int, ...], raw: NumpyType) -> Array:
        """A new array with a buffer's bytes. They are not mapped or copied directly: Vulkan devices that cannot import
        host memory at the alignment of numpy's buffers refuse that (seen with IREE 3.12 and 3.13)."""
        staging = self._take(self._host, rounded(source.byte_length()))
        self.copy(source, staging.buffer).wait()
        array = np.array(np.ndarray(shape, raw, staging.buffer.map()))
        self._host.give(staging)
        return array

    def copy(self, source: HalBuffer, target: HalBuffer) -> HalFence:
        """Copy a buffer into one that is not smaller. Returns what to wait for."""
        semaphore = self._device.create_semaphore(0)
        done = binding.HalFence.create_at(semaphore, 1)
        self._device.queue_copy(
            source, target, wait_semaphores=binding.HalFence.create_at(semaphore, 0), signal_semaphores=done
        )
        return done

    def clear(self) -> int:
        """Give idle memory back to the device. Returns how many bytes that are."""
        return self._host.clear() + self._own.clear()

    def _take(self, pool: Pool, size: int) -> Kept:
        try:
            return pool.take(size)
        except RuntimeError:
            self.clear()
            return pool.take(size)

    def _host_buffer(self, size: int) -> Kept:
        kinds, uses = binding.MemoryType, binding.BufferUsage
        memory = int(kinds.HOST_LOCAL) | int(kinds.DEVICE_VISIBLE)
        if self.shares:  # CUDA and HIP hand out memory that the host reads very slowly where it need not be cached
            memory |= int(kinds.HOST_CACHED)
        usage = int(uses.TRANSFER) | int(uses.MAPPING_SCOPED)
        return Kept(self._allocate(memory, usage, size), size)

    def _device_buffer(self, size: int) -> Kept:
        return Kept(self._allocate(int(binding.MemoryType.DEVICE_LOCAL), int(binding.BufferUsage.DEFAULT), size), size)

    def _allocate(self, memory: int, usage: int, size: int) -> HalBuffer:
        return self._device.allocator.allocate_buffer(memory, usage, size)


_known: dict[int, Transfers] = {}  # by the identity of the device, which lives as long as the process
_lock = threading.Lock()


def transfers(device: HalDevice, driver: str) -> Transfers:
    """The copies of a driver's device; all of its programs share the buffers."""
    with _lock:
        if id(device) not in _known:
            _known[id(device)] = Transfers(device, driver_named(driver).sees_host_writes)
        return _known[id(device)]
