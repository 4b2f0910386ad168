"""Arguments of programs on this machine's CPU: large ones are read where they are, small ones are copied into memory
that is kept from call to call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.bindings import binding
from ..dialect.dtypes import Array
from .abi import ALIGNMENT, Input

if TYPE_CHECKING:
    from iree.runtime import HalDevice

# Bytes. To copy a smaller argument takes less time than to make a buffer of its memory.
LEAST_IN_PLACE = 4 << 10
# The most of an argument that is kept from call to call.
_MOST_KEPT = 32 << 10
_WRITABLE = 0x200  # PyBUF_WRITE
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype, _memory_view.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)


def writable(array: Array) -> Array | memoryview:
    """The memory of an array for IREE's bindings, which take none that is read-only. No program writes to it. The
    caller keeps the array alive."""
    if array.flags.writeable:
        return array
    found: memoryview = _memory_view(array.ctypes.data, array.nbytes, _WRITABLE)
    return found


class Staging:
    """Memory for all arguments of a function, which one call at a time uses.

    Attributes:
        inputs: the arguments as the runtime takes them.
        memory: what a result must not share, because the next call overwrites it.
    """

    def __init__(self, device: HalDevice, memory: int, usage: int, arguments: Sequence[Input]) -> None:
        sizes = [argument.bytes or 0 for argument in arguments]
        places = np.cumsum([0, *(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)])
        whole = np.empty(int(places[-1]) + ALIGNMENT, np.uint8)
        self.memory = whole[-whole.ctypes.data % ALIGNMENT :]
        self.inputs = binding.VmVariantList(len(arguments))
        self._arrays: list[Array] = []
        for argument, place, size in zip(arguments, places[:-1].tolist(), sizes, strict=True):
            shape = argument.shape or ()
            array = self.memory[place : place + size].view(argument.dtype).reshape(shape)
            buffer = device.allocator.import_host_allocation(array, memory, usage)
            self.inputs.push_ref(binding.HalBufferView(buffer, shape, argument.element))
            self._arrays.append(array)

    @staticmethod
    def takes(argument: Input, *, in_place: bool) -> bool:
        """Whether it has memory for an argument, which is otherwise read in place or copied into a new buffer."""
        size = argument.bytes if argument.plain else None
        return size is not None and 0 < size < (LEAST_IN_PLACE if in_place else _MOST_KEPT)

    def fill(self, arrays: Sequence[Array]) -> None:
        """Copy arrays of the function's shapes and dtypes."""
        for held, array in zip(self._arrays, arrays, strict=True):
            held[...] = array
