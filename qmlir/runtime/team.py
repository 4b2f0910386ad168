"""The helper threads of this process. A team is made when a program that can use one is loaded, and ends with the
process. Its threads are daemons that stay inside a call of the worker program, without the GIL."""

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
    """Whether kernels for this system can share their work with helper threads."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def team(program: str) -> Team | None:
    """The team of this process, with running helpers; None if the process uses one thread or the system has no teams.

    Args:
        program: the helper's program as text, which compiled programs contain (`compiler.helper`).
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
    _lock = threading.RLock()  # the child does not have the thread that may hold it
    if _team is not None:
        _team.forget()


class Team:
    """The board, and the threads that wait for jobs on it."""

    def __init__(self) -> None:
        # Never freed: loaded programs contain its address.
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
        """Reset the board to the state without helpers and without a caller. The child of a fork has none of its
        parent's threads, so their jobs are dropped; its programs run on one thread until the next one is loaded."""
        self._words[:] = 0
        self._threads = []
        self._set(board.PARTICIPANTS, 1)
        self._set(board.PATIENCE, cost.SPIN_CYCLES)
        bits = sum(1 << cpu for cpu in settings.cpus() if cpu < 8 * board.CPU_MASK_BYTES)
        mask = np.frombuffer(bits.to_bytes(board.CPU_MASK_BYTES, "little"), np.int64)
        self._words[board.CPU_MASK // 8 :][: len(mask)] = mask

    def start(self, helpers: int, program: str) -> None:
        """Start threads until there are at least `helpers`."""
        if len(self._threads) >= helpers:
            return
        worker = zlib.decompress(base64.b64decode(program))
        for number in range(len(self._threads) + 1, helpers + 1):
            thread = threading.Thread(
                target=_run_helper, args=(worker, self.address, number), daemon=True, name="qmlir helper"
            )
            thread.start()
            self._threads.append(thread)
        self._set(board.PARTICIPANTS, helpers + 1)

    @property
    def helpers(self) -> int:
        return len(self._threads)

    def stop(self) -> None:
        """End the helpers after they have finished the jobs that they joined. Callers continue alone."""
        threads, self._threads = self._threads, []
        if not threads:
            return
        self._set(board.STOP, 1)
        self._memory_fence_and_wake()
        for thread in threads:
            thread.join(timeout=2)

    def _memory_fence_and_wake(self) -> None:
        """Change the futex word, which sleepers compare, and wake them. The system call orders the stores before it."""
        futex = self._words[board.WAKES // 8 :].view(np.int32)
        futex[0] += 1
        libc = ctypes.CDLL(None, use_errno=True)
        address = ctypes.c_void_p(self.address + board.WAKES)
        libc.syscall(_FUTEX, address, _FUTEX_WAKE_PRIVATE, 2**31 - 1, None, None, 0)

    def statistics(self) -> dict[str, int]:
        """How often a helper joined a job, and how often one went to sleep."""
        return {"joined": self._get(board.JOINED), "slept": self._get(board.SLEPT)}


def _run_helper(vmfb: bytes, address: int, number: int) -> None:
    """The body of a helper thread: one call of the worker program, on its own device and in its own context."""
    device = binding.get_cached_hal_driver(LOCAL_SYNC.name).create_default_device()
    keep(device)  # the child of a fork drops this frame, but must not destroy the device
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
