"""The compilation cache: compiled programs, keyed by a hash of everything that went into them.

Entries are written under a temporary name and renamed. A digest stored next to each entry detects damage; a damaged
entry is dropped and rebuilt. One lock per key keeps two processes from compiling the same program at once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from .. import settings
from ..errors import UsageError
from .files import write_atomically
from .iree import compiler_version
from .version import __version__

PACKAGE = Path(__file__).resolve().parents[1]
# Folders of the package whose sources affect compiled programs.
_COMPILING = ("checkpoint", "compiler", "core", "dialect", "frontends", "importing", "ir", "kernels", "ops",
              "passes", "runtime", "targets")  # fmt: skip
# Lock files that this process holds: code that ends the process early (cli/child.py) removes them.
HELD: set[Path] = set()


@lru_cache(maxsize=1)
def toolchain() -> str:
    """The versions of qmlir and of IREE's compiler, and a fingerprint of this package's sources, because a checkout
    changes without a new version."""
    h = hashlib.sha256()
    for sub in ("", *_COMPILING):
        for source in sorted((PACKAGE / sub).glob("**/*.py" if sub else "*.py")):
            stat = source.stat()
            h.update(f"{source.name}:{stat.st_size}:{stat.st_mtime_ns};".encode())
    return f"qmlir {__version__} {h.hexdigest()[:16]}, iree {compiler_version()}"


def key_of(parts: object) -> str:
    """The key of JSON-able parts: a hash of them and of the toolchain."""
    text = json.dumps([toolchain(), parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Cache:
    """A folder of entries. A folder that cannot be written to is only read."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or settings.cache_folder()

    def _paths(self, key: str) -> tuple[Path, Path]:
        place = self.folder / key[:2]
        return place / f"{key}.vmfb", place / f"{key}.sha256"

    def get(self, key: str) -> bytes | None:
        """The entry; None when there is none, or when it is damaged, in which case it is dropped."""
        entry, digest = self._paths(key)
        try:
            data, expected = entry.read_bytes(), digest.read_text()
        except (OSError, UnicodeDecodeError):
            return None
        if hashlib.sha256(data).hexdigest() == expected.strip():
            return data
        self.drop(key)
        return None

    def put(self, key: str, data: bytes) -> None:
        """Store an entry. Its digest is written last, because an entry without a digest is never read."""
        entry, digest = self._paths(key)
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(entry, data)
            write_atomically(digest, hashlib.sha256(data).hexdigest().encode())
        except (OSError, UsageError):
            return  # a full disk or a read-only folder only costs the next compilation

    def drop(self, key: str) -> None:
        """Remove the files of an entry, and folders of their names. What cannot be removed stays, and is not read
        if it is damaged."""
        for path in (*self._paths(key), self.parameters(key)):
            try:
                path.unlink(missing_ok=True)
            except IsADirectoryError:
                shutil.rmtree(path, ignore_errors=True)
            except OSError:
                continue

    def get_or_build(self, key: str, build: Callable[[], bytes]) -> bytes:
        """The entry. A missing one is built under the key's lock and stored."""
        found = self.get(key)
        if found is not None:
            return found
        with self.locked(key):
            found = self.get(key)
            if found is None:
                found = build()
                self.put(key, found)
        return found

    def parameters(self, key: str) -> Path:
        """The path of the packed weights of `key`, whether or not the file exists."""
        return self.folder / key[:2] / f"{key}.irpa"

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        import filelock

        place = self.folder / key[:2]
        path = place / f"{key}.lock"
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(str(path))
            lock.acquire()
        except OSError:
            yield
            return
        HELD.add(path)
        try:
            yield
        finally:
            lock.release()
            path.unlink(missing_ok=True)
            HELD.discard(path)

    def tests(self, key: str) -> Path:
        """The path of the recorded outcome of a test of this host, whether or not the file exists."""
        return self.folder / "tests" / f"{key}.json"

    def entries(self) -> list[Path]:
        """The paths of all compiled programs and packed weights."""
        return sorted([*self.folder.glob("??/*.vmfb"), *self.folder.glob("??/[!.]*.irpa")])

    def clear(self) -> int:
        """Remove all entries and the recorded outcomes of host tests. Returns how many entries there were.

        Raises UsageError when an entry cannot be removed.
        """
        found = self.entries()
        for entry in found:
            self.drop(entry.stem)
        shutil.rmtree(self.tests("").parent, ignore_errors=True)
        if left := sum(entry.exists() for entry in found):
            raise UsageError(f"{left} of {len(found)} entries cannot be removed from {self.folder}: no permission")
        return len(found)
