"""Programs as users run them: saved to a file, which another process opens and calls.

That process cannot import the compiler's package. It serves many programs, because starting a process costs more than
most calls, and is replaced after `PROGRAMS` programs or when it has died.

    run = opened(artifact).main        # instead of qmlir.load(artifact).main
    report = inspected(artifact)       # qmlir.inspect of the file
"""

from __future__ import annotations

import atexit
import ctypes
import io
import itertools
import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import qmlir
from qmlir import errors
from qmlir.dialect.arrays import to_numpy, to_torch

PROGRAMS = 100  # opened by one process at most
ALIGNMENT = 64
MEMORY = "/dev/shm"  # a file system in memory
ROOT = Path(__file__).resolve().parents[1]


class _Pickler(pickle.Pickler):
    """Pickles the bytes of ml_dtypes arrays out of band too, as numpy does for its own types."""

    def reducer_override(self, x: Any) -> Any:
        if isinstance(x, np.ndarray) and x.dtype.kind == "V" and x.flags.c_contiguous and x.ndim:
            return np.ndarray.view, (x.view(f"u{x.itemsize}"), x.dtype)
        return NotImplemented


def send(message: Any, stream: BinaryIO) -> str:
    """Sends a message to the other process. Arrays are passed in a file in memory, which the receiver removes: weights
    of many experts are gigabytes, which take minutes through a pipe. Returns the file's path, "" if there is none."""
    buffers: list[pickle.PickleBuffer] = []
    body = io.BytesIO()
    _Pickler(body, 5, buffer_callback=buffers.append).dump(message)
    raw = [b.raw() for b in buffers]
    path, places, end = "", [], 0
    for r in raw:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        end = start + r.nbytes
        places.append((start, end))
    if end:
        number, path = tempfile.mkstemp(prefix="qmlir-opened-", dir=MEMORY if os.path.isdir(MEMORY) else None)
        with open(number, "wb") as file:
            for (start, _), r in zip(places, raw, strict=True):
                file.seek(start)
                file.write(r)
    pickle.dump((path, places, body.getvalue()), stream)
    stream.flush()
    return path


def receive(stream: BinaryIO) -> Any:
    """Receives a message of `send`."""
    path, places, body = pickle.load(stream)
    if not path:
        return pickle.loads(body, buffers=[bytearray() for _ in places])
    with open(path, "rb") as file:
        os.unlink(path)
        memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    return pickle.loads(body, buffers=[memory[start:end] for start, end in places])


class Died(Exception):
    """The process that had opened a program ended."""


class _Server:
    """The client of the other process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._opened = 0
        self._busy = False
        self._live = 0  # programs in use
        self._numbers = itertools.count()
        self.unused: list[int] = []  # programs that are no longer in use, to be closed by the next request

    def ask(self, what: str, *arguments: Any) -> Any:
        """Sends a request and returns the answer. Errors of the process are raised here.

        Raises:
            Died: the process ended, for example by a crash.
        """
        if self._process is None or self._process.poll() is not None:
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        unused, self.unused = self.unused, []
        self._busy, path = True, ""
        try:
            path = send((what, arguments, unused), process.stdin)
            fine, answer = receive(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            code = process.wait()
            self._process = None
            raise Died(f"the process that opens programs ended with {code}") from None
        finally:
            self._busy = False
            if path:  # the other process may have died before it removed the file
                Path(path).unlink(missing_ok=True)
        if not fine:
            name, text = answer
            raise getattr(errors, name)(text) if name in _PLAIN_ERRORS else Died(f"{name}: {text}")
        return answer

    def open(self, path: Path, options: Mapping[str, Any]) -> int:
        if self._opened >= PROGRAMS and not self._live:
            self.end()
        self._opened += 1
        number = next(self._numbers)  # not reused, so that it is unknown to later processes
        self.ask("open", number, str(path), dict(options))
        self._live += 1
        return number

    def release(self, number: int, driver: str) -> None:
        """Releases a program. IREE's threads of a lavapipe device wait in a loop, so an idle process with one uses the
        CPU: it is ended instead of being kept for the next program."""
        self.unused.append(number)
        self._live -= 1
        if driver == "vulkan" and not self._live and not self._busy:
            self.end()

    def _start(self) -> None:
        self._opened = 0
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "conformance.opened"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment, cwd=ROOT,
        )  # fmt: skip

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None


_PLAIN_ERRORS = ("ArtifactError", "InputError", "TargetError", "UsageError")
_SERVER = _Server()
atexit.register(_SERVER.end)


class Opened:
    """A program that is open in the other process; its functions are attributes."""

    def __init__(self, artifact: qmlir.Artifact, options: Mapping[str, Any]) -> None:
        self.seconds = 0.0  # for opening the program and for all calls
        path, artifact.path = artifact.path, None
        with tempfile.TemporaryDirectory(prefix="qmlir-opened-") as folder:
            saved = artifact.save(Path(folder) / "program.vmfb")
            artifact.path = path
            start = time.perf_counter()
            self._number = _SERVER.open(saved, options)
            self.seconds += time.perf_counter() - start
        weakref.finalize(self, _SERVER.release, self._number, artifact.manifest.driver)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            arrays = [to_numpy(a, "argument") for a in arguments]
            results, seconds = _SERVER.ask("call", self._number, name, arrays)
            self.seconds += seconds
            if any(type(a).__module__ == "torch" for a in arguments):
                results = [to_torch(r) for r in results]
            return results[0] if len(results) == 1 else tuple(results)

        return call


def opened(artifact: qmlir.Artifact, **options: Any) -> Opened:
    """Saves a program and opens it in another process. `options` are those of `qmlir.load`.

    Raises:
        The errors of `qmlir.load` and of calls; Died if the process ends.
    """
    return Opened(artifact, options)


def inspected(artifact: qmlir.Artifact) -> dict[str, Any]:
    """The result of `qmlir.inspect` on the saved file, computed in another process."""
    with tempfile.TemporaryDirectory(prefix="qmlir-opened-") as folder:
        path = Path(folder) / "program.vmfb"
        path.write_bytes(artifact.vmfb)
        return dict(_SERVER.ask("inspect", str(path)))


# ------------------------------------------------------------------------------------------------ the other process


class _NoCompiler:
    """An import hook that refuses the compiler's package."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "iree.compiler" or name.startswith("iree.compiler."):
            raise ImportError(f"{name}: a process that opens a program has no compiler")


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print to stdout, which carries the answers
    if sys.platform == "linux":  # PR_SET_PDEATHSIG: ends with its parent, even during a call
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    sys.meta_path.insert(0, _NoCompiler())  # type: ignore[arg-type]
    programs: dict[int, Any] = {}

    def answer(what: str, arguments: tuple[Any, ...]) -> Any:
        if what == "open":
            number, path, options = arguments
            programs[number] = qmlir.load(path, **options)
            return None
        if what == "inspect":
            return qmlir.inspect(arguments[0]).to_json()
        number, name, arrays = arguments
        if number not in programs:
            raise LookupError("the process that had opened the program ended")
        start = time.perf_counter()
        made = getattr(programs[number], name)(*arrays)
        seconds = time.perf_counter() - start
        return [np.array(r) for r in (made if isinstance(made, tuple) else (made,))], seconds

    while True:
        try:
            what, arguments, unused = receive(sys.stdin.buffer)
        except EOFError:
            return
        for number in unused:
            programs.pop(number, None)
        try:
            found = True, answer(what, arguments)
        except Exception as e:  # sent to the caller, which raises it
            found = False, (type(e).__name__, str(e))
        send(found, answers)


if __name__ == "__main__":
    _serve()
