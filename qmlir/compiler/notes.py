"""Warnings of the compiler, each issued once per process, at the line of the user's code that calls this package."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from ..errors import CompileError, Diagnostic, SlowFallbackWarning, caller

_warned: set[str] = set()


def warn_once(notes: Sequence[Diagnostic]) -> None:
    """Warn of each note once per process, at the line that calls this package."""
    for note in notes:
        warn(str(note).replace(": warning: ", ": ", 1), SlowFallbackWarning)


def warn(text: str, category: type[Warning]) -> None:
    """Warn once per process, at the line that calls this package."""
    if text not in _warned:
        warnings.warn(text, category, stacklevel=caller())
        _warned.add(text)


def refuse_notes(notes: Sequence[Diagnostic]) -> None:
    """Raise a CompileError if there are any notes."""
    if notes:
        raise CompileError([replace(n, severity="error") for n in notes])
