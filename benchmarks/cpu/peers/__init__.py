"""The other implementations of the works. A peer is a module with `PACKAGES` (its distributions) and

    candidates(problem, threads) -> list[Candidate | LeftOut]

which raises `Absent` with the reason if the peer cannot compute the problem. `PEERS` lists them. A peer that is faster
with a process-wide setting has `prepare(threads)`, which makes that setting.
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
    """The peer does not take part; the text is the reason."""


@dataclass(frozen=True)
class Candidate:
    """One way in which a peer computes a problem.

    `run()` is timed. `real(run())` gives the result as real values, which differ from the problem's reference by at
    most `tolerance` times its largest value: peers round where qmlir does not, quantise activations themselves, or
    return 8-bit codes. `kind` names the width of its weights (works.FOUR_BITS, works.EIGHT_BITS). `problem` is set if
    the peer computes a different problem than the requested one: int8 weights where qmlir has int4.
    """

    name: str
    kind: str
    run: Callable[[], Any]
    real: Callable[[Any], Array]
    tolerance: float
    problem: Any = None


@dataclass(frozen=True)
class LeftOut:
    """One way in which the peer could compute the problem but does not here, with the reason."""

    name: str
    reason: str


def module_of(peer: str) -> ModuleType:
    """The peer's module. Raises Absent when a package that it needs is not installed."""
    try:
        return importlib.import_module(f"{__name__}.{peer}")
    except ModuleNotFoundError as e:
        how = "see benchmarks/cpu/peers/llama.py" if e.name == "llama_cpp" else "pip install -e '.[bench]'"
        raise Absent(f"{e.name} is not installed ({how})") from None


def prepare(peers: Iterable[str], threads: int) -> None:
    """Lets the peers set up this process for that many threads, once, before their first use. Only for processes that
    do nothing else."""
    for peer in peers:
        with suppress(Absent):
            getattr(module_of(peer), "prepare", lambda threads: None)(threads)


def candidates(peer: str, problem: Any, threads: int) -> list[Candidate | LeftOut]:
    """The ways in which the peer computes the problem. Raises Absent if there are none."""
    found: list[Candidate | LeftOut] = module_of(peer).candidates(problem, threads)
    if not found:
        raise Absent(f"{peer} is not asked for a {type(problem).__name__}")
    return found
