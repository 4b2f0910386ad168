"""Compilation for the command line runs in a child process: a crash of the compiler is then an error message
with a reproducer, and an interrupt leaves nothing behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

IN_CHILD = "QMLIR_IN_CHILD"


def in_child() -> bool:
    """Whether this process is the child."""
    return IN_CHILD in os.environ


def breadcrumb(text: str) -> None:
    """Note what is about to run, for the parent to tell after a crash."""
    path = os.environ.get(IN_CHILD)
    if path:
        Path(path).write_text(text)


def run_in_child(module: str, argv: Sequence[str], program: str, what: str, timeout: float | None = None) -> int:
    """Run `python -m module argv` and return its exit code; a crash becomes a message and exit code 1.

    Args:
        what: the file that is being compiled, for messages.
        timeout: seconds after which the child is stopped.
    """
    with tempfile.TemporaryDirectory(prefix="qmlir-") as folder:
        crumb = Path(folder) / "step"
        child = subprocess.Popen(
            [sys.executable, "-m", module, *argv],
            env={**os.environ, IN_CHILD: str(crumb)},
            stderr=subprocess.PIPE,
        )
        try:
            _, errors = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            print(f"{program}: error: {what}: the compiler did not finish in {timeout:g} s", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
            raise
        text = errors.decode(errors="replace")
        if child.returncode >= 0 and child.returncode != 134:
            sys.stderr.write(text)
            return child.returncode
        return _report_crash(child.returncode, crumb, program, what, text, [module, *argv])


def _report_crash(code: int, crumb: Path, program: str, what: str, errors: str, command: Sequence[str]) -> int:
    """One message: which signal, at what step, and where the details are."""
    from .. import settings

    step = crumb.read_text() if crumb.exists() else "start"
    first, _, rest = step.partition("\n")
    name = signal.Signals(-code).name if code < 0 else "SIGABRT"
    folder = settings.reproducer_folder()
    folder.mkdir(parents=True, exist_ok=True)
    handle, log = tempfile.mkstemp(prefix="qmlir-crash-", suffix=".log", dir=folder)
    with os.fdopen(handle, "w") as f:
        f.write(f"command: {shlex.join(['python', '-m', *command])}\nsignal: {name}\nstep: {first}\n\n{errors}\n{rest}")
    print(
        f"{program}: error: {what}: the compiler crashed ({name}) in {first}\n"
        f"reproducer: {shlex.join(['python', '-m', *command])}\ndetails: {log}",
        file=sys.stderr,
    )
    return 1
