"""The cost model of threads: what is too short to be shared, and who runs what is not ours. All decisions about threads
compare with a number of this file."""

from __future__ import annotations

from ...cost import TYPICAL_CORE

# A helper that spins joins within 500 nanoseconds, and what both then touch moves between their caches: a product of 9
# microseconds gains nothing.
FORK_NS = 10_000
# Waking a sleeper takes the caller 2 to 5 microseconds, and the sleeper comes 30 to 50 microseconds later: short jobs
# do not wake until so many nanoseconds of them have gone without help.
WAKE_NS = 40_000
# About 100 microseconds on CPUs whose time stamp counter runs at 2 to 3 GHz: a loop of calls keeps its helpers awake,
# and a process that waits for its next request costs nothing.
SPIN_CYCLES = 250_000

# What plans of kernels say (`threads`) that have no helpers: the task system shares out their workgroups.
TASKS = "task system"

# IREE's task system takes 40 to 130 microseconds a dispatch: programs whose dispatches of its own make do with fewer
# multiply-adds run on the calling thread.
TASKS_WORK = 2_000_000


def a_nanosecond(rate: float) -> int:
    """A rate of a second in a nanosecond, for estimates that kernels work out of the sizes of a call."""
    return int(rate / 1e9)


def nanoseconds(operations: int, size: int) -> int:
    """About how long one core takes for so many operations (two a multiply-add) on so many bytes of weights."""
    core = TYPICAL_CORE
    return max(operations // a_nanosecond(core.operations), size // a_nanosecond(core.own), 1)
