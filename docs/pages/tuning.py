"""Writes tuning.md: the steps of a search, and the gain for a list of products."""

from __future__ import annotations

import json
from pathlib import Path

from qmlir.targets.strategy import seconds_text

_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "tuning-cpu.json"

_TEXT = """\
# Tuning

*This page is written by `python docs/generate.py` from `benchmarks/results/tuning-cpu.json`, which
`python -m benchmarks.tuning FOLDER --json FILE` makes by compiling and measuring.*

`qmlir tune model.mlir --budget 5m` searches the choices that the strategies of a target leave open, and writes the best
one to a database, which `qmlir compile --tuning tuning.json` reads ([all options](commands.md#tune)).

1. **Candidates.** Every strategy declares knobs (`qmlir/targets/strategy.py`, `Tunable`): the block sizes of the
   built-in kernels, flags of IREE, and the strategy that is asked first. Combinations that differ from the default in
   at most two knobs are candidates.
2. **Planning** takes milliseconds per candidate. A candidate is dropped if another one has the same plan and flags, or
   if the cost model (`qmlir/targets/cpu/kernels/forecast.py`) estimates more than three times the default's time. The
   rest is ordered by the estimate.
3. **Compilation** runs in child processes, one per CPU. Candidates with identical code are dropped.
4. **Measurement**: one process with pinned threads times each candidate in alternation with the default, so that drift
   of the machine affects both. A candidate with different results is refused. The best one is measured again, and the
   slower of its two times counts.
5. **Choice**: a candidate is chosen if it takes at most 98 % of the default's time.

`--emit DIR` does steps 1 to 3 and `--measure DIR` step 4, which needs only the runtime and can run on another machine.
`--dask ADDRESS` measures on the workers of a Dask cluster. An interrupted search continues where it stopped.

A database is a sorted JSON file. Its records are keyed by target, CPU, versions of qmlir and IREE, and each product's
op, types and sizes (M rounded up to a power of two). A record holds values of knobs, never flags. `--merge` keeps every
record of both files. The wheel has a database with the products below: `--tuning shipped` reads it, and `--tuning FILE`
falls back to it.

## Gain

Ten int8 products with constant weights and per-row and per-column scales, {budget:g} seconds each, on {cpu}, {threads}
threads.

| M x N x K | untuned | best choice | its time | gain |
|---|---|---|---|---|
{rows}

The geometric mean of the gains is **{mean:.3f}**. {verdict}
"""


def page() -> str:
    """The text of tuning.md."""
    found = json.loads(_RESULTS.read_text())
    rows = []
    for r in found["rows"]:
        choice = ", ".join(f"`{k} {v}`" for k, v in r["choice"].items()) or "the default"
        best = seconds_text(r["seconds"]) if r["choice"] else ""
        rows.append(f"| {' x '.join(map(str, r['shape']))} | {seconds_text(r['baseline'])} | {choice} | {best} | "
                    f"{r['gain']:.3f} |")  # fmt: skip
    same = sum(not r["choice"] for r in found["rows"])
    verdict = (f"For {same} of {len(rows)} products the default was the best of all candidates, because\nthe kernels "
               "choose their sizes from the shape.") if same else ""  # fmt: skip
    machine = found["environment"]
    return _TEXT.format(budget=found["budget"], cpu=machine["cpu"], threads=machine["threads"], rows="\n".join(rows),
                         mean=found["geometric_mean"], verdict=verdict)  # fmt: skip
