"""Shared by all benchmarks: a description of the machine, alternating timed calls, and statistics."""

from __future__ import annotations

import os
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# Thread pools spin for up to some milliseconds after their last task, on the cores that the next candidate needs.
SETTLE_S = 0.006


def environment() -> dict[str, Any]:
    """The machine and the versions that the results were measured with."""
    from qmlir import __version__, settings

    model = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next((line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line), "")
    return {
        "cpu": model or platform.processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": settings.threads(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "qmlir": __version__,
        **{name: version(name) for name in ("iree-base-compiler", "iree-base-runtime", "numpy")},
    }


@cache
def commit() -> str:
    """The commit of this repository, with a trailing + if files differ from it."""
    folder = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()

    try:
        return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", "--", "..") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def versions(names: Sequence[str]) -> dict[str, str]:
    """Versions of the installed distributions among `names`."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def summary(samples: Sequence[float]) -> dict[str, float]:
    """The median and the 10th and 90th percentiles."""
    if len(samples) < 2:
        return {"median": samples[0], "p10": samples[0], "p90": samples[0]}
    tenths = statistics.quantiles(samples, n=10, method="inclusive")
    return {"median": statistics.median(samples), "p10": tenths[0], "p90": tenths[-1]}


def alternate(first: Callable[[], Any], second: Callable[[], Any], count: int) -> tuple[list[float], list[float]]:
    """Microseconds of each call of both functions, which alternate call by call."""
    clock = time.perf_counter_ns
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(count):
        start = clock()
        first()
        middle = clock()
        second()
        end = clock()
        times[0].append((middle - start) / 1000)
        times[1].append((end - middle) / 1000)
    return times


@dataclass
class Timing:
    """Seconds of each call of one candidate, by round."""

    rounds: list[list[float]] = field(default_factory=list)

    def all(self) -> list[float]:
        return [t for r in self.rounds for t in r]

    def median(self) -> float:
        return statistics.median(self.all())

    def ratio(self, other: Timing) -> dict[str, float]:
        """This candidate's time divided by the other's. `median` is the ratio of the medians of all calls; p10 and p90
        are percentiles of the ratios of single rounds, in which both ran within a fraction of a second."""
        pairs = zip(self.rounds, other.rounds, strict=False)
        by_round = [statistics.median(a) / statistics.median(b) for a, b in pairs]
        return {**summary(by_round), "median": self.median() / other.median()}

    def to_json(self) -> dict[str, float]:
        """The summary in milliseconds and the number of calls."""
        return {name: value * 1e3 for name, value in summary(self.all()).items()} | {"calls": len(self.all())}


def race(candidates: Mapping[str, Callable[[], Any]], rounds: int, burst_s: float = 0.02) -> dict[str, Timing]:
    """Times candidates alternately. In each round, in a new random order, every candidate runs a burst of calls, after
    one or two warm-up calls and a pause in which the thread pools of the previous candidate go to sleep.

    A candidate that is more than four times as slow as the fastest keeps the time of its first calls.
    """
    shuffle = random.Random(0)
    found = {name: Timing() for name in candidates}
    once: dict[str, float] = {}
    for name, run in candidates.items():
        first = [_one(run)]
        while len(first) < 2 or (len(first) < 8 and sum(first) < 0.2):
            first.append(_one(run))
        once[name] = min(first)  # other calls were cold or disturbed by another process
        found[name].rounds.append([once[name]])
    limit = 4 * min(once.values(), default=0.0)
    raced = [name for name in candidates if once[name] <= limit]
    for name in raced:
        found[name].rounds.clear()
    for _ in range(rounds):
        shuffle.shuffle(raced)
        for name in raced:
            run, count = candidates[name], max(1, min(500, int(burst_s / once[name])))
            time.sleep(SETTLE_S)
            for _ in range(1 if once[name] > burst_s else 2):
                run()
            found[name].rounds.append([_one(run) for _ in range(count)])
            once[name] = found[name].median()  # the first estimate may be that of a cold call
    return found


def _one(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
