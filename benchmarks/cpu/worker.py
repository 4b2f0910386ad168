"""Measures works on one number of threads. It is a separate process because thread pools are sized once per process,
and so that the process-wide settings of a peer end with it.

    python -m benchmarks.cpu.worker --threads 2 --rounds 15 NAME...

writes one line of JSON per work, with its rows or the reason why there are none, then one line with the limits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..harness import Timing, commit, race
from .limits import Limits
from .peers import PEERS, Absent, Candidate, LeftOut, candidates, prepare
from .problems import Problem
from .works import Work, works


def agreeing(found: list[Candidate], mine: Any, absent: dict[str, str]) -> list[Candidate]:
    """The candidates whose results agree with qmlir's; the others are added to `absent`, since they compute something
    else. The tests compare both with the reference, at small sizes."""
    kept = []
    for c in found:
        if c.problem is None:
            error = float(np.abs(c.real(c.run()) - mine).max() / np.abs(mine).max())
            if not error <= c.tolerance:
                absent[c.name] = f"its result differs from qmlir's by {error:.2g} of the largest value"
                continue
        kept.append(c)
    return kept


def measure(work: Work, threads: int, rounds: int, limits: Limits, peers: Sequence[str]) -> dict[str, Any]:
    """Measures a work. It gets one row for each kind of peer that it is compared with."""
    problem = work.make()
    ours = problem.ours()
    absent: dict[str, str] = {}
    found: list[Candidate] = []
    for peer in PEERS:
        if peer not in peers:
            absent[peer] = "not asked (--peers)"
            continue
        try:
            offered = candidates(peer, problem, threads)
        except Absent as e:
            absent[peer] = str(e)
        except Exception as e:  # a peer that fails is reported, and does not stop the others
            absent[peer] = f"failed: {str(e).strip().splitlines()[0][:160] if str(e).strip() else type(e).__name__}"
        else:
            found += [c for c in offered if isinstance(c, Candidate)]
            absent |= {c.name: c.reason for c in offered if isinstance(c, LeftOut)}
    found = agreeing(found, problem.real(ours()), absent)
    runs: dict[str, Callable[[], Any]] = {"ours": ours}
    for c in found:
        runs[c.name] = c.run
    load = os.getloadavg()[0]
    times = race(runs, rounds)
    limit = limits.seconds(problem.operations, problem.bytes, problem.rate)
    kinds = {c.name: c.kind for c in found}
    return {
        "work": work.name,
        "row": work.row,
        "threads": threads,
        "commit": commit(),
        "load": round(load, 2),
        "limit_ms": limit * 1e3,
        "bound": _bound(problem, limits),
        "absent": absent,
        "times_ms": {name: t.to_json() for name, t in times.items()},
        "rows": [_row(work, kind, goal, threads, times, kinds, limit) for kind, goal in work.goals.items()],
    }


def _bound(problem: Problem, limits: Limits) -> str:
    """The name of what bounds the time: the read bandwidth or a multiply instruction."""
    instruction = limits.instruction(problem.rate)
    rate = limits.rate(problem.rate)
    if rate is None or instruction is None:
        return "read bandwidth; the host has no multiply instruction that is measured here"
    compute = problem.operations / rate
    return "read bandwidth" if problem.bytes / limits.bandwidth(problem.bytes) > compute else instruction.name


def _row(work: Work, kind: str, goal: tuple[float, float], threads: int, times: Mapping[str, Timing],
         kinds: Mapping[str, str], limit: float) -> dict[str, Any]:  # fmt: skip
    ours = times["ours"]
    row: dict[str, Any] = {"work": work.name, "against": kind, "threads": threads, "ours_ms": ours.median() * 1e3,
                           "limit_share": limit / ours.median(), "goal": goal[min(threads, 2) - 1],
                           "commit": commit()}  # fmt: skip
    rivals = [name for name, k in kinds.items() if k == kind]
    if not rivals:
        return {**row, "peer": None, "peer_ms": None, "ratio": None, "p10": None, "p90": None}
    best = min(rivals, key=lambda name: times[name].median())
    ratio = ours.ratio(times[best])
    return {**row, "peer": best, "peer_ms": times[best].median() * 1e3, "ratio": ratio["median"],
            "p10": ratio["p10"], "p90": ratio["p90"]}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    chosen = {w.name: w for w in works()}
    prepare(args.peers.split(","), args.threads)
    limits = Limits(args.threads)
    # Peers may print to stdout: that goes to stderr, so that the original stdout has only the lines of JSON.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(line: dict[str, Any]) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    for name in args.names:
        work = chosen[name]
        say({"started": name})
        start = time.perf_counter()
        try:
            with contextlib.redirect_stdout(sys.stderr):
                done = measure(work, args.threads, args.rounds, limits, args.peers.split(","))
        except Exception as e:
            reason = str(e).strip().splitlines()
            done = {"work": name, "row": work.row, "threads": args.threads, "rows": [],
                    "refused": f"{type(e).__name__}: {reason[0][:300] if reason else ''}"}  # fmt: skip
        say({**done, "seconds": round(time.perf_counter() - start, 1)})
    say({"limits": limits.to_json()})
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a normal exit may hang or crash in the thread pools of five libraries
