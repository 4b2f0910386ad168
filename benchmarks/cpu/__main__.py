"""qmlir against its peers on this CPU.

    python -m benchmarks.cpu [--quick] [--only NAME] [--threads 1,2] [--json OUT [--update]] [--plot OUT]
    python -m benchmarks.cpu --list

A row is one work on one number of threads against the best peer. `ratio` is qmlir's median time divided by the
peer's; p10 and p90 are percentiles of the ratios of single rounds, in which the candidates alternate. `limit_share` is
the least time that this machine's measured limits allow, divided by qmlir's. The optional extra `bench` installs the
peers (pip install -e '.[bench]'); those that are missing are listed at the end.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qmlir.cli import arguments

from ..harness import environment, versions
from . import report
from .peers import PEERS, Absent, module_of
from .works import Work, works

ROUNDS, QUICK_ROUNDS = 15, 5


def lines_of(threads: int, rounds: int, peers: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The results that worker processes print. If a worker dies, its current work is reported as refused, and a new
    worker measures the remaining ones."""
    environment_of_worker = dict(os.environ)
    for name in ("QMLIR_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment_of_worker[name] = str(threads)
    left = list(names)
    while left:
        command = [sys.executable, "-m", "benchmarks.cpu.worker", "--threads", str(threads), "--rounds", str(rounds),
                   "--peers", peers]  # fmt: skip
        current = ""
        with tempfile.TemporaryFile("w+") as said, subprocess.Popen(
            [*command, *left], stdout=subprocess.PIPE, stderr=said, text=True, env=environment_of_worker,
            cwd=Path(__file__).resolve().parents[2],
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for text in process.stdout:
                line = json.loads(text)
                if "started" in line:
                    current = line["started"]
                    continue
                if "work" in line:
                    left.remove(line["work"])
                    current = ""
                yield line
            code = process.wait()
            said.seek(0)
            tail = said.read()[-2000:]
        if current:
            left.remove(current)
            yield {"work": current, "threads": threads, "rows": [], "refused": f"the process ended with {code}"}
        elif left and code:
            raise SystemExit(f"the worker ended with {code} before its first work:\n{tail}")


def choose(quick: bool, only: Sequence[str]) -> list[Work]:
    """The works to measure: those whose name or row contains one of `only`."""
    found = [w for w in works() if not quick or w.quick]
    if only:
        found = [w for w in works() if any(o.lower() in f"{w.name} {w.row}".lower() for o in only)]
        if not found:
            raise SystemExit(f"no work is called {', '.join(only)}; --list names them")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="the table's first rows, in under a minute")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="works or rows with NAME in them")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default: 1,2)")
    parser.add_argument("--rounds", type=int, help=f"rounds of each work (default: {ROUNDS}, quick {QUICK_ROUNDS})")
    parser.add_argument("--peers", help=f"who takes part (default: {','.join(PEERS)}; quick: all but iree)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to a file")
    parser.add_argument("--update", action="store_true", help="keep what OUT has of other works: a run in pieces")
    parser.add_argument("--plot", type=Path, metavar="OUT", help="draw the ratios (.png or .svg; needs matplotlib)")
    parser.add_argument("--list", action="store_true", help="name the works and end")
    args = parser.parse_args(argv)
    chosen = choose(args.quick, args.only)
    if args.list:
        print("\n".join(f"{w.row:36} {w.name}" for w in chosen))
        return 0
    threads = [int(t) for t in args.threads.split(",")]
    # Stock IREE takes longer to compile than all others together, and is never the best.
    peers = args.peers or ",".join(p for p in PEERS if not (args.quick and p == "iree"))
    rounds = args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS)
    console = arguments.console()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that the output of a long run shows its progress in a file
    result: dict[str, Any] = {"environment": describe(), "limits": [], "works": []}
    if args.update and args.json and args.json.exists():
        result |= {name: json.loads(args.json.read_text())[name] for name in ("limits", "works")}
    for count in threads:
        for line in lines_of(count, rounds, peers, [w.name for w in chosen]):
            if "limits" in line:
                report.add_limits(result["limits"], line["limits"])
                continue
            report.add_work(result["works"], line)
            for text in report.lines(line):
                print(text)
            if args.json:  # an interrupted run leaves the results so far
                args.json.write_text(json.dumps(result, indent=1) + "\n")
    result["rows"] = [row for w in result["works"] for row in w["rows"]] + report.means(result["works"])
    console.print(report.table(result, console.width))
    for text in report.remarks(result):
        print(text)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    if args.plot:
        report.plot(result, args.plot)
    return 0


def describe() -> dict[str, Any]:
    """The machine and the versions of the peers, or why they are absent."""
    from qmlir.targets.cpu.host import host_features

    packages: list[str] = []
    absent: dict[str, str] = {}
    for peer in PEERS:
        try:
            packages += module_of(peer).PACKAGES
        except Absent as e:
            absent[peer] = str(e)
    return {**environment(), "features": sorted(host_features()), "peers": versions(packages), "absent": absent}


if __name__ == "__main__":
    raise SystemExit(main())
