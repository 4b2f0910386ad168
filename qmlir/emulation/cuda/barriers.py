"""What waits: threads at barriers, and copies that are on their way."""

from __future__ import annotations

from dataclasses import dataclass, field

from .formats import Array
from .instructions import PtxError
from .memory import SharedPlace
from .ordering import WarpTimes


@dataclass
class Parked:
    """Threads that wait at a barrier, and where they go on."""

    pc: int
    threads: Array


@dataclass
class Barrier:
    """One of a block's sixteen barriers: who has come, and how many must."""

    arrived: int = 0
    parked: list[Parked] = field(default_factory=list)


@dataclass
class AsyncCopies:
    """The asynchronous copies of one instruction: who issued them, in which of its groups, and what lands where."""

    threads: Array
    groups: Array
    at: SharedPlace
    values: Array

    def part(self, which: Array) -> AsyncCopies:
        """Those of some threads."""
        at = SharedPlace(self.at.block[which], self.at.warp[which], self.at.offset[which])
        return AsyncCopies(self.threads[which], self.groups[which], at, self.values[which])


@dataclass
class MemoryBarrier:
    """One barrier of a workgroup.

    Attributes:
        expected: arrivals that end a phase.
        pending: those that this phase still lacks.
        phase: how many have ended.
        clock: what those who have arrived knew of the workgroup's warps; `others`: of other workgroups.
        copies: that this phase tracks.
        ended: the three, of the phases that have ended; the copies that nobody has seen land.
        asked: threads whose last `try_wait` returned false: the first one does, whatever the phase.
        parked: those that asked again too early, and where they ask a third time.
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
        """Who goes on because of it."""
        if count > self.pending:
            raise PtxError(f"{count} threads arrive at an mbarrier whose phase lacks {self.pending}")
        self.pending -= count
        if self.pending:
            return []
        self.phase, self.pending = self.phase + 1, self.expected
        earlier = self.ended[2] if self.ended else []  # nobody has waited for them yet
        self.ended = self.clock.copy(), dict(self.others), earlier + self.copies
        parked, self.copies, self.parked = self.parked, [], []
        return parked
