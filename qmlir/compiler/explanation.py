"""`qmlir.explain`: the answers of a target's strategies for every contraction of a program."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.rows import AnswerRow, DecisionRow
from ..core.spelling import location_text
from ..dialect.ods import OPS
from ..errors import Diagnostic, PassError, UsageError
from ..ir.walk import collect
from ..passes.base import State
from ..passes.core.select import SelectPass
from ..report import html
from ..runtime.artifact import Artifact
from ..runtime.manifest import Manifest
from ..targets import Target, resolve
from ..targets.strategy import Choice, answer_text, shape_text
from .options import Options
from .run import run_compiler
from .sources import builder

if TYPE_CHECKING:
    from ..core.mlir import ir


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`. `print` it, or read its `contractions`: the `Decision.summary` of each, in program
    order, with the `op` of the dialect that it comes from."""

    target: str
    contractions: tuple[DecisionRow, ...]
    notes: tuple[Diagnostic, ...] = ()
    refused: tuple[Diagnostic, ...] = field(default=())  # why the program does not compile for the target

    @property
    def ok(self) -> bool:
        """Whether the target compiles the program."""
        return not self.refused

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The report; lines are wrapped to `width` columns when it is given."""
        lines: list[str] = []
        for row in self.contractions:
            lines += _wrapped(title(row), "", "  ", width)
            for answer in row["answers"]:
                word = f"  {verdict(row, answer):<9} "
                lines += _wrapped(answer_text(answer), word, " " * 14, width)
        if not self.contractions:
            lines.append(f"nothing in the program is a contraction; {self.target} has nothing to choose")
        for note in (*self.notes, *self.refused):
            for i, line in enumerate(str(note).splitlines()):
                lines += _wrapped(line.strip(), "  " if i else "", "    ", width)
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        return {
            "target": self.target,
            "contractions": [dict(row) for row in self.contractions],
            "notes": [str(n) for n in self.notes],
            "refused": [str(n) for n in self.refused],
        }

    def _repr_html_(self) -> str:
        parts = [
            html.section(
                title(row), html.table(("", "strategy"), [(verdict(row, a), answer_text(a)) for a in row["answers"]])
            )
            for row in self.contractions
        ]
        parts += [html.paragraph(str(n)) for n in (*self.notes, *self.refused)]
        return html.section(f"strategies of {self.target}", *parts)


def verdict(row: DecisionRow, answer: AnswerRow) -> str:
    """`chosen`, `accepted` or `declined`."""
    if not answer["accepted"]:
        return "declined"
    return "chosen" if answer["strategy"] == row["chosen"] else "accepted"


def title(row: DecisionRow) -> str:
    """`model.mlir:3:8: qmlir.scaled_matmul: matmul M 16 x N 64 x K 128, i8 x i8 -> i32`."""
    place = [row["location"]] if row["location"] else []
    op = [row["op"]] if row.get("op") else []
    return ": ".join([*place, *op, shape_text(row)])


def _wrapped(text: str, first: str, rest: str, width: int | None) -> list[str]:
    if width is None:
        return [first + text]
    return textwrap.wrap(
        text, max(width, 40), initial_indent=first, subsequent_indent=rest, break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]  # fmt: skip


def explain(
    source: object, *, target: str = "cpu", start: str = "import", parameters: Mapping[str, str] | None = None,
    flags: Sequence[str] = (), choice: Choice | None = None,
) -> Explanation:  # fmt: skip
    """Ask the strategies of `target` about every contraction of a program. Returns an `Explanation`: for each strategy
    whether it accepts, its plan or reason, and what would make the contraction acceptable. IREE compiles nothing.

    Args:
        source: any source that `qmlir.compile` accepts; or an artifact or the path of a `.vmfb`, whose manifest has the
            decisions of its compilation (the artifact's target then replaces `target`).
        start, parameters, flags, choice: as of `qmlir.compile`.

    Raises:
        ParseError, VerifyError, PassError: an invalid program. A program that the target refuses raises nothing: the
            explanation includes the refusal.
    """
    if isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".vmfb":
        source = Artifact.open(source)
    if isinstance(source, Artifact):
        return of_manifest(source.manifest)

    options = Options(start=start, parameters=dict(parameters or {}), flags=tuple(flags), choice=choice or {})
    return explain_built(builder(source), resolve(target), options)


def explain_built(build: Callable[[ir.Context], ir.Module], target: Target, options: Options) -> Explanation:
    """`explain` for the module that `build(context)` returns."""
    if options.pipeline is not None or options.start == "configured":
        raise UsageError("a custom pipeline or a configured program has no strategies to choose")
    state, ops = State(), dict[str, str]()

    def located(ctx: ir.Context) -> ir.Module:
        module = build(ctx)
        ops.update(op_names(module))
        return module

    refused: tuple[Diagnostic, ...] = ()
    try:
        run_compiler(located, target, options, until="configured", state=state)
    except PassError as e:
        if not e.pass_name.startswith(SelectPass.name):
            raise
        refused = tuple(e.diagnostics)
    rows = [d.summary() for d in state.decisions]
    return Explanation(
        target.spelling,
        tuple({**row, "op": ops.get(row["location"], "")} for row in rows),
        tuple(state.notes),
        refused,
    )


def of_manifest(manifest: Manifest) -> Explanation:
    """The decisions that were made when an artifact was compiled."""
    return Explanation(manifest.target, tuple(manifest.strategies), tuple(manifest.notes))


def op_names(module: ir.Module) -> dict[str, str]:
    """The names of the dialect's ops in a module, by location."""
    return {location_text(op.location): op.name for op in collect(module, *OPS)}
