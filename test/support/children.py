"""Compile and run many small programs in child processes, because they may end or hang their process."""

from __future__ import annotations

import multiprocessing as mp
import os
import re
import resource
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from qmlir.errors import FrontEndError, InputError

T = TypeVar("T")
SECONDS, MEMORY = 120, 12 << 30  # per program; bytes of a child's address space


def is_acceptable(found: str) -> bool:
    """Return whether an outcome is right or a refusal, except torch-mlir's own "failed to legalize": the operator that
    it names may be a constant that several others use."""
    return found.startswith(("right", "refused")) and not found.startswith("refused: failed to legalize")


def kind(text: str) -> str:
    """Return a message without value names, which differ between programs of one kind, cut to 160 characters."""
    return re.sub(r"%\S+", "%", text.strip())[:160]


def outcome(compiled: Callable[[], T], compared: Callable[[T], str]) -> str:
    """Return the outcome of a program. `compared` runs it, and returns `right` or what is wrong, or asserts."""
    try:
        program = compiled()
    except FrontEndError as e:
        return f"refused: {kind(e.diagnostics[0].message if e.diagnostics else e.headline)}"
    except Exception as e:
        return f"failed: {type(e).__name__}: {kind(str(e))}"
    try:
        return compared(program)
    except InputError as e:  # the program checks its arguments
        return f"refused: when it runs: {kind(str(e))}"
    except AssertionError as e:
        return f"wrong: {kind(' '.join(str(e).split()))}"
    except Exception as e:
        return f"failed: {type(e).__name__}: {kind(str(e))}"


def outcomes(
    names: Sequence[str], outcome_of: Callable[[str], str], seconds: float = SECONDS
) -> Iterator[tuple[str, str]]:
    """Yield `outcome_of(name)` of each name, from child processes: one that dies or hangs is replaced by another."""
    context = mp.get_context("fork")
    child: Any = None
    for name in names:
        if child is None:
            pipe, end = context.Pipe()
            child = context.Process(target=_serve, args=(end, outcome_of), daemon=True)
            child.start()
            end.close()
        try:
            pipe.send(name)
            if pipe.poll(seconds):
                yield name, pipe.recv()
                continue
            child.kill()
            found = "timeout"
        except (EOFError, OSError):
            child.join()
            found = f"crashed: {signal.Signals(-child.exitcode).name if child.exitcode < 0 else child.exitcode}"
        child.join()
        child = None
        yield name, found
    if child is not None:
        pipe.send(None)
        child.join()


def _serve(pipe: Any, outcome_of: Callable[[str], str]) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # discards the output of a dying compiler
    while (name := pipe.recv()) is not None:
        pipe.send(outcome_of(name))
