"""The cost of compiling one product: time, peak memory, and the size of the `.vmfb` divided by that of its weights.

    python -m benchmarks.compile [--only NAME] [--runs 3] [--json OUT]

Each run is a separate process with an empty cache. `seconds` is the time of `.compile(...)`, from arrays in memory to
the artifact; `first` adds the one-time work of the process (importing the compiler, the program of the helper thread).
`peak` is the peak resident memory of the process, arrays included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SECONDS, PEAK_MIB, SIZE = 2.0, 2048, 1.05  # upper limits
K, N = 4096, 11008


SECTION = """
## Compile time and memory

`python -m benchmarks.compile`, each run in a process of its own with an empty cache; the goals are {seconds:g} s,
{peak} MiB and {size:g} times the weights. `first` includes the start-up of the process. On {cpu}, at {commit},
load {load:.1f}.

| work | seconds | first | peak MiB | `.vmfb` / weights |
|---|---|---|---|---|
"""


def _product(bits: int, rows: int | None) -> Any:
    import qmlir
    from qmlir import TensorSpec as T

    rng = np.random.default_rng(0)
    lhs, lhs_scale = T((rows, K), "i8"), T((rows, 1), "f32")
    if bits == 8:
        codes = rng.integers(-127, 128, (K, N), dtype=np.int8)
        scale = rng.random((1, N), dtype=np.float32)
        return qmlir.ops.scaled_matmul.compile(lhs, codes, lhs_scale=lhs_scale, rhs_scale=scale), codes, scale
    packed = rng.integers(0, 256, (N, K // 2), dtype=np.uint8)
    scale = rng.random((N, K // 128), dtype=np.float32)
    artifact = qmlir.ops.scaled_matmul.compile(
        lhs, packed, lhs_scale=lhs_scale, rhs_scale=scale, rhs_transposed=True, rhs_dtype="i4", rhs_packing="low_first"
    )
    return artifact, packed, scale


CASES: dict[str, Callable[[], Any]] = {
    f"int8 {K}x{N}, 1 row": lambda: _product(8, 1),
    f"int8 {K}x{N}, any rows": lambda: _product(8, None),
    f"int4 g128 {K}x{N}, 1 row": lambda: _product(4, 1),
    f"int4 g128 {K}x{N}, any rows": lambda: _product(4, None),
}


def _warm() -> None:
    """Compiles a small product, so that the one-time work of the process is done before the measurement."""
    import qmlir
    from qmlir import TensorSpec as T

    codes = np.ones((64, 32), np.int8)
    qmlir.ops.scaled_matmul.compile(
        T((3, 64), "i8"), codes, lhs_scale=np.float32(1), rhs_scale=np.ones((1, 32), np.float32)
    )


def measure(name: str) -> dict[str, Any]:
    """Measures a case in this process, which must not have compiled anything yet."""
    from qmlir.tools.timing import peak_memory

    start = time.perf_counter()
    _warm()
    first = time.perf_counter() - start
    start = time.perf_counter()
    artifact, *weights = CASES[name]()
    taken = time.perf_counter() - start
    return {
        "work": name, "seconds": taken, "first": first + taken,
        "peak_mib": peak_memory() / 2**20,
        "vmfb_over_weights": len(artifact.vmfb) / sum(a.nbytes for a in weights),
    }  # fmt: skip


def run(name: str) -> dict[str, Any]:
    """Runs `measure` in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.compile", "--worker", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True,
                              env={**os.environ, "QMLIR_CACHE_DIR": folder})  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def section(result: Mapping[str, Any]) -> str:
    """The compile-time section of docs/benchmarks-cpu.md."""
    text = SECTION.format(seconds=SECONDS, peak=PEAK_MIB, size=SIZE, cpu=result["environment"]["cpu"],
                          commit=result["commit"], load=result["environment"]["load"])  # fmt: skip
    for r in result["rows"]:
        text += (
            f"| {r['work']} | {r['seconds']:.2f} | {r['first']:.2f} | {r['peak_mib']:.0f} | "
            f"{r['vmfb_over_weights']:.4f} |\n"
        )
    return text


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME", help="cases with NAME in them")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        print(json.dumps(measure(args.worker)))
        return 0
    from rich.table import Table

    from qmlir.cli import arguments

    from .harness import commit, environment

    table = Table("work", "seconds", "first", "peak MiB", "vmfb / weights", "")
    rows = []
    names = [n for n in CASES if args.only in n]
    if not names:
        parser.error(f"no work is called {args.only}; there are {', '.join(CASES)}")
    for name in names:
        runs = [run(name) for _ in range(args.runs)]
        row = {key: statistics.median(r[key] for r in runs) for key in runs[0] if key != "work"}
        kept = row["seconds"] < SECONDS and row["peak_mib"] < PEAK_MIB and row["vmfb_over_weights"] <= SIZE
        table.add_row(name, f"{row['seconds']:.2f}", f"{row['first']:.2f}", f"{row['peak_mib']:.0f}",
                      f"{row['vmfb_over_weights']:.4f}", "[green]kept" if kept else "[red]missed")  # fmt: skip
        rows.append({"work": name, **row, "kept": kept})
    arguments.console().print(table)
    print(f"goals: {SECONDS:g} s, {PEAK_MIB} MiB, {SIZE:g} of the weights")
    if args.json:
        found = {"environment": environment(), "commit": commit(), "rows": rows}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(r["kept"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
