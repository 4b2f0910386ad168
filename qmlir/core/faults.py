"""What a workaround says of the fault that it is there for: docs/workarounds.md is made of these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault or a limit of IREE 3.13, or of a driver below it.

    Attributes:
        what: goes wrong, one sentence.
        canary: the smallest known program that shows it, by its name in test/passes/test_canaries.py.
        upstream: address of the issue or pull request that describes it; "" where none is known.
    """

    what: str
    canary: str
    upstream: str = ""
