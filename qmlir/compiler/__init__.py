"""The compiler: imports a source, runs qmlir's passes and then IREE's compiler, all in this process."""

from __future__ import annotations

from ..errors import QmlirError
from ..targets.cpu import host as _host
from .compilation import compile, compile_built, text_at
from .explanation import Explanation, explain
from .options import Options
from .parsing import parse
from .run import run_compiler
from .self_test import tested as _tested
from .sources import builder
from .stages import default_pipeline

__all__ = [
    "Explanation",
    "Options",
    "QmlirError",
    "builder",
    "compile",
    "compile_built",
    "default_pipeline",
    "explain",
    "parse",
    "run_compiler",
    "text_at",
]

_host.tester = _tested
