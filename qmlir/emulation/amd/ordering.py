"""What workgroups of one launch may know of each other's stores to global memory.

Workgroups run in any order. What one has stored another one sees only behind a release of the one and an acquire of the
other (LLVM's "User Guide for AMDGPU Backend", section "Memory Model"): an atomic on a word after the stores were
waited for (and, on gfx942 and gfx950, L2 was written back), then an atomic of the other on this word, and behind it an
instruction that invalidates its caches. Barriers pass on what the waves of a workgroup know. Each wave has a time,
which its releases and barriers advance; of every byte the shadow says which wave stored it when, as one number of 16
bits. After 65,535 such numbers a launch is followed no further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..memory import Allocation
from .shadow import InstructionFault
from .waves import Array, Waves

_MOST = 0xFFFF
_EACH = np.uint64(0x0001000100010001)  # the same number for the four bytes of a word
WaveTimes = dict[int, int]  # by wave of the launch
Name = Callable[[int, int], str]  # of memory, by its address and size


@dataclass(frozen=True)
class _Access:
    """What the lanes `mine` of some waves access of an allocation.

    Attributes:
        name: names what is at an address.
        wave: numbers of the waves in the launch.
        shadow: in units of `unit` bytes.
        index: places in the shadow, of each lane and unit of the access.
        marks: what the waves write there.
    """

    name: Name
    held: Allocation
    mine: Array
    wave: Array
    shadow: Array
    index: Array
    marks: Array
    unit: int


class WaveOrder:
    """Of the waves of one launch, which are numbered through its workgroups.

    Attributes:
        waves: of a workgroup.
        writes_back: the device has dies with an L2 each.
    """

    def __init__(self, groups: int, waves: int, writes_back: bool) -> None:
        self.waves, self.writes_back = waves, writes_back
        self._shadows: dict[int, Array] = {}  # by an allocation's start, of each byte
        self._stamps: list[tuple[int, int]] = [(-1, 0)]  # wave and time
        self._stamp = np.zeros(groups * waves, np.uint16)  # of each wave now, 0: it has stored nothing since
        self._time = np.zeros(groups * waves, np.int64)
        self._stores = np.zeros(groups * waves, np.int64)  # stores of a wave; those that were waited for, or written
        self._done, self._flushed = np.zeros_like(self._stores), np.zeros_like(self._stores)
        self._known: dict[int, WaveTimes] = {}  # to a wave, of others
        self._released: dict[int, WaveTimes] = {}  # by the atomics on a word
        self._seen: dict[int, WaveTimes] = {}  # by a wave's atomics, until it invalidates its caches

    # ---- accesses

    def store(self, name: Name, g: Waves, held: Allocation, mine: Array, offsets: Array, size: int) -> None:
        """Raises InstructionFault where another workgroup stored, and nothing orders the two."""
        if len(self._stamps) > _MOST or not mine.any():
            return
        wave = self._wave(g)
        active = mine.any(axis=1)
        for w in wave[active & (self._stamp[wave] == 0)]:
            self._stamps.append((int(w), int(self._time[w])))
            self._stamp[w] = min(len(self._stamps) - 1, _MOST)
        self._stores[wave[active]] += 1
        if held.start not in self._shadows:
            self._shadows[held.start] = np.zeros((held.size + 8) & ~7, np.uint16)
        at = self._access(name, held, mine, offsets, size, wave)
        text = "it stores to {}, which workgroup {} stored: no release and acquire order the two"
        self._check(at, text)
        at.shadow[at.index[mine]] = np.broadcast_to(at.marks, at.index.shape)[mine]
        self._check(at, text)  # several with this instruction

    def load(self, name: Name, g: Waves, held: Allocation, mine: Array, offsets: Array, size: int) -> None:
        """Raises InstructionFault where another workgroup stored what may not be there yet."""
        if held.start in self._shadows and len(self._stamps) <= _MOST:
            at = self._access(name, held, mine, offsets, size, self._wave(g))
            self._check(at, "it reads {}, which workgroup {} stored: no release and acquire make it visible")

    def _wave(self, g: Waves) -> Array:
        """The number in the launch of each selected wave."""
        found: Array = (g.group * self.waves + g.wave)[g.at]
        return found

    def _access(
        self, name: Name, held: Allocation, mine: Array, offsets: Array, size: int, wave: Array
    ) -> _Access:  # fmt: skip
        shadow, own = self._shadows[held.start], self._stamp[wave][:, None, None]
        if size % 4 == 0 and not (offsets & 3).any():
            index = (offsets >> 2)[..., None] + np.arange(size // 4)
            return _Access(name, held, mine, wave, shadow.view(np.uint64), index, own * _EACH, 4)
        return _Access(name, held, mine, wave, shadow, offsets[..., None] + np.arange(size), own, 1)

    def _check(self, a: _Access, text: str) -> None:
        before = a.shadow[a.index]
        foreign = (before != 0) & (before != a.marks) & a.mine[..., None]
        if not foreign.any():
            return
        at = np.argwhere(foreign)
        numbers = np.ascontiguousarray(before[foreign]).view(np.uint16).reshape(len(at), -1)
        found = np.stack(np.broadcast_arrays(a.wave[at[:, 0]][:, None], numbers), axis=-1).reshape(-1, 2)
        for me, number in np.unique(found, axis=0).tolist():
            other, time = self._stamps[number]
            same = number == 0 or other // self.waves == me // self.waves
            if same or self._known.get(me, {}).get(other, -1) >= time:
                continue
            which = int(np.flatnonzero((found == (me, number)).all(axis=1))[0]) // numbers.shape[1]
            wave, lane, _ = (int(i) for i in at[which])
            address = a.held.start + int(a.index[tuple(at[which])]) * a.unit
            raise InstructionFault(text.format(a.name(address, a.unit), other // self.waves), wave, lane)

    # ---- what makes an order

    def waited(self, g: Waves) -> None:
        """The selected waves waited for their stores."""
        self._done[self._wave(g)] = self._stores[self._wave(g)]

    def written_back(self, g: Waves) -> None:
        """The selected waves wrote L2 back."""
        self._flushed[self._wave(g)] = self._stores[self._wave(g)]

    def invalidated(self, g: Waves) -> None:
        """The selected waves read from memory from now on."""
        for w in self._wave(g):
            if w in self._seen:
                _merge(self._known.setdefault(int(w), {}), self._seen.pop(int(w)))

    def _ended(self, w: int) -> bool:
        """Whether all stores of a wave are where others see them."""
        done = min(self._done[w], self._flushed[w]) if self.writes_back else self._done[w]
        return bool(done == self._stores[w])

    def _advance(self, w: int) -> WaveTimes:
        """What a wave's release tells: what it knows, and what it stored if that has ended."""
        known = dict(self._known.get(w, {}))
        if self._stores[w] and self._ended(w):
            known[w] = int(self._time[w])
            self._time[w] += 1
            self._stamp[w] = 0
        return known

    def atomic(self, g: Waves, addresses: Array, on: Array) -> None:
        """Atomics on words of global memory: they release, and acquire what others released there."""
        if len(self._stamps) == 1:
            return
        wave = self._wave(g)
        for w in np.flatnonzero(on.any(axis=1)):
            me = int(wave[w])
            known = self._advance(me)
            for address in np.unique(addresses[w][on[w]]).tolist():
                there = self._released.setdefault(address, {})
                _merge(self._seen.setdefault(me, {}), there)
                _merge(there, known)

    def barrier(self, wave: Array) -> None:
        """These waves of a workgroup have met."""
        if not self._stores[wave].any() and not any(int(w) in self._known for w in wave):
            return
        together: WaveTimes = {}
        for w in wave:
            _merge(together, self._advance(int(w)))
        for w in wave:
            self._known[int(w)] = dict(together)


def _merge(into: WaveTimes, other: WaveTimes) -> None:
    for wave, time in other.items():
        into[wave] = max(time, into.get(wave, -1))
