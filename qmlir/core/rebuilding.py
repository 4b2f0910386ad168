"""Access to the function that recompiles the source of a loaded program.

The function is part of the compiler, which is not needed to run programs. `import qmlir` registers it; the runtime, a
layer below the compiler, gets it here.
"""

from __future__ import annotations

from collections.abc import Callable

# Takes an artifact, and whether files outside its folder may be read. Returns a function from a level, and optionally
# the name of a dispatch, to the text.
Rebuilder = Callable[..., Callable[[str, "str | None"], str]]
_registered: list[Rebuilder] = []


def register(rebuilder: Rebuilder) -> None:
    """Set the function that makes `rebuild` of an artifact that was loaded from a file."""
    _registered[:] = [rebuilder]


def registered() -> Rebuilder:
    """The registered function; `import qmlir` registers the compiler's."""
    [rebuilder] = _registered
    return rebuilder
