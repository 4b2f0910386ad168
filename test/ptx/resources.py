"""The device state of an interpreted CUDA program: buffers, typed views of them, and launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from qmlir.emulation.cuda.formats import Array
from qmlir.emulation.cuda.instructions import PtxError
from qmlir.emulation.cuda.machine import PtxReport

_SLACK = 64  # bytes after the end of a buffer, so that views of whole words fit
ELEMENTS: dict[str, Any] = {
    "i1": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "f16": np.float16,
    "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2, "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip


class Failure(Exception):
    """A program refuses its arguments."""


@dataclass
class Resource:
    """A device buffer: `size` bytes of `data` from `start`, then slack. A subview shares the data of another buffer."""

    name: str
    data: Array
    size: int
    start: int = 0

    @staticmethod
    def of(name: str, content: Array) -> Resource:
        raw = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        data = np.zeros((raw.size + _SLACK + 31) // 32 * 32, np.uint8)
        data[: raw.size] = raw
        return Resource(name, data, raw.size)

    @staticmethod
    def empty(name: str, size: int) -> Resource:
        """Return a buffer filled with noise, so that reading bytes that were never written gives wrong results."""
        return Resource(name, np.full((size + _SLACK + 31) // 32 * 32, 0xA5, np.uint8), size)

    def bytes(self, offset: int, length: int) -> Array:
        if offset < 0 or offset + length > self.size:
            raise PtxError(f"{length} bytes at {offset} of {self.name}, which has {self.size}")
        return self.data[self.start + offset : self.start + offset + length]

    def view(self, offset: int, length: int) -> Resource:
        self.bytes(offset, length)
        return Resource(self.name, self.data, length, self.start + offset)


@dataclass
class BufferView:
    """An argument or a result: a buffer with its shape and element type."""

    resource: Resource
    shape: tuple[int, ...]
    element: str

    def array(self) -> Array:
        dtype = np.dtype(ELEMENTS[self.element])
        count = int(np.prod(self.shape, dtype=np.int64))
        raw = self.resource.bytes(0, count * dtype.itemsize)
        return raw.copy().view(dtype).reshape(self.shape)


@dataclass(frozen=True)
class Dispatch:
    """One launch and its report. `strays`: the number of loads out of bounds, which only IREE's own kernels may do."""

    name: str
    grid: tuple[int, int, int]
    report: PtxReport
    strays: int
