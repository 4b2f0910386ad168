"""Copies between the host and a device with separate memory, through buffers that are reused.

Such a device takes a millisecond to allocate a buffer for an argument, and as long for host memory that it can copy
results into. IREE's caching allocator, which keeps buffers, cannot be used with its CUDA device (core/cuda.py).
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

# Limits for all idle buffers of one kind. On a GPU, results and weights of some hundred MiB each are common.
_MOST_BYTES, _MOST_BUFFERS = 1 << 30, 64


def rounded(size: int) -> int:
    """The size of the buffer for `size` bytes: a multiple of 256, or at most an eighth larger. Dynamic sizes need
    buffers of few sizes."""
    step = max(256, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


@dataclass
class Kept:
    """A buffer that one call at a time uses."""

    buffer: HalBuffer
    size: int
    mapped: MappedMemory | None = None
    bytes: Array | None = None  # writable view of the buffer, for host memory


class Pool:
    """Idle buffers of one kind, in the order of their last use."""

    def __init__(self, make: Callable[[int], Kept]) -> None:
        self._make = make
        self._idle: list[Kept] = []
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> Kept:
        """An idle buffer of the size, or a new one. Raises RuntimeError if the device has no memory left."""
        with self._lock:
            for at in range(len(self._idle) - 1, -1, -1):
                if self._idle[at].size == size:
                    self._bytes -= size
                    return self._idle.pop(at)
        return self._make(size)

    def give(self, kept: Kept) -> None:
        """Take back a buffer that is no longer read or written."""
        with self._lock:
            self._idle.append(kept)
            self._bytes += kept.size
            while len(self._idle) > _MOST_BUFFERS or self._bytes > _MOST_BYTES:
                self._bytes -= self._idle.pop(0).size

    def clear(self) -> int:
        """Drop the idle buffers. Returns their bytes."""
        with self._lock:
            idle, self._bytes = self._bytes, 0
            self._idle.clear()
            return idle


@dataclass
class Upload:
    """The buffers and fences of one call's copies to the device."""

    targets: list[Kept] = field(default_factory=list)
    sources: list[Kept] = field(default_factory=list)
    done: list[HalFence] = field(default_factory=list)

    def wait(self) -> None:
        """Wait until the copies are complete."""
        for fence in self.done:
            fence.wait()
        self.done.clear()


class Transfers:
    """Makes the copies from and to one device.

    Attributes:
        shares: the device sees host writes to memory that both can access, without a flush.
    """

    def __init__(self, device: HalDevice, shares: bool) -> None:
        self._device, self.shares = device, shares
        self._host = Pool(self._host_buffer)
        self._own = Pool(self._device_buffer)

    def upload(self, array: Array, into: Upload) -> HalBuffer:
        """A buffer that contains an array's bytes after `into.wait()`. Only for devices with `shares`."""
        size = rounded(array.nbytes)
        source = self._take(self._host, size)
        target = self._take(self._own, size)
        if source.bytes is None:
            source.mapped = source.buffer.map()
            address = np.frombuffer(source.mapped, np.uint8).ctypes.data
            # IREE's bindings map buffers for reading only. This one is host memory, which may be written at its
            # address.
            source.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        source.bytes[: array.nbytes] = array.reshape(-1).view(np.uint8)
        into.sources.append(source)
        into.targets.append(target)
        into.done.append(self.copy(source.buffer, target.buffer))
        return target.buffer

    def give_back(self, upload: Upload, *, everything: bool) -> None:
        """Take back the buffers of a finished call. Without `everything`, the program may still use those on the
        device."""
        for kept in upload.sources:
            self._host.give(kept)
        for kept in upload.targets if everything else ():
            self._own.give(kept)

    def download(self, source: HalBuffer, shape: tuple[int, ...], raw: NumpyType) -> Array:
        """A new array with a buffer's bytes. They are copied through a staging buffer: Vulkan devices that cannot
        import host memory at the alignment of numpy's buffers refuse to map or copy them directly (seen with IREE 3.12
        and 3.13)."""
        staging = self._take(self._host, rounded(source.byte_length()))
        self.copy(source, staging.buffer).wait()
        array = np.array(np.ndarray(shape, raw, staging.buffer.map()))
        self._host.give(staging)
        return array

    def copy(self, source: HalBuffer, target: HalBuffer) -> HalFence:
        """Copy a buffer into one that is not smaller. Returns the fence to wait for."""
        semaphore = self._device.create_semaphore(0)
        done = binding.HalFence.create_at(semaphore, 1)
        self._device.queue_copy(
            source, target, wait_semaphores=binding.HalFence.create_at(semaphore, 0), signal_semaphores=done
        )
        return done

    def clear(self) -> int:
        """Free the idle buffers. Returns their bytes."""
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
        if self.shares:  # otherwise CUDA and HIP allocate memory that the host reads very slowly
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
    """The `Transfers` of a driver's device. All programs on the device share its buffers."""
    with _lock:
        if id(device) not in _known:
            _known[id(device)] = Transfers(device, driver_named(driver).sees_host_writes)
        return _known[id(device)]
