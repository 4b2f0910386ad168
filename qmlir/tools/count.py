"""`qmlir bench --emulate`: counts what programs execute on an emulated device. It measures no times."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler.compilation import compile
from ..compiler.options import CompileOptions
from ..core.spelling import function_named
from ..dialect.dtypes import Array
from ..emulation.launch import Counts
from ..emulation.program import Emulation, options_of
from ..runtime import inputs
from ..runtime.artifact import Artifact
from ..runtime.program import load

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class CountRow:
    """One program: its kernels in the order of their launches, each with its counts."""

    program: str
    target: str
    kernels: tuple[tuple[str, Counts], ...]

    @property
    def counts(self) -> Counts:
        return Counts.sum(counts for _, counts in self.kernels)


@dataclass(frozen=True)
class CountReport:
    """The counts of one call of each program."""

    rows: tuple[CountRow, ...]

    def text(self) -> str:
        return "\n\n".join(_text(row) for row in self.rows)

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> dict[str, object]:
        return {
            "programs": [
                {
                    "program": row.program, "target": row.target, **_json(row.counts),
                    "kernels": [{"name": name, **_json(counts)} for name, counts in row.kernels],
                }
                for row in self.rows
            ]
        }  # fmt: skip


def _json(counts: Counts) -> dict[str, object]:
    return {**asdict(counts), "total": counts.total, "matrix_share": matrix_share(counts)}


def matrix_share(counts: Counts) -> float:
    """The share of matrix instructions in all instructions."""
    return counts.instructions.get("matrix", 0) / counts.total if counts.total else 0.0


def _text(row: CountRow) -> str:
    c = row.counts
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in sorted(c.instructions.items(), key=lambda item: -item[1]))
    lines = [
        f"{row.program} on emulated {row.target}: {len(row.kernels)} launches, one call",
        f"  instructions    {c.total:,} ({kinds})",
        f"  matrix share    {matrix_share(c):.1%}",
        f"  memory          {c.bytes_read:,} bytes read, {c.bytes_written:,} written",
        f"  shared memory   {c.shared_bytes:,} bytes, {c.bank_conflicts:,} bank conflicts",
    ]
    if len(row.kernels) > 1:
        lines += [f"    {name}: {one.total:,} instructions" for name, one in row.kernels]
    return "\n".join(lines)


def count(
    *programs: object,
    target: str = "cpu",
    function: str = "main",
    arguments: Sequence[Array] | Mapping[str, Array] | None = None,
    size: int = 4,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    seed: int = 0,
    emulate: bool | Emulation = True,
    step: Callable[[str], None] = lambda text: None,
    **options: Unpack[CompileOptions],
) -> CountReport:
    """Call each program once on an emulated device, and count what it executes.

    Args:
        programs: artifacts, paths of `.vmfb` files, or sources for `qmlir.compile`, which are compiled for `target`.
        arguments: in the order of the signature, or by name; default: random, from `seed`, with `size` for dynamic
            sizes and `shapes` for whole shapes by name.
        options: those of `qmlir.compile` for sources, and `parameters` for programs compiled with `keep_parameters`.

    Raises:
        UsageError: no such function. TargetError: a target that is not emulated. EmulationError: a kernel has
        a fault. InputError: arguments that do not fit.
    """
    rows = []
    for i, source in enumerate(programs):
        name = str(source) if isinstance(source, (str, os.PathLike)) and "\n" not in str(source) else f"program {i}"
        step(f"loading {i + 1} of {len(programs)}")
        if isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".vmfb":
            artifact = Artifact.open(source)
        else:
            artifact = source if isinstance(source, Artifact) else compile(source, target=target, **options)
        kept = dict(options.get("parameters") or {}) if artifact.manifest.parameters else {}
        emulation = options_of(emulate, name, step) or Emulation()
        program = load(artifact, parameters=kept, emulate=emulation)
        call = function_named(program.functions, function, name)
        roles = artifact.manifest.arguments.get(function)
        call(*inputs.given_or_made(arguments, call.signature, roles, size=size, shapes=shapes, seed=seed))
        assert program.emulated is not None
        rows.append(CountRow(name, artifact.target, tuple(program.emulated.kernels)))
    return CountReport(tuple(rows))
