"""The library of the compiler's C API, for what the API of Python lacks."""

import ctypes

_dylib: ctypes.CDLL
_global_init: _GlobalInit

class _GlobalInit:
    local_dylib: ctypes.CDLL | None
