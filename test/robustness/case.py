"""One row of the table of bad input; `test_bad_input.py` has the rows of every surface and runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Gives the bad input to a surface, with a folder of its own.
Feed = Callable[[Any, Path], object]
Errors = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True)
class Case:
    """`given` to `surface` is refused by one of `error`, whose text has `message`, a regular expression."""

    surface: str
    name: str
    given: Any
    error: Errors
    message: str


def rows(surface: str, error: Errors, cases: Iterable[tuple[Any, str]]) -> list[Case]:
    """Cases of one surface that have numbers for names."""
    return [Case(surface, str(number), given, error, message) for number, (given, message) in enumerate(cases)]
