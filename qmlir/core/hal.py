"""IREE's runtime in this process: its single VM instance, and the devices that are open."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import settings
from ..errors import ArtifactError, TargetError, runtime_reason
from . import cuda
from .bindings import binding
from .drivers import driver_named
from .emulated import is_emulated
from .faults import Fault

if TYPE_CHECKING:
    from iree.runtime import HalDevice, HalDriver, VmInstance

FAULTS = (
    Fault(
        "IREE's devices have a thread that the child of a fork does not have: the child waits for it forever when "
        "it destroys the device, as Python does at the end of a process.",
        canary="fork_of_a_device",
    ),
)

_lock = threading.RLock()
_kept: list[object] = []
_devices: dict[tuple[str, str], HalDevice] = {}
_instance: VmInstance | None = None
_flags_set = False
_gone = 0  # how often devices have been removed from `_devices`


def vm_instance() -> VmInstance:
    """The VM instance of this process."""
    global _instance
    with _lock:
        if _instance is None:
            # Devices live as long as the process; the bindings would report them as leaks at its end.
            binding.disable_leak_checker()
            _instance = binding.VmInstance()
        return _instance


def keep(*objects: object) -> None:
    """Never destroy these devices and drivers, in this process or in its forks (`FAULTS`)."""
    with _lock:
        if not _kept and hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
            os.register_at_fork(after_in_child=_forked)
        _kept.extend(objects)


def gone() -> int:
    """How often devices have become unusable in this process, or in those that it was forked from."""
    return _gone


def usable(device: HalDevice) -> bool:
    """Whether a device is not lost, and its threads, if it needs any, are in this process."""
    return any(known is device for known in _devices.values())


def _forked() -> None:
    global _lock, _gone
    _lock = threading.RLock()  # the child does not have the thread that may hold it
    _gone += 1
    for key in [k for k in _devices if driver_named(k[0]).has_threads]:
        del _devices[key]  # only the parent has its threads
    for thing in _kept:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def device(driver: str, uri: str = "") -> HalDevice:
    """The device of a driver, created once per process. The calling thread can then load programs for it.

    Raises:
        TargetError: the driver is missing or has no device.
    """
    global _flags_set
    with _lock:
        if (driver, uri) in _devices:
            found = _devices[driver, uri]
            if (context := cuda.context_of(found)) is not None:
                context.enter()
            return found
        if is_emulated(driver):
            raise TargetError(
                f"this process emulates the driver {driver!r}: load programs for a real device in another process"
            )
        about = driver_named(driver)
        if about.has_threads and not _flags_set:
            binding.parse_flags(_topology(settings.threads(), settings.cpus()))
            _flags_set = True
        try:
            made = binding.create_hal_driver(driver)  # in the child of a fork, a cached one would be the parent's
            found = _create(made, uri, about.local)
        except (RuntimeError, ValueError) as e:
            raise TargetError(f"no device for the driver {driver!r}: {runtime_reason(e)[:200]}") from None
        keep(made, found)
        if about.opened is not None:
            about.opened(found)
        _devices[driver, uri] = found
        return found


def lost(device: HalDevice, e: Exception) -> bool:
    """Whether a failure means that the device is lost: every further call fails. Programs then need a new one."""
    global _gone
    if "VK_ERROR_DEVICE_LOST" not in str(e):
        return False
    with _lock:
        for key in [k for k, known in _devices.items() if known is device]:
            del _devices[key]
            _gone += 1
    return True


def _topology(threads: int, cpus: Sequence[int]) -> str:
    """IREE's flag for the worker threads of `local-task`.

    By default, several of IREE's workers stay on one CPU for long, so a process that uses all of its CPUs pins one
    worker to each. A process that uses fewer CPUs than it may does not pin its workers, because another process would
    choose the same CPUs; its affinity mask (`taskset`, a container's CPU set) restricts it to the intended CPUs.
    """
    if threads >= len(cpus) and hasattr(os, "sched_setaffinity"):
        return f"--task_topology_cpu_ids={','.join(map(str, cpus))}"
    return f"--task_topology_group_count={min(threads, len(cpus))}"


def emulated_device(driver: str, number: int) -> HalDevice:
    """The device with this number of an emulated driver, created once per process."""
    with _lock:
        key = (driver, f"emulated:{number}")
        if key not in _devices:
            made = binding.get_cached_hal_driver(driver)
            found = made.create_device(made.query_available_devices()[number]["device_id"])
            keep(made, found)
            _devices[key] = found
        return _devices[key]


# Local devices allocate results, intermediate tensors and copied arguments from this pool. IREE's own allocator clears
# memory that is then overwritten, and requests large blocks from the system in every call. The pool keeps free blocks
# for reuse at the same size while all blocks together take no more than 128 MiB. Other devices have no such pool:
# CUDA's would free its memory twice (core/cuda.py), and Vulkan's would refuse buffers of results. For them,
# runtime/transfers.py keeps some buffers.
_POOL = "caching:*=*;128mib;64"


def _create(driver: HalDriver, uri: str, local: bool) -> HalDevice:
    """The device of `driver://number` or of another URI of IREE; without a URI, the default device."""
    path = uri.partition("://")[2]
    if local and not path:
        return driver.create_default_device(allocators=[_POOL])
    if path.isdigit():
        known = driver.query_available_devices()
        if int(path) >= len(known):
            raise ValueError(f"there is no {uri}; devices: {len(known)}")
        return driver.create_device(known[int(path)]["device_id"])
    return driver.create_device_by_uri(uri) if path else driver.create_default_device()


def reflection(data: bytes, name: str, key: str) -> str | None:
    """The reflection attribute `key` of the first public function that has it; None if no function has it."""
    try:
        module = binding.VmModule.copy_buffer(vm_instance(), data)
    except (ValueError, RuntimeError) as e:
        raise ArtifactError(f"{name} is not an IREE module: {str(e).splitlines()[0].split(';')[-1].strip()}") from None
    for function in module.function_names:
        if not function.startswith("_"):
            found = module.lookup_function(function).reflection.get(key)
            if found is not None:
                return str(found)
    return None
