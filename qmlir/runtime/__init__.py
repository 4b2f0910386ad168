"""Loading and calling compiled programs, which needs no compiler."""

from __future__ import annotations

from .artifact import Artifact
from .function import Function
from .program import Program, load

__all__ = ["Artifact", "Function", "Program", "load"]
