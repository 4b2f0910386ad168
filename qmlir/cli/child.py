"""Compilation for the command line runs in a child process: a crash of the compiler is then an error message
with a reproducer, and an interrupt leaves nothing behind."""

from __future__ import annotations

import atexit
import math
import os
import select
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from .. import settings
from ..core.files import WRITING
from ..core.isolation import NO_LIMITS, ProcessLimits as ProcessLimits, limit_memory, settle
from .guarded import guarded
from .progress import Progress, tell

IN_CHILD = "QMLIR_IN_CHILD"


def in_child() -> bool:
    """Whether this process is the child."""
    return IN_CHILD in os.environ


def breadcrumb(text: str) -> None:
    """Record the step that is about to run, for the parent to report after a crash."""
    path = os.environ.get(IN_CHILD)
    if path:
        Path(path).write_text(text)
    tell(text.partition("\n")[0])


def obey_parent() -> None:
    """In the child: ignore SIGINT, which is the parent's to handle, and end on SIGTERM without a half-written file.

    Must run before any thread is created, because threads inherit the blocked SIGTERM.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def watch() -> None:
        signal.sigwait({signal.SIGTERM})
        with publishing():
            if _published.is_set():
                return  # the result is written: end normally
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
    """A context for writing a command's result: an interrupt takes effect before or after it."""

    with WRITING:
        yield


def published() -> None:
    """Call within `publishing` once the result is written: from then on the command succeeds."""
    _published.set()


class _Interrupts:
    """Raises KeyboardInterrupt for SIGINT and SIGTERM, but only from `arm` until the first of them: start-up and
    clean-up are not interrupted."""

    def __init__(self) -> None:
        self._armed = self._seen = False
        self._restored = ExitStack()  # restores the previous handlers

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._restored.callback(signal.signal, number, signal.signal(number, self._handle))
        return self

    def __exit__(self, *_: object) -> None:
        self._restored.close()
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # one would kill Python during shutdown

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


class _Fork:
    """A fork of this process that calls `prepare`, then `work`. `written` is its output on each of `streams`."""

    def __init__(self, work: Callable[[], int], prepare: Callable[[], None], streams: Sequence[int]) -> None:
        ends = {stream: os.pipe() for stream in streams}
        self.written = dict.fromkeys(streams, b"")
        sys.stdout.flush()
        sys.stderr.flush()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        self._pid = os.fork()
        if not self._pid:
            for stream, (_, end) in ends.items():
                os.dup2(end, stream)
            _work(work, prepare)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for _, end in ends.values():
            os.close(end)
        self._open = {end: stream for stream, (end, _) in ends.items()}

    def wait(self, seconds: float = math.inf) -> int | None:
        """The exit code, negative for a signal; None if it has not ended within `seconds`."""
        until = time.monotonic() + seconds
        while self._open:
            left = None if seconds == math.inf else max(0.0, until - time.monotonic())
            ready, _, _ = select.select(list(self._open), (), (), left)
            if not ready:
                return None
            for end in ready:
                part = os.read(end, 1 << 16)
                self.written[self._open[end]] += part
                if not part:
                    os.close(end)
                    del self._open[end]
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def stop(self) -> int:
        """End the fork and return its exit code. If an interrupt came as it ended, the code may be lost; then 1."""
        try:
            for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, math.inf)):
                os.kill(self._pid, number)
                code = self.wait(seconds)
                if code is not None:
                    return code
        except (ProcessLookupError, ChildProcessError):
            pass
        return 1


def _work(work: Callable[[], int], prepare: Callable[[], None]) -> NoReturn:
    """Run the work of a fork, and end the process."""
    code: object = 1
    try:
        prepare()
        sys.stdout, sys.stderr = (os.fdopen(n, "w", errors="backslashreplace", closefd=False) for n in (1, 2))
        obey_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which `obey_parent` ignores
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as e:
        code = e.code
    finally:
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def run_in_child(
    work: Callable[[], int], words: Sequence[str], what: str, limits: ProcessLimits = NO_LIMITS, quiet: bool = False
) -> int:
    """Do `work` in a fork of this process and return its exit code; a crash becomes a message and exit code 1.

    Args:
        words: the command line, for messages.
        what: the file that is being compiled, for messages.
        limits: the child's limits of time and memory.
        quiet: show no progress.
    """
    if in_child():
        return work()
    program = words[0]
    # The child's temporary files, IREE's too, are in this folder and removed with it, however the child ends.
    with _Interrupts() as interrupts, tempfile.TemporaryDirectory(prefix="qmlir-") as folder:
        crumb = Path(folder) / "step"
        progress = Progress(lambda: crumb.read_text() if crumb.exists() else "starting", quiet)
        # The child's output must not mix with the progress bar, so it is collected while there may be a bar.
        shown = settings.terminal() if progress.active else {}
        reports = str(settings.reproducer_folder())

        def prepare() -> None:
            settle(Path(folder))
            os.environ.update(shown, QMLIR_REPRODUCER_DIR=reports, **{IN_CHILD: str(crumb)})

        def limited() -> int:
            limit_memory(limits.memory)  # within `guarded`, which reports a lack of memory as a message
            return work()

        child = _Fork(lambda: guarded(limited, program), prepare, (1, 2) if progress.active else (2,))
        try:
            interrupts.arm()
            with progress:
                code = _ended(child, limits.seconds, progress.update)
            interrupts.disarm()
            if code is None:
                child.stop()
                print(f"{program}: error: {what}: the compiler did not finish in {limits.seconds:g} s", file=sys.stderr)
                return 1
        except KeyboardInterrupt:
            code = child.stop()
            if code:
                raise
        sys.stdout.write(child.written.get(1, b"").decode(errors="replace"))
        sys.stdout.flush()
        text = child.written[2].decode(errors="replace")
        if limits.memory is not None and _out_of_memory(code, text):
            size = f"{limits.memory / 2**30:.3g} GiB"
            print(f"{program}: error: {what}: the compiler needs more memory than {size} (--memory)", file=sys.stderr)
            return 1
        if code >= 0 and code != 134:
            sys.stderr.write(text)
            return code
        return _report_crash(code, crumb, words, what, text)


def _ended(child: _Fork, timeout: float | None, update: Callable[[], None]) -> int | None:
    """The exit code of a child; None if it has not ended within `timeout`."""
    end = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        code = child.wait(min(0.1, max(0.0, end - time.monotonic())))
        if code is not None or time.monotonic() >= end:
            return code
        update()


def _out_of_memory(code: int, errors: str) -> bool:
    """Whether a child with a memory limit ended for lack of memory: an allocation failed in Python, in LLVM or in a
    library, or a signal ended it, which happens in code that does not check its allocations."""
    words = ("bad_alloc", "out of memory", "MemoryError", "Cannot allocate memory", "failed to map segment")
    return code < 0 or (code != 0 and any(w in errors for w in words))


def _report_crash(code: int, crumb: Path, words: Sequence[str], what: str, errors: str) -> int:
    """Print one message with the signal, the step and the file of the details."""

    step = crumb.read_text() if crumb.exists() else "start"
    first, _, rest = step.partition("\n")
    name = signal.Signals(-code).name if code < 0 else "SIGABRT"
    folder = settings.reproducer_folder()
    folder.mkdir(parents=True, exist_ok=True)
    handle, log = tempfile.mkstemp(prefix="qmlir-crash-", suffix=".log", dir=folder)
    command = shlex.join(words)
    with os.fdopen(handle, "w") as f:
        f.write(f"command: {command}\nsignal: {name}\nstep: {first}\n\n{errors}\n{rest}")
    print(
        f"{words[0]}: error: {what}: the compiler crashed ({name}) in {first}\nreproducer: {command}\ndetails: {log}",
        file=sys.stderr,
    )
    return 1
