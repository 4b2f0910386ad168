"""Compilation for the command line runs in a child process: a crash of the compiler is then an error message
with a reproducer, and an interrupt leaves nothing behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IN_CHILD = "QMLIR_IN_CHILD"


def in_child() -> bool:
    """Whether this process is the child."""
    return IN_CHILD in os.environ


def breadcrumb(text: str) -> None:
    """Note what is about to run, for the parent to tell after a crash."""
    path = os.environ.get(IN_CHILD)
    if path:
        Path(path).write_text(text)


def obey_parent() -> None:
    """In the child: the parent alone decides about interrupts, and ends us by SIGTERM without half a file.

    Runs before anything makes threads, which inherit that SIGTERM is blocked.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def watch() -> None:
        signal.sigwait({signal.SIGTERM})
        with publishing():
            if _published.is_set():
                return  # the result is there: end as if nothing had come
            cache = sys.modules.get("qmlir.cache")
            for lock in list(getattr(cache, "HELD", ())):
                lock.unlink(missing_ok=True)
            os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


_published = threading.Event()


@contextmanager
def publishing() -> Iterator[None]:
    """Around the writing of what a command is run for: an interrupt comes before it or after it."""
    from ..artifact import WRITING

    with WRITING:
        yield


def published() -> None:
    """Within `publishing`, once it is written: from now on the command ends well."""
    _published.set()


class _Interrupts:
    """SIGINT and SIGTERM as KeyboardInterrupt, but only between `arm` and the first of them: what starts and what
    cleans up is not interrupted."""

    def __init__(self) -> None:
        self._armed = self._seen = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._old = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _handle(self, *_: object) -> None:
        self._seen = True
        if self._armed:
            self.disarm()
            raise KeyboardInterrupt

    def arm(self) -> None:
        self._armed = True
        if self._seen:
            self.disarm()
            raise KeyboardInterrupt

    def disarm(self) -> None:
        self._armed = False


def run_in_child(module: str, argv: Sequence[str], program: str, what: str, timeout: float | None = None) -> int:
    """Run `python -m module argv` and return its exit code; a crash becomes a message and exit code 1.

    Args:
        what: the file that is being compiled, for messages.
        timeout: seconds after which the child is stopped.
    """
    from .. import settings

    # The child's temporary files, IREE's too, go with the folder, whatever becomes of the child.
    with _Interrupts() as interrupts, tempfile.TemporaryDirectory(prefix="qmlir-") as folder:
        crumb = Path(folder) / "step"
        reports = str(settings.reproducer_folder())
        child = subprocess.Popen(
            [sys.executable, "-m", module, *argv],
            env={**os.environ, IN_CHILD: str(crumb), "TMPDIR": folder, "QMLIR_REPRODUCER_DIR": reports},
            stderr=subprocess.PIPE,
        )
        try:
            interrupts.arm()
            _, errors = child.communicate(timeout=timeout)
            interrupts.disarm()
        except subprocess.TimeoutExpired:
            interrupts.disarm()
            _stop(child)
            print(f"{program}: error: {what}: the compiler did not finish in {timeout:g} s", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            errors = _stop(child)
            if child.returncode:
                raise
        text = errors.decode(errors="replace")
        if child.returncode >= 0 and child.returncode != 134:
            sys.stderr.write(text)
            return child.returncode
        return _report_crash(child.returncode, crumb, program, what, text, [module, *argv])


def _stop(child: subprocess.Popen[bytes]) -> bytes:
    """End the child; what it wrote to stderr."""
    child.terminate()
    try:
        return child.communicate(timeout=5)[1]
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()[1]


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
