"""Front ends: import models of other systems (ONNX, torch) as modules of qmlir ops.

A front end is a plugin: an entry point of group `qmlir.frontends` whose object has a `name`, `accepts(obj)` and
`import_(obj, *, context, options)` (`FrontEnd`). `qmlir.compile` asks the registered ones in order (`front_ends`).
A smaller hook teaches a built-in front end one op: `raises` (`raising`), or an entry point of group `qmlir.raising`
named after the op. The front ends produce modules and know nothing of targets. Their heavy libraries are extras of the
package and are imported only when a model is imported.
"""

from __future__ import annotations

import warnings

from ..compiler.front_end import FrontEnd, ImportOptions, ImportReport
from ..compiler.registry import front_ends
from .raising import PatternDeclined, Raising, Tensor, raises, register_raising

__all__ = [
    "FrontEnd",
    "ImportOptions",
    "ImportReport",
    "PatternDeclined",
    "Raising",
    "Tensor",
    "front_ends",
    "raises",
    "register_raising",
]


def __getattr__(name: str) -> object:
    if name == "Decline":
        warnings.warn("qmlir.frontends.Decline is deprecated: use PatternDeclined", DeprecationWarning, stacklevel=2)
        return PatternDeclined
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
