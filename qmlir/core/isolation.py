"""Compilation in a child process, bounded in time and memory. A crash of the compiler becomes an exception."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import CompileError, Diagnostic, QmlirError

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True)
class ProcessLimits:
    """The limits of a child process: seconds, and bytes of memory; None means no limit."""

    seconds: float | None = None
    memory: int | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> ProcessLimits:
        """The limits in the options that `cli.arguments.add_limits` defines."""
        return cls(args.timeout, args.memory)


NO_LIMITS = ProcessLimits()


@dataclass(frozen=True)
class _Outcome:
    """How a child ended. `error` is an exception's class, attributes and text, because pickle cannot recreate an
    exception whose constructor takes other arguments than the text."""

    kind: Literal["result", "error", "memory", "crash"]
    result: bytes = b""
    error: tuple[type[QmlirError], dict[str, object], str] | None = None


_CRASH = _Outcome("crash")


def limit_memory(size: int | None) -> None:
    """In the child: limit the address space to `size` bytes."""
    if size is not None:
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def settle(folder: Path) -> None:
    """In the child of a fork: create temporary files, IREE's too, in `folder`, so that they are removed with it."""
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)  # the child does not have OpenMP's threads, and would wait for them


def in_fork(work: Callable[[], bytes], limits: ProcessLimits) -> bytes:
    """The result of `work`, computed in a fork of this process, which has all objects that `work` refers to.

    `limits.memory` bounds the memory that the child takes in addition to that of this process.

    Raises:
        CompileError: the child crashed, or exceeded a limit. QmlirError: as raised by `work`.
    """
    with tempfile.TemporaryDirectory(prefix="qmlir-") as folder:
        answer = Path(folder) / "answer"
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            _child(work, limits, answer)
        status = _ended(pid, limits.seconds)
        if status is None:
            raise CompileError([Diagnostic(f"the compiler did not finish in {limits.seconds:g} s")])
        try:
            outcome: _Outcome = pickle.loads(answer.read_bytes()) if answer.exists() else _CRASH
        except (EOFError, pickle.UnpicklingError):
            outcome = _CRASH
    if outcome.kind == "result":
        return outcome.result
    if outcome.error is not None:
        made, state, text = outcome.error
        error = made.__new__(made)
        error.__dict__.update(state)
        error.args = (text,)
        raise error
    if outcome.kind == "memory" or (limits.memory is not None and status != 0):
        size = "" if limits.memory is None else f" than {limits.memory / 2**30:.3g} GiB"
        raise CompileError([Diagnostic(f"the compiler needs more memory{size}")])
    name = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    raise CompileError([Diagnostic(f"the compiler crashed ({name}); the program, or one of its operators, "
                                   "triggers a compiler bug: please report it")])  # fmt: skip


def _ended(pid: int, seconds: float | None) -> int | None:
    """Wait for a child and return its exit code, negative for a signal; None if it ran out of time and was killed."""
    end = None if seconds is None else time.monotonic() + seconds
    pause = 0.001
    try:
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                pid = 0
                return os.waitstatus_to_exitcode(status)
            if end is not None and time.monotonic() >= end:
                return None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
    finally:  # also after an interrupt
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _child(work: Callable[[], bytes], limits: ProcessLimits, answer: Path) -> None:
    """Run `work` and write its outcome to `answer`. Does not return."""
    try:
        settle(answer.parent)
        if limits.memory is not None:
            limit_memory(_address_space() + limits.memory)
        try:
            outcome = _Outcome("result", work())
        except QmlirError as e:
            outcome = _Outcome("error", error=(type(e), e.__dict__, str(e)))
        except MemoryError:
            outcome = _Outcome("memory")
        except BaseException as e:
            state: dict[str, object] = {"diagnostics": [], "headline": ""}
            outcome = _Outcome("error", error=(CompileError, state, f"{type(e).__name__}: {e}"))
        part = answer.with_suffix(".part")
        part.write_bytes(pickle.dumps(outcome))
        part.rename(answer)
    finally:
        os._exit(0 if answer.exists() else 1)


def _address_space() -> int:
    """The size of this process's address space, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
