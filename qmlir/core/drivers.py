"""What the project has to know of each driver of IREE's runtime, and of its devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import cuda

if TYPE_CHECKING:
    from iree.runtime import HalDevice


@dataclass(frozen=True)
class RuntimeDriver:
    """A driver by IREE's name.

    Attributes:
        local: its device is this process's CPU, whose results come from a pool (`hal.device`).
        has_threads: its device has worker threads, as many as IREE is told once per process; the child of a fork has
            none of them.
        in_caller: the driver that runs the same programs in the calling thread, "" for none.
        sees_host_writes: a device sees what the host writes to memory that both have, without being told.
        says_architecture: its description of a device has the name of the architecture.
        opened: what is done with a device once it is there.
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
    """The driver of a name. Of one that is not in the table nothing is assumed."""
    return DRIVERS.get(name, RuntimeDriver(name))
