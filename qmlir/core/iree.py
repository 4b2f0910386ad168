"""Which IREE compiler is installed, and where its tools are; imports nothing of it."""

from __future__ import annotations

import functools
import importlib.util
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..errors import UsageError


@functools.cache
def compiler_version() -> str:
    """The version of IREE's compiler. Raises UsageError where it is not installed."""
    try:
        return version(_COMPILER)
    except PackageNotFoundError:
        raise UsageError(
            f"this needs IREE's compiler, and the package {_COMPILER} is not installed: without it compiled programs "
            "run, and nothing is compiled"
        ) from None


_COMPILER = "iree-base-compiler"


def tool_path(name: str) -> Path:
    """Path of a tool that ships in the compiler's wheel (`iree-opt`, `iree-compile`)."""
    found = importlib.util.find_spec("iree.compiler")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "_mlir_libs" / name
