"""Descriptions of the faults that workarounds exist for: docs/workarounds.md is generated from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault or a limit of IREE 3.13, or of a driver below it.

    Attributes:
        what: what goes wrong, in one sentence.
        canary: the smallest known program that shows it, by its name in test/passes/test_canaries.py.
        upstream: address of the issue or pull request that describes it; "" where none is known.
    """

    what: str
    canary: str
    upstream: str = ""
