"""Launches of small PTX kernels on device memory, as the emulated driver passes them to the executor."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from qmlir.emulation.cuda.execute import CudaExecutor
from qmlir.emulation.launch import Counts, KernelLaunch, Settings
from qmlir.emulation.memory import Memory

Array = np.ndarray[Any, Any]


class Device:
    """Device memory with buffers made from numpy arrays, and launches on it."""

    def __init__(self, target: str = "cuda:sm_90a") -> None:
        self.target, self.memory = target, Memory()
        self._kept: list[Any] = []

    def buffer(self, content: Array, written: bool = True) -> int:
        """The address of a copy of `content`."""
        raw = np.ascontiguousarray(content).view(np.uint8).reshape(-1)
        room = ctypes.create_string_buffer(raw.size + 512)
        start = (ctypes.addressof(room) + 255) // 256 * 256
        ctypes.memmove(start, raw.ctypes.data, raw.size)
        self._kept.append(room)
        self.memory.add(start, raw.size)
        if written:
            self.memory.mark_written(start, raw.size)
        return start

    def read(self, address: int, like: Array) -> Array:
        return np.frombuffer(ctypes.string_at(address, like.nbytes), like.dtype).reshape(like.shape)

    def launch(self, text: str, *arguments: int, threads: int = 32, blocks: int = 1, shared: int = 0,
               seed: int | None = None, function: str = "k") -> Counts:  # fmt: skip
        data = b"".join(a.to_bytes(8, "little") for a in arguments)
        launch = KernelLaunch(text.encode(), function, (blocks, 1, 1), (threads, 1, 1), shared, data)
        return CudaExecutor().run(launch, self.memory, Settings(self.target, seed))
