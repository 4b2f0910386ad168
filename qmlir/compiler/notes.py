"""Warnings of the compiler, each given once per process and in the name of the caller of this package."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from ..errors import CompileError, Diagnostic, SlowFallbackWarning, caller

_warned: set[str] = set()


def warn_once(notes: Sequence[Diagnostic]) -> None:
    """Warn of each note, in the name of whoever called this package, once per process."""
    for note in notes:
        warn(str(note).replace(": warning: ", ": ", 1), SlowFallbackWarning)


def warn(text: str, category: type[Warning]) -> None:
    """Warn in the name of whoever called this package, once per process."""
    if text not in _warned:
        warnings.warn(text, category, stacklevel=caller())
        _warned.add(text)


def refuse_notes(notes: Sequence[Diagnostic]) -> None:
    """Raise a CompileError when there is any."""
    if notes:
        raise CompileError([replace(n, severity="error") for n in notes])
