"""The memory that a launch accesses: its allocations, loads and stores, and which bytes were written."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..memory import Allocation, Memory
from .ordering import WaveOrder
from .shadow import InstructionFault, RegisterShadow
from .waves import Array, AtomicFunction, Waves

U32, U64, I64 = np.uint32, np.uint64, np.int64
_ALL_WRITTEN = np.uint32(0x01010101)
_CAUSES = 256  # that are kept for each allocation


@dataclass
class Reach:
    """The memory that a launch can access.

    Attributes:
        memory: the device's memory.
        own: memory of the launch itself: its kernel arguments, the code object with its constants, private memory.
        arguments: the pointers among the kernel's arguments, each as its byte offset there and its value.
        function: name of the kernel.
        order: the order of accesses by different workgroups.
    """

    memory: Memory
    own: list[Allocation]
    arguments: list[tuple[int, int]]
    function: str
    order: WaveOrder
    complete: dict[int, bool] = field(default_factory=dict)
    read: int = 0
    stored: int = 0

    def find(self, address: int) -> Allocation | None:
        for a in self.own:
            if a.start <= address < a.end:
                return a
        return self.memory.find(address)

    def describe(self, address: int, size: int) -> str:
        """Name an access that is outside all allocations, by the kernel argument that is closest to it."""
        near = None
        for place, pointer in self.arguments:
            held = self.memory.find(pointer)
            if held is None:
                continue
            distance = (
                0 if held.start <= address < held.end else min(abs(address - held.start), abs(address - held.end))
            )
            if near is None or distance < near[0]:
                near = (distance, place, pointer, held)
        if near is None:
            return f"{size} bytes at {address:#x}, where nothing is allocated"
        _, place, pointer, held = near
        return (
            f"{size} bytes at byte {address - pointer} of argument {place // 8} (bytes {place} to {place + 7} of the "
            f"kernel's arguments), which has {held.end - pointer} bytes: {self._element(held, pointer, address, size)}"
        )

    def name(self, address: int, size: int) -> str:
        """Name memory of an allocation by the kernel argument that points to it."""
        held = self.find(address)
        if held is not None:
            before = [(p, place) for place, p in self.arguments if held.start <= p <= address]
            if before:
                pointer, place = max(before)
                element = self._element(held, pointer, address, size)
                return f"byte {address - pointer} of argument {place // 8} ({element})"
        return f"{size} bytes at {address:#x}"

    @staticmethod
    def _element(held: Allocation, pointer: int, address: int, size: int) -> str:
        """Name the element of the program's argument that the allocation holds, or count from the kernel's pointer."""
        return held.element(address - (pointer if held.tensor is None else held.start), size)

    def parts(self, addresses: Array, on: Array, size: int) -> list[tuple[Allocation, Array, Array]]:
        """Allocations with the lanes that access them and their offsets; other lanes get an arbitrary valid offset."""
        found = []
        left = on
        while left.any():
            inside = addresses[left]
            low = int(inside.min())
            held = self.find(low)
            if held is None or low + size > held.end:
                wave, lane = np.argwhere(left & (addresses == U64(low)))[0]
                raise InstructionFault(f"it accesses {self.describe(low, size)}", int(wave), int(lane))
            if int(inside.max()) + size <= held.end:
                mine = left
            else:
                mine = left & (addresses < U64(held.end))
                beyond = mine & (addresses + U64(size) > U64(held.end))
                if beyond.any():
                    wave, lane = np.argwhere(beyond)[0]
                    text = self.describe(int(addresses[wave, lane]), size)
                    raise InstructionFault(f"it accesses {text}", int(wave), int(lane))
            offsets = np.where(mine, addresses, U64(low)) - U64(held.start)
            found.append((held, mine, offsets.astype(I64)))
            left = left & ~mine
        return found

    def load(
        self, g: Waves, shadow: RegisterShadow, addresses: Array, on: Array, size: int
    ) -> tuple[Array, Array | None]:
        """Load `uint32[waves, lanes, words]`, smaller sizes zero-extended; also return the origin numbers of unwritten
        words (`RegisterShadow.origins`), of the same shape, or None if there are none."""
        words = max(1, size // 4)
        out = np.zeros((*addresses.shape, words), U32)
        unknown = None
        for held, mine, offsets in self.parts(addresses, on, size):
            self.order.load(self.name, g, held, mine, offsets, size)
            values = _gather(held.data, offsets, size)
            out = values if mine.all() else np.where(mine[..., None], values, out)
            if held.written is not None and not self._complete(held):
                fresh = _gather(held.written.view(np.uint8), offsets, size) != (
                    _ALL_WRITTEN if size >= 4 else _ones(size)
                )
                fresh &= mine[..., None]
                if fresh.any():
                    origin = self._origin(shadow, held, fresh, addresses, offsets, size)
                    unknown = origin if unknown is None else np.maximum(unknown, origin)
        self.read += size * int(on.sum())
        return out, unknown

    def _origin(
        self, shadow: RegisterShadow, held: Allocation, fresh: Array, addresses: Array, offsets: Array, size: int
    ) -> Array:
        """The origin number of each unwritten word."""
        wave, lane, word = (int(i) for i in np.argwhere(fresh)[0])
        text = f"{self.name(int(addresses[wave, lane]) + 4 * word, min(size, 4))}, which nobody wrote"
        found = fresh.astype(np.uint16) * np.uint16(shadow.origin(text, memory=True))
        if held.origins is None:
            return found
        octets = held.origins[offsets[..., None] + np.arange(size)]
        stored = octets.reshape(*offsets.shape, fresh.shape[-1], -1).max(axis=-1)
        return np.where(fresh & (stored > 0), stored, found)

    def _complete(self, held: Allocation) -> bool:
        """Whether every byte of an allocation was written before the launch."""
        if held.start not in self.complete:
            self.complete[held.start] = held.written is None or bool(held.written.all())
        return self.complete[held.start]

    def store(
        self, g: Waves, shadow: RegisterShadow, addresses: Array, on: Array, size: int, values: Array,
        unknown: Array | None = None,
    ) -> None:  # fmt: skip
        """Store `uint32[waves, lanes, words]`; `unknown`, of the same shape: words that stay unwritten, by origin."""
        for held, mine, offsets in self.parts(addresses, on, size):
            if any(held is a for a in self.own[:2]):
                wave, lane = np.argwhere(mine)[0]
                raise InstructionFault("it stores to the kernel's arguments or code", int(wave), int(lane))
            if not any(held is a for a in self.own):
                self.order.store(self.name, g, held, mine, offsets, size)
            at, what = offsets[mine], np.ascontiguousarray(values[mine])
            octets = what.view(np.uint8).reshape(len(at), -1)[:, :size]
            if size % 4 == 0 and not (at & 3).any():
                words, index = _words(held.data), (at >> 2)[:, None] + np.arange(size // 4)
                words[index] = what
                lost = words[index] != what
                if held.written is not None:
                    _words(held.written.view(np.uint8))[index] = _ALL_WRITTEN
            else:
                index = at[:, None] + np.arange(size)
                held.data[index] = octets
                lost = held.data[index] != octets
                if held.written is not None:
                    held.written[index] = True
            if lost.any() and unknown is None:
                wave, lane = np.argwhere(mine)[np.argwhere(lost)[0][0]]
                text = self.name(int(addresses[wave, lane]), size)
                raise InstructionFault(f"two lanes store different values to {text}", int(wave), int(lane))
            if held.origins is not None:
                held.origins[at[:, None] + np.arange(size)] = 0
            if unknown is not None and held.written is not None and (unknown[mine] > 0).any():
                which, word = np.nonzero(unknown[mine])
                places = at[which] + 4 * word
                held.written[places[:, None] + np.arange(min(size, 4))] = False
                self.complete[held.start] = False
                if held.origins is not None:
                    held.origins[places[:, None] + np.arange(min(size, 4))] = unknown[mine][which, word][:, None]
                    continue
                origin = shadow.origins[unknown[mine].max()]
                text = f"{self.function} stored an unwritten value there, which comes from {origin}"
                held.causes.append((int(places.min()), int(places.max()) + min(size, 4) - 1, text))
                del held.causes[:-_CAUSES]
        self.stored += size * int(on.sum())

    def atomic(
        self, g: Waves, addresses: Array, on: Array, function: AtomicFunction,
        kind: type[np.generic], operand: Array, reads: bool = True,
    ) -> Array:  # fmt: skip
        """Execute an atomic lane by lane and return the old values; `reads`: the new value depends on the old one."""
        out = np.zeros(addresses.shape, kind)
        for held, mine, offsets in self.parts(addresses, on, np.dtype(kind).itemsize):
            octets = offsets[..., None] + np.arange(np.dtype(kind).itemsize)
            if held.written is not None:
                fresh = mine & ~held.written[octets].all(axis=-1)
                if reads and fresh.any():
                    wave, lane = np.argwhere(fresh)[0]
                    text = self.name(int(addresses[wave, lane]), np.dtype(kind).itemsize)
                    raise InstructionFault(f"it changes {text}, which nobody wrote", int(wave), int(lane))
                held.written[octets[mine]] = True
            self.order.atomic(g, addresses, mine)
            for wave, lane in np.argwhere(mine):
                cell = held.data[int(offsets[wave, lane]) :][: np.dtype(kind).itemsize].view(kind)
                out[wave, lane] = cell[0]
                cell[0] = function(cell[0], operand[wave, lane])
        size = np.dtype(kind).itemsize * int(on.sum())
        self.read, self.stored = self.read + size, self.stored + size
        return out


def _ones(size: int) -> np.uint32:
    return U32(0x0101 if size == 2 else 1)


def _words(data: Array) -> Array:
    return data[: len(data) & ~3].view(U32)


def _gather(data: Array, offsets: Array, size: int) -> Array:
    """Gather `uint32[..., words]` from the bytes at `offsets`."""
    if size % 4 == 0 and not (offsets & 3).any() and data.ctypes.data % 4 == 0:
        found: Array = _words(data)[(offsets >> 2)[..., None] + np.arange(size // 4)]
        return found
    octets = data[offsets[..., None] + np.arange(size)]
    if size % 4:
        octets = np.concatenate([octets, np.zeros((*offsets.shape, 4 - size % 4), np.uint8)], axis=-1)
    return np.ascontiguousarray(octets).view(U32)
