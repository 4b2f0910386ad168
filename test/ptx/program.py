"""A CUDA program that can be called like a loaded one, with every dispatch run in the PTX interpreter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qmlir.dialect.dtypes import DTYPES
from qmlir.emulation.cuda.formats import Array
from qmlir.errors import InputError
from qmlir.runtime.artifact import Artifact
from qmlir.runtime.function import with_position
from qmlir.spec import Signature

from .host import Compiled, compile_program
from .resources import Dispatch, Failure


@dataclass
class Function:
    """A function of a program, called with arrays that fit its signature."""

    name: str
    signature: Signature
    program: Program

    def __call__(self, *arguments: Any) -> Any:
        arrays = [np.asarray(a, DTYPES[spec.dtype].numpy)
                  for a, (_, spec) in zip(arguments, self.signature.inputs, strict=True)]  # fmt: skip
        try:
            program = self.program
            raw, program.dispatches = program.compiled.run(*arrays, function=self.name, **program.options)
        except Failure as e:
            raise InputError(f"{self.name} failed: {with_position(str(e), arguments)}") from None
        results = [_typed(r, spec.dtype) for r, spec in zip(raw, self.signature.outputs, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)


def _typed(array: Array, dtype: str) -> Array:
    """View a result as the type of the signature, because IREE has no unsigned types."""
    wanted = np.dtype(DTYPES[dtype].numpy)
    return array if array.dtype == wanted else array.view(wanted)


@dataclass
class Program:
    """A program. `dispatches` are those of the last call; calls pass `options` to `run_grid`."""

    compiled: Compiled
    dispatches: list[Dispatch] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    @property
    def main(self) -> Function:
        return self.functions["main"]

    @property
    def conflicts(self) -> dict[str, int]:
        """The extra passes that shared memory bank conflicts cost, by instruction, without those that cost none."""
        return {t: n for d in self.dispatches for t, n in d.report.conflicts.items() if n}


def interpret(artifact: Artifact) -> Program:
    """The program of an artifact for a CUDA target."""
    program = Program(compile_program(artifact.source("configured")))
    program.functions = {name: Function(name, s, program) for name, s in artifact.functions.items()}
    return program
