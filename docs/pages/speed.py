"""Speed against peers: the picture of all kinds of work, and losing.md, the page of the slower cases."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .layouts import INK, svg_text

MADE = "*This page is written by `python docs/generate.py` from `benchmarks/results/`.*"
PICTURE = "results.svg"
PICTURE_TEXT = "Time relative to the best peer by kind of work: all measurements, geometric mean, best and worst"
_FASTER, _SLOWER = "#4878a8", "#c44e52"


@dataclass(frozen=True)
class Measurement:
    """One program on one number of threads. `ratio` is qmlir's time divided by the best peer's."""

    kind: str
    work: str
    threads: int
    peer: str
    ratio: float


@dataclass(frozen=True)
class Kind:
    """All measurements of one kind of work."""

    name: str
    ratios: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The geometric mean."""
        return statistics.geometric_mean(self.ratios)

    @property
    def slower(self) -> int:
        return sum(r > 1 for r in self.ratios)


def measurements(cpu: Mapping[str, Any], decoders: Mapping[str, Any]) -> list[Measurement]:
    """Every measured program that has a peer, from the results of `benchmarks.cpu` and `benchmarks.decoder`, without
    the means in these results."""
    found = []
    peers: dict[str, set[str]] = {}
    for work in cpu["works"]:
        peers.setdefault(work["row"], set()).update(r["against"] for r in work["rows"])
    for work in cpu["works"]:
        for r in work["rows"]:
            if r["ratio"] is not None:
                several = len(peers[work["row"]]) > 1
                kind = f"{work['row']}, peers: {r['against']}" if several else work["row"]
                found.append(Measurement(kind, r["work"], r["threads"], r["peer"], r["ratio"]))
    for r in decoders["rows"]:
        if r["ratio"]:
            kind = f"decoder, {r['phase']}, {r['ours'].removeprefix('ours, ')}"
            work = f"decoder {r['type']}, {r['phase']}, {r['ours'].removeprefix('ours, ')}"
            found.append(Measurement(kind, work, r["threads"], r["peer"], r["ratio"]["median"]))
    return found


def kinds(found: Sequence[Measurement]) -> list[Kind]:
    names = dict.fromkeys(m.kind for m in found)
    return [Kind(name, tuple(m.ratio for m in found if m.kind == name)) for name in names]


def picture(cpu: Mapping[str, Any], decoders: Mapping[str, Any]) -> str:
    """Draw a line per kind of work on a logarithmic axis: a dot per measurement, a bar at their geometric mean."""
    found = measurements(cpu, decoders)
    left, width, top, step = 330.0, 420.0, 74.0, 24.0
    low = min(0.5, *(m.ratio for m in found)) / 1.08
    high = max(2.0, *(m.ratio for m in found)) * 1.08

    def place(ratio: float) -> float:
        return left + width * math.log(ratio / low) / math.log(high / low)

    rows = kinds(found)
    columns = left + width + 20
    bottom = top + step * len(rows)
    slower = sum(k.slower for k in rows)
    parts = [
        svg_text(14, 22, f"Time relative to the best peer, {machine_name(cpu)}, one and two threads: "
                     f"{len(found)} measurements, {slower} slower than the peer", 13),
        svg_text(place(1) - 10, 44, "faster than the best peer", 11, "end"),
        svg_text(place(1) + 10, 44, "slower", 11),
        svg_text(columns, 44, "geometric mean", 11), svg_text(columns, 58, "(best to worst)", 11),
        svg_text(columns + 135, 44, "slower", 11),
    ]  # fmt: skip
    for ratio in (0.25, 0.5, 0.75, 1, 1.5, 2):
        x, dash = place(ratio), "" if ratio == 1 else ' stroke-dasharray="2 4"'
        parts.append(f'<path d="M{x:.1f} {top - 18:g} V{bottom:g}" stroke="{INK}"{dash} fill="none" '
                     f'stroke-width="{1.2 if ratio == 1 else 0.5}"/>')  # fmt: skip
        parts.append(svg_text(round(x, 1), bottom + 16, f"{ratio:g}", 11, "middle"))
    for i, kind in enumerate(rows):
        y = top + step * i
        best, worst, mean = min(kind.ratios), max(kind.ratios), kind.mean
        parts.append(svg_text(left - 12, y + 4, kind.name, 11, "end"))
        parts.append(f'<path d="M{place(best):.1f} {y:g} H{place(worst):.1f}" stroke="#888888" fill="none"/>')
        for ratio in kind.ratios:
            colour = _FASTER if ratio <= 1 else _SLOWER
            parts.append(f'<circle cx="{place(ratio):.1f}" cy="{y:g}" r="3.5" fill="{colour}" fill-opacity="0.55"/>')
        parts.append(f'<path d="M{place(mean):.1f} {y - 8:g} V{y + 8:g}" stroke="{INK}" stroke-width="2.5"/>')
        parts.append(svg_text(columns, y + 4, f"{mean:.2f} ({best:.2f} to {worst:.2f})", 11))
        parts.append(svg_text(columns + 135, y + 4, f"{kind.slower} of {len(kind.ratios)}", 11))
    wide, high_ = columns + 200, bottom + 26
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high_:g}" width="{wide:g}" '
            f'height="{high_:g}" font-family="Helvetica, Arial, sans-serif">'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n')  # fmt: skip


def losing_page(machines: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """The text of losing.md. `machines`: the results of `benchmarks.cpu` and `benchmarks.decoder` on each machine, by
    the name of the machine's picture."""
    parts = [_machine(picture, cpu, decoders) for picture, (cpu, decoders) in machines.items()]
    every = [m for cpu, decoders in machines.values() for m in measurements(cpu, decoders)]
    return f"""# Known slower cases

{MADE}

{sum(m.ratio > 1 for m in every)} of the {len(every)} measurements of the [CPU benchmarks](benchmarks-cpu.md) are slower
than the best peer. `ratio` is qmlir's time divided by the peer's.

{"".join(parts)}{LIMITS}"""


def _machine(picture: str, cpu: Mapping[str, Any], decoders: Mapping[str, Any]) -> str:
    found = measurements(cpu, decoders)
    slower = sorted((m for m in found if m.ratio > 1), key=lambda m: -m.ratio)
    listed = "\n".join(f"| {m.work} | {m.threads} | {m.peer} | {m.ratio:.2f} |" for m in slower)
    by_kind = "\n".join(
        f"| {k.name} | {len(k.ratios)} | {k.slower} | {k.mean:.2f} | {min(k.ratios):.2f} | {max(k.ratios):.2f} |"
        for k in kinds(found)
    )
    return f"""## {machine_name(cpu)}

By kind of work, on one and two threads together:

![{PICTURE_TEXT}]({picture})

| kind of work | measurements | slower | geometric mean of the ratios | best | worst |
|---|---|---|---|---|---|
{by_kind}

Each slower measurement:

| work | threads | the peer | ratio |
|---|---|---|---|
{listed}

"""


def machine_name(cpu: Mapping[str, Any]) -> str:
    """The CPU's name from its system, and whether it has AMX: hypervisors hide the rest of the name."""
    tiles = " with AMX" if "amx-int8" in cpu["environment"]["features"] else ""
    return f"{cpu['environment']['cpu']}{tiles}"


LIMITS = """## Limits that were not measured

* **GPUs**: an NVIDIA H100 and an H200 have run these programs ([figures](benchmarks-gpu.md)), but no AMD, Intel or Arm
  GPU has. The other targets are executed in an emulator or only compiled, as [each target's page](targets/index.md)
  says, so there are no times for them.
* **Arm CPUs**: the kernels are executed in an emulator. Their [inner loops](kernels.md#kernels-for-arm) are analysed
  with LLVM's models of the cores; no call has been measured.
* **AMX-FP16** (Granite Rapids) has run only with its instructions in software.
* **Vulkan**: products of two float operands with a dynamic number of rows are slow; the compiler
  [warns](refused.md#float-products-with-a-dynamic-number-of-rows-on-vulkan). Products of codes are not affected.
* **Compile time**: compiling takes seconds, whereas libraries of precompiled kernels need no time. The compilation
  cache avoids the second compilation of a program.
* **Eager calls**: the first call of an eager function compiles. Compile ahead of time if that matters.
* **Whole models**: operations other than products and convolutions use IREE's code generation and may be slower than
  hand-written kernels.
* **Call overhead**: a call from Python costs microseconds, which dominate programs of a few microseconds.
* **Tuning** rarely helps: [most shapes](tuning.md) already have the best choice.
"""
