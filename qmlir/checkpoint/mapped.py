"""Memory-mapped files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..dialect.dtypes import Array
from ..errors import CheckpointError


def mapped(path: Path) -> Array:
    """The bytes of a file, u8 `[size]`, read-only."""
    try:
        if path.stat().st_size == 0:
            raise CheckpointError(f"cannot read {path}: it is empty")
        return np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    except OSError as e:
        raise CheckpointError(f"cannot read {path}: {e.strerror or e}") from None


def view(data: Array, start: int, nbytes: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array:
    """A range of bytes as an array; copied only if it is not aligned for the dtype."""
    raw = data[start : start + nbytes]
    if raw.ctypes.data % dtype.alignment:
        raw = raw.copy()
    return raw.view(dtype).reshape(shape)
