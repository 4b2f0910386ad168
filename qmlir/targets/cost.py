"""The cost model: an estimate of a kernel's seconds, for every target.

A strategy describes the work of its kernel as `Work`: how many workgroups a unit computes one after another (`rounds`),
how many steps along K each has, the resources that a step keeps busy and for how long, and the bytes that the device's
memory moves. A device's figures convert amounts to seconds (`Figures`). All targets share one formula:

    step    = the longest of the overlapping times + the times that nothing hides
    compute = rounds * (steps * step + fixed) + once
    seconds = hypot(compute, bytes / bandwidth)

`hypot`, because neither of the two limits is ever quite reached, and because a memory time common to all kernels keeps
small differences between them small. Estimates rank choices; they do not predict times. If a figure of a device is not
known, that of a typical device is used; the result names each such figure (`Cost.assumed`), and `qmlir explain` prints
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import hypot

from .capabilities import Capabilities, Core

# Used for a CPU whose figures are not known: estimates with it are rather too long than too short.
TYPICAL_CORE = Core(
    operations=800e9, floats=100e9, elements=8e9, looked_up=32e9, pooled=64e9, copied=30e9, shared=25e9, own=40e9
)


@dataclass(frozen=True)
class Cost:
    """An estimate.

    Attributes:
        seconds: seconds of one call.
        bound: the resource that takes most of them.
        assumed: figures that were not known, with the values used instead.
    """

    seconds: float
    bound: str = ""
    assumed: tuple[str, ...] = ()

    @property
    def rank(self) -> float:
        """Seconds to nine digits, as a sort key: equal work stays equal whatever the order of roundings was."""
        return float(f"{self.seconds:.9g}")


@dataclass(frozen=True)
class Work:
    """The work of a kernel on a device. All fields except `memory` are per unit of the device.

    Attributes:
        rounds: workgroups that the unit computes one after another.
        steps: steps of each along K.
        together: seconds of a step for each resource; they overlap.
        alone: seconds of a step that nothing hides, by resource.
        fixed: further seconds of each round.
        once: further seconds of the call.
        memory: bytes that the device's memory moves.
    """

    rounds: float
    steps: float
    together: Mapping[str, float] = field(default_factory=dict)
    alone: Mapping[str, float] = field(default_factory=dict)
    fixed: float = 0.0
    once: float = 0.0
    memory: float = 0.0

    @property
    def compute(self) -> float:
        """Seconds, without the time of the device's memory."""
        step = max(self.together.values(), default=0.0) + sum(self.alone.values())
        return self.rounds * (self.steps * step + self.fixed) + self.once

    @property
    def bound(self) -> str:
        """The resource that takes most of a step."""
        longest = max(self.together, key=lambda part: self.together[part], default="")
        parts = {**({longest: self.together[longest]} if longest else {}), **self.alone}
        return max(parts, key=lambda part: parts[part], default="")


class Figures:
    """The figures of a device for one estimate; records those that are missing."""

    def __init__(self, has: Capabilities) -> None:
        self._peak, self._core = has.peak, has.core
        self.assumed: dict[str, str] = {}

    def rate(self, dtype: str) -> float:
        """Operations per second of the device's matrix instructions for operands of a type."""
        known = None if self._peak is None else self._peak.rate(dtype)
        return self._taken(known, 3e14, f"rate of {dtype}", "300 T/s")

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth of the device in bytes per second."""
        return self._taken(self._of("bandwidth"), 1e12, "bandwidth", "1 TB/s")

    @property
    def units(self) -> int:
        """Units that compute at the same time."""
        return int(self._taken(self._of("units"), 64, "units", "64"))

    @property
    def clock(self) -> float:
        """Clock frequency of a unit in Hz."""
        return self._taken(self._of("clock"), 1.5e9, "clock", "1.5 GHz")

    @property
    def latency(self) -> float:
        """Seconds from one memory load to the next that depends on it."""
        return self._taken(self._of("latency"), 1.0e-6, "latency of memory", "1 us")

    def multiply(self, operations: float, dtype: str) -> float:
        """Seconds of a unit for operations of matrix instructions, two per multiply-add."""
        return operations / (self.rate(dtype) / self.units)

    @property
    def lanes(self) -> int:
        """Threads of a unit whose instructions issue in one clock."""
        return int(self._taken(self._of("lanes"), 128, "lanes of a unit", "128"))

    @property
    def threads(self) -> int:
        """Threads of a unit that run at the same time in a matmul kernel."""
        return int(self._taken(self._of("threads"), 1024, "threads of a unit", "1024"))

    def waves(self, threads: float) -> int:
        """How often `threads` threads fill all lanes of the device, rounded up."""
        return int(-(-threads // (self.units * self.lanes)))

    def operations(self, count: float) -> float:
        """Seconds of a unit for `count` 32-bit operations, one per lane and clock."""
        return count / self.lanes / self.clock

    def issued(self, instructions: float, warps: float, wait: float) -> float:
        """Seconds of a unit for instructions that `warps` subgroups issue in turn. A subgroup issues one instruction
        every `wait` clocks, because most depend on the one before; the unit issues at most lanes / 32 per clock."""
        return instructions / min(self.lanes / 32, warps / wait) / self.clock

    def slots(self, instructions: float) -> float:
        """Seconds of a thread for instructions, one per clock."""
        return instructions / self.clock

    def dots(self, products: float) -> float:
        """Seconds of a unit for dot products of four codes."""
        return products / self._taken(self._of("dots"), 64, "dot products of a unit in a clock", "64") / self.clock

    def shared(self, size: float) -> float:
        """Seconds of a unit to read `size` bytes of its shared memory."""
        return (
            size
            / self._taken(self._of("shared_bytes"), 128, "shared memory of a unit in a clock", "128 bytes")
            / self.clock
        )

    def cache(self, size: float) -> float:
        """Seconds of a unit to read `size` bytes from the cache that all units share."""
        return size / self._taken(self._of("cache_bytes"), 64, "cache to a unit in a clock", "64 bytes") / self.clock

    def cost(self, work: Work) -> Cost:
        """The estimate for a kernel's work."""
        memory = work.memory / self.bandwidth if work.memory else 0.0
        seconds = hypot(work.compute, memory) if memory else work.compute
        bound = "memory" if memory > work.compute else work.bound
        return Cost(seconds, bound, tuple(f"{name} ({value} taken)" for name, value in self.assumed.items()))

    # ---- one core of a CPU

    def core(self, operations: float) -> float:
        """Seconds of a core for operations of its best instruction, two per multiply-add."""
        known = None if self._core is None else self._core.operations
        return operations / self._taken(known, TYPICAL_CORE.operations, "operations of a core", "800 G/s")

    def copied(self, size: float) -> float:
        """Seconds of a core to copy `size` bytes into another layout."""
        known = None if self._core is None else self._core.copied
        return size / self._taken(known, TYPICAL_CORE.copied, "copies of a core", "30 GB/s")

    def read(self, size: float) -> float:
        """Seconds of a core to read `size` bytes from the cache that cores share."""
        known = None if self._core is None else self._core.shared
        return size / self._taken(known, TYPICAL_CORE.shared, "reads of the shared cache", "25 GB/s")

    def rows(self, m: int | None, typical: int) -> int:
        """The number of rows, or a typical one if it is dynamic."""
        return int(self._taken(m, typical, "rows", str(typical)))

    def _of(self, name: str) -> float | None:
        value: float | None = None if self._peak is None else getattr(self._peak, name)
        return value

    def _taken(self, known: float | None, typical: float, name: str, text: str) -> float:
        if known is not None:
            return known
        self.assumed[name] = text
        return typical
