"""The cost model of threads: which work is too short to be shared, and which threads run IREE's own dispatches. All
decisions about threads compare with a constant of this file."""

from __future__ import annotations

from ...cost import TYPICAL_CORE

# A helper that spins joins within 500 nanoseconds, and the data that both threads use moves between their caches: a
# product of 9 microseconds gains nothing.
FORK_NS = 10_000
# Waking a sleeper takes the caller 2 to 5 microseconds, and the sleeper joins 30 to 50 microseconds later: short jobs
# wake nobody until jobs of this many nanoseconds in total have run without help.
WAKE_NS = 40_000
# About 100 microseconds on CPUs whose time stamp counter runs at 2 to 3 GHz: a loop of calls keeps its helpers awake,
# and a process that waits for its next request costs nothing.
SPIN_CYCLES = 250_000

# The fact `threads` of kernels that have no helpers: IREE's task system distributes their workgroups.
TASKS = "task system"

# IREE's task system takes 40 to 130 microseconds per dispatch: programs whose IREE-compiled dispatches have fewer
# multiply-adds in total run on the calling thread.
TASKS_WORK = 2_000_000


def a_nanosecond(rate: float) -> int:
    """Convert a rate per second to one per nanosecond, for estimates that kernels compute from the sizes of a call."""
    return int(rate / 1e9)


def nanoseconds(operations: int, size: int) -> int:
    """About how long one core takes for `operations` (two per multiply-add) on `size` bytes of weights."""
    core = TYPICAL_CORE
    return max(operations // a_nanosecond(core.operations), size // a_nanosecond(core.own), 1)
