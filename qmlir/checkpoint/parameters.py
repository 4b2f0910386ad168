"""Parameter files: weights by scope and key, read with the libraries of their formats."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..core.rows import ParameterRow
from ..core.spelling import did_you_mean
from ..dialect.dtypes import Array
from ..errors import CheckpointError, UsageError
from .safetensors_file import read

if TYPE_CHECKING:
    from iree.runtime import ParameterIndexEntry

# The dtype of bytes whose element type the file does not state.
RAW = np.dtype("V1")


class ParameterFiles:
    """Parameter files by scope. `.safetensors` files are read as safetensors, `.irpa` and `.gguf` files by IREE."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)

    def load(self, scope: str, key: str) -> Array:
        """The array of a parameter. Raises UsageError, with similar names, if it is missing."""
        if scope not in self._files:
            raise UsageError(
                f"no parameter file for scope {scope!r}; give one, as in --parameters {scope}=weights.safetensors"
            )
        path = Path(self._files[scope])
        if path.suffix == ".safetensors":
            return _safetensors(path, key)
        return _iree(path, key)


def _safetensors(path: Path, key: str) -> Array:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as f:
            keys = list(f.keys())
            if key not in keys:
                raise UsageError(f"{path} has no tensor {key!r}{did_you_mean(key, keys)}")
        # Not f.get_tensor: the package's numpy interface supports neither bf16 nor one-byte floats.
        return read(path)[key]
    except (OSError, SafetensorError, CheckpointError) as e:
        raise UsageError(f"cannot read {path}: {e}") from None


def _iree(path: Path, key: str) -> Array:
    import iree.runtime as rt

    index = rt.ParameterIndex()
    try:
        index.load(str(path))
    except (ValueError, RuntimeError, IndexError) as e:
        raise UsageError(f"cannot read {path}: {str(e).splitlines()[0]}") from None
    entries = dict(index.items())
    if key not in entries:
        raise UsageError(f"{path} has no parameter {key!r}{did_you_mean(key, entries)}")
    entry = entries[key]
    if entry.is_file:
        return np.frombuffer(entry.file_view, RAW)
    pattern = bytes(entry.splat_pattern)
    return np.frombuffer(pattern * (entry.length // len(pattern)), RAW)


# safetensors' names of the element types that a program may declare.
_SAFETENSORS = {
    "i1": ("BOOL",), "i8": ("I8", "U8"), "i16": ("I16", "U16"), "i32": ("I32", "U32"), "i64": ("I64", "U64"),
    "f16": ("F16",), "bf16": ("BF16",), "f32": ("F32",), "f64": ("F64",), "f8E4M3FN": ("F8_E4M3",),
    "f8E5M2": ("F8_E5M2",), "f8E8M0FNU": ("F8_E8M0",),
}  # fmt: skip


def check(entries: Mapping[str, ParameterIndexEntry], path: Path, declared: Sequence[ParameterRow]) -> None:
    """Check that the parameters to load are as the program declares: IREE checks the key and the range's end only.

    Args:
        entries: the file's parameters by key, each with its `length` in bytes.
        declared: `key`, `shape` and `element` (MLIR's spelling) of each parameter.

    Raises:
        UsageError: a missing key, with similar names, or a parameter of another size, shape or type.
    """
    for p in declared:
        key, shape, element = p["key"], list(p["shape"]), p["element"]
        if key not in entries:
            raise UsageError(f"{path} has no parameter {key!r}{did_you_mean(key, entries)}")
        bits = re.search(r"\d+", element)
        expected = math.prod(shape) * ((int(bits[0]) + 7) // 8) if bits else None
        wanted = f"the program declares {'x'.join([*map(str, shape), element])}"
        if path.suffix == ".safetensors":
            own_shape, own = _safetensors_type(path, key)
            if own_shape != shape or own not in _SAFETENSORS.get(element, (own,)):
                raise UsageError(f"parameter {key!r} of {path} is {own} {own_shape}, but {wanted}")
        if expected is not None and entries[key].length != expected:
            raise UsageError(f"parameter {key!r} of {path} has {entries[key].length} bytes, but {wanted}")


def _safetensors_type(path: Path, key: str) -> tuple[list[int], str]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as f:
        found = f.get_slice(key)
        return list(found.get_shape()), str(found.get_dtype())
