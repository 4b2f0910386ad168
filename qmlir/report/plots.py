"""Plots of reports, drawn with matplotlib (the extra `plot`)."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GOOD, _BAD, _OWN = "#4878a8", "#c44e52", "#8c8c8c"


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    try:
        import matplotlib
    except ImportError:
        raise UsageError("pictures need matplotlib: pip install 'qmlir[plot]'") from None
    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that notebooks show, whatever backend they have."""

        def _repr_png_(self) -> bytes:
            made = io.BytesIO()
            self.savefig(made, format="png", dpi=100)
            return made.getvalue()

    figure = Picture(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _written(figure: Figure, path: str | os.PathLike[str] | None) -> Figure | None:
    """The figure; None if it is written to the file `path`."""
    if path is None:
        return figure
    try:
        figure.savefig(path, dpi=150)
    except ValueError as e:
        raise UsageError(f"cannot draw {path}: {e}") from None
    except OSError as e:
        raise UsageError(f"cannot write {path}: {e.strerror or e}") from None
    return None


class Compared(Protocol):
    """A value that was compared with another."""

    @property
    def name(self) -> str: ...
    @property
    def max_error(self) -> float: ...
    @property
    def ok(self) -> bool: ...


@dataclass(frozen=True)
class Timed:
    """A measured program: seconds per call, operations and bytes moved per call, and the operations and bytes that the
    machine can do per second (None: not known)."""

    name: str
    seconds: float
    operations: float | None
    traffic: int
    peak: float | None
    bandwidth: float | None


def errors(
    title: str, shown: Sequence[Compared], own: Sequence[Compared], path: str | os.PathLike[str] | None = None
) -> Figure | None:
    """The largest error of each value, on a logarithmic scale; `own`: the error that each layer itself adds, where
    known."""
    figure, axes = _figure(8, 1.2 + 0.28 * len(shown))
    values = [c.max_error for c in shown]
    finite = [v for v in values if 0 < v < float("inf")]
    floor = min(finite, default=1.0) / 10
    most = max(finite, default=1.0)
    bars = [floor if v == 0 else min(v, most * 2) for v in values]
    positions = range(len(shown))
    axes.barh(positions, bars, left=0, color=[_GOOD if c.ok else _BAD for c in shown], height=0.7)
    if own:
        added = [(i, c.max_error) for i, c in enumerate(own) if c.max_error > 0]
        axes.plot([v for _, v in added], [i for i, _ in added], "o", color=_OWN, label="made by the layer itself")
        if added:
            axes.legend(loc="best", fontsize=8)
    for i, value in enumerate(values):
        if value == 0:
            axes.annotate("0", (floor, i), textcoords="offset points", xytext=(3, -3), fontsize=8)
    axes.set_xscale("log")
    # Three decades at least, so that only whole decades are labelled: labels in between would overlap.
    axes.set_xlim(floor, max(most * 3, floor * 1000))
    axes.tick_params(axis="x", which="minor", labelbottom=False)
    axes.set_yticks(positions, [c.name for c in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("largest error (red: beyond the tolerance)")
    axes.set_title(title, fontsize=10)
    return _written(figure, path)


def bench(programs: Sequence[Timed], path: str | os.PathLike[str] | None = None) -> Figure | None:
    """Times relative to the first program as bars; next to them the roofline, if operations and limits are known."""
    rows = [(r, r.operations, r.peak, r.bandwidth) for r in programs if r.operations and r.peak and r.bandwidth]
    figure, first = _figure(9 if rows else 6, 1.6 + 0.5 * max(len(programs), 3))
    if rows:
        figure.clear()
        first, axes = figure.subplots(1, 2)
        _roofline(axes, rows)
    names = [Path(r.name).name[-28:] for r in programs]
    ratios = [r.seconds / programs[0].seconds for r in programs]
    first.barh(range(len(names)), ratios, color=[_GOOD, *[_OWN] * (len(names) - 1)], height=0.6)
    for i, row in enumerate(programs):
        text = f"{row.seconds * 1e6:.4g} us"
        first.annotate(text, (ratios[i], i), textcoords="offset points", xytext=(4, -3), fontsize=8)
    first.set_yticks(range(len(names)), names, fontsize=8)
    first.invert_yaxis()
    first.set_xlim(0, max(ratios) * 1.3)
    first.set_xlabel(f"time of a call, relative to {names[0]}" if len(names) > 1 else "time of a call")
    return _written(figure, path)


def _roofline(axes: Axes, rows: Sequence[tuple[Timed, float, float, float]]) -> None:
    """Operations per second over operations per byte (Williams, Waterman and Patterson 2009), under the limits of the
    first program. `rows`: each with its operations, and the machine's operations and bytes per second."""
    intensity = [operations / r.traffic for r, operations, _, _ in rows]
    speed = [operations / r.seconds for r, operations, _, _ in rows]
    first, _, top, bandwidth = rows[0]
    low, high = min([*intensity, top / bandwidth]) / 4, max([*intensity, top / bandwidth]) * 4
    axes.plot([low, top / bandwidth, high], [low * bandwidth, top, top], color="black", linewidth=1)
    for (r, _, _, _), x, y in zip(rows, intensity, speed, strict=True):
        axes.plot([x], [y], "o", color=_GOOD if r is first else _OWN)
        axes.annotate(Path(r.name).name[-20:], (x, y), textcoords="offset points", xytext=(5, -10), fontsize=7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations a byte")
    axes.set_ylabel("operations a second")
    axes.set_title("roofline", fontsize=10)
