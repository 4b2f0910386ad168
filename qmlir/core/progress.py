"""What long commands report to whoever shows their progress."""

from __future__ import annotations

from collections.abc import Callable

# Called with what a command does now, in a few words, such as `compiling 3 of 12`.
Step = Callable[[str], None]
