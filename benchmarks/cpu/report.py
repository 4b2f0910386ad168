"""Presents the results: lines during the run, a table, a plot, and the documentation page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from .works import EIGHT_BITS, works

# Rows of the table whose works are judged by their geometric mean.
MEANS = ("ResNet-50 convolutions, batch 1", "ResNet-50 convolutions, batch 8", "MobileNetV2 depthwise")


def add_work(found: list[dict[str, Any]], line: dict[str, Any]) -> None:
    """Adds a work in the order of the table, replacing an earlier measurement on the same number of threads."""
    found[:] = [w for w in found if (w["work"], w["threads"]) != (line["work"], line["threads"])] + [line]
    order = [w.name for w in works()]
    found.sort(key=lambda w: (order.index(w["work"]) if w["work"] in order else len(order), w["threads"]))


def add_limits(found: list[dict[str, Any]], line: dict[str, Any]) -> None:
    """Keeps the best value of each limit over all measurements, because disturbances only make a measurement worse."""
    mine = next((x for x in found if x["threads"] == line["threads"]), None)
    if mine is None:
        found.append(line)
        found.sort(key=lambda x: int(x["threads"]))
        return
    for name in ("read_gb_s", "rates_gop_s"):
        for key, value in line[name].items():
            mine[name][key] = max(value, mine[name].get(key, 0))
    mine["instructions"] |= line["instructions"]


def means(measured: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per title in `MEANS` and number of threads: the geometric mean over all its works that have a ratio."""
    found = []
    for title in MEANS:
        for threads in sorted({w["threads"] for w in measured}):
            rows = [r for w in measured if w.get("row") == title and w["threads"] == threads for r in w["rows"]]
            rows = [r for r in rows if r["ratio"] is not None]
            if not rows:
                continue
            row: dict[str, Any] = {"work": f"{title}: geometric mean of {len(rows)}", "against": rows[0]["against"],
                                   "threads": threads, "peer": "best of each", "goal": rows[0]["goal"]}  # fmt: skip
            for name in ("ours_ms", "peer_ms", "ratio", "p10", "p90", "limit_share"):
                row[name] = statistics.geometric_mean(r[name] for r in rows)
            found.append(row)
    return found


def verdict(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return "no peer"
    return "kept" if row["ratio"] <= row["goal"] else "missed"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def lines(work: dict[str, Any]) -> Iterator[str]:
    """Lines for one measured work, printed while others still run."""
    if "refused" in work:
        yield f"{work['work']:44} {work['threads']} threads  not measured: {work['refused']}"
    for r in work["rows"]:
        yield (
            f"{r['work']:44} {r['threads']} threads  {_ms(r['ours_ms']):>8} ms  {_ratio(r['ratio']):>6} of "
            f"{r['peer'] or 'no peer'} ({_ms(r['peer_ms'])} ms)"
        )


_NARROW = "work", "threads", "best peer", "ratio", ""
_NEEDED = 150  # columns of a terminal that all of them fit


def table(result: dict[str, Any], width: int) -> Table:
    """The rows; a terminal that is too narrow for all columns shows the most important ones."""
    cells = []
    for r in result["rows"]:
        colour = {"kept": "[green]", "missed": "[red]", "no peer": ""}[verdict(r)]
        cells.append({
            "work": r["work"], "against": r["against"], "threads": str(r["threads"]), "qmlir ms": _ms(r["ours_ms"]),
            "best peer": r["peer"] or "", "its ms": _ms(r["peer_ms"]), "ratio": _ratio(r["ratio"]),
            "p10": _ratio(r["p10"]), "p90": _ratio(r["p90"]), "goal": _ratio(r["goal"]),
            "of the limit": f"{r['limit_share']:.0%}", "": colour + verdict(r),
        })  # fmt: skip
    names = [name for name in (cells[0] if cells else _NARROW) if width >= _NEEDED or name in _NARROW]
    made = Table(*names)
    for row in cells:
        made.add_row(*(row[name] for name in names))
    return made


def remarks(result: dict[str, Any]) -> Iterator[str]:
    """Remarks below the table: the machine, its limits, and which peers are absent and why."""
    e = result["environment"]
    peers = ", ".join(f"{n} {v}" for n, v in e["peers"].items())
    loads = [w["load"] for w in result["works"] if "load" in w]
    yield f"{e['cpu']}, {e['cpus']} CPUs, load {min(loads, default=0):.1f} to {max(loads, default=0):.1f}; {peers}"
    commits: dict[str, int] = {}
    for row in result["rows"]:
        if "commit" in row:
            commits[row["commit"]] = commits.get(row["commit"], 0) + 1
    if commits:
        yield "rows by commit: " + ", ".join(f"{name}: {count}" for name, count in commits.items())
    for limit in result["limits"]:
        reads = ", ".join(f"{size}: {b:g}" for size, b in limit["read_gb_s"].items())
        rates = ", ".join(f"{limit['instructions'][k]} {r}" for k, r in limit["rates_gop_s"].items())
        yield f"limits of {limit['threads']} threads: read GB/s {reads or 'not measured'}; Gop/s {rates or 'none'}"
    for peer, reason in e["absent"].items():
        yield f"absent: {peer}: {reason}"
    reasons: dict[str, list[str]] = {}
    for w in result["works"]:
        for peer, reason in w.get("absent", {}).items():
            if peer not in e["absent"]:
                reason = reason.replace("differs from ours", "differs from qmlir's")  # the wording of older results
                reasons.setdefault(f"{peer}: {reason}", []).append(w["work"])
        if "refused" in w:
            reasons.setdefault(f"qmlir: {w['refused']}", []).append(w["work"])
    for reason, names in reasons.items():
        yield f"absent: {reason} ({len(names)} times, first: {names[0]})"


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws bars of the ratios with p10 and p90, and a line at 1, the best peer's time."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise SystemExit("a plot needs matplotlib (pip install -e '.[bench]')") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [r for r in result["rows"] if r["ratio"] is not None]
    labels = list(dict.fromkeys((r["work"], r["against"]) for r in rows))
    threads = sorted({r["threads"] for r in rows})
    figure, axes = pyplot.subplots(figsize=(10, 1.5 + 0.16 * len(labels) * (1 + len(threads))))
    height = 0.8 / max(len(threads), 1)
    for i, count in enumerate(threads):
        mine = [r for r in rows if r["threads"] == count]
        places = [labels.index((r["work"], r["against"])) + height * (i - (len(threads) - 1) / 2) for r in mine]
        ratios = [r["ratio"] for r in mine]
        ends = [[max(0.0, r["ratio"] - r["p10"]) for r in mine], [max(0.0, r["p90"] - r["ratio"]) for r in mine]]
        axes.barh(places, ratios, height, xerr=ends, label=f"{count} threads", error_kw={"elinewidth": 0.6})
        goals = [r["goal"] for r in mine]
        axes.plot(goals, places, "|", color="black", markersize=5, label="goal" if not i else None)
    axes.axvline(1, color="red", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(labels)), [w if a == EIGHT_BITS else f"{w} ({a})" for w, a in labels], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("our time / best peer's time")
    axes.set_title(result["environment"]["cpu"])
    axes.legend(loc="lower right", fontsize=7)
    figure.tight_layout()
    figure.savefig(path)


PAGE = """\
# CPU benchmarks

*This page is written by `python docs/generate.py` from `benchmarks/results/cpu-*.json`, which
`python -m benchmarks.cpu --json FILE` measures.*

`ratio` is qmlir's time divided by the best peer's, on the same arrays and the same number of threads, measured in
alternating bursts: the ratio of the medians of all calls. p10 and p90 are percentiles of the ratios of single rounds.
qmlir is `qmlir.ops.*.compile(..., target="cpu")` and `qmlir.load`, called with numpy arrays, copies included; peers
have their buffers bound in advance where they allow it. `of the limit` is the least time that the machine allows,
divided by qmlir's time. The least time is that of reading the weights once at the read bandwidth, or of the operations
at the rate of the best multiply instruction, both measured in the same run. `python -m benchmarks.dispatches` shows the
time of each dispatch of a program.

Missed goals, and where the time goes (counted with `perf`; [a table of cycles](kernels.md)):

* `w8a8`, M >= 128: the goals are for AMX. Without it oneDNN runs at the rate of `vpdpbusd`, so no ratio below the share
  in `of the limit` is possible. qmlir's overhead: activations and their sums are copied to the stack once per chunk of
  columns (5 %), and the last tile of rows of a chunk is not full. With AMX, tiles wait for the L2 cache: [a step takes
  107 cycles](kernels.md) although its products take only 64.
  With K = 14336 a chunk of 1 MiB of activations has 73 rows, so 256 rows read the weights (59 MB, from memory) three
  times. Blocking K with partial sums kept in the result's buffer was tried and was slower (23 ms against 22): rows
  there are 16 KiB apart, so they map to few cache sets. A workspace with contiguous partial sums was not tried.
* `w4a8`, M >= 128, against 8-bit peers: the main loop runs at the rate of `vpdpbusd` although it unpacks codes for
  every tile of rows; 10 % of the time goes to the scales of groups. With AMX a group of 128 codes is two steps of
  tiles; its sums are moved out of the tiles and scaled before the next group, which takes half of the time.
* Convolutions with AMX: for filters larger than 1x1 the windows are first gathered from the image (a third of the time
  of 3x3 with batch 8). oneDNN avoids this: its tiles read the rows of the image itself.
* `w4a16`: activations stay bf16 and products are exact; the peer that quantises activations to int8 has half the work.
  M = 1 is bound by vector instructions (22 for 128 bytes of weights), not by memory.
* Convolutions: with 64 channels the dot products of a tile take 192 cycles and its requantisation 50: two f32 products,
  each rounded as the contract states, and two conversions per vector. Windows larger than 1x1 are gathered row by row
  to the stack, with their sums.
* Depthwise: a call takes 6 microseconds in addition to the kernel, half of the time for small images. A block has 64
  channels, so with 144 channels three quarters of the third block are empty, and with 32 half of the only one.
* MoE: each expert computes only the rows that are routed to it, but sorting the rows by expert and the weighted sum
  are IREE dispatches over all slots.
* A load above the number of threads (given below) is other work on the machine; it slows two threads more than one.
"""


def page(results: Sequence[dict[str, Any]]) -> str:
    """The text of docs/benchmarks-cpu.md."""
    parts = [PAGE]
    for result in results:
        e = result["environment"]
        parts.append(f"\n## {e['cpu']}\n")
        parts += [f"* {text}" for text in remarks(result)]
        parts.append(f"* features: {' '.join(e['features'])}")
        parts.append(
            "\n| work | against | threads | qmlir ms | best peer | its ms | ratio | p10 | p90 | goal | of the limit |\n"
            "|---|---|---|---|---|---|---|---|---|---|---|"
        )
        for r in result["rows"]:
            share = "" if math.isnan(r["limit_share"]) else f"{r['limit_share']:.0%}"
            bold = "**" if verdict(r) == "kept" else ""
            parts.append(
                f"| {r['work']} | {r['against']} | {r['threads']} | {_ms(r['ours_ms'])} | {r['peer'] or 'none'} | "
                f"{_ms(r['peer_ms'])} | {bold}{_ratio(r['ratio'])}{bold} | {_ratio(r['p10'])} | {_ratio(r['p90'])} | "
                f"{_ratio(r['goal'])} | {share} |"
            )
    return "\n".join(parts) + "\n"
