"""Who else computes the works. A peer is a module with `PACKAGES` (the distributions that it is) and

    candidates(problem, threads) -> list[Candidate | LeftOut]

which raises `Absent` with the reason when there is nothing to offer. `PEERS` lists them. A peer that computes faster
after a change of its whole process has `prepare(threads)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Array = Any

PEERS = ("ort", "torch", "llama", "iree")


class Absent(Exception):
    """The peer does not take part, with the reason."""


@dataclass(frozen=True)
class Candidate:
    """One way of a peer to compute a problem.

    `run()` is what is timed; `real(run())` are the result's real values, and they agree with the problem's reference
    but for `tolerance` times its largest value: peers round where we do not, quantise activations on their own, or
    return 8-bit codes. `kind` says what weights it has (works.FOUR_BITS, works.EIGHT_BITS). `problem` is the problem
    that it computes where that is another one than was asked for: int8 weights beside our int4.
    """

    name: str
    kind: str
    run: Callable[[], Any]
    real: Callable[[Any], Array]
    tolerance: float
    problem: Any = None


@dataclass(frozen=True)
class LeftOut:
    """One way that a peer could compute the problem and does not here, with the reason."""

    name: str
    reason: str


def module_of(peer: str) -> ModuleType:
    """The peer's module. Raises Absent when a package that it needs is not installed."""
    try:
        return importlib.import_module(f"{__name__}.{peer}")
    except ModuleNotFoundError as e:
        raise Absent(f"{e.name} is not installed (pip install 'qmlir[bench]')") from None


def prepare(peers: Iterable[str], threads: int) -> None:
    """Lets the peers set this process up for that many threads, once and before anything else asks for them: only for
    processes that do nothing else."""
    for peer in peers:
        with suppress(Absent):
            getattr(module_of(peer), "prepare", lambda threads: None)(threads)


def candidates(peer: str, problem: Any, threads: int) -> list[Candidate | LeftOut]:
    """The peer's ways to compute the problem. Raises Absent when there is none."""
    found: list[Candidate | LeftOut] = module_of(peer).candidates(problem, threads)
    if not found:
        raise Absent(f"{peer} is not asked for a {type(problem).__name__}")
    return found
