"""`qmlir.inspect`: describes a program or a compiled file without running it."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler.manifest import describe
from ..compiler.options import CompileOptions, Options
from ..compiler.run import run_compiler
from ..compiler.sources import builder
from ..core.mlir import ir
from ..core.version import __version__
from ..ir.walk import collect
from ..runtime.artifact import Artifact
from ..runtime.inspection import Contents, Inspection, inspection
from ..targets import HOST, resolve

if TYPE_CHECKING:
    from typing_extensions import Unpack


def inspect(source: object, **options: Unpack[CompileOptions]) -> Inspection:
    """Describe a program. Returns an `Inspection`: functions, operations, schemes, sizes in bytes, target, strategies
    and versions.

    Args:
        source: an artifact, the path of a `.vmfb`, or a source that `qmlir.compile` accepts.
        options: `start` and `parameters`, as for `qmlir.compile`, for a source.

    Raises:
        ArtifactError, ParseError, VerifyError: a file that is damaged or wrong.
    """
    if isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".vmfb":
        source = Artifact.open(source)
    if isinstance(source, Artifact):
        return inspection(source.vmfb, source.manifest, source.path)
    return _of_program(source, options)


def _of_program(source: object, options: CompileOptions) -> Inspection:
    name = str(source) if isinstance(source, (str, os.PathLike)) and "\n" not in str(source) else "program"
    start = options.get("start", "import")
    found: list[Contents] = []

    def look(level: str, module: ir.Module) -> None:
        described = describe(module, host, given)
        constants, weights = _constant_bytes(module)
        found.append({
            "name": name, "level": start, "versions": {"qmlir": __version__},
            "functions": {n: str(s) for n, s in described.functions.items()}, "ops": described.ops,
            "schemes": described.schemes, "constants": constants, "constant_bytes": weights,
            "parameters": described.parameter_types,
        })  # fmt: skip

    host = resolve(HOST)
    given = Options(start=start, parameters=dict(options.get("parameters") or {}))
    run_compiler(builder(source), host, given, until=start, after=look)
    return Inspection(found[-1])


def _constant_bytes(module: ir.Module) -> tuple[int, int]:
    """The number of tensor constants, and their bytes. Equal constants and splats count in full."""

    sizes: list[int] = []
    for op in collect(module, "arith.constant", where=lambda op: isinstance(op.results[0].type, ir.RankedTensorType)):
        t = op.results[0].type
        bits = getattr(t.element_type, "width", 64)
        sizes.append(prod(t.get_dim_size(i) for i in range(t.rank)) * bits // 8)
    return len(sizes), sum(sizes)
