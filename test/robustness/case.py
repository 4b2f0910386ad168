"""One row of the table of bad input; `test_bad_input.py` has the rows of every surface and runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Passes a bad input to a surface; the path is a temporary folder for the case.
Feed = Callable[[Any, Path], object]
Errors = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True)
class Case:
    """Passing `given` to `surface` raises one of `error`, whose text matches the regular expression `message`."""

    surface: str
    name: str
    given: Any
    error: Errors
    message: str


def rows(surface: str, error: Errors, cases: Iterable[tuple[Any, str]]) -> list[Case]:
    """Return the cases of one surface, named by their numbers."""
    return [Case(surface, str(number), given, error, message) for number, (given, message) in enumerate(cases)]
