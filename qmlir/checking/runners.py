"""Runners of programs; `qmlir check` compares the results of two.

A runner is named by a target (the program is compiled for it), by a file (another program, or a compiled one), or by an
oracle of `ORACLES`, whose module has `open(source, function, options)`. A new oracle is one new file and one line here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from ..compiler.options import CompileOptions
from ..core.rows import RoleRow
from ..dialect.dtypes import Array
from ..emulation.backends import BACKENDS as EMULATED
from ..emulation.program import Emulation
from ..errors import UsageError
from ..spec import Signature
from ..targets import BACKENDS
from .compiled import compile_source, load_file
from .layers import Layer

ORACLES: dict[str, str] = {
    "reference": ".reference",
    "onnxruntime": ".onnxruntime",
}


class Runner(Protocol):
    """Runs one function of a program in one way: compiled, in numpy, or in another system."""

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> Signature: ...

    @property
    def roles(self) -> list[RoleRow]:
        """The roles of the arguments, for `inputs.make`."""

    def run(self, arguments: Sequence[Array]) -> list[Array]:
        """The function's results."""

    def layers(self) -> list[Layer]:
        """The function's intermediate values; empty if the runner cannot return them."""

    def run_layers(self, arguments: Sequence[Array], chosen: Sequence[Layer], alone: bool = False) -> list[Array]:
        """The values of the chosen layers. `alone`: the program returns only these, not its own results too."""


class Replayable(Runner, Protocol):
    """A runner that can compute each layer from given values of the layers before it."""

    def replay(self, arguments: Sequence[Array], chosen: Sequence[Layer], given: Sequence[Array]) -> list[Array]: ...


def open_runner(
    against: str,
    source: object,
    function: str,
    target: str,
    options: CompileOptions,
    emulate: Emulation | None = None,
) -> Runner:
    """The runner that `against` names. It runs `source`, unless `against` is itself a program. `emulate`: how targets
    that can be emulated are emulated; None: programs run on a real device.

    Raises:
        UsageError, TargetError: `against` names no runner.
    """

    if against in ORACLES:
        module = importlib.import_module(ORACLES[against], __package__)
        return cast(Runner, module.open(source, function, options))
    path = Path(against)
    if path.suffix == ".vmfb":
        return load_file(path, function, options, emulate)
    if path.suffix == ".mlir" or path.is_file():
        return compile_source(path, function, target, options, emulate)

    if against.partition(":")[0] not in BACKENDS:
        raise UsageError(
            f"cannot compare with {against!r}: it is not an oracle ({', '.join(ORACLES)}), a target "
            "(such as cpu:x86-64) or a file"
        )
    emulated = against.partition(":")[0] in EMULATED
    return compile_source(source, function, against, options, emulate if emulated else None)
