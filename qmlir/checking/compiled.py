"""Runners of programs that are compiled for a target."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import compiler, runtime
from ..compiler.options import CompileOptions
from ..core.drivers import driver_named
from ..core.mlir import context
from ..core.rows import RoleRow
from ..core.spelling import function_named
from ..dialect.dtypes import Array
from ..emulation.program import Emulation
from ..errors import InputError, SlowFallbackWarning
from ..runtime.artifact import Artifact
from ..spec import Signature
from ..targets import resolve
from .layers import Layer, layers, return_also
from .program import prepared

if TYPE_CHECKING:
    from ..core.mlir import ir

Emulate = Emulation | None  # how to emulate the device; None: the program runs on a real one


class Compiled:
    """Runs a compiled program; see `runners.Runner`. It has layers only if it was compiled from source (`make`)."""

    def __init__(
        self, artifact: Artifact, name: str, function: str, make: Callable[[ir.Context], ir.Module] | None,
        options: CompileOptions, emulate: Emulate = None,
    ) -> None:  # fmt: skip
        self.name, self.artifact, self._function, self._emulate = name, artifact, function, emulate
        self.signature: Signature = function_named(artifact.functions, function)
        self.roles: list[RoleRow] = list(artifact.manifest.arguments.get(function, []))
        self._make, self._options = make, options

    def run(self, arguments: Sequence[Array]) -> list[Array]:
        return self._call(self.artifact, arguments)

    def layers(self) -> list[Layer]:
        if self._make is None:
            return []

        with context() as ctx:
            return layers(self._make(ctx), self._function)

    def run_layers(self, arguments: Sequence[Array], chosen: Sequence[Layer], alone: bool = False) -> list[Array]:
        make = self._make
        assert make is not None

        def build(ctx: ir.Context) -> ir.Module:
            module = make(ctx)
            return_also(module, self._function, chosen, alone)
            return module

        options = compiler.Options(
            start=self._options.get("start", "import"), flags=tuple(self._options.get("flags", ()))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SlowFallbackWarning)
            artifact = compiler.compile_built(build, resolve(self.artifact.target), options, None)
        results = self._call(artifact, arguments)
        return results[len(results) - len(chosen) :]

    def _call(self, artifact: Artifact, arguments: Sequence[Array]) -> list[Array]:
        # One thread: only values are compared, not times, and a fault should be reproducible.
        in_caller = driver_named(artifact.manifest.driver).in_caller
        device = in_caller if in_caller and self._emulate is None else None
        kept = self._options.get("parameters") if artifact.manifest.parameters else None
        program = runtime.load(artifact, device=device, parameters=kept, emulate=self._emulate or False)
        try:
            results = program.functions[self._function](*arguments)
        except InputError as e:
            raise InputError(f"on {artifact.target}: {e}") from None
        return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def compile_source(
    source: object, function: str, target: str, options: CompileOptions, emulate: Emulate = None
) -> Compiled:
    """A runner of the program, compiled for a target."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowFallbackWarning)
        artifact = compiler.compile(source, target=target, **options)
    make = None if options.get("start") == "configured" else prepared(source, function, options)
    return Compiled(artifact, artifact.target, function, make, options, emulate)


def load_file(path: Path, function: str, options: CompileOptions, emulate: Emulate = None) -> Compiled:
    """A runner of a `.vmfb`; `parameters` of `options` names the files of its weights if they are not compiled in."""
    return Compiled(Artifact.open(path), str(path), function, None, options, emulate)
