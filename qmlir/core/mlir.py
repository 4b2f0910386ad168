"""The only place that imports the MLIR bindings and IREE's compiler API.

LLVM's MLIR Python bindings reach us inside ``iree-base-compiler``: one LLVM in the process. Should the
provider change, this module changes and nothing else.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from .bindings import LazyModule
from .faults import Fault
from .iree import compiler_version

FAULTS = (
    Fault(
        "IREE's bindings do not destroy the contexts of compiler sessions: each stays in memory, with all that was "
        "built in it.",
        canary="kept_contexts",
    ),
    Fault(
        "IREE's compiler sessions share threads that the child of a fork does not have: it waits for them forever when "
        "it compiles.",
        canary="fork_of_a_session",
    ),
)


def _before_import() -> None:
    """Refuses where the compiler is not installed: whoever only loads and runs programs need not have it."""
    compiler_version()
    _stub_dialects()


# The border of types: what mypy knows of the bindings is in typings/iree/compiler.
if TYPE_CHECKING:
    from iree.compiler import api, ir, passmanager
    from iree.compiler.dialects import (
        arith,
        flow,
        func,
        gpu,
        hal,
        linalg,
        llvm,
        math,
        memref,
        scf,
        stream,
        tensor,
        util,
        vector,
    )
else:
    api = LazyModule("iree.compiler.api", _before_import)
    arith = LazyModule("iree.compiler.dialects.arith", _before_import)
    flow = LazyModule("iree.compiler.dialects.flow", _before_import)
    func = LazyModule("iree.compiler.dialects.func", _before_import)
    gpu = LazyModule("iree.compiler.dialects.gpu", _before_import)
    hal = LazyModule("iree.compiler.dialects.hal", _before_import)
    ir = LazyModule("iree.compiler.ir", _before_import)
    linalg = LazyModule("iree.compiler.dialects.linalg", _before_import)
    llvm = LazyModule("iree.compiler.dialects.llvm", _before_import)
    math = LazyModule("iree.compiler.dialects.math", _before_import)
    memref = LazyModule("iree.compiler.dialects.memref", _before_import)
    passmanager = LazyModule("iree.compiler.passmanager", _before_import)
    scf = LazyModule("iree.compiler.dialects.scf", _before_import)
    stream = LazyModule("iree.compiler.dialects.stream", _before_import)
    tensor = LazyModule("iree.compiler.dialects.tensor", _before_import)
    util = LazyModule("iree.compiler.dialects.util", _before_import)
    vector = LazyModule("iree.compiler.dialects.vector", _before_import)

# An op by itself, or by the class of its dialect.
OpLike: TypeAlias = "ir.Operation | ir.OpView"

__all__ = [
    "OpLike",
    "api",
    "arith",
    "collect",
    "context",
    "flow",
    "func",
    "gpu",
    "hal",
    "ir",
    "linalg",
    "llvm",
    "load_dialects",
    "math",
    "memref",
    "passmanager",
    "raw_data",
    "release_contexts",
    "scf",
    "session",
    "stream",
    "tensor",
    "util",
    "vector",
]

# Building an op of a dialect that its context has not loaded crashes the process, and a compiler session's
# context starts with none loaded.
_DIALECTS = (
    "arith", "cf", "flow", "func", "gpu", "hal", "iree_linalg_ext", "linalg", "llvm", "math", "memref", "nvgpu", "nvvm",
    "scf", "stream", "tensor", "util", "vector",
)  # fmt: skip


# The bindings import the module of an op's dialect each time they wrap an op, and search anew where there is none:
# 350,000 failing imports in the import of one EfficientNet. An empty module ends the search.
_WITHOUT_MODULE = ("iree_linalg_ext", "iree_vector_ext", "nvgpu", "qmlir", "spirv", "torch", "torch_c")


@functools.cache
def _stub_dialects() -> None:
    for dialect in _WITHOUT_MODULE:
        name = f"iree.compiler.dialects.{dialect}"
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = ModuleType(name)


def load_dialects(ctx: ir.Context) -> None:
    """Make `ctx` ready for our passes: load what they build, allow our Python-defined ops."""
    ctx.allow_unregistered_dialects = True
    for name in _DIALECTS:
        ctx.get_dialect_descriptor(name)


@contextmanager
def context() -> Iterator[ir.Context]:
    """A fresh context, entered, with an unknown default location. Contexts are never kept in globals:
    the runtime prints leak reports at exit otherwise."""
    ctx = ir.Context()
    load_dialects(ctx)
    with ctx, ir.Location.unknown():
        yield ctx


def collect(root: OpLike | ir.Module, *names: str, where: Callable[[OpLike], object] | None = None) -> list[OpLike]:
    """The operations of `root` and of its regions, those of a region before the operation that holds it. `names` and
    `where` say which: all of them without either. The list stays as it is when the caller changes the IR."""
    found: list[OpLike] = []

    def visit(op: OpLike) -> ir.WalkResult:
        if (not names or op.name in names) and (where is None or where(op)):
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit)
    return found


# Sessions of one process share LLVM's global options: flags are parsed one session at a time.
_session_lock = threading.Lock()
_is_fork = False


def session(flags: Sequence[str]) -> api.Session:
    """A session of IREE's compiler.

    Raises:
        ValueError: a flag that IREE does not take.
    """
    with _session_lock:
        made = api.Session()
        made.set_flags(*flags)
        _contexts.append(made.context)
    if _is_fork:
        made.context.enable_multithreading(False)
    return made


# Of sessions. The bindings own the contexts that Python makes, and not those of sessions (`FAULTS`).
_contexts: list[ir.Context] = []
atexit.register(_contexts.clear)  # the bindings report objects that are left at the end


def release_contexts() -> None:
    """Destroy the contexts of sessions that nothing refers to any more. Operations, types, attributes and sessions each
    hold a reference to theirs."""
    with _session_lock:
        unused = []
        for i in reversed(range(len(_contexts))):
            if _references(_contexts, i) == _UNUSED:
                unused.append(_pointer_of(_contexts.pop(i)))
    if unused:
        # A function that keeps the GIL: freeing a constant that lies in a Python buffer asks the interpreter whether it
        # is about to end, which without the GIL crashes from Python 3.12 on.
        destroy = ctypes.PYFUNCTYPE(None, _Pointer)(("mlirContextDestroy", api.ctypes_dl._dylib))
        for pointer in unused:
            destroy(pointer)


def _references(objects: Sequence[object], number: int) -> int:
    """How many references there are to one of several objects."""
    return sys.getrefcount(objects[number])


_UNUSED = _references([object()], 0)  # of what nothing refers to but a list


def _forked() -> None:
    """Sessions share a pool of threads (`FAULTS`). The child of a fork has the pool, but none of its threads: it would
    wait for them when it compiles, and crash when the compiler is shut down at its end."""
    global _is_fork, _session_lock
    _is_fork = True
    _session_lock = threading.Lock()  # whoever held it is not here
    if "iree.compiler.api" in sys.modules:
        api.ctypes_dl._global_init.local_dylib = None


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forked)


class _Pointer(ctypes.Structure):
    """MlirAttribute or MlirContext of the C API: one pointer, passed by value."""

    _fields_ = (("pointer", ctypes.c_void_p),)


def _pointer_of(wrapper: ir.Attribute | ir.Context) -> _Pointer:
    """What an object of the bindings wraps."""
    capsule, name, pointer = wrapper._CAPIPtr, ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return _Pointer(pointer(capsule, name(capsule)))


def raw_data(attribute: ir.DenseElementsAttr) -> bytes:
    """The elements of a dense attribute as they are stored, one when it is a splat. The bindings' buffer protocol
    knows neither bf16 nor the floats of a byte, and iterating over the latter raises."""
    read = api.ctypes_dl._dylib.mlirDenseElementsAttrGetRawData
    read.restype, read.argtypes = ctypes.c_void_p, (_Pointer,)
    start = read(_pointer_of(attribute))
    kind = ir.ShapedType(attribute.type)
    count = 1 if attribute.is_splat else prod(kind.get_dim_size(d) for d in range(kind.rank))
    return ctypes.string_at(start, count * kind.element_type.width // 8) if count else b""
