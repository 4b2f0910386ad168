"""The helper threads of this process. A team is made when a program that can use one is loaded, and ends with the
process; its threads are daemons inside a call of the worker program, which holds no lock of Python's."""

from __future__ import annotations

import atexit
import base64
import ctypes
import os
import platform
import sys
import threading
import zlib

import numpy as np

from .. import settings
from ..core.bindings import binding
from ..core.drivers import LOCAL_SYNC
from ..core.hal import keep, vm_instance
from ..targets.cpu.threads import board, cost

_PAGE = 4096
_FUTEX, _FUTEX_WAKE_PRIVATE = 202, 129

_lock = threading.RLock()
_team: Team | None = None


def supported() -> bool:
    """Whether kernels of this system have forks in them."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def team(program: str) -> Team | None:
    """The team of this process, with its helpers running; None when the process is to use one thread.

    Args:
        program: the helper's program as a compiled program holds it (`compiler.helper`).
    """
    global _team
    helpers = min(settings.threads(), board.MOST_PARTICIPANTS) - 1
    if helpers < 1 or not supported():
        return None
    with _lock:
        if _team is None:
            _team = Team()
            atexit.register(_team.stop)
            if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
                os.register_at_fork(after_in_child=_forked)
        _team.start(helpers, program)
        return _team


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # whoever held it is not here
    if _team is not None:
        _team.forget()


class Team:
    """The board and the threads that wait at it."""

    def __init__(self) -> None:
        # Never freed: loaded programs know its address.
        self._memory = np.zeros(board.SIZE + _PAGE, np.uint8)
        offset = -self._memory.ctypes.data % _PAGE
        self._words = self._memory[offset : offset + board.SIZE].view(np.int64)
        self.address = int(self._words.ctypes.data)
        self._threads: list[threading.Thread] = []
        self.forget()

    def _set(self, offset: int, value: int) -> None:
        self._words[offset // 8] = value

    def _get(self, offset: int) -> int:
        return int(self._words[offset // 8])

    def forget(self) -> None:
        """The state without helpers and without a caller. In the child of a fork no thread of the parent is left, and
        whatever they had on the board is gone; programs there run on one thread until the next one is loaded."""
        self._words[:] = 0
        self._threads = []
        self._set(board.PARTICIPANTS, 1)
        self._set(board.PATIENCE, cost.SPIN_CYCLES)
        bits = sum(1 << cpu for cpu in settings.cpus() if cpu < 8 * board.CPU_MASK_BYTES)
        mask = np.frombuffer(bits.to_bytes(board.CPU_MASK_BYTES, "little"), np.int64)
        self._words[board.CPU_MASK // 8 :][: len(mask)] = mask

    def start(self, helpers: int, program: str) -> None:
        """Have at least so many helpers."""
        if len(self._threads) >= helpers:
            return
        worker = zlib.decompress(base64.b64decode(program))
        for number in range(len(self._threads) + 1, helpers + 1):
            thread = threading.Thread(
                target=_help, args=(worker, self.address, number), daemon=True, name="qmlir helper"
            )
            thread.start()
            self._threads.append(thread)
        self._set(board.PARTICIPANTS, helpers + 1)

    @property
    def helpers(self) -> int:
        return len(self._threads)

    def stop(self) -> None:
        """End the helpers. Jobs that they are in are finished first; callers go on alone."""
        threads, self._threads = self._threads, []
        if not threads:
            return
        self._set(board.STOP, 1)
        self._memory_fence_and_wake()
        for thread in threads:
            thread.join(timeout=2)

    def _memory_fence_and_wake(self) -> None:
        """Change the futex's word, which sleepers compare, and wake them. A system call orders the stores before it."""
        futex = self._words[board.WAKES // 8 :].view(np.int32)
        futex[0] += 1
        libc = ctypes.CDLL(None, use_errno=True)
        address = ctypes.c_void_p(self.address + board.WAKES)
        libc.syscall(_FUTEX, address, _FUTEX_WAKE_PRIVATE, 2**31 - 1, None, None, 0)

    def statistics(self) -> dict[str, int]:
        """How often a helper joined a job, and how often one went to sleep."""
        return {"joined": self._get(board.JOINED), "slept": self._get(board.SLEPT)}


def _help(vmfb: bytes, address: int, number: int) -> None:
    """A helper's life: one call of the worker program, on a device and in a context of its own."""
    device = binding.get_cached_hal_driver(LOCAL_SYNC.name).create_default_device()
    keep(device)  # the frame of this thread is gone in the child of a fork
    instance = vm_instance()
    module = binding.VmModule.copy_buffer(instance, vmfb)
    context = binding.VmContext(instance, modules=[binding.create_hal_module(instance, device), module])
    inputs = binding.VmVariantList(1)
    given = np.array([address, number], np.int64)
    usage = int(binding.BufferUsage.DEFAULT) | int(binding.BufferUsage.MAPPING)
    memory = int(binding.MemoryType.DEVICE_LOCAL)
    kind = int(binding.HalElementType.INT_64)
    inputs.push_ref(device.allocator.allocate_buffer_copy(memory, usage, device, given, kind))
    context.invoke(module.lookup_function("main"), inputs, binding.VmVariantList(1))
