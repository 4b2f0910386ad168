"""Global and shared memory of an interpreted grid, and the checks of accesses to them.

Global memory is a list of buffers at addresses far apart. Shared memory is one array for all blocks, with a shadow that
records who wrote and who read each granule last, and whether a copy to it is in flight. Two accesses of different warps
to one granule, one of them a write, are a race unless barriers order them; each warp has a vector clock for the order
(Flanagan, Freund, "FastTrack: efficient and precise dynamic race detection", 2009). Lanes of one warp count as ordered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .buffers import AccessFault, Clocks, GlobalBuffer
from .formats import Array
from .ordering import Access, WarpOrder

BUFFER_BITS = 40
SHARED_WINDOW = 1 << 56  # where shared memory starts in generic addresses
LOCAL_WINDOW = 1 << 57
SHARED_START = 1024  # address of the first byte in its own space: Hopper reserves the bytes below
BANKS = 32


class GlobalMemory:
    """Buffers of global memory, found by address.

    Attributes:
        lenient: loads out of bounds are counted and return garbage. IREE's own kernels have them: LLVM widens loads
            within 16 aligned bytes, and ragged tiles are read whole and masked afterwards.
        strays: number of such loads.
    """

    def __init__(self) -> None:
        self.buffers: list[GlobalBuffer] = []
        self.lenient = False
        self.strays = 0
        self.bytes_read = self.bytes_written = 0

    def add(self, name: str, content: Array, writable: bool) -> int:
        """Add a buffer that starts as a copy of `content`; returns its address."""
        raw = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        data = np.zeros((raw.size + 31) // 32 * 32, np.uint8)
        data[: raw.size] = raw
        return self.bind(name, data, 0, raw.size, writable)

    def bind(self, name: str, data: Array, start: int, size: int, writable: bool) -> int:
        """Add a buffer that is a part of `data`, to which its writes go; returns its address."""
        self.buffers.append(GlobalBuffer(name, data, start, size, writable))
        return len(self.buffers) << BUFFER_BITS

    def content(self, address: int) -> Array:
        """The bytes of the buffer at an address."""
        buffer = self.buffers[(address >> BUFFER_BITS) - 1]
        return buffer.data[buffer.start : buffer.start + buffer.size]

    def find(
        self, addresses: Array, width: int, align: int = 0, unit: int = 1
    ) -> Iterator[tuple[GlobalBuffer, Array | slice, Array]]:
        """The buffers that are accessed, each with the accesses to it and their offsets.

        Raises:
            AccessFault: an address in no buffer, out of bounds, or not aligned to `align`, by default `width`. Ends of
                buffers are rounded up to a multiple of `unit` bytes.
        """
        for buffer, start, which in self.parts(addresses):
            offsets = addresses[which] - start
            self._check(buffer, offsets, width, align or width, which, -(-buffer.size // unit) * unit)
            yield buffer, which, offsets

    def parts(self, addresses: Array) -> Iterator[tuple[GlobalBuffer, int, Array | slice]]:
        """The buffers that addresses are in or beyond, each with its own address and the accesses that belong to it.

        Raises:
            AccessFault: an address in no buffer.
        """
        numbers = addresses >> BUFFER_BITS
        if numbers.size and (numbers == numbers[0]).all():
            parts: list[tuple[int, Array | slice]] = [(int(numbers[0]), slice(None))]
        else:
            parts = [(int(n), np.flatnonzero(numbers == n)) for n in np.unique(numbers)]
        for number, which in parts:
            if not 1 <= number <= len(self.buffers):
                lane = int(np.flatnonzero(numbers == number)[0])
                raise AccessFault(f"the address {int(addresses[lane]):#x} is in no buffer", lane)
            yield self.buffers[number - 1], number << BUFFER_BITS, which

    def _check(
        self, buffer: GlobalBuffer, offsets: Array, width: int, align: int, which: Array | slice, size: int
    ) -> None:
        outside = (offsets < 0) | (offsets + width > size)
        crooked = offsets % align != 0
        if (outside | crooked).any():
            first = int(np.flatnonzero(outside | crooked)[0])
            lane = first if isinstance(which, slice) else int(which[first])
            what, at = "out of bounds" if outside[first] else "misaligned", int(offsets[first])
            raise AccessFault(f"{what}: {width} bytes at {buffer.at(at)}, which has {buffer.size_at(at)}: "
                        f"{buffer.element(at, width)}", lane)  # fmt: skip

    def load(
        self, addresses: Array, width: int, dtype: np.dtype[np.generic], order: WarpOrder | None = None,
        access: Access | None = None,
    ) -> Array:  # fmt: skip
        """Load `[accesses, width // itemsize]` elements, checked against the order of writes if `access` is given."""
        count = width // dtype.itemsize
        self.bytes_read += addresses.size * width
        out = np.empty((addresses.size, count), dtype)
        if self.lenient:
            addresses, stray = self._inside(addresses, width)
        for buffer, which, offsets in self.find(addresses, width, unit=16 if self.lenient else 1):
            if access is not None:
                self.check_readable(buffer, order, access.part(which), offsets, width)
            index = (offsets[:, None] + buffer.start) // dtype.itemsize + np.arange(count)
            out[which] = buffer.data.view(dtype)[index]
        if self.lenient and stray.any():
            out.view(np.uint8)[stray] = 0xA5
        return out

    def _inside(self, addresses: Array, width: int) -> tuple[Array, Array]:
        """The addresses, those out of bounds moved into their buffer, and a mask of the moved ones."""
        moved, stray = addresses.copy(), np.zeros(addresses.size, np.bool_)
        for buffer, start, which in self.parts(addresses):
            offsets = addresses[which] - start
            beyond = (offsets < 0) | (offsets + width > -(-buffer.size // 16) * 16)
            moved[which] = np.where(beyond, start, addresses[which])
            stray[which] = beyond
        self.strays += int(stray.sum())
        return moved, stray

    def check_readable(
        self, buffer: GlobalBuffer, order: WarpOrder | None, access: Access, offsets: Array, width: int
    ) -> None:
        """Raises AccessFault if the bytes read may not be there yet, or were never written."""
        if order is not None and buffer.writable:
            order.load(buffer, access, offsets, width)
        if buffer.written is not None and not self.lenient:
            missing = ~buffer.written[offsets[:, None] + np.arange(width)]
            if missing.any():
                lane, byte = (int(i[0]) for i in np.nonzero(missing))
                at = int(offsets[lane]) + byte
                what = f"byte {buffer.at(at)} ({buffer.element(int(offsets[lane]), width)})"
                raise AccessFault(f"{what} is read before it is written", lane)

    def store(
        self, addresses: Array, values: Array, order: WarpOrder | None = None, access: Access | None = None
    ) -> None:
        """Write `[accesses, elements]`."""
        dtype, count = values.dtype, values.shape[1]
        self.bytes_written += values.nbytes
        for buffer, which, offsets in self.find(addresses, count * dtype.itemsize):
            self.check_writable(buffer)
            if order is not None and access is not None:
                order.store(buffer, access.part(which), offsets, count * dtype.itemsize)
            index = (offsets[:, None] + buffer.start) // dtype.itemsize + np.arange(count)
            memory, new = buffer.data.view(dtype), values[which]
            memory[index] = new
            self.mark_written(buffer, offsets, count * dtype.itemsize)
            lost = (memory[index] != new).any(axis=1)
            if lost.any():
                lane = int(np.flatnonzero(lost)[0])
                raise AccessFault(f"two threads write different values to byte {buffer.at(int(offsets[lane]))}", lane)

    @staticmethod
    def mark_written(buffer: GlobalBuffer, offsets: Array, width: int) -> None:
        if buffer.written is not None:
            buffer.written[offsets[:, None] + np.arange(width)] = True

    def check_updated(self, buffer: GlobalBuffer, offsets: Array, width: int, plain: bool) -> None:
        """Check and count an atomic; one that is `plain` (an exchange) does not need the old value."""
        self.bytes_read += offsets.size * width
        self.bytes_written += offsets.size * width
        if buffer.written is not None:
            missing = ~buffer.written[offsets[:, None] + np.arange(width)]
            if missing.any() and not plain:
                lane = int(np.nonzero(missing)[0][0])
                raise AccessFault(f"byte {buffer.at(int(offsets[lane]))} is read before it is written", lane)
            self.mark_written(buffer, offsets, width)

    @staticmethod
    def check_writable(buffer: GlobalBuffer) -> None:
        if not buffer.writable:
            raise AccessFault(f"a write to {buffer.name}, which is read only", 0)


@dataclass
class SharedPlace:
    """Accesses to shared memory: block, warp and offset of each."""

    block: Array
    warp: Array
    offset: Array


class SharedMemory:
    """The shared memory of every block, with its shadow.

    Attributes:
        conflicts: extra passes that accesses of the first block took because of bank conflicts, by line.
        passes: all passes of these instructions.
        bytes: number of bytes read and written.
        lenient: unwritten bytes may be read.
    """

    def __init__(self, blocks: int, warps: int, size: int, granule: int, lenient: bool = False) -> None:
        self.size, self.stride = size, (size + 1023) // 1024 * 1024 + 1024
        self.granule = granule
        self.data = np.full(blocks * self.stride, 0x55, np.uint8)
        granules = self.data.size // granule
        self.clocks = Clocks(blocks, warps)
        self.write_warp = np.full(granules, -1, np.int16)
        self.write_time = np.zeros(granules, np.int32)
        self.read_time = np.zeros((granules, warps), np.int32)
        self.arriving = np.zeros(granules, np.bool_)  # a copy is in flight
        self.reading = np.zeros(granules, np.int16)  # asynchronous reads that have not ended
        self.bytes = 0
        self.lenient = lenient
        self.unfenced = np.zeros(granules, np.bool_)  # written, and not yet visible to the asynchronous proxy
        self.conflicts: dict[int, int] = {}
        self.passes: dict[int, int] = {}

    # ---- addresses

    def offsets(self, addresses: Array, width: int, what: str = "bytes") -> Array:
        """Offsets within a block's memory. Raises AccessFault if out of bounds or misaligned."""
        offsets = addresses.astype(np.int64) - SHARED_START
        outside = (offsets < 0) | (offsets + width > self.size)
        crooked = offsets % min(width, 16) != 0
        if (outside | crooked).any():
            lane = int(np.flatnonzero(outside | crooked)[0])
            kind = "out of bounds" if outside[lane] else "misaligned"
            raise AccessFault(
                f"{kind}: {width} {what} at {int(offsets[lane])} of shared memory, which has {self.size}", lane
            )
        return offsets

    def _granules(self, at: SharedPlace, width: int) -> Array:
        first = (at.block * self.stride + at.offset) // self.granule
        return first[:, None] + np.arange(max(1, width // self.granule))

    # ---- accesses

    def load(self, at: SharedPlace, width: int, dtype: np.dtype[np.generic]) -> Array:
        """`[accesses, width // itemsize]` elements, checked."""
        self.check_read(at, width)
        return self.peek(at, width, dtype)

    def peek(self, at: SharedPlace, width: int, dtype: np.dtype[np.generic]) -> Array:
        start = (at.block * self.stride + at.offset) // dtype.itemsize
        return self.data.view(dtype)[start[:, None] + np.arange(width // dtype.itemsize)]

    def store(self, at: SharedPlace, values: Array) -> None:
        """Write `[accesses, elements]`, checked."""
        self.check_write(at, values.shape[1] * values.dtype.itemsize)
        self.poke(at, values)
        lost = (self.peek(at, values.shape[1] * values.dtype.itemsize, values.dtype) != values).any(axis=1)
        if lost.any():
            lane = int(np.flatnonzero(lost)[0])
            raise AccessFault(
                f"two threads write different values to byte {int(at.offset[lane])} of shared memory", lane
            )

    def poke(self, at: SharedPlace, values: Array) -> None:
        start = (at.block * self.stride + at.offset) // values.dtype.itemsize
        self.data.view(values.dtype)[start[:, None] + np.arange(values.shape[1])] = values

    def check_read(self, at: SharedPlace, width: int, asynchronous: bool = False) -> None:
        """Raises AccessFault if the bytes read may not be there yet."""
        index = self._granules(at, width)
        self._refuse(self.arriving[index], at, "is read while a copy to it is in flight")
        self.bytes += at.warp.size * width
        writer = self.write_warp[index]
        if not self.lenient:
            self._refuse(writer < 0, at, "is read before it is written")
        late = (writer >= 0) & (writer != at.warp[:, None])
        late &= self.write_time[index] > self.clocks.time[at.block[:, None], at.warp[:, None], writer]
        self._refuse(late, at, "is read while another warp may still write it: no barrier orders them")
        if asynchronous:
            self._refuse(self.unfenced[index], at, "is read by the tensor core without fence.proxy.async after writing")
        self.read_time[index, at.warp[:, None]] = self.clocks.time[at.block, at.warp, at.warp][:, None]

    def check_write(self, at: SharedPlace, width: int) -> None:
        """Raises AccessFault if the write is not ordered with earlier accesses to the bytes."""
        self.bytes += at.warp.size * width
        index = self._granules(at, width)
        self._refuse(self.arriving[index], at, "is written while a copy to it is in flight")
        self._refuse(self.reading[index] > 0, at, "is written while an asynchronous product may still read it")
        known = self.clocks.time[at.block, at.warp][:, None, :]
        readers = self.read_time[index] > known
        readers[np.arange(at.warp.size), :, at.warp] = False
        read: Array = np.asarray(readers.any(axis=2))
        self._refuse(read, at, "is written while another warp may still read it: no barrier orders them")
        writer = self.write_warp[index]
        late = (writer >= 0) & (writer != at.warp[:, None])
        late &= self.write_time[index] > self.clocks.time[at.block[:, None], at.warp[:, None], writer]
        self._refuse(late, at, "is written by two warps: no barrier orders them")
        self._written(index, at)

    def check_updated(self, at: SharedPlace, width: int, plain: bool) -> None:
        """Check an atomic, which is ordered with other atomics; one that is `plain` does not need the old value."""
        self.bytes += 2 * at.warp.size * width
        index = self._granules(at, width)
        if not plain:
            self._refuse(self.write_warp[index] < 0, at, "is read before it is written")
        else:
            self._written(index, at)

    def _written(self, index: Array, at: SharedPlace) -> None:
        self.write_warp[index] = at.warp[:, None]
        self.write_time[index] = self.clocks.time[at.block, at.warp, at.warp][:, None]
        self.unfenced[index] = True

    def _refuse(self, wrong: Array, at: SharedPlace, why: str) -> None:
        if wrong.any():
            lane, granule = (int(i[0]) for i in np.nonzero(wrong))
            byte = int(at.offset[lane]) + granule * self.granule
            raise AccessFault(f"byte {byte} of shared memory {why}", lane)

    # ---- asynchronous copies and products

    def send(self, at: SharedPlace, width: int) -> None:
        """A copy to these places starts."""
        self.check_write(at, width)
        self.send_on(at, width)
        self.poke(at, np.full((at.block.size, width), 0xEE, np.uint8))  # for those that read too early

    def send_on(self, at: SharedPlace, width: int) -> None:
        """A copy to these places is in flight."""
        self.arriving[self._granules(at, width)] = True

    def land(self, at: SharedPlace, width: int) -> None:
        """The copy to these places is no longer in flight."""
        self.arriving[self._granules(at, width)] = False

    def arrive(self, at: SharedPlace, values: Array) -> None:
        """A copy has ended: its issuer sees the values, other warps see them after a barrier."""
        self.land(at, values.shape[1])
        self._written(self._granules(at, values.shape[1]), at)
        self.poke(at, values)

    def start_reading(self, at: SharedPlace, width: int) -> Array:
        """An asynchronous product reads from now on; returns the `index` for `end_reading`."""
        self.check_read(at, width, asynchronous=True)
        index = np.unique(self._granules(at, width))
        self.reading[index] += 1
        return index

    def end_reading(self, index: Array, block: int, warps: Array) -> None:
        self.reading[index] -= 1
        self.read_time[index[:, None], warps] = self.clocks.time[block, warps, warps]

    def fence(self, block: int, warp: int) -> None:
        """`fence.proxy.async` of a warp: the asynchronous proxy now sees all that the warp can see."""
        first = block * self.stride // self.granule
        part = slice(first, first + self.stride // self.granule)
        writer = self.write_warp[part]
        seen = (writer == warp) | (self.write_time[part] <= self.clocks.time[block, warp, writer])
        self.unfenced[part] &= ~(seen & ~self.arriving[part])

    # ---- banks

    def count_conflicts(self, line: int, addresses: Array, lanes: Array, width: int) -> None:
        """Count the passes of one access by one or several warps; `lanes`: thread number of each address.

        A pass serves 128 bytes: 4 bytes per lane of a warp, 8 of a half warp or 16 of a quarter warp. It serves one
        word of each bank, to any number of lanes.
        """
        per_pass = 128 // max(width, 4)
        words = max(1, width // 4)
        group = np.repeat(lanes // per_pass, words)
        word = (addresses[:, None] // 4 + np.arange(words)).reshape(-1)
        keys = np.unique(group.astype(np.int64) << 32 | word)
        group, bank = keys >> 32, (keys & 0xFFFFFFFF) % BANKS
        groups, dense = np.unique(group, return_inverse=True)
        uses = np.bincount(dense.reshape(-1) * BANKS + bank, minlength=groups.size * BANKS).reshape(-1, BANKS)
        worst = uses.max(axis=1)
        self.conflicts[line] = self.conflicts.get(line, 0) + int((worst - 1).sum())
        self.passes[line] = self.passes.get(line, 0) + int(worst.sum())
