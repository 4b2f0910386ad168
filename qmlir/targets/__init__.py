"""Targets: the devices that programs are compiled for.

One folder per backend, each with `description.py` (the table, plain data) and `strategies.py` (how
contractions are compiled). Importing this package loads neither the compiler nor the runtime. Nothing
here imports from `qmlir.passes`.

A target is spelled `cpu`, `cpu:sapphirerapids`, `cuda:sm_90a`, `rocm:gfx942`, `vulkan:ada`. Bare `cpu` is
this host; a bare GPU backend is the target of the device that is present.
"""

from __future__ import annotations

from ..core.spelling import did_you_mean
from ..errors import TargetError
from .backends import BACKENDS, HOST, Backend, backend_description, backend_of, backend_spelled
from .base import COMPILED, EMULATED, MEASURED, PRESENT, RUNS, Target
from .capabilities import Capabilities, Peak

__all__ = [
    "BACKENDS",
    "COMPILED",
    "EMULATED",
    "HOST",
    "MEASURED",
    "RUNS",
    "Backend",
    "Capabilities",
    "Peak",
    "Target",
    "all_targets",
    "backend_description",
    "backend_of",
    "backend_spelled",
    "resolve",
]


def all_targets() -> tuple[Target, ...]:
    """All named targets, by backend, in the order of the backend's table."""
    return tuple(target for backend in BACKENDS for target in backend_description(backend).TARGETS)


def resolve(spelling: str) -> Target:
    """The target that `spelling` names.

    Raises:
        TargetError: an unknown backend or name (with near names), or a bare GPU backend on a machine that
            has no such device (with the names that can be compiled for without one).
    """
    if not isinstance(spelling, str):
        raise TargetError(f"a target is a text, such as 'rocm:gfx942', not {spelling!r}")
    backend, _, name = spelling.strip().partition(":")
    if backend not in BACKENDS:
        near = did_you_mean(spelling, [*BACKENDS, *(t.spelling for t in all_targets())])
        if near.startswith("; known"):  # no near name: the whole table would be too long
            near = f"; a target is one of {', '.join(BACKENDS)}, alone or with a name, such as rocm:gfx942"
        raise TargetError(f"unknown target {spelling!r}{near}")
    table = {target.name: target for target in backend_description(backend).TARGETS}
    if name in table:
        return table[name]
    if name == PRESENT and BACKENDS[backend].devices_differ:  # `vulkan` may have been resolved to it
        return _present(backend, table)
    if name or spelling.strip().endswith(":"):
        near = did_you_mean(f"{backend}:{name}", [t.spelling for t in table.values()])
        raise TargetError(f"unknown target {spelling!r}{near}")
    if BACKENDS[backend].on_host:
        from .cpu.host import host_target

        return host_target()
    return _present(backend, table)


def _present(backend: str, table: dict[str, Target]) -> Target:
    """The target of the first present device of a GPU backend."""
    from .devices import devices, failure

    driver = next(iter(table.values())).driver
    known = ", ".join(target.spelling for target in table.values())
    found = devices(driver)
    description = backend_description(backend)
    for device in found:
        if (target := description.target_for(device)) is not None:
            return target
    if found:
        seen = ", ".join(repr(f"{d.name} {d.arch}".strip()) for d in found)
        raise TargetError(f"no target describes the present {backend} device {seen}; name one of: {known}")
    said = f" ({reason})" if (reason := failure(driver)) else ""
    raise TargetError(f"no {backend} device is present{said}; name the target to compile for: {known}")
