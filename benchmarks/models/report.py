"""Presents the rows: lines during the run, a summary, and the documentation page."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from .worker import key

Row = dict[str, Any]
_T = TypeVar("_T")


def add(rows: list[Row], row: Row) -> None:
    """Adds a row at the end, and removes an earlier measurement of the same row."""
    name = _key(row)
    rows[:] = [r for r in rows if _key(r) != name] + [row]


def _key(row: Row) -> str:
    return key(row["model"], row["form"], row["dynamic"])


def verdict(row: Row) -> str:
    """`right`, `wrong`, or the outcome of the import if it failed. A quantised model is also right if it is about as
    close to the float64 evaluation as the peer, because codes that differ by one change all later values."""
    if row["import"] != "ok":
        return str(row["import"])
    if row["error"] <= row["near"]:
        return "right"
    if "error64" in row and row["error64"] <= 1.1 * row["peer_error64"]:
        return "right"
    return "wrong"


def progress(items: Sequence[_T], name: Callable[[_T], str]) -> Iterator[_T]:
    """`items`, with a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(items))
        for item in items:
            bar.update(task, description=name(item))
            yield item
            bar.advance(task)


def line(row: Row) -> str:
    """The line for a row, printed while others still run."""
    text = f"{_key(row):52} {verdict(row):8}"
    if row["import"] != "ok":
        return f"{text} {message(row)}"
    ratio = (
        "" if "ratio" not in row else f"  {row['ratio']:.2f} of {row['peer']} ({row['p10']:.2f} to {row['p90']:.2f})"
    )
    return f"{text} {row['error']:.1e}  {row['compile_cpu_s']:6.1f} s  {row['compile_mib']:5} MiB{ratio}"


def message(row: Row, width: int = 300) -> str:
    """The row's message on one line."""
    lines = [t.strip() for t in row.get("message", "").splitlines() if t.strip()]
    return " ".join(lines)[:width]


def summary(rows: Sequence[Row]) -> str:
    """The number of rows by verdict, and the geometric mean of the ratios."""
    counts: dict[str, int] = {}
    for r in rows:
        counts[verdict(r)] = counts.get(verdict(r), 0) + 1
    ratios = [r["ratio"] for r in rows if "ratio" in r]
    text = ", ".join(f"{n} {name}" for name, n in sorted(counts.items(), key=lambda c: -c[1]))
    return text + (
        f"; ratio {statistics.geometric_mean(ratios):.2f} (geometric mean of {len(ratios)})" if ratios else ""
    )


PAGE = """\
# Model benchmarks

*This page is written by `python docs/generate.py` from `benchmarks/results/models-*.json`, which
`python -m benchmarks.models --json FILE` measures.*

Models of torchvision, timm and transformers with random weights from a seed (`benchmarks/models/architectures.py`),
small where layers repeat, in the formats of `benchmarks/models/forms.py`. `error` is the largest difference from the
peer's result as a share of its largest value; for quantised models `from f64` is the same difference from the
unquantised model evaluated in float64: qmlir's, then the peer's. Compile times are CPU seconds, the first call
included; memory is the additional memory of the process while compiling. `ratio` is qmlir's time divided by the peer's
on one thread, measured in alternating bursts: the ratio of the medians, with p10 and p90 of the ratios of single
rounds. It is empty where no time was measured.

`refused`: a FrontEndError names the operator and its location. `died`: any other failure. `not made`: the tools that
quantise or export the model refuse it. The messages follow each table.

The tables hold the rows of `python -m benchmarks.models --list` that were measured on a machine; `commits` are those
that were measured, and `load` is the highest load of the system meanwhile, without the measurements themselves.

## What is slower, and why

* f32 convolutional networks against onnxruntime: a convolution alone takes 0.6 to 1.1 of onnxruntime's time, including
  onnxruntime's conversion to blocks of channels (NCHWc), which it makes only once per network. qmlir gathers each row
  of a result from the image once per 64 to 256 filters; these copies are two hundredths to an eighth of the
  multiplications.
* Bilinear resizing in f32 (U-Nets, segmentation): IREE's code computes positions and gathers element by element.
  Resizing 64x64x32 to twice the size takes 3.0 ms, in torch 1.9.
"""
GOAL = 0.95  # of the peer's time


def page(results: Sequence[dict[str, Any]]) -> str:
    """The text of docs/benchmarks-models.md."""
    parts = [PAGE]
    for result in results:
        e, rows = result["environment"], result["rows"]
        packages = ", ".join(f"{n} {v}" for n, v in e["packages"].items())
        commits = ", ".join(sorted({r["commit"] for r in rows}))
        parts += [f"\n## {e['cpu']}\n", f"* {summary(rows)}", f"* {packages}; load {e['load']:.1f}; commits {commits}"]
        for form in dict.fromkeys(r["form"] for r in rows):
            mine = [r for r in rows if r["form"] == form]
            parts.append(f"\n### {form}\n\n{summary(mine)}\n")
            parts.append("| model | shapes | result | error | from f64 | compile s | MiB | ratio | p10 | p90 |\n"
                         "|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
            parts += [_cells(r) for r in mine]
            parts += _slower(mine)
            missed = [r for r in mine if r["import"] != "ok"]
            parts += ["", *(f"* `{r['model']}`{' (dynamic)' if r['dynamic'] else ''}: {message(r)}" for r in missed)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _slower(rows: Sequence[Row]) -> list[str]:
    """A line with the rows that miss the goal, the slowest first."""
    slow = sorted((r for r in rows if r.get("ratio", 0) > GOAL), key=lambda r: -r["ratio"])
    if not slow:
        return []
    named = ", ".join(f"{r['model']} {r['ratio']:.2f}" for r in slow)
    return [f"\nAbove {GOAL} of {slow[0]['peer']}: {named}."]


def _cells(r: Row) -> str:
    shapes = "dynamic" if r["dynamic"] else "static"
    if r["import"] != "ok":
        return f"| {r['model']} | {shapes} | {verdict(r)} | | | | | | | |"
    f64 = f"{r['error64']:.1e} / {r['peer_error64']:.1e}" if "error64" in r else ""
    ratio = [f"{r[n]:.2f}" if n in r else "" for n in ("ratio", "p10", "p90")]
    return (f"| {r['model']} | {shapes} | {verdict(r)} | {r['error']:.1e} | {f64} | {r['compile_cpu_s']:.1f} | "
            f"{r['compile_mib']} | {' | '.join(ratio)} |")  # fmt: skip
