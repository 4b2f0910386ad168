"""Compile a CUDA program with IREE up to the phase that has its host IR, and from there to PTX."""

from __future__ import annotations

import ctypes
from typing import Any

from qmlir.core.mlir import api, session
from qmlir.emulation.cuda.instructions import PtxError


def host_stage(text: str, flags: list[str]) -> str:
    """Compile to the end. Returns the IR at the phase `executable-targets`."""
    compiler = session(["--iree-input-demote-f64-to-f32=false", *flags])
    invocation = compiler.invocation()
    invocation.enable_console_diagnostics()
    library = api.ctypes_dl._dylib
    output = api.Output.open_membuffer()
    try:
        invocation.parse_source(api.Source.wrap_buffer(compiler, text.encode() + b"\0"))
        _phase(library.ireeCompilerInvocationSetCompileToPhase, invocation, b"executable-targets")
        if not invocation.execute():
            raise PtxError("IREE does not compile the program")
        invocation.output_ir(output)
        host = bytes(output.map_memory()).decode()
        _phase(library.ireeCompilerInvocationSetCompileFromPhase, invocation, b"executable-targets")
        _phase(library.ireeCompilerInvocationSetCompileToPhase, invocation, b"end")
        if not invocation.execute():
            raise PtxError("IREE does not compile the program's device code")
        return host
    finally:
        output.close()
        invocation.close()


def _phase(setter: Any, invocation: Any, phase: bytes) -> None:
    """Call a phase setter of the C API, which the Python bindings do not wrap."""
    setter.restype, setter.argtypes = None, (ctypes.c_void_p, ctypes.c_char_p)
    setter(invocation._inv_p, phase)
