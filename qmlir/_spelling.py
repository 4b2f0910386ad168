"""Spellings shared by all layers: locations, near-name suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def location_text(location: Any) -> str:
    """`file:line:col` of an MLIR location, or "" when it is unknown."""
    try:
        if location.filename:
            return f"{location.filename}:{location.start_line}:{location.start_col}"
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
