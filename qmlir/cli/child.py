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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .. import settings
from ..core.files import WRITING
from ..core.isolation import NO_LIMITS, ProcessLimits as ProcessLimits, limit_memory as limit_memory
from .progress import Progress, tell

IN_CHILD = "QMLIR_IN_CHILD"


def in_child() -> bool:
    """Whether this process is the child."""
    return IN_CHILD in os.environ


def breadcrumb(text: str) -> None:
    """Note what is about to run, for the parent to tell after a crash."""
    path = os.environ.get(IN_CHILD)
    if path:
        Path(path).write_text(text)
    tell(text.partition("\n")[0])


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
            cache = sys.modules.get("qmlir.core.cache")
            for lock in list(getattr(cache, "HELD", ())):
                lock.unlink(missing_ok=True)
            for compiler in list(getattr(sys.modules.get("qmlir.tuning.search"), "RUNNING", ())):
                compiler.terminate()
            os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


_published = threading.Event()


@contextmanager
def publishing() -> Iterator[None]:
    """Around the writing of what a command is run for: an interrupt comes before it or after it."""

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
        self._restored = ExitStack()  # the handlers of before

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._restored.callback(signal.signal, number, signal.signal(number, self._handle))
        return self

    def __exit__(self, *_: object) -> None:
        self._restored.close()

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


def run_in_child(
    module: str, argv: Sequence[str], program: str, what: str, limits: ProcessLimits = NO_LIMITS, quiet: bool = False
) -> int:
    """Run `python -m module argv` and return its exit code; a crash becomes a message and exit code 1.

    Args:
        what: the file that is being compiled, for messages.
        limits: what the child may use.
        quiet: show no progress.
    """

    # The child's temporary files, IREE's too, go with the folder, whatever becomes of the child.
    with _Interrupts() as interrupts, tempfile.TemporaryDirectory(prefix="qmlir-") as folder:
        crumb = Path(folder) / "step"
        reports = str(settings.reproducer_folder())
        progress = Progress(lambda: crumb.read_text() if crumb.exists() else "starting", quiet)
        # What the child prints must not meet the bar on the screen, so it is held back as long as there may be one.
        shown = settings.terminal() if progress.active else {}
        child = subprocess.Popen(
            [sys.executable, "-m", module, *argv],
            env={**os.environ, **shown, IN_CHILD: str(crumb), "TMPDIR": folder, "QMLIR_REPRODUCER_DIR": reports},
            stdout=subprocess.PIPE if progress.active else None,
            stderr=subprocess.PIPE,
        )
        output: bytes | None = None
        try:
            interrupts.arm()
            with progress:
                output, errors = _wait(child, limits.seconds, progress.update)
            interrupts.disarm()
        except subprocess.TimeoutExpired:
            interrupts.disarm()
            _stop(child)
            print(f"{program}: error: {what}: the compiler did not finish in {limits.seconds:g} s", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            errors = _stop(child)
            if child.returncode:
                raise
        if output:
            sys.stdout.write(output.decode(errors="replace"))
            sys.stdout.flush()
        text = errors.decode(errors="replace")
        if limits.memory is not None and _out_of_memory(child.returncode, text):
            size = f"{limits.memory / 2**30:.3g} GiB"
            print(f"{program}: error: {what}: the compiler needs more memory than {size} (--memory)", file=sys.stderr)
            return 1
        if child.returncode >= 0 and child.returncode != 134:
            sys.stderr.write(text)
            return child.returncode
        return _report_crash(child.returncode, crumb, program, what, text, [module, *argv])


def _wait(child: subprocess.Popen[bytes], timeout: float | None, update: Callable[[], None]) -> tuple[bytes, bytes]:
    """What the child wrote, once it has ended. Raises TimeoutExpired when it does not in time."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = 0.1 if end is None else min(0.1, max(0.0, end - time.monotonic()))
        try:
            return child.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            if end is not None and time.monotonic() >= end:
                raise
            update()


def _stop(child: subprocess.Popen[bytes]) -> bytes:
    """End the child; what it wrote to stderr."""
    child.terminate()
    try:
        return child.communicate(timeout=5)[1]
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()[1]


def _out_of_memory(code: int, errors: str) -> bool:
    """Whether a child with a limit ended for want of memory: an allocation that failed in Python, in LLVM or in a
    library, or a signal, which is what a limit looks like to code that does not check."""
    words = ("bad_alloc", "out of memory", "MemoryError", "Cannot allocate memory", "failed to map segment")
    return code < 0 or (code != 0 and any(w in errors for w in words))


def _report_crash(code: int, crumb: Path, program: str, what: str, errors: str, command: Sequence[str]) -> int:
    """One message: which signal, at what step, and where the details are."""

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
