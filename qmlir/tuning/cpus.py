"""Reserves CPUs for a measurement: its process stays on CPUs that no other measurement uses."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import settings


@contextmanager
def own_cpus(count: int) -> Iterator[None]:
    """Inside, keep this process on `count` CPUs, each reserved by a lock file that other measurements respect. If fewer
    are free, or the system has no affinity masks (macOS, Windows), the process keeps the CPUs that it has."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = settings.cpus()
    claims: dict[int, int] = {}
    try:
        for cpu in before:
            if len(claims) < count and (handle := _claim(cpu)) is not None:
                claims[cpu] = handle
        if len(claims) == count:
            os.sched_setaffinity(0, claims)
        yield
    finally:
        os.sched_setaffinity(0, before)
        for handle in claims.values():
            os.close(handle)


def _claim(cpu: int) -> int | None:
    """The open lock file that reserves the CPU; None if another process has the lock."""
    import fcntl  # not on Windows

    try:
        path = Path(tempfile.gettempdir()) / f"qmlir-cpu-{cpu}.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:  # a file of another user
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
