"""The emulated device of a loaded program, and the counters of its launches."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, overload

from ..core.deprecation import by_old_name
from ..core.hal import emulated_device
from ..errors import TargetError
from ..targets import resolve
from ..targets.base import Target
from .backends import BACKENDS, INSTEAD
from .driver import Driver, driver_of
from .launch import Counts, InstructionProgress, Settings

if TYPE_CHECKING:
    from iree.runtime import HalDevice


@dataclass(frozen=True)
class Emulation:
    """How a program is executed on an emulated device: `qmlir.load(artifact, emulate=Emulation(order_seed=1))`.

    Attributes:
        order_seed: seed of the order in which workgroups and their waves run; None: in the order of their numbers.
        progress: called now and then with the number of instructions executed so far; may raise, which ends the call.
    """

    order_seed: int | None = None
    progress: InstructionProgress | None = None
    seed: InitVar[int | None] = None  # the former name of `order_seed`

    def __post_init__(self, seed: int | None) -> None:
        object.__setattr__(self, "order_seed", by_old_name("seed", seed, "order_seed", self.order_seed))


@overload
def options_of(emulate: Emulation, what: str, step: Callable[[str], None]) -> Emulation: ...
@overload
def options_of(emulate: bool | Emulation, what: str, step: Callable[[str], None]) -> Emulation | None: ...
def options_of(emulate: bool | Emulation, what: str, step: Callable[[str], None]) -> Emulation | None:
    """The options that `emulate=` states; None for a real device. If they have no `progress`, `step` is called now and
    then with `what` and the number of instructions executed."""
    if not emulate:
        return None
    given = Emulation() if emulate is True else emulate
    if given.progress is not None:
        return given
    reported = time.monotonic()

    def progress(instructions: int) -> None:
        nonlocal reported
        if time.monotonic() - reported > _REPORT_INTERVAL:
            reported = time.monotonic()
            step(f"{what}: {instructions:,} instructions")

    return replace(given, progress=progress)


_REPORT_INTERVAL = 0.2  # seconds between two calls of `step`


@dataclass
class Emulated:
    """The emulated device of one program.

    Attributes:
        kernels: the kernel's name and counts of each launch of the last call, in their order.
    """

    target: Target
    options: Emulation
    driver: Driver
    kernels: list[tuple[str, Counts]] = field(default_factory=list)

    @property
    def counts(self) -> Counts:
        """The sum over all launches of the last call."""
        return Counts.sum(counts for _, counts in self.kernels)

    def device(self) -> HalDevice:
        """IREE's device."""
        number = self.driver.number(self.target)
        return emulated_device(self.driver.backend.driver, number)

    def running(self, *, load: bool = False) -> AbstractContextManager[None]:
        """Context for loading the program (`load`), or for a call of it.

        Raises:
            EmulationError: when it ends: the first launch that failed.
        """
        self.kernels = []
        settings = Settings(self.target.spelling, self.options.order_seed, self._progress)
        return self.driver.running(self.target, settings, self._add, defer=load)

    def _add(self, kernel: str, counts: Counts) -> None:
        self.kernels.append((kernel, counts))

    def _progress(self, instructions: int) -> None:
        if self.driver.stop is not None:
            raise self.driver.stop
        if self.options.progress is not None:
            self.options.progress(sum(c.total for _, c in self.kernels) + instructions)


def emulated(spelling: str, options: Emulation) -> Emulated:
    """The emulated device of the target that a program is for.

    Raises:
        TargetError: a target that is not emulated, or a process with the vendor's driver.
        UsageError: a C compiler or package that `qmlir[emulate]` installs is missing.
    """
    kind = spelling.partition(":")[0]
    if kind in INSTEAD:
        raise TargetError(f"the program is for {spelling}, {INSTEAD[kind]}; load it without emulate")
    backend = BACKENDS.get(kind)
    if backend is None or not backend.complete:
        known = ", ".join(name for name, b in BACKENDS.items() if b.complete)
        raise TargetError(f"the program is for {spelling}, which is not emulated; emulated are {known}")
    target = resolve(spelling)
    backend.check()
    return Emulated(target, options, driver_of(backend))
