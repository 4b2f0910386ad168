"""The only place that imports the MLIR bindings and IREE's compiler API.

LLVM's MLIR Python bindings come from ``iree-base-compiler``, so that the process has one LLVM. If the provider
changes, only this module changes.
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
        "IREE's bindings do not destroy the contexts of compiler sessions: each context stays in memory, with "
        "everything that was built in it.",
        canary="kept_contexts",
    ),
    Fault(
        "IREE's compiler sessions share threads that the child of a fork does not have: it waits for them forever when "
        "it compiles.",
        canary="fork_of_a_session",
    ),
)


def _before_import() -> None:
    """Raise UsageError if the compiler is not installed: it is not needed to load and run programs."""
    compiler_version()
    _stub_dialects()


# mypy reads the types of the bindings from typings/iree/compiler.
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

# An op as a generic `Operation`, or as an instance of its op class.
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


# Each time the bindings wrap an op, they import the Python module of its dialect, and search again if there is none:
# 350,000 failing imports in the import of one EfficientNet. An empty module ends the search.
_WITHOUT_MODULE = ("iree_linalg_ext", "iree_vector_ext", "nvgpu", "qmlir", "spirv", "torch", "torch_c")


@functools.cache
def _stub_dialects() -> None:
    for dialect in _WITHOUT_MODULE:
        name = f"iree.compiler.dialects.{dialect}"
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = ModuleType(name)


def load_dialects(ctx: ir.Context) -> None:
    """Prepare `ctx` for qmlir's passes: load the dialects that they build, and allow the Python-defined ops."""
    ctx.allow_unregistered_dialects = True
    for name in _DIALECTS:
        ctx.get_dialect_descriptor(name)


@contextmanager
def context() -> Iterator[ir.Context]:
    """A fresh context, entered, with an unknown default location. Contexts are never kept in
    globals, because the runtime would print leak reports at exit."""
    ctx = ir.Context()
    load_dialects(ctx)
    with ctx, ir.Location.unknown():
        yield ctx


def collect(root: OpLike | ir.Module, *names: str, where: Callable[[OpLike], object] | None = None) -> list[OpLike]:
    """`root` and the operations in its regions, those of a region before the operation that contains it. `names` and
    `where` filter them. The list is a snapshot: it does not change when the caller changes the IR."""
    found: list[OpLike] = []

    def visit(op: OpLike) -> ir.WalkResult:
        if (not names or op.name in names) and (where is None or where(op)):
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit)
    return found


EXECUTABLES = ("stream.executable", "hal.executable.source", "hal.executable")


def outside_kernels(module: ir.Module, *names: str, where: Callable[[OpLike], object] | None = None) -> list[OpLike]:
    """As `collect`, without the operations of kernels: most of a program's, and none that works on tensors."""
    parts = [op for op in module.body.operations if op.operation.name not in EXECUTABLES]
    return [op for part in parts for op in collect(part, *names, where=where)]


# The sessions of a process share LLVM's global options, so flags are parsed one session at a time.
_session_lock = threading.Lock()
_is_fork = False


def session(flags: Sequence[str]) -> api.Session:
    """A session of IREE's compiler with these flags.

    Raises:
        ValueError: IREE does not accept a flag.
    """
    with _session_lock:
        made = api.Session()
        made.set_flags(*flags)
        _contexts.append(made.context)
    if _is_fork:
        made.context.enable_multithreading(False)
    return made


# The contexts of sessions. The bindings own the contexts that Python makes, but not those of sessions (`FAULTS`).
_contexts: list[ir.Context] = []
atexit.register(_contexts.clear)  # the bindings report objects that still exist at exit


def release_contexts() -> None:
    """Destroy the contexts of sessions that nothing else refers to. Each operation, type, attribute and session holds a
    reference to its context."""
    with _session_lock:
        unused = []
        for i in reversed(range(len(_contexts))):
            if _references(_contexts, i) == _UNUSED:
                unused.append(_pointer_of(_contexts.pop(i)))
    if unused:
        # PYFUNCTYPE keeps the GIL. Freeing a constant that is stored in a Python buffer asks the interpreter whether it
        # is about to end, which crashes without the GIL from Python 3.12 on.
        destroy = ctypes.PYFUNCTYPE(None, _Pointer)(("mlirContextDestroy", api.ctypes_dl._dylib))
        for pointer in unused:
            destroy(pointer)


def _references(objects: Sequence[object], number: int) -> int:
    """The reference count of `objects[number]`."""
    return sys.getrefcount(objects[number])


_UNUSED = _references([object()], 0)  # of an object that only a list refers to


def _forked() -> None:
    """In the child of a fork: do without the thread pool that sessions share (`FAULTS`). The child has the pool, but
    none of its threads: it would wait for them when it compiles, and crash when the compiler is shut down at exit."""
    global _is_fork, _session_lock
    _is_fork = True
    _session_lock = threading.Lock()  # the child does not have the thread that may hold it
    if "iree.compiler.api" in sys.modules:
        api.ctypes_dl._global_init.local_dylib = None


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forked)


class _Pointer(ctypes.Structure):
    """MlirAttribute or MlirContext of the C API: one pointer, passed by value."""

    _fields_ = (("pointer", ctypes.c_void_p),)


def _pointer_of(wrapper: ir.Attribute | ir.Context) -> _Pointer:
    """The C pointer that an object of the bindings wraps."""
    capsule, name, pointer = wrapper._CAPIPtr, ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return _Pointer(pointer(capsule, name(capsule)))


def raw_data(attribute: ir.DenseElementsAttr) -> bytes:
    """The bytes of a dense attribute's elements as they are stored; of one element if it is a splat. The bindings'
    buffer protocol supports neither bf16 nor 8-bit floats, and iterating over the latter raises."""
    read = api.ctypes_dl._dylib.mlirDenseElementsAttrGetRawData
    read.restype, read.argtypes = ctypes.c_void_p, (_Pointer,)
    start = read(_pointer_of(attribute))
    kind = ir.ShapedType(attribute.type)
    count = 1 if attribute.is_splat else prod(kind.get_dim_size(d) for d in range(kind.rank))
    return ctypes.string_at(start, count * kind.element_type.width // 8) if count else b""
