"""Files that no reader ever sees half written, and digests of files."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from pathlib import Path

from ..errors import UsageError

# Held while a file is being written; whoever ends the process from another thread takes it first.
WRITING = threading.RLock()


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file, which is read in parts. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 24):
            digest.update(part)
    return digest.hexdigest()


def write_atomically(path: Path, data: bytes) -> Path:
    """Write under a temporary name beside `path`, then rename: no reader ever sees half a file."""
    with WRITING:
        return _write(path, data)


def _write(path: Path, data: bytes) -> Path:
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as e:
        raise UsageError(f"cannot write {path}: {e.strerror or e}") from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
    return path
