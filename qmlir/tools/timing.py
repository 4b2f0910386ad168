"""Measures the time of calls, and the memory of the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..core.progress import Step


def peak_memory() -> int:
    """The peak memory of this process, in bytes."""
    # Not `ru_maxrss` on Linux, where it starts at the value of the parent process.
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


@dataclass(frozen=True)
class Timing:
    """Seconds of single calls."""

    samples: tuple[float, ...] = field(repr=False)

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    @property
    def p10(self) -> float:
        return self.quantile(0.1)

    @property
    def p90(self) -> float:
        return self.quantile(0.9)

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.samples, q))


def alternate(
    functions: Sequence[Callable[[], object]], *, seconds: float = 1.0, warmup: int = 3, rounds: int | None = None,
    step: Step = lambda text: None,
) -> list[Timing]:  # fmt: skip
    """Time callables in alternation, so that changes on the machine affect all of them equally.

    Each round calls every function in bursts of about a millisecond; one sample is the mean of a burst.

    Args:
        seconds: how long to measure all together if `rounds` is not given; at least five rounds.
        warmup: calls of each before the measurement.
    """
    for function in functions:
        for _ in range(warmup):
            function()
    bursts = [max(1, min(1000, int(1e-3 / max(_once(f), 1e-9)))) for f in functions]
    samples: list[list[float]] = [[] for _ in functions]
    end, done = time.perf_counter() + seconds, 0
    while done < (rounds or 5) or (rounds is None and time.perf_counter() < end):
        order = range(len(functions)) if done % 2 == 0 else reversed(range(len(functions)))
        for i in order:
            start = time.perf_counter()
            for _ in range(bursts[i]):
                functions[i]()
            samples[i].append((time.perf_counter() - start) / bursts[i])
        done += 1
        if done % 16 == 0:
            step(f"measuring, round {done}")
    return [Timing(tuple(s)) for s in samples]


def _once(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def best(function: Callable[[], object], seconds: float = 0.25) -> float:
    """The time of the shortest of the calls in `seconds`, at least five: it excludes other work of the machine."""
    end, best, calls = time.perf_counter() + seconds, float("inf"), 0
    while calls < 5 or time.perf_counter() < end:
        best, calls = min(best, _once(function)), calls + 1
    return best
