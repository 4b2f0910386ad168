"""Converts MLIR text to a module and back. Every error has its location in the source."""

from __future__ import annotations

import warnings
from pathlib import Path

from ..core.mlir import ir
from ..core.spelling import location_text
from ..dialect.saved import may_be_old, upgrade
from ..errors import Diagnostic, ParseError, caller


def show(module: ir.Module) -> str:
    """A module as text with locations and complete constants."""
    return str(module.operation.get_asm(enable_debug_info=True))


def parse(text: str, name: str) -> ir.Module:
    """Parse in the current context. Raises ParseError with `name`:line:col."""
    if "\0" in text:
        raise ParseError([Diagnostic("the file is not MLIR text: it holds NUL characters", f"{name}:1:1")])
    try:
        located = ir.Module.parse(text) if name == "-" else _parse_named(text, name)
    except ir.MLIRError as e:
        found = [Diagnostic(d.message, _renamed(location_text(d.location), name)) for d in e.error_diagnostics]
        raise ParseError(found or [Diagnostic(str(e).splitlines()[0], name)]) from None
    if may_be_old(text):
        place = "" if name == "-" else f"{name}: "
        for note in upgrade(located):
            warnings.warn(place + note, DeprecationWarning, stacklevel=caller())
    return located


def _parse_named(text: str, name: str) -> ir.Module:
    """Parse so that locations carry the file's name."""
    path = Path(name)
    if path.is_file() and path.read_text() == text:
        return ir.Module.parseFile(str(path))
    return ir.Module.parse(text)


def _renamed(location: str, name: str) -> str:
    return location.replace("-:", f"{name}:", 1) if location.startswith("-:") and name != "-" else location
