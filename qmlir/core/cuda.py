"""What IREE's CUDA driver leaves to the process: current contexts of threads, and keeping memory between calls."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import TYPE_CHECKING

from .bindings import binding
from .faults import Fault

if TYPE_CHECKING:
    from iree.runtime import HalDevice

FAULTS = (
    Fault(
        "IREE's CUDA device returns the memory of its pool to the system at every wait, and maps results and "
        "intermediate tensors anew in every call; no option changes that.",
        canary="released_memory",
    ),
    Fault(
        "IREE's CUDA allocator frees memory twice if a caching allocator returns it again, so the project keeps the "
        "memory of arguments itself.",
        canary="freed_twice",
    ),
)

# CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE and CU_MEMPOOL_ATTR_RELEASE_THRESHOLD of cuda.h.
_POINTER_MEMPOOL_HANDLE = 17
_POOL_RELEASE_THRESHOLD = 4
_KEEP_ALL = 2**64 - 1
_ALIGNMENT = 256  # bytes: CUDA allocates at multiples of this

# The memory layout in IREE 3.13. Behind an object's head, of `_OBJECT_HEAD` bytes, nanobind stores the offset of the
# pointer to the C++ object. At least `_OWN_WORDS` words belong to a buffer. Further words, up to `_MOST_WORDS`, are
# read only if they are in the same page.
_OBJECT_HEAD = 16
_OWN_WORDS, _MOST_WORDS, _PAGE = 18, 32, 4096

_contexts: dict[int, Context] = {}  # by `id(device)`; devices live as long as the process
_current = threading.local()


def library() -> ctypes.CDLL:
    """The library of the CUDA driver, by the name under which IREE loaded it.

    Raises:
        OSError: there is none.
    """
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so")


class Context:
    """The CUDA context of one device. Each thread has its own current context. IREE makes the device's context current
    only in the thread that creates the device, and fails in all other threads."""

    def __init__(self, cuda: ctypes.CDLL) -> None:
        """Take the current context, which is that of the device that this thread has just created."""
        handle, ordinal, count = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        if cuda.cuCtxGetCurrent(ctypes.byref(handle)) or cuda.cuCtxGetDevice(ctypes.byref(ordinal)) or not handle.value:
            raise OSError("no CUDA context is current")
        self._cuda, self._handle, self.ordinal = cuda, handle, int(ordinal.value)
        # With a single device, no other context is made current: a thread that has this one keeps it.
        self._alone = not cuda.cuDeviceGetCount(ctypes.byref(count)) and count.value == 1

    def enter(self) -> None:
        """Make it current in this thread."""
        if self._alone and getattr(_current, "context", None) is self:
            return
        self._cuda.cuCtxSetCurrent(self._handle)
        _current.context = self


def opened(device: HalDevice) -> None:
    """Record the context of a device that this thread has just created, and let its pool keep freed memory. If the
    library is not as expected, the device stays as IREE made it."""
    try:
        cuda = library()
        _contexts[id(device)] = Context(cuda)
    except (OSError, AttributeError):
        return
    keep_memory(device, cuda)


def context_of(device: HalDevice) -> Context | None:
    """The context of an opened device; None for devices of other drivers."""
    return _contexts.get(id(device))


def keep_memory(device: HalDevice, cuda: ctypes.CDLL) -> bool:
    """Set the release threshold of the device's memory pool, which IREE 3.13 leaves at 0, so that the pool keeps freed
    memory. Returns whether this succeeded.

    IREE does not expose its pool. CUDA returns the pool of a device address, and one of the words of IREE's buffer
    object is the device address of the buffer. If anything is not as expected, the device is left unchanged.
    """
    try:
        before, after = device.create_semaphore(0), device.create_semaphore(0)
        buffer = device.queue_alloca(_PAGE, binding.HalFence.create_at(before, 0), binding.HalFence.create_at(after, 1))
        pools = {pool for word in _words(buffer) if (pool := _pool_of(cuda, word))}
        if len(pools) != 1:
            return False
        threshold = ctypes.c_uint64(_KEEP_ALL)
        return not cuda.cuMemPoolSetAttribute(
            ctypes.c_void_p(pools.pop()), _POOL_RELEASE_THRESHOLD, ctypes.byref(threshold)
        )
    except Exception:  # only an optimisation: the device works without it
        return False


def _words(buffer: object) -> list[int]:
    """The words of IREE's buffer object that `buffer` of its bindings wraps; none if the layout is not as expected."""
    if object.__basicsize__ != _OBJECT_HEAD:  # a free-threaded or debug build of Python
        return []
    size = type(buffer).__basicsize__
    offset = ctypes.c_int32.from_address(id(buffer) + _OBJECT_HEAD).value
    if not _OBJECT_HEAD < offset <= size - 8 or offset % 8:
        return []
    start = ctypes.c_void_p.from_address(id(buffer) + offset).value
    if start is None or start % 8 or start < _PAGE:
        return []
    end = -(-(start + 8 * _OWN_WORDS) // _PAGE) * _PAGE
    count = min(_MOST_WORDS, (end - start) // 8)
    return [ctypes.c_uint64.from_address(start + 8 * i).value for i in range(count)]


def _pool_of(cuda: ctypes.CDLL, word: int) -> int | None:
    """The memory pool of a word that is a device address; None for any other word."""
    pool = ctypes.c_void_p()
    if not word or word % _ALIGNMENT:
        return None
    failed = cuda.cuPointerGetAttribute(ctypes.byref(pool), _POINTER_MEMPOOL_HANDLE, ctypes.c_uint64(word))
    return None if failed else pool.value
