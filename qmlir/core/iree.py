"""Which IREE compiler is installed, and where its tools are."""

from __future__ import annotations

import functools
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
    """Path of a tool that ships in the compiler's wheel (`iree-opt`, `iree-compile`). Raises UsageError where that is
    not installed."""
    compiler_version()
    import iree.compiler

    return Path(str(iree.compiler.__file__)).parent / "_mlir_libs" / name
