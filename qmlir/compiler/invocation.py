"""Runs IREE's own pipeline in phases, and turns its diagnostics into errors."""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import settings
from ..core.mlir import api, collect
from ..errors import CompileError, Diagnostic
from ..ir.barriers import drop_fusion_barriers
from ..ir.checks import drop_repeated_checks
from ..kernels.hidden import hide, put_back
from ..passes.base import State
from ..passes.registry import parse_pass

if TYPE_CHECKING:
    from ..core.mlir import ir

_DIAGNOSTIC = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def invoke(
    compiler: api.Session, module: ir.Module, source_passes: Sequence[str] = (), code_passes: Sequence[str] = ()
) -> bytes:
    """Run IREE's own pipeline on a module, and return the `.vmfb`. `source_passes` run on executables that IREE has not
    translated yet, `code_passes` on executables that contain the target's own operations and are not serialised yet.

    Raises:
        CompileError: with IREE's diagnostics.
    """
    found: list[str] = []

    def collect(severity: int, message: int, length: int, _: int | None) -> None:
        if severity == 2:
            found.append(ctypes.string_at(message, length).decode(errors="replace"))

    invocation = compiler.invocation()
    # These functions of the C API are not wrapped by the bindings. A handler that is attached to the context instead
    # crashes in `execute`, which releases the GIL.
    library = api.ctypes_dl._dylib
    enable = library.ireeCompilerInvocationEnableCallbackDiagnostics
    enable.restype = None
    enable.argtypes = [ctypes.c_void_p, ctypes.c_int, _DIAGNOSTIC, ctypes.c_void_p]
    handler = _DIAGNOSTIC(collect)  # must live until the invocation is closed
    enable(invocation._inv_p, 0, handler, None)
    verify = library.ireeCompilerInvocationSetVerifyIR
    verify.restype, verify.argtypes = None, [ctypes.c_void_p, ctypes.c_bool]
    verify(invocation._inv_p, settings.verify_iree())
    try:
        if _execute(invocation, module, source_passes, code_passes):
            try:
                return _bytecode(invocation)
            except ValueError as e:
                found = found or [str(e)]
        raise CompileError([_iree_diagnostic(m) for m in found[:4]] or [Diagnostic("IREE failed without a reason")],
                           "IREE could not compile the program:")  # fmt: skip
    finally:
        invocation.close()


def _bytecode(invocation: api.Invocation) -> bytes:
    """The `.vmfb`. IREE writes it to a file in any case. If the file is IREE's own, the bindings return a mapping of
    it, and the program would be in this process's memory twice."""
    with tempfile.TemporaryDirectory(prefix="qmlir-") as folder:  # an output that is not kept deletes its file
        path = Path(folder) / "program.vmfb"
        output = api.Output.open_file(str(path))
        try:
            invocation.output_vm_bytecode(output)
            output.keep()
        finally:
            output.close()
        return path.read_bytes()


def _execute(
    invocation: api.Invocation, module: ir.Module, source_passes: Sequence[str], code_passes: Sequence[str]
) -> bool:
    """Run IREE's pipeline. It stops at the phases after which qmlir changes the module, and then continues."""

    def run_passes(texts: Sequence[str]) -> None:
        for text in texts:
            parse_pass(text).run(module, State())

    stops: list[tuple[bytes, Callable[[], None]]] = []
    hidden = hide(module)
    if collect(module, "util.optimization_barrier", "cf.assert"):

        def at_flow() -> None:
            drop_fusion_barriers(module)
            drop_repeated_checks(module)

        stops.append((b"flow", at_flow))
    invocation.import_module(module.operation)
    if hidden or source_passes:  # they belong before the compilation of executables

        def at_sources() -> None:
            run_passes(source_passes)  # they change IREE's own dispatches, and need not walk the kernels
            if hidden:
                put_back(module, hidden)

        stops.append((b"executable-sources", at_sources))
    if code_passes:  # executables contain the target's own operations at this phase
        stops.append((b"executable-targets", lambda: run_passes(code_passes)))
    for phase, act in stops:
        _set_phase(invocation, "To", phase)
        if not invocation.execute():
            return False
        act()
        _set_phase(invocation, "From", phase)
    _set_phase(invocation, "To", b"end")
    return invocation.execute()


def _set_phase(invocation: api.Invocation, which: str, phase: bytes) -> None:
    """Set where IREE's pipeline starts ("From") or stops ("To"). The bindings do not wrap this C function."""
    setter = getattr(api.ctypes_dl._dylib, f"ireeCompilerInvocationSetCompile{which}Phase")
    setter.restype, setter.argtypes = None, [ctypes.c_void_p, ctypes.c_char_p]
    setter(invocation._inv_p, phase)


def _iree_diagnostic(text: str) -> Diagnostic:
    """The first line of a message of IREE, without the IR that IREE appends."""
    first = text.strip().splitlines()[0] if text.strip() else "unknown error"
    first = re.sub(r":? *(%[\w#:]+ = .*|#hal\..*|<\{.*)$", "", first)[:400]
    match = re.match(r'(?:loc\()?"?([^"\s]+?)"?:(\d+):(\d+)\)?:\s*(?:error:\s*)?(.*)', first)
    if match:
        return Diagnostic(match.group(4), f"{match.group(1)}:{match.group(2)}:{match.group(3)}")
    return Diagnostic(first.removeprefix("error: "))
