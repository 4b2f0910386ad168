"""`qmlir.check`: run a program in two ways and compare the values, down to the first layer that differs."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from ..compiler.options import CompileOptions
from ..core.deprecation import renamed
from ..core.progress import Step
from ..dialect.dtypes import Array
from ..emulation.program import Emulation, options_of
from ..errors import UsageError
from ..report import html, plots
from ..runtime import inputs
from ..spec import Signature
from .compare import Comparison, Tolerance, compare
from .compiled import compile_source, load_file
from .layers import Layer
from .runners import ORACLES, Replayable, Runner, open_runner

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Unpack

__all__ = ["ORACLES", "Comparison", "Report", "Tolerance", "check"]


@dataclass(frozen=True)
class Report:
    """The result of `check`. `layers` is empty if layers were not requested and the outputs agree. `own` has the error
    that each layer itself makes: the oracle recomputes the layer from the values that the checked program passed it."""

    program: str
    way: str
    against: str
    tolerance: Tolerance
    outputs: tuple[Comparison, ...]
    layers: tuple[Comparison, ...] = ()
    own: tuple[Comparison, ...] = ()
    unmatched: tuple[str, ...] = ()
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether outputs and layers are within the tolerance."""
        return all(c.ok for c in (*self.outputs, *self.layers, *self.own))

    @property
    def first(self) -> Comparison | None:
        """The first layer whose own error is beyond the tolerance; without `own`, the first layer that differs."""
        return next((c for c in (self.own or self.layers) if not c.ok), None)

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The report, 80 columns wide."""
        lines = [f"{self.program}: {self.way} against {self.against}", f"tolerance: {self.tolerance}", _HEADER]
        for c in self.outputs:
            lines += _row(c)
        if self.layers:
            lines.append("layers" + (", and what each adds itself" if self.own else ""))
        for i, c in enumerate(self.layers):
            lines += _row(c, self.own[i] if self.own else None)
        lines += [f"only in one program: {name}" for name in self.unmatched]
        if self.note:
            lines.append(self.note)
        if self.ok:
            lines.append("ok: every value is within the tolerance")
        else:
            bad = [c.name for c in self.outputs if not c.ok]
            lines.append(f"FAILED: {', '.join(bad) or 'no output'} beyond the tolerance")
            if self.first is not None:
                place = f" at {self.first.location}" if self.first.location else ""
                lines.append(f"first layer that differs: {self.first.name}{place}{_first_bad(self.first)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        return {
            "program": self.program, "way": self.way, "against": self.against, "ok": self.ok,
            "first": None if self.first is None else self.first.name,
            "outputs": [c.to_json() for c in self.outputs], "layers": [c.to_json() for c in self.layers],
            "own": [c.to_json() for c in self.own], "unmatched": list(self.unmatched), "note": self.note,
        }  # fmt: skip

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure | None:
        """The error of each layer (of each output when there are none) as a picture: written to `path`, or returned as
        matplotlib's figure. Needs the extra `plot`."""
        return plots.errors(f"{self.way} against {self.against}", self.layers or self.outputs, self.own, path)

    def _repr_html_(self) -> str:
        rows = [
            ("output" if c in self.outputs else "layer", c.name, _form(c), f"{c.max_error:.3g}", f"{c.mean_error:.3g}",
             f"{c.differ:.2%}", f"{c.cosine:.6f}", "ok" if c.ok else f"differs{_first_bad(c)}")
            for c in (*self.outputs, *self.layers)
        ]  # fmt: skip
        head = ("", "value", "type", "max error", "mean error", "differ", "cosine", "")
        title = f"{self.program} on {self.way} against {self.against}: {'ok' if self.ok else 'FAILED'}"
        note = [html.paragraph(f"first layer that differs: {self.first.name}")] if self.first is not None else []
        return html.section(title, html.table(head, rows), *note)


_ADDED_UP = "no layer has an error of its own beyond the tolerance: rounding differences of earlier layers add up"
_HEADER = f"{'value':<20} {'type':<16} {'max error':>10} {'mean error':>10} {'differ':>8} {'cosine':>9}"


def _form(c: Comparison) -> str:
    return "x".join([*map(str, c.shape), c.dtype])


def _row(c: Comparison, own: Comparison | None = None) -> list[str]:
    line = (f"{c.name[:20]:<20} {_form(c):<16} {c.max_error:>10.3g} {c.mean_error:>10.3g} {c.differ:>8.2%} "
            f"{c.cosine:>9.6f}")  # fmt: skip
    lines = [line]
    if own is not None and (own.max_error or c.max_error):
        lines.append(f"{'  itself':<37} {own.max_error:>10.3g} {own.mean_error:>10.3g} {own.differ:>8.2%} "
                     f"{own.cosine:>9.6f}")  # fmt: skip
    if not c.ok:
        lines.append(f"  ^ differs{_first_bad(c)}")
    return lines


def _first_bad(c: Comparison) -> str:
    if c.first_bad is None:
        return ""
    at = f"[{', '.join(map(str, c.first_bad))}] is " if c.first_bad else ""
    return f": {at}{c.got}, expected {c.expected}"


def _comparable(one: Signature, other: Signature) -> bool:
    """Whether results can be compared: equal counts, dtypes, ranks and static sizes. Names of sizes may differ."""
    return (
        len(one.inputs) == len(other.inputs)
        and len(one.outputs) == len(other.outputs)
        and all(
            a.dtype == b.dtype
            and a.rank == b.rank
            and all(x is None or y is None or x == y for x, y in zip(a.shape, b.shape, strict=True))
            for a, b in zip(one.outputs, other.outputs, strict=True)
        )
    )


@renamed(sizes="shapes")
def check(
    source: object,
    *,
    against: str = "reference",
    target: str = "cpu",
    function: str = "main",
    tolerance: Tolerance | float | None = None,
    arguments: Sequence[Array] | Mapping[str, Array] | None = None,
    layers: bool = False,
    size: int = 4,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    seed: int = 0,
    step: Step = lambda text: None,
    emulate: bool | Emulation = False,
    **options: Unpack[CompileOptions],
) -> Report:
    """Run a program in two ways and compare the results. Returns a `Report`: `ok`, and the errors of each output
    and layer.

    Args:
        source: a program, as `qmlir.compile` takes it, or the path of a `.vmfb`, whose layers are not compared.
        against: an oracle (`reference`: the program in numpy; `onnxruntime`: ONNX Runtime, for ONNX models), a target,
            or the path of another program, which is compiled for the same target, or of a `.vmfb`.
        tolerance: the errors that are accepted; a number means `Tolerance(relative=...)`.
        arguments: in order, or by name; default: generated from `seed`, with `size` for dynamic sizes and `shapes` for
            whole shapes.
        layers: compare intermediate values too; they are always compared if an output differs.
        step: a function that is called with a text before each step.
        emulate: run the program on an emulated device, as in `qmlir.load`; the program of `against` too, if its target
            can be emulated.
        options: those of `qmlir.compile`: `start`, `parameters`, `flags`.

    Raises:
        UsageError: the programs cannot be compared. Errors of compiling and running them are passed on.
    """

    tolerance = Tolerance(tolerance) if isinstance(tolerance, (int, float)) else tolerance or Tolerance()
    emulation = options_of(emulate, f"the run on {target}", step)
    step(f"the compilation for {target}")
    program = Path(source) if isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".vmfb" else None
    is_vmfb = program is not None
    mine: Runner = (
        compile_source(source, function, target, options, emulation)
        if program is None
        else load_file(program, function, options, emulation)
    )
    if is_vmfb and against in ORACLES:
        raise UsageError(f"'{against}' evaluates a program, and a .vmfb has none: give the program it was made of")
    if is_vmfb and Path(against).suffix not in (".vmfb", ".mlir"):
        raise UsageError("a .vmfb is compared with another program: --against FILE")
    step(f"the preparation of {against}")
    other = open_runner(against, source, function, target, options, emulation)
    if not _comparable(mine.signature, other.signature):
        raise UsageError(f"the programs have different signatures: {mine.signature} and {other.signature}")
    roles = mine.roles or other.roles
    given = inputs.given_or_made(arguments, mine.signature, roles, size=size, seed=seed, shapes=shapes)
    step(f"the run on {mine.name}")
    got = mine.run(given)
    step(f"the run on {other.name}")
    expected = other.run(given)
    outputs = tuple(
        compare(f"output {i}", _like(x, y), y, tolerance) for i, (x, y) in enumerate(zip(got, expected, strict=True))
    )
    title = str(source) if isinstance(source, (str, os.PathLike)) and "\n" not in str(source) else "program"
    name = other.name if other.name != mine.name else against
    report = Report(title, mine.name, name, tolerance, outputs)
    if not layers and report.ok:
        return report
    return _with_layers(report, mine, other, given, step)


def _with_layers(report: Report, mine: Runner, other: Runner, arguments: Sequence[Array], step: Step) -> Report:
    """The report, with a comparison of the layers that both programs have."""
    pairs, unmatched = _aligned(mine.layers(), other.layers())
    if not pairs:
        why = "the programs have no layers in common"
        if not mine.layers() or not other.layers():
            blind = next(way.name for way in (mine, other) if not way.layers())
            why = f"{blind} does not show its layers; use --against reference, or the .mlir that it was compiled from"
        return replace(report, note=why)
    ours, theirs = [p[0] for p in pairs], [p[1] for p in pairs]
    step(f"the layers on {report.way}")
    got = mine.run_layers(arguments, ours)
    step(f"the layers on {report.against}")
    expected = other.run_layers(arguments, theirs)
    tolerance = report.tolerance
    compared = tuple(
        compare(a.name, _like(x, y), y, tolerance, a.location)
        for a, x, y in zip(ours, got, expected, strict=True)
    )  # fmt: skip
    own: tuple[Comparison, ...] = ()
    if hasattr(other, "replay"):
        replayed = cast(Replayable, other).replay(arguments, theirs, got)
        own = tuple(
            compare(a.name, _like(x, y), y, tolerance, a.location)
            for a, x, y in zip(ours, got, replayed, strict=True)
        )  # fmt: skip
    found = replace(report, layers=compared, own=own, unmatched=tuple(unmatched))
    if found.first is None and not report.ok:
        if not all(c.ok for c in compared):
            return replace(found, note=_ADDED_UP)
        return _bisected(found, mine, other, arguments, pairs, step)
    return found


def _bisected(
    report: Report,
    mine: Runner,
    other: Runner,
    arguments: Sequence[Array],
    pairs: list[tuple[Layer, Layer]],
    step: Step,
) -> Report:
    """Bisect for the first layer that differs if it is the only value returned. An output differs, but no layer does
    if all are returned: the fault appears only if the layers are fused."""
    tolerance, low, high = report.tolerance, 0, len(pairs) - 1
    worst: Comparison | None = None
    while low <= high:
        middle = (low + high) // 2
        a, b = pairs[middle]
        step(f"the search for the first layer that differs: {a.name}")
        [x], [y] = mine.run_layers(arguments, [a], alone=True), other.run_layers(arguments, [b], alone=True)
        found = compare(a.name, _like(x, y), y, tolerance, a.location)
        if found.ok:
            low = middle + 1
        else:
            worst, high = found, middle - 1
    if worst is None:
        return replace(report, note="no layer differs when it is returned: the fault is in ops fused with the result")
    layers = tuple(worst if c.name == worst.name else c for c in report.layers)
    note = "all layers agree when they are returned together; the one below differs when it is returned alone"
    return replace(report, layers=layers, own=(), note=note)


def _aligned(ours: list[Layer], theirs: list[Layer]) -> tuple[list[tuple[Layer, Layer]], list[str]]:
    """Pairs of layers with the same op, shape and type, in program order, and the names of the unpaired layers."""
    matcher = difflib.SequenceMatcher(None, [a.form for a in ours], [b.form for b in theirs], autojunk=False)
    pairs: list[tuple[Layer, Layer]] = []
    unmatched: list[str] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(ours[i1:i2], theirs[j1:j2], strict=True)
        else:
            unmatched += [layer.name for layer in (*ours[i1:i2], *theirs[j1:j2])]
    return pairs, unmatched


def _like(x: Array, y: Array) -> Array:
    """`x` reinterpreted as `y`'s dtype if both are integers of one size: signedness only changes how bits are read."""
    same = x.dtype.kind in "iu" and y.dtype.kind in "iu" and x.dtype.itemsize == y.dtype.itemsize
    return np.ascontiguousarray(x).view(y.dtype) if same and x.dtype != y.dtype else x
