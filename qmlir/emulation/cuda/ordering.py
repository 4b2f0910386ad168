"""Order between the workgroups of one launch for their accesses to global memory.

Workgroups run in any order. One sees what another wrote only after a release by the writer and an acquire by the reader
that observes it (PTX ISA, "Memory Consistency Model"): here an atomic with both on the same word, or relaxed atomics
between two fences, of a scope that includes both. Barriers share the knowledge of a workgroup's warps. Each warp has a
time. A shadow records who wrote each 4-byte word, and when; shorter stores are not tracked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .buffers import AccessFault, Clocks, GlobalBuffer
from .formats import Array

_WORD = 4  # bytes
_WIDE = ("gpu", "sys")  # scopes that include all workgroups
WarpTimes = dict[int, Array]  # by workgroup: the time of each of its warps


def _merged(into: WarpTimes, other: WarpTimes) -> None:
    for block, times in other.items():
        into[block] = np.maximum(into[block], times) if block in into else times.copy()


@dataclass
class BufferShadow:
    """For each word of a buffer, 1 + the number of the warp in the grid that wrote it (0: none), and its time then."""

    writer: Array
    time: Array

    @staticmethod
    def of(buffer: GlobalBuffer) -> BufferShadow:
        words = -(-buffer.size // _WORD) + 1
        return BufferShadow(np.zeros(words, np.int64), np.zeros(words, np.int32))


@dataclass
class WarpOrder:
    """What the warps of one launch know of each other. Workgroups are numbered in the order in which they run; pairs of
    numbers are a workgroup and one of its warps."""

    warps: int  # per workgroup
    shadows: dict[int, BufferShadow] = field(default_factory=dict)
    known: dict[tuple[int, int], WarpTimes] = field(default_factory=dict)  # by a warp, of other workgroups
    words: dict[int, WarpTimes] = field(default_factory=dict)  # released by the atomics on a word
    released: dict[tuple[int, int], WarpTimes] = field(default_factory=dict)  # known at a warp's last fence
    seen: dict[tuple[int, int], WarpTimes] = field(default_factory=dict)  # by relaxed atomics since the last fence

    # ---- accesses; `words`: the words that each access touches

    def _shadow(self, buffer: GlobalBuffer) -> BufferShadow:
        return self.shadows.setdefault(id(buffer), BufferShadow.of(buffer))

    def store(self, buffer: GlobalBuffer, at: Access, offsets: Array, width: int) -> None:
        """Record a store. Raises AccessFault if another workgroup's value may be lost, or come later."""
        if width < _WORD:
            return
        shadow, words = self._shadow(buffer), offsets[:, None] // _WORD + np.arange(width // _WORD)
        self._check(buffer, shadow, at, words, "is written by two workgroups: no release and acquire order them")
        shadow.writer[words] = (at.blocks * self.warps + at.warps + 1)[:, None]
        shadow.time[words] = at.clocks.time[at.blocks - at.first, at.warps, at.warps][:, None]

    def load(self, buffer: GlobalBuffer, at: Access, offsets: Array, width: int) -> None:
        """Raises AccessFault if the words read may not be there yet."""
        shadow = self.shadows.get(id(buffer))
        if shadow is None:
            return
        words = offsets[:, None] // _WORD + np.arange(max(1, width // _WORD))
        what = "is read, which another warp wrote: no barrier, or release and acquire, order them"
        self._check(buffer, shadow, at, words, what, own=True)

    def _check(
        self, buffer: GlobalBuffer, shadow: BufferShadow, at: Access, words: Array, what: str, own: bool = False
    ) -> None:
        writer = shadow.writer[words]
        me = (at.blocks * self.warps + at.warps + 1)[:, None]
        foreign = (writer > 0) & (writer != me)
        if not own:
            foreign &= (writer - 1) // self.warps != at.blocks[:, None]
        if not foreign.any():
            return
        access, place = np.nonzero(foreign)
        pairs = np.stack([me[access, 0], writer[access, place]], axis=1)
        unique, which = np.unique(pairs, axis=0, return_inverse=True)
        known = np.array([self._time(at, int(a) - 1, int(b) - 1) for a, b in unique])
        late = shadow.time[words[access, place]] > known[which.reshape(-1)]
        if late.any():
            first = int(np.flatnonzero(late)[0])
            lane = int(access[first])
            raise AccessFault(f"byte {buffer.at(int(words[lane, place[first]]) * _WORD)} {what}", lane)

    def _time(self, at: Access, reader: int, writer: int) -> int:
        """The time of warp `writer` that warp `reader` knows of; both are numbered over the grid."""
        block, warp = divmod(reader, self.warps)
        other, its = divmod(writer, self.warps)
        if other == block:
            return int(at.clocks.time[block - at.first, warp, its])
        times = self.known.get((block, warp), {}).get(other)
        return 0 if times is None else int(times[its])

    # ---- synchronisation

    def join(self, block: int, warps: Array) -> None:
        """A barrier: each of these warps then knows what any of them knew."""
        together: WarpTimes = {}
        for warp in warps.tolist():
            self.tell(block, warp, together)
        if together:
            for warp in warps.tolist():
                self.learn(block, warp, together)

    def tell(self, block: int, warp: int, into: WarpTimes) -> None:
        """Merge what a warp knows of other workgroups into `into`."""
        _merged(into, self.known.get((block, warp), {}))

    def learn(self, block: int, warp: int, times: WarpTimes) -> None:
        """Merge `times` into what a warp knows of other workgroups."""
        _merged(self.known.setdefault((block, warp), {}), times)

    def _knowledge(self, at: Access, block: int, warp: int) -> WarpTimes:
        mine = {block: at.clocks.time[block - at.first, warp].copy()}
        _merged(mine, self.known.get((block, warp), {}))
        return mine

    def atomic(self, at: Access, lane: int, word: int, modifiers: tuple[str, ...]) -> None:
        """An atomic of one lane on the word at address `word`."""
        if "cta" in modifiers or "cluster" in modifiers:
            return
        block, warp = int(at.blocks[lane]), int(at.warps[lane])
        before = self.words.setdefault(word, {})
        if "acquire" in modifiers or "acq_rel" in modifiers:
            _merged(self.known.setdefault((block, warp), {}), before)
        else:
            _merged(self.seen.setdefault((block, warp), {}), before)
        if "release" in modifiers or "acq_rel" in modifiers:
            _merged(before, self._knowledge(at, block, warp))
            at.clocks.tick(block - at.first, np.array([warp]))
        else:
            _merged(before, self.released.get((block, warp), {}))

    def fence(self, at: Access, modifiers: tuple[str, ...]) -> None:
        """`fence.acq_rel`, `fence.sc`, `membar`."""
        if not any(scope in modifiers for scope in (*_WIDE, "gl")):
            return
        for block, warp in np.unique(np.stack([at.blocks, at.warps], axis=1), axis=0).tolist():
            _merged(self.known.setdefault((block, warp), {}), self.seen.pop((block, warp), {}))
            self.released[block, warp] = self._knowledge(at, block, warp)
            at.clocks.tick(block - at.first, np.array([warp]))


@dataclass(frozen=True)
class Access:
    """The threads of an access: workgroup (by its number in the launch) and warp of each; and the clocks of the
    workgroups that run now, whose numbers start at `first`."""

    blocks: Array
    warps: Array
    clocks: Clocks
    first: int

    def part(self, which: Array | slice) -> Access:
        """Some of the accesses."""
        return replace(self, blocks=self.blocks[which], warps=self.warps[which])
