"""The callback by which long commands report their progress."""

from __future__ import annotations

from collections.abc import Callable

# Called with a few words about the current step, such as `compiling 3 of 12`.
Step = Callable[[str], None]
