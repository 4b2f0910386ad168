"""The emulated drivers as shared libraries, built once per machine by a C compiler and cached."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ... import settings
from ...errors import UsageError

HERE = Path(__file__).parent
_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


def compiler() -> tuple[str, ...]:
    """The command of a C compiler: `$CC`, `cc`, `gcc` or `clang`, else the one in PyPI's `ziglang`.

    Raises:
        UsageError: there is none.
    """
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise UsageError(
        "emulated devices need a C compiler once, and there is none (cc, gcc, clang, or $CC): install one, or "
        "pip install 'qmlir[emulate]', which brings its own"
    )


def library(source: str, soname: str) -> Path:
    """The shared library built from one of the C files in this folder.

    Raises:
        UsageError: no C compiler, one that fails, or no writable folder.
    """
    texts = [(HERE / name).read_bytes() for name in (source, "device.h")]
    parts = [*texts, soname.encode(), platform.machine().encode(), " ".join(_FLAGS).encode()]
    digest = hashlib.sha256(b"\0".join(hashlib.sha256(p).digest() for p in parts)).hexdigest()[:16]
    for folder in (settings.cache_folder() / "emulation", Path(tempfile.gettempdir()) / f"qmlir-{os.getuid()}"):
        made = folder / digest / soname
        if made.exists():
            return made
        try:
            made.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(made.parent, os.W_OK) and made.parent.stat().st_uid == os.getuid():
            _build(HERE / source, soname, made)
            return made
    raise UsageError(
        f"emulated devices need a folder for their libraries, and {settings.cache_folder()} cannot be written: set "
        "QMLIR_CACHE_DIR"
    )


def _build(source: Path, soname: str, made: Path) -> None:
    """Build under a temporary name, then rename: another process may build the same library."""
    handle, name = tempfile.mkstemp(dir=made.parent, suffix=".so")
    os.close(handle)
    command = [*compiler(), *_FLAGS, f"-Wl,-soname,{soname}", "-o", name, str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{command[0]} fails to build {source.name}: {done.stderr.strip()[:500]}")
        Path(name).replace(made)
    finally:
        Path(name).unlink(missing_ok=True)
