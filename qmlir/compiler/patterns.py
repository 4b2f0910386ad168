"""The raising pattern of each framework op; `qmlir.frontends.raising` defines patterns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from ..errors import FrontEndError

GROUP = "qmlir.raising"

# The types of a pattern's arguments and results are in `qmlir.frontends.raising`, which imports this module.
Pattern = Callable[..., object]

_PATTERNS: dict[str, Pattern] = {}


def register_raising(op_name: str, pattern: Pattern) -> None:
    """Register `pattern` for the framework op `op_name`."""
    _PATTERNS[op_name] = pattern


@cache
def _entries() -> dict[str, EntryPoint]:
    return {e.name: e for e in entry_points(group=GROUP)}


def pattern_for(op_name: str) -> Pattern | None:
    """The pattern registered for an op; None if there is none.

    Raises FrontEndError, which names the plugin, for an entry point that does not load.
    """
    if op_name not in _PATTERNS and op_name in _entries():
        entry = _entries()[op_name]
        try:
            register_raising(op_name, entry.load())
        except Exception as e:
            origin = entry.dist.name if entry.dist is not None else entry.value
            raise FrontEndError([], f"the raising pattern of {origin} for {op_name} could not be loaded: "
                                f"{type(e).__name__}: {e}") from e  # fmt: skip
    return _PATTERNS.get(op_name)


def foreign_patterns() -> list[str]:
    """Ops whose pattern is not one of qmlir's."""
    own = "qmlir.frontends."
    return sorted([n for n, p in _PATTERNS.items() if not p.__module__.startswith(own)] + list(_entries()))
