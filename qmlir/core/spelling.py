"""Spellings shared by all layers: levels, locations, near-name suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ..errors import UsageError

if TYPE_CHECKING:
    from .mlir import ir

T = TypeVar("T")

# Text forms of a program on its way down, in order; see docs/pipeline.md.
LEVELS = ("import", "qmlir", "linalg", "configured")
# What can be shown: the levels, the IR of each dispatch that IREE forms, and the kinds of device code that it dumps.
CODE_LEVELS = (*LEVELS, "dispatch", "asm", "ptx", "isa", "spirv")


def function_named(functions: Mapping[str, T], name: str, what: str = "the program") -> T:
    """The function of that name. Raises UsageError, which lists the existing names, if there is none."""
    if name not in functions:
        raise UsageError(f"{what} has no function {name!r}; it has {', '.join(functions)}")
    return functions[name]


def location_text(location: ir.Location) -> str:
    """`file:line:col` of an MLIR location, or "" when it is unknown. For nested call sites, the innermost place outside
    of torch."""
    places = _calls(location)
    return next((p for p in places if p and "/torch/" not in p), places[0])


def _calls(location: ir.Location) -> list[str]:
    """The places of nested call sites, the innermost first."""
    called = getattr(location, "callee", None)
    if called is not None:
        return [*_calls(called), *_calls(location.caller)]  # type: ignore[attr-defined]
    return [_place(location)]


def _place(location: ir.Location) -> str:
    try:
        if location.filename:
            # A module that is not written out (an empty file) is at line 0.
            return f"{location.filename}:{max(location.start_line, 1)}:{max(location.start_col, 1)}"
    except (AttributeError, ValueError):
        pass
    text = str(location)
    return "" if "unknown" in text else text.removeprefix("loc(").removesuffix(")").replace('"', "")


def did_you_mean(name: str, known: Iterable[str], limit: int = 4) -> str:
    """`; did you mean 'a' or 'b'?`, or `; known: ...` when nothing is near."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=limit, cutoff=0.5)
    if near:
        return "; did you mean " + " or ".join(repr(n) for n in near) + "?"
    return "; known: " + ", ".join(known)
