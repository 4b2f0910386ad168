"""qmlir: a compiler for quantised linear algebra.

Everything public is named here and loaded on first use, so that ``import qmlir`` costs milliseconds
and loads neither the compiler nor the runtime.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from .core import rebuilding
from .core.version import __version__ as __version__

if TYPE_CHECKING:
    from . import (
        checkpoint as checkpoint,
        compat as compat,
        frontends as frontends,
        importing as importing,
        ops as ops,
        signing as signing,
    )
    from .checking import Tolerance as Tolerance, check as check
    from .compiler.compilation import compile as compile, text_at as source
    from .compiler.explanation import Explanation as Explanation, explain as explain
    from .dialect import reference as reference
    from .emulation.launch import EmulationError as EmulationError
    from .emulation.program import Emulation as Emulation
    from .errors import InputError as InputError, QmlirError as QmlirError, SlowFallbackWarning as SlowFallbackWarning
    from .runtime.artifact import Artifact as Artifact
    from .runtime.inspection import Inspection as Inspection
    from .runtime.program import Program as Program, load as load
    from .sparse import SparseSpec as SparseSpec, SparseWeight as SparseWeight
    from .spec import TensorSpec as TensorSpec
    from .tools.inspection import inspect as inspect
    from .tools.measure import BenchReport as BenchReport, bench as bench
    from .tuning import tune as tune

# public name -> (module, attribute); attribute None means the module itself.
_PUBLIC: dict[str, tuple[str, str | None]] = {
    "Artifact": (".runtime", "Artifact"),
    "BenchReport": (".tools.measure", "BenchReport"),
    "Emulation": (".emulation.program", "Emulation"),
    "EmulationError": (".emulation.launch", "EmulationError"),
    "Explanation": (".compiler.explanation", "Explanation"),
    "Inspection": (".runtime.inspection", "Inspection"),
    "Program": (".runtime", "Program"),
    "InputError": (".errors", "InputError"),
    "QmlirError": (".errors", "QmlirError"),
    "SlowFallbackWarning": (".errors", "SlowFallbackWarning"),
    "SparseSpec": (".sparse", "SparseSpec"),
    "SparseWeight": (".sparse", "SparseWeight"),
    "TensorSpec": (".spec", "TensorSpec"),
    "Tolerance": (".checking", "Tolerance"),
    "bench": (".tools.measure", "bench"),
    "check": (".checking", "check"),
    "checkpoint": (".checkpoint", None),
    "compat": (".compat", None),
    "compile": (".compiler", "compile"),
    "explain": (".compiler.explanation", "explain"),
    "frontends": (".frontends", None),
    "importing": (".importing", None),
    "inspect": (".tools.inspection", "inspect"),
    "load": (".runtime", "load"),
    "ops": (".ops", None),
    "reference": (".dialect.reference", None),
    "signing": (".signing", None),
    "source": (".compiler", "text_at"),
    "tune": (".tuning", "tune"),
}
__all__ = [
    "Artifact",
    "BenchReport",
    "Emulation",
    "EmulationError",
    "Explanation",
    "InputError",
    "Inspection",
    "Program",
    "QmlirError",
    "SlowFallbackWarning",
    "SparseSpec",
    "SparseWeight",
    "TensorSpec",
    "Tolerance",
    "bench",
    "check",
    "checkpoint",
    "compat",
    "compile",
    "explain",
    "frontends",
    "importing",
    "inspect",
    "load",
    "ops",
    "reference",
    "signing",
    "source",
    "tune",
]


def _rebuilder(artifact: Artifact, read_outside: bool) -> Callable[[str, str | None], str]:
    """The compiler's rebuilder, which is imported when a level is requested."""
    from .compiler.rebuilding import rebuilder

    return rebuilder(artifact, read_outside)


rebuilding.register(_rebuilder)


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'qmlir' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    loaded = importlib.import_module(module, __name__)
    value: object = loaded if attribute is None else getattr(loaded, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
