"""Packed weights: parameters in the layouts of a program's kernels (`map_parameters=True`). A separate program, the
packer, packs them once for each weight file, and every process that loads the program maps them into memory.

The packed weights are in the compilation cache, one file for a packer and its weight files.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.bindings import binding
from ..core.cache import Cache
from ..dialect.dtypes import Array
from ..errors import ArtifactError

if TYPE_CHECKING:
    from iree.runtime import ParameterIndex

SCOPE = "qmlir.packed"  # of the parameters that such a program loads: its packed weights
_LARGEST = 1 << 28  # bytes: the maximum size of a packer


def to_text(program: bytes) -> str:
    """A packer as text, for the manifest."""
    return base64.b85encode(zlib.compress(program)).decode()


def _program(text: str) -> bytes:
    try:
        return zlib.decompressobj().decompress(base64.b85decode(text), _LARGEST)
    except (ValueError, zlib.error) as e:
        raise ArtifactError(f"the program is damaged: the program that packs its weights cannot be read: {e}") from None


# Loads a program with parameter files by scope, and returns the results of its functions by name.
RunPacker = Callable[[bytes, Mapping[str, str]], dict[str, Array]]


def packed(packer: str, files: Mapping[str, str], run: RunPacker) -> ParameterIndex:
    """The packed weights as an IREE parameter index, from the cache or made by the packer of a manifest.

    Args:
        packer: `to_text` of the packer.
        files: the weight files by scope.
        run: runs the packer if its result is not in the cache.

    Raises:
        ArtifactError: a damaged packer.
    """
    cache = Cache()
    key = _key(packer, files)
    path = cache.parameters(key)
    with cache.locked(key):
        found = _loaded(path)
        return _make(run(_program(packer), files), path) if found is None else found


def _key(packer: str, files: Mapping[str, str]) -> str:
    """The cache key of a packer and weight files. Files are identified by path, inode, size and modification time,
    because reading them takes as long as packing them."""
    parts = [packer]
    for scope, name in sorted(files.items()):
        path = Path(name).resolve()
        stat = path.stat()
        parts.append(f"{scope} {path} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _loaded(path: Path) -> ParameterIndex | None:
    """The index of a file; None if it does not exist or cannot be read."""
    if not path.exists():
        return None
    index = binding.ParameterIndex()
    try:
        index.load(str(path))
    except (ValueError, RuntimeError, IndexError):
        return None
    return index


def _make(weights: Mapping[str, Array], path: Path) -> ParameterIndex:
    """Write the file and map it. If it cannot be written, the weights stay in memory."""
    index = binding.ParameterIndex()
    for name, weight in weights.items():
        index.add_buffer(name, weight.reshape(-1).tobytes())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".irpa", dir=path.parent)
        os.close(handle)
        try:
            index.create_archive_file(temporary)
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except (OSError, RuntimeError):
        return index
    mapped = _loaded(path)
    return index if mapped is None else mapped
