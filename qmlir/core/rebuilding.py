"""What compiles the source of a loaded program again: it is of the compiler, which programs that only run do without.

`qmlir` registers it; the runtime, which lies below the compiler, asks for it here.
"""

from __future__ import annotations

from collections.abc import Callable

# From an artifact, and whether files outside of its folder may be read, to what shows a level, or one dispatch of it.
Rebuilder = Callable[..., Callable[[str, "str | None"], str]]
_registered: list[Rebuilder] = []


def register(rebuilder: Rebuilder) -> None:
    """Say what makes `rebuild` of an artifact from a file."""
    _registered[:] = [rebuilder]


def registered() -> Rebuilder:
    """What `register` was given; `import qmlir` registers the compiler's."""
    [rebuilder] = _registered
    return rebuilder
