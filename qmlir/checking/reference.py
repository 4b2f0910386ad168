"""The oracle `reference`: the program evaluated in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ..compiler.options import CompileOptions
from ..core.mlir import context
from ..core.rows import RoleRow
from ..dialect.dtypes import DTYPES, Array, NumpyType
from ..ir.roles import roles
from ..ir.signature import function_signatures
from ..spec import Signature
from .interpreter import Interpreter
from .layers import Layer, function_of, layers
from .program import prepared

if TYPE_CHECKING:
    from ..core.mlir import OpLike, ir


class Reference:
    """Evaluates a program in numpy; see `runners.Replayable`."""

    name = "reference"

    def __init__(self, source: object, function: str, options: CompileOptions) -> None:
        self._build: Callable[[ir.Context], ir.Module] = prepared(source, function, options)
        self._function = function
        with self._module() as module:
            function_of(module, function)
            self.signature: Signature = function_signatures(module)[function]
            self.roles: list[RoleRow] = list(roles(module)[function])
            self._layers = layers(module, function)

    @contextmanager
    def _module(self) -> Iterator[ir.Module]:
        with context() as ctx:
            yield self._build(ctx)

    def run(self, arguments: Sequence[Array]) -> list[Array]:
        with self._module() as module:
            found = Interpreter(module).call(self._function, arguments)
        return [x.view(_storage(s.dtype)) for x, s in zip(found, self.signature.outputs, strict=True)]

    def layers(self) -> list[Layer]:
        return self._layers

    def run_layers(self, arguments: Sequence[Array], chosen: Sequence[Layer], alone: bool = False) -> list[Array]:
        return self._observed(arguments, chosen, None)

    def replay(self, arguments: Sequence[Array], chosen: Sequence[Layer], given: Sequence[Array]) -> list[Array]:
        """The chosen layers, each computed from the given values of those before it: differences are its own error."""
        return self._observed(arguments, chosen, given)

    def _observed(
        self, arguments: Sequence[Array], chosen: Sequence[Layer], given: Sequence[Array] | None
    ) -> list[Array]:
        wanted: dict[tuple[int, int], int] = {layer.position: i for i, layer in enumerate(chosen)}
        found: list[Array] = [np.zeros(0)] * len(chosen)
        with self._module() as module:
            ops = function_of(module, self._function).regions[0].blocks[0].operations
            numbers: dict[OpLike, int] = {op.operation: number for number, op in enumerate(ops)}

            def observe(op: OpLike, results: list[Array]) -> list[Array]:
                number = numbers.get(op)
                for which, x in enumerate(results):
                    i = wanted.get((number, which)) if number is not None else None
                    if i is not None:
                        found[i] = x
                        if given is not None:
                            results[which] = given[i].view(x.dtype)
                return results

            Interpreter(module).call(self._function, arguments, observe)
        return found


def _storage(dtype: str) -> NumpyType:
    return DTYPES[dtype].numpy


def open(source: object, function: str, options: CompileOptions) -> Reference:
    """The oracle for a program at level `import`, `qmlir` or `linalg`."""
    return Reference(source, function, options)
