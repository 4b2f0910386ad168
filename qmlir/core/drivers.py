"""The properties of the drivers of IREE's runtime, and of their devices, that qmlir depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import cuda

if TYPE_CHECKING:
    from iree.runtime import HalDevice


@dataclass(frozen=True)
class RuntimeDriver:
    """A driver, named as in IREE.

    Attributes:
        local: its device is this process's CPU, which allocates results from a pool (`hal.device`).
        has_threads: its device has worker threads, whose number IREE takes once per process. The child of a fork has
            none of them.
        in_caller: the driver that runs the same programs in the calling thread; "" if there is none.
        sees_host_writes: a device sees host writes to memory that both can access, without a flush.
        says_architecture: its description of a device includes the name of the architecture.
        opened: called with each device that is created.
    """

    name: str
    local: bool = False
    has_threads: bool = False
    in_caller: str = ""
    sees_host_writes: bool = False
    says_architecture: bool = False
    opened: Callable[[HalDevice], None] | None = None


LOCAL_SYNC = RuntimeDriver("local-sync", local=True)
LOCAL_TASK = RuntimeDriver("local-task", local=True, has_threads=True, in_caller=LOCAL_SYNC.name)

DRIVERS: Mapping[str, RuntimeDriver] = {
    driver.name: driver
    for driver in (
        LOCAL_SYNC,
        LOCAL_TASK,
        RuntimeDriver("cuda", sees_host_writes=True, says_architecture=True, opened=cuda.opened),
        RuntimeDriver("hip", sees_host_writes=True, says_architecture=True),
        RuntimeDriver("vulkan"),
    )
}


def driver_named(name: str) -> RuntimeDriver:
    """The driver of that name. One that is not in the table has the default properties."""
    return DRIVERS.get(name, RuntimeDriver(name))
