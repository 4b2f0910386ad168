"""Check the order of accesses to global memory by different workgroups of a launch.

Workgroups run in any order. One workgroup sees the stores of another only after a release and an acquire (LLVM's "User
Guide for AMDGPU Backend", section "Memory Model"). The release: the storing wave waits for its stores (and, on gfx942
and gfx950, writes back L2), then executes an atomic on a word. The acquire: the other wave executes an atomic on this
word, then an instruction that invalidates its caches. Barriers share what the waves of a workgroup know. Each wave has
a time, which its releases and barriers advance; for every byte the shadow records which wave stored it and when, as one
16-bit stamp. After 65,535 stamps a launch is checked no further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..memory import Allocation
from .shadow import InstructionFault
from .waves import Array, Waves

_MAX_STAMPS = 0xFFFF
_EACH = np.uint64(0x0001000100010001)  # times a stamp: the same stamp for the four bytes of a word
WaveTimes = dict[int, int]  # a time for each wave, numbered in the launch
Name = Callable[[int, int], str]  # names memory by its address and size


@dataclass(frozen=True)
class _Access:
    """An access to an allocation by the lanes `mine` of some waves.

    Attributes:
        name: names the memory at an address.
        wave: numbers of the waves in the launch.
        shadow: stamps of the allocation, in units of `unit` bytes.
        index: indices into the shadow, for each lane and unit of the access.
        marks: stamps that the waves write there.
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
    """The order between the waves of one launch, which are numbered across its workgroups.

    Attributes:
        waves: number of waves of a workgroup.
        writes_back: the device has several dies, each with its own L2.
    """

    def __init__(self, groups: int, waves: int, writes_back: bool) -> None:
        self.waves, self.writes_back = waves, writes_back
        self._shadows: dict[int, Array] = {}  # stamps of its bytes, by an allocation's start
        self._stamps: list[tuple[int, int]] = [(-1, 0)]  # wave and time of each stamp
        self._stamp = np.zeros(groups * waves, np.uint16)  # of each wave now; 0: no store at its current time
        self._time = np.zeros(groups * waves, np.int64)
        self._stores = np.zeros(groups * waves, np.int64)  # stores of each wave; waited for; written back
        self._done, self._flushed = np.zeros_like(self._stores), np.zeros_like(self._stores)
        self._known: dict[int, WaveTimes] = {}  # by wave: the times of others that it knows
        self._released: dict[int, WaveTimes] = {}  # by address of a word: times released there
        self._seen: dict[int, WaveTimes] = {}  # by wave: acquired times, until it invalidates its caches

    # ---- accesses

    def store(self, name: Name, g: Waves, held: Allocation, mine: Array, offsets: Array, size: int) -> None:
        """Record a store; raise InstructionFault if another workgroup stored to these bytes, without an order."""
        if len(self._stamps) > _MAX_STAMPS or not mine.any():
            return
        wave = self._wave(g)
        active = mine.any(axis=1)
        for w in wave[active & (self._stamp[wave] == 0)]:
            self._stamps.append((int(w), int(self._time[w])))
            self._stamp[w] = min(len(self._stamps) - 1, _MAX_STAMPS)
        self._stores[wave[active]] += 1
        if held.start not in self._shadows:
            self._shadows[held.start] = np.zeros((held.size + 8) & ~7, np.uint16)
        at = self._access(name, held, mine, offsets, size, wave)
        text = "it stores to {}, which workgroup {} stored, with no release and acquire between the stores"
        self._check(at, text)
        at.shadow[at.index[mine]] = np.broadcast_to(at.marks, at.index.shape)[mine]
        self._check(at, text)  # several waves may have stored there with this instruction

    def load(self, name: Name, g: Waves, held: Allocation, mine: Array, offsets: Array, size: int) -> None:
        """Check a load; raise InstructionFault if it may not see a store of another workgroup to these bytes yet."""
        if held.start in self._shadows and len(self._stamps) <= _MAX_STAMPS:
            at = self._access(name, held, mine, offsets, size, self._wave(g))
            self._check(
                at, "it reads {}, which workgroup {} stored, with no release and acquire that make the store visible"
            )

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

    # ---- releases, acquires and barriers

    def waited(self, g: Waves) -> None:
        """The selected waves waited for their stores."""
        self._done[self._wave(g)] = self._stores[self._wave(g)]

    def written_back(self, g: Waves) -> None:
        """The selected waves wrote L2 back."""
        self._flushed[self._wave(g)] = self._stores[self._wave(g)]

    def invalidated(self, g: Waves) -> None:
        """The selected waves invalidated their caches: they know the times that their atomics acquired."""
        for w in self._wave(g):
            if w in self._seen:
                _merge(self._known.setdefault(int(w), {}), self._seen.pop(int(w)))

    def _stores_complete(self, w: int) -> bool:
        """Whether all stores of a wave are complete, so that a release makes them visible."""
        done = min(self._done[w], self._flushed[w]) if self.writes_back else self._done[w]
        return bool(done == self._stores[w])

    def _advance(self, w: int) -> WaveTimes:
        """The times that a wave releases: those it knows, and its own, which advances, if its stores are complete."""
        known = dict(self._known.get(w, {}))
        if self._stores[w] and self._stores_complete(w):
            known[w] = int(self._time[w])
            self._time[w] += 1
            self._stamp[w] = 0
        return known

    def atomic(self, g: Waves, addresses: Array, on: Array) -> None:
        """Record atomics on words of global memory: each releases, and acquires what others released there."""
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
        """These waves of a workgroup met at a barrier: each learns what any of them knows."""
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
