"""Threads that wait at barriers, and asynchronous copies in flight."""

from __future__ import annotations

from dataclasses import dataclass, field

from .formats import Array
from .instructions import PtxError
from .memory import SharedPlace
from .ordering import WarpTimes


@dataclass
class Parked:
    """Threads at a barrier, and the instruction at which they resume (-1: they have only arrived and do not wait)."""

    pc: int
    threads: Array


@dataclass
class Barrier:
    """One of a block's sixteen barriers: how many threads have arrived, and which."""

    arrived: int = 0
    parked: list[Parked] = field(default_factory=list)


@dataclass
class AsyncCopies:
    """The asynchronous copies of one instruction: issuing thread, commit group, target and values of each."""

    threads: Array
    groups: Array
    at: SharedPlace
    values: Array

    def part(self, which: Array) -> AsyncCopies:
        """The copies that `which` selects."""
        at = SharedPlace(self.at.block[which], self.at.warp[which], self.at.offset[which])
        return AsyncCopies(self.threads[which], self.groups[which], at, self.values[which])


@dataclass
class MemoryBarrier:
    """One `mbarrier` of a workgroup.

    Attributes:
        expected: arrivals that end a phase.
        pending: arrivals that the current phase still lacks.
        phase: number of phases that have ended.
        clock: times of the workgroup's warps known to the threads that arrived; `others`: of other workgroups' warps.
        copies: copies that the current phase tracks.
        ended: these three for the phases that have ended, with only the copies that no thread has waited for yet.
        asked: threads whose last `try_wait` returned false; a thread's first one does so in any phase.
        parked: threads that called `try_wait` again before the phase ended, and the instruction that repeats it.
    """

    expected: int
    pending: int
    clock: Array
    phase: int = 0
    others: WarpTimes = field(default_factory=dict)
    copies: list[AsyncCopies] = field(default_factory=list)
    ended: tuple[Array, WarpTimes, list[AsyncCopies]] | None = None
    asked: set[int] = field(default_factory=set)
    parked: list[Parked] = field(default_factory=list)

    def arrive(self, count: int) -> list[Parked]:
        """Count arrivals; returns the threads that resume because the phase has ended."""
        if count > self.pending:
            raise PtxError(f"{count} threads arrive at an mbarrier whose phase lacks {self.pending}")
        self.pending -= count
        if self.pending:
            return []
        self.phase, self.pending = self.phase + 1, self.expected
        earlier = self.ended[2] if self.ended else []  # copies that no thread has waited for yet
        self.ended = self.clock.copy(), dict(self.others), earlier + self.copies
        parked, self.copies, self.parked = self.parked, [], []
        return parked
