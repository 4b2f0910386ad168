"""The only place that imports the MLIR bindings and IREE's compiler API.

LLVM's MLIR Python bindings reach us inside ``iree-base-compiler``: one LLVM in the process. Should the
provider change, this module changes and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import iree.compiler
from iree.compiler import ir, rewrite
from iree.compiler.api import Invocation, Output, Session, Source, ctypes_dl
from iree.compiler.dialects import arith, func, linalg, math, scf, tensor, util
from iree.compiler.dialects._ods_common import _cext
from iree.compiler.passmanager import PassManager

__all__ = [
    "Invocation",
    "Output",
    "PassManager",
    "Session",
    "Source",
    "arith",
    "context",
    "ctypes_dl",
    "func",
    "ir",
    "linalg",
    "load_dialects",
    "math",
    "register_dialect",
    "register_operation",
    "rewrite",
    "scf",
    "tensor",
    "tool_path",
    "util",
]

register_dialect: Any = _cext.register_dialect
register_operation: Any = _cext.register_operation

# Building an op of a dialect that its context has not loaded crashes the process, and a compiler session's
# context starts with none loaded.
_DIALECTS = ("arith", "cf", "flow", "func", "iree_linalg_ext", "linalg", "math", "scf", "tensor", "util")


def load_dialects(ctx: Any) -> None:
    """Make `ctx` ready for our passes: load what they build, allow our Python-defined ops."""
    ctx.allow_unregistered_dialects = True
    for name in _DIALECTS:
        ctx.get_dialect_descriptor(name)


@contextmanager
def context() -> Iterator[Any]:
    """A fresh context, entered, with an unknown default location. Contexts are never kept in globals:
    the runtime prints leak reports at exit otherwise."""
    ctx = ir.Context()
    load_dialects(ctx)
    with ctx, ir.Location.unknown():
        yield ctx


def tool_path(name: str) -> Path:
    """Path of a tool that ships in the compiler's wheel (`iree-opt`, `iree-compile`)."""
    return Path(iree.compiler.__file__).parent / "_mlir_libs" / name
