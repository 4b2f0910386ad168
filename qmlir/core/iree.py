"""Which IREE compiler is installed, and where its tools are."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..errors import UsageError


@functools.cache
def compiler_version() -> str:
    """The version of IREE's compiler. Raises UsageError if it is not installed."""
    try:
        return version(_COMPILER)
    except PackageNotFoundError:
        raise UsageError(
            f"this needs IREE's compiler, and the package {_COMPILER} is not installed: without it, compiled "
            "programs can be run, but nothing can be compiled"
        ) from None


_COMPILER = "iree-base-compiler"


def tool_path(name: str) -> Path:
    """The path of a tool that ships in the compiler's wheel (`iree-opt`, `iree-compile`). Raises UsageError if the
    compiler is not installed."""
    compiler_version()
    import iree.compiler

    return Path(str(iree.compiler.__file__)).parent / "_mlir_libs" / name
