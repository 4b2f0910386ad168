"""Atomic writing of files, and digests of files."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from pathlib import Path

from ..errors import UsageError

# Held while a file is being written. Code that ends the process from another thread acquires it first.
WRITING = threading.RLock()


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file, which is read in chunks. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 24):
            digest.update(part)
    return digest.hexdigest()


def write_atomically(path: Path, data: bytes) -> Path:
    """Write under a temporary name next to `path`, then rename, so that no reader sees half a file. A symbolic link
    stays a link. A path that is not a file, such as a device or a pipe, is written to directly."""
    with WRITING:
        _write(path, data)
    return path


def is_stream(path: Path) -> bool:
    """Whether the path exists and is neither a file nor a folder. Renaming a file over such a path would replace
    /dev/null, for example, by a file."""
    return path.exists() and not (path.is_file() or path.is_dir())


def _write(path: Path, data: bytes) -> None:
    temporary = None
    try:
        if is_stream(path):
            path.write_bytes(data)
            return
        place = Path(os.path.realpath(path))  # for a cycle of links, which `resolve` refuses, one of the links
        handle, temporary = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".tmp", dir=place.parent)
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, place)
    except OSError as e:
        raise UsageError(f"cannot write {path}: {e.strerror or e}") from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
