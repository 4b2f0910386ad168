"""The cost model: about how many seconds a kernel takes, on every target.

A strategy says what its kernel does as `Work`: how many workgroups a unit computes one after another (`rounds`), how
many steps along K each has, what a step keeps busy and for how long, and what the device's memory moves. A device's
figures turn amounts into seconds (`Figures`). The formula is one:

    step    = the longest of what goes on at the same time + what nothing hides
    compute = rounds * (steps * step + fixed) + once
    seconds = hypot(compute, bytes / bandwidth)

`hypot`: neither of two limits is ever quite reached, and what is the same for all kernels keeps small differences
between them small. Estimates order choices; they promise no time. Figures that are not known of a device are taken as
those of a typical one; the result names each (`Cost.assumed`), and `qmlir explain` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import hypot

from .capabilities import Capabilities, Core

# What is taken of a CPU whose figures are not known: it errs on the long side.
TYPICAL_CORE = Core(
    operations=800e9, floats=100e9, elements=8e9, looked_up=32e9, pooled=64e9, copied=30e9, shared=25e9, own=40e9
)


@dataclass(frozen=True)
class Cost:
    """An estimate.

    Attributes:
        seconds: of one call.
        bound: what takes most of them.
        assumed: figures that were not known, with what was taken in their place.
    """

    seconds: float
    bound: str = ""
    assumed: tuple[str, ...] = ()

    @property
    def rank(self) -> float:
        """Seconds to nine digits, to sort by: equal work stays equal, in whatever order its amounts were rounded."""
        return float(f"{self.seconds:.9g}")


@dataclass(frozen=True)
class Work:
    """What a kernel does on a device; everything but `memory` is of one of its units.

    Attributes:
        rounds: workgroups that it computes one after another.
        steps: of each, along K.
        together: seconds of a step by what is busy, all at the same time.
        alone: seconds of a step that nothing hides.
        fixed: seconds of each round.
        once: seconds of the call.
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
        """Seconds without those of the device's memory."""
        step = max(self.together.values(), default=0.0) + sum(self.alone.values())
        return self.rounds * (self.steps * step + self.fixed) + self.once

    @property
    def bound(self) -> str:
        """What takes most of a step."""
        longest = max(self.together, key=lambda part: self.together[part], default="")
        parts = {**({longest: self.together[longest]} if longest else {}), **self.alone}
        return max(parts, key=lambda part: parts[part], default="")


class Figures:
    """The figures of a device for one estimate; it notes those that are missing."""

    def __init__(self, has: Capabilities) -> None:
        self._peak, self._core = has.peak, has.core
        self.assumed: dict[str, str] = {}

    def rate(self, dtype: str) -> float:
        """Operations of the device in a second, of matrix instructions for operands of a type."""
        known = None if self._peak is None else self._peak.rate(dtype)
        return self._taken(known, 3e14, f"rate of {dtype}", "300 T/s")

    @property
    def bandwidth(self) -> float:
        """Bytes that its memory moves in a second."""
        return self._taken(self._of("bandwidth"), 1e12, "bandwidth", "1 TB/s")

    @property
    def units(self) -> int:
        """Units that compute at the same time."""
        return int(self._taken(self._of("units"), 64, "units", "64"))

    @property
    def clock(self) -> float:
        """Of a unit, in Hz."""
        return self._taken(self._of("clock"), 1.5e9, "clock", "1.5 GHz")

    @property
    def latency(self) -> float:
        """Seconds from one load of memory to the next that depends on it."""
        return self._taken(self._of("latency"), 1.0e-6, "latency of memory", "1 us")

    def multiply(self, operations: float, dtype: str) -> float:
        """Seconds of a unit for operations of matrix instructions, two a multiply-add."""
        return operations / (self.rate(dtype) / self.units)

    @property
    def lanes(self) -> int:
        """Threads of a unit whose instructions start in one clock."""
        return int(self._taken(self._of("lanes"), 128, "lanes of a unit", "128"))

    @property
    def threads(self) -> int:
        """Threads of a unit that run at the same time in a kernel of products."""
        return int(self._taken(self._of("threads"), 1024, "threads of a unit", "1024"))

    def waves(self, threads: float) -> int:
        """How often so many threads fill all lanes of the device."""
        return int(-(-threads // (self.units * self.lanes)))

    def operations(self, count: float) -> float:
        """Seconds of a unit for 32-bit operations of lanes."""
        return count / self.lanes / self.clock

    def issued(self, instructions: float, warps: float, wait: float) -> float:
        """Seconds of a unit for instructions of subgroups, of which `warps` take turns: each starts one in `wait`
        clocks, for most wait for the one before, and the unit as many in a clock as its lanes are subgroups."""
        return instructions / min(self.lanes / 32, warps / wait) / self.clock

    def slots(self, instructions: float) -> float:
        """Seconds of a thread for instructions, one a clock."""
        return instructions / self.clock

    def dots(self, products: float) -> float:
        """Seconds of a unit for dot products of four codes."""
        return products / self._taken(self._of("dots"), 64, "dot products of a unit in a clock", "64") / self.clock

    def shared(self, size: float) -> float:
        """Seconds of a unit for bytes of its shared memory."""
        return (
            size
            / self._taken(self._of("shared_bytes"), 128, "shared memory of a unit in a clock", "128 bytes")
            / self.clock
        )

    def cache(self, size: float) -> float:
        """Seconds of a unit for bytes of the cache that all units share."""
        return size / self._taken(self._of("cache_bytes"), 64, "cache to a unit in a clock", "64 bytes") / self.clock

    def cost(self, work: Work) -> Cost:
        """The estimate for a kernel."""
        memory = work.memory / self.bandwidth if work.memory else 0.0
        seconds = hypot(work.compute, memory) if memory else work.compute
        bound = "memory" if memory > work.compute else work.bound
        return Cost(seconds, bound, tuple(f"{name} ({value} taken)" for name, value in self.assumed.items()))

    # ---- of one core of a CPU

    def core(self, operations: float) -> float:
        """Seconds of a core for operations of its best instruction, two a multiply-add."""
        known = None if self._core is None else self._core.operations
        return operations / self._taken(known, TYPICAL_CORE.operations, "operations of a core", "800 G/s")

    def copied(self, size: float) -> float:
        """Seconds of a core for bytes that it brings into another layout."""
        known = None if self._core is None else self._core.copied
        return size / self._taken(known, TYPICAL_CORE.copied, "copies of a core", "30 GB/s")

    def read(self, size: float) -> float:
        """Seconds of a core for bytes of the cache that cores share."""
        known = None if self._core is None else self._core.shared
        return size / self._taken(known, TYPICAL_CORE.shared, "reads of the shared cache", "25 GB/s")

    def rows(self, m: int | None, typical: int) -> int:
        """The number of rows, a typical one where it is dynamic."""
        return int(self._taken(m, typical, "rows", str(typical)))

    def _of(self, name: str) -> float | None:
        value: float | None = None if self._peak is None else getattr(self._peak, name)
        return value

    def _taken(self, known: float | None, typical: float, name: str, text: str) -> float:
        if known is not None:
            return known
        self.assumed[name] = text
        return typical
