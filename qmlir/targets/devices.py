"""The devices of this machine, queried through the runtime's own drivers.

The runtime is imported on first use. A driver whose library is missing (no CUDA, no Vulkan loader)
means "no device", never an exception.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..core.drivers import driver_named
from ..core.emulated import is_emulated
from ..errors import TargetError, runtime_reason
from .backends import backend_description, backend_of
from .base import Device, Target
from .cpu import host

if TYPE_CHECKING:
    from iree.runtime import HalDriver
    from iree.runtime._binding import DeviceInfo

_found: dict[str, tuple[Device, ...]] = {}
_failures: dict[str, str] = {}  # by driver: why its last query failed


def devices(driver: str) -> tuple[Device, ...]:
    """The devices of one runtime driver; () if the driver or its library is missing. Devices are cached; a failure is
    not, because its cause may be gone at the next call (memory, permissions, a device in use).

    In a process that emulates the driver, the result is (): to describe HIP devices, IREE queries the library for
    properties that an emulated one does not have.
    """
    if is_emulated(driver):
        return ()
    if driver not in _found:
        _failures.pop(driver, None)
        try:
            found = tuple(_query(driver))
        except Exception as e:
            # However a driver's library fails on a machine without its device (missing symbols, no permission,
            # a driver that is too old), there is no device.
            _failures[driver] = runtime_reason(e)
            return ()
        if not found:
            return ()
        _found[driver] = found
    return _found[driver]


def failure(driver: str) -> str:
    """Why the last query of the driver's devices failed, "" if it did not."""
    return _failures.get(driver, "")


def _query(driver: str) -> list[Device]:
    from iree.runtime import get_driver

    loaded = get_driver(driver)
    return [_device(driver, index, info, loaded) for index, info in enumerate(loaded.query_available_devices())]


def _device(driver: str, index: int, info: DeviceInfo, loaded: HalDriver) -> Device:
    name, arch = info.get("name", ""), ""
    if driver_named(driver).says_architecture:
        facts = loaded.dump_device_info(info["device_id"])
        match = re.search(r"\b(sm_\d+\w?|gfx[0-9a-f]+)", facts)
        if match is None and (cc := re.search(r"compute[- ]capability: *(\d+)\.(\d+)", facts)):
            arch = f"sm_{cc.group(1)}{cc.group(2)}"
        elif match is not None:
            arch = match.group(1)
    return Device(driver, index, name, arch)


def present_device(target: Target) -> str:
    """The name of a present device that `target`'s programs run on, "" if there is none."""
    if backend_of(target).on_host:
        if target.of_host:
            return target.host or host.host_name()
        missing = set(target.capabilities.cpu_features) - host.host_features()
        return host.host_name() if target.capabilities.cpu_features and not missing else ""
    for device in devices(target.driver):
        if _runs(target, device):
            return device.name
    return ""


def _runs(target: Target, device: Device) -> bool:
    if target.of_present:
        return True
    return target.name in backend_description(target.backend).names_for(device)


def other_architecture(target: str, device: Device) -> str:
    """A message that a present device does not have the architecture of `target` (as a user writes it), with the target
    to compile for instead. "" if the device runs the target's programs, or if its architecture is not known."""
    backend, _, name = target.partition(":")
    names = backend_description(backend).names_for(device)
    if not device.arch or name in names:
        return ""
    capability = re.fullmatch(r"sm_(\d+)(\d)\w?", device.arch)
    arch = device.arch if capability is None else f"compute capability {capability[1]}.{capability[2]}"
    remedy = f"compile it for {backend}:{names[0]}" if names else f"no target of {backend} is for this device"
    return f"the device {device.uri} is {device.name} ({arch}): {remedy}"


def runtime_uri(target: Target) -> str:
    """The URI of the first present device that runs `target`'s programs.

    Raises:
        TargetError: if there is none; the message lists the driver's devices.
    """
    found = devices(target.driver)
    for device in found:
        if _runs(target, device):
            return device.uri
    reason = f" ({failure(target.driver)})" if failure(target.driver) else ""
    there = ", ".join(device.name for device in found) or f"none{reason}"
    raise TargetError(f"no device here runs programs for {target.spelling}; devices of {target.driver}: {there}")
