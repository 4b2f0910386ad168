"""cuda-kernels.md: what ptxas says of every configuration of the CUDA kernels (test/ptx/configurations.json)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parents[2] / "test" / "ptx" / "configurations.json"

_HEAD = """\
# CUDA kernels: registers and shared memory

What ptxas says of the tiles that are shipped, each compiled for a product of 96 rows (4 for `gemv`), 256 columns and
1024 codes along K, with bias, activation and a 16-bit result: registers of a thread, KiB of shared memory.
`python test/ptx/configured.py` records it; the slow tier of the tests compiles and assembles all of them again, and
fails when one spills. Where a tile does not fit a target, or its groups along K, the cell is empty.
"""


def page() -> str:
    rows = [row for row in json.loads(RECORD.read_text()) if "declined" not in row]
    targets = list(dict.fromkeys(row["target"] for row in rows))
    spills = sum(bool(row["spills"] or row["stack"]) for row in rows)
    most = max(row["registers"] for row in rows)
    told = f"\n{len(rows)} kernels, {spills} of them with spills; at most {most} registers.\n"
    return _HEAD + told + "".join(_tables(rows, targets))


def _tables(rows: list[dict[str, Any]], targets: list[str]) -> Iterator[str]:
    for strategy in dict.fromkeys(row["strategy"] for row in rows):
        mine = [row for row in rows if row["strategy"] == strategy]
        yield f"\n## {strategy}\n\n| tile (M, N, K, warps along them, stages) | product | threads | "
        yield " | ".join(t.removeprefix("cuda:") for t in targets) + " |\n"
        yield "|" + "---|" * (3 + len(targets)) + "\n"
        for choice, product in dict.fromkeys((row["choice"], row["product"]) for row in mine):
            found = {r["target"]: r for r in mine if (r["choice"], r["product"]) == (choice, product)}
            tile = choice.partition(":")[2].replace("x", " x ") or "-"
            threads = next(iter(found.values()))["threads"]
            cells = (f"{r['registers']}, {r['shared'] / 1024:.0f}" if (r := found.get(t)) else "" for t in targets)
            yield f"| {tile} | {product} | {threads} | {' | '.join(cells)} |\n"
