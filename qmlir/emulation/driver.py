"""An emulated driver in this process: its library, its devices, and the path of a launch to the executor."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ..core.emulated import mark_emulated
from ..errors import TargetError
from ..targets.base import Target
from .backends import EmulatedDriver
from .kernarg import with_hidden
from .launch import Counts, EmulationError, Executor, KernelLaunch, Settings
from .memory import ArgumentTensor, Memory
from .shim.build import library

T = TypeVar("T")

_drivers: dict[str, Driver] = {}  # by IREE's name of the driver
_lock = threading.RLock()


class _Launch(ctypes.Structure):
    _fields_ = (
        ("image", ctypes.c_void_p),
        ("image_size", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("arguments_size", ctypes.c_uint32),
        ("arguments", ctypes.c_void_p),
    )


class _Event(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("kind", "address", "size", "source"))


_ADDED, _ADDED_VISIBLE, _REMOVED, _WRITTEN, _COPIED = range(5)
_MOST_EVENTS, _MOST_PARAMETERS = 4096, 256
_LaunchCallback = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Launch))
_LayoutCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
)  # fmt: skip


def driver_of(backend: EmulatedDriver) -> Driver:
    """The emulated driver, loaded on first use.

    Raises:
        TargetError: the process uses the vendor's driver, or was forked from one that emulates.
        UsageError: no C compiler.
    """
    with _lock:
        if backend.driver not in _drivers:
            stem = backend.soname.removesuffix(".so")
            loaded = [p for p in _mapped() if p.name.startswith((f"{stem}.so", f"{stem}-"))]
            if loaded:
                raise TargetError(
                    f"this process has loaded the driver {loaded[0]}; an emulated device needs a process without it"
                )
            _drivers[backend.driver] = Driver(backend)
            mark_emulated(backend.driver)
        found = _drivers[backend.driver]
        found.check_process()
        return found


def _mapped() -> list[Path]:
    """Files mapped by this process."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    return [Path(p) for p in dict.fromkeys(line.split(maxsplit=5)[5] for line in lines if line.count("/"))]


class Driver:
    """One vendor's emulated driver, with a device for each target requested."""

    def __init__(self, backend: EmulatedDriver) -> None:
        self.backend = backend
        self.memory = Memory()
        self.settings: Settings | None = None  # of the running program
        self.error: BaseException | None = None  # of the first launch of it that failed
        self.stop: BaseException | None = None  # raised at the next report of progress, to end a launch from outside
        self.on_counts: Callable[[str, Counts], None] | None = None
        self._executor: Executor | None = None
        self._process = os.getpid()
        self._numbers: dict[str, int] = {}
        self._events = (_Event * _MOST_EVENTS)()
        # RTLD_LOCAL: its symbols are for IREE only, which finds the loaded library by its soname.
        self._library = ctypes.CDLL(str(library(backend.source, backend.soname)))
        self._library.emulated_take_events.restype = ctypes.c_size_t
        self._library.emulated_take_events.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._callbacks = _LaunchCallback(self._launched), _LayoutCallback(self._layout)
        self._library.emulated_connect(*self._callbacks)

    def number(self, target: Target) -> int:
        """The number of the target's device, which is added on first use."""
        if target.spelling not in self._numbers:
            facts = self.backend.attributes(target)
            ids, values = ((ctypes.c_int * len(facts))(*x) for x in (facts.keys(), facts.values()))
            name = f"emulated {target.spelling}".encode()
            made = self._library.emulated_add_device(name, ids, values, len(facts))
            if made < 0:
                raise TargetError("too many emulated devices in one process")
            self._numbers[target.spelling] = made
        return self._numbers[target.spelling]

    @contextmanager
    def running(
        self, target: Target, settings: Settings, on_counts: Callable[[str, Counts], None], *, defer: bool
    ) -> Iterator[None]:
        """Context in which one program runs; programs run one at a time. With `defer`, launches are executed at the
        end, because IREE holds Python's lock until then.

        Raises:
            EmulationError: the first launch that failed; the launches after it were not executed.
        """
        self.check_process()
        with _lock:
            before = self.settings, self.on_counts
            self.settings, self.on_counts, self.error = settings, on_counts, None
            self._update_memory()
            self.memory.read = []
            self._library.emulated_activate(self.number(target))
            self._library.emulated_defer(int(defer))
            try:
                yield
            except BaseException:
                if self.error is None:
                    raise
            finally:
                self._library.emulated_run_queue()
                if self._library.emulated_defer(0) and self.error is None:
                    self.error = EmulationError(
                        "an initialiser reads results of the program's own kernels on the host; that is not "
                        "emulated, because IREE holds Python's lock while initialisers run"
                    )
                self.settings, self.on_counts = before
                error, self.error = self.error, None
            if error is not None:
                raise error

    def check_process(self) -> None:
        """Raises TargetError in a forked child: the device's threads exist only in its parent, and it would wait for
        them."""
        if os.getpid() != self._process:
            raise TargetError(
                "this process was forked from one that emulates a device, whose threads stayed there: start it anew "
                "(multiprocessing's 'spawn') to emulate in it"
            )

    def interruptible(self, call: Callable[[], T]) -> T:
        """Return what `call` returns. `call` runs in another thread, so that Ctrl-C reaches this one while kernels are
        executed; the launch then ends at its next call of `Settings.progress`."""
        if threading.current_thread() is not threading.main_thread():
            return call()
        done: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                done.append(call())
            except BaseException as e:  # raised again below
                failed.append(e)
            finally:
                ended.set()

        # Not `join`: after an interrupt, Python 3.11 takes the thread for ended.
        ended = threading.Event()
        threading.Thread(target=run, daemon=True).start()
        while not ended.is_set():
            try:
                ended.wait(0.1)
            except KeyboardInterrupt as e:
                self.stop = e
        if self.stop is not None:
            self.stop, self.error = None, None
            raise KeyboardInterrupt
        if failed:
            raise failed[0]
        return done[0]

    def name_allocation(self, name: str, dtype: str, shape: tuple[int, ...], item: int) -> None:
        """Record that the newest allocation contains an argument of the program's function, so that messages can name
        its elements. Nothing is allocated for an argument without elements."""
        self._update_memory()
        made = self.memory.newest
        if made is not None and 0 < item * math.prod(shape) <= made.size:
            made.tensor = ArgumentTensor(name, dtype, shape, item)

    def check_read(self, name: str, dtype: str, shape: tuple[int, ...], item: int) -> None:
        """Check a result that the host has read.

        Raises:
            EmulationError: an element was never written, or a kernel computed it from unwritten memory or registers.
        """
        self._update_memory()
        found, self.memory.read = self.memory.read, []
        if self.error is None and found and found[0].offset < item * math.prod(shape):
            element = ArgumentTensor(name, dtype, shape, item).element(found[0].offset)
            cause = found[0].cause
            raise EmulationError(f"{element} is read{f', and {cause}' if cause else ' before it is written'}")

    def _launched(self, pointer: ctypes._Pointer[_Launch]) -> None:
        if self.error is not None:  # this launch may read what the failed one did not write
            return
        try:
            self._update_memory()
            launch = self._launch(pointer.contents)
            if self.settings is None or self.on_counts is None:
                raise EmulationError(f"{launch.function} was launched outside of a call")
            if self._executor is None:
                self._executor = self.backend.executor()
            self.on_counts(launch.function, self._executor.run(launch, self.memory, self.settings))
        except BaseException as e:  # no exception may pass through C and IREE
            self.error = e

    def _launch(self, c: _Launch) -> KernelLaunch:
        code = ctypes.string_at(c.image, c.image_size)
        function, grid, block = c.name.decode(), tuple(c.grid), tuple(c.block)
        arguments = ctypes.string_at(c.arguments, c.arguments_size)
        layout = self.backend.layout(code, function)
        if layout is not None and layout.hidden:
            arguments = with_hidden(arguments, layout, grid, block)
        elif layout is not None:
            arguments = arguments.ljust(layout.size, b"\0")
        return KernelLaunch(code, function, grid, block, c.shared_bytes, arguments)

    def _layout(
        self,
        image: int,
        size: int,
        name: bytes,
        offsets: ctypes._Pointer[ctypes.c_int],
        sizes: ctypes._Pointer[ctypes.c_int],
    ) -> int:
        try:
            found = self.backend.layout(ctypes.string_at(image, size), name.decode())
            if found is None or len(found.places) > _MOST_PARAMETERS:
                return -1
            for i, (offset, length) in enumerate(found.places):
                offsets[i], sizes[i] = offset, length
            return len(found.places)
        except BaseException as e:  # as above
            self.error = e
            return -1

    def _update_memory(self) -> None:
        """Take over what the host has done to the device's memory since the last call."""
        while count := self._library.emulated_take_events(self._events, _MOST_EVENTS):
            for e in self._events[:count]:
                if e.kind in (_ADDED, _ADDED_VISIBLE):
                    self.memory.add(e.address, e.size, host_visible=e.kind == _ADDED_VISIBLE)
                elif e.kind == _REMOVED:
                    self.memory.remove(e.address)
                elif e.kind == _WRITTEN:
                    self.memory.mark_written(e.address, e.size)
                else:
                    self.memory.copy_written(e.address, e.source, e.size)
