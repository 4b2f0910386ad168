"""Which of IREE's drivers this process emulates, for code that must not load the emulators."""

from __future__ import annotations

_emulated: set[str] = set()


def mark_emulated(driver: str) -> None:
    """From now on this process emulates a driver of IREE (`cuda`, `hip`)."""
    _emulated.add(driver)


def is_emulated(driver: str) -> bool:
    """Whether this process emulates a driver of IREE."""
    return driver in _emulated
