"""python -m conformance [--target TARGET] [--only TEXT] [--again STATUS] [--json] [--list]

Runs the cases that have no result yet, small cases first, and adds their results to conformance/results/.
`python docs/generate.py` writes docs/cases.md from the results. Concurrent runs can divide the cases with --only. A
target without a device here (`cuda:sm_80`, `rocm:gfx942`) is emulated, and runs only the small cases.
Exit code 1 if a case failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence

from qmlir.emulation.backends import emulated_targets

from .run import TARGETS, Runner, cases_of, choose_device, keep, results, select, size


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__.splitlines()[2])
    parser.add_argument("--target", choices=(*TARGETS, *emulated_targets()), default="cpu")
    parser.add_argument("--only", metavar="TEXT", help="cases whose id, system or op contains TEXT")
    parser.add_argument("--again", metavar="STATUS", action="append", default=[],
                        help="run these once more: passed, cut, refused, failed, slow, or all")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="show the cases and what is kept of them")
    parser.add_argument("--json", action="store_true", help="one JSON object a case on stdout")
    args = parser.parse_args(argv)
    choose_device(args.target)
    kept = results(args.target)
    chosen = select(args.only, cases_of(args.target))
    if not chosen:
        parser.error(f"no case has {args.only!r} in its id, system or op")
    if args.list:
        for c in chosen:
            print(f"{c['id']:60} {kept.get(c['id'], {}).get('status', '-')}")
        return 0
    due = [c for c in chosen if c["id"] not in kept or {kept[c["id"]]["status"], "all"} & set(args.again)]
    due.sort(key=size)
    count: Counter[str] = Counter()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Runner(args.target) as runner, Progress(*columns, console=console) as progress:
        task = progress.add_task(args.target, total=len(due))
        for c in due:
            progress.update(task, description=c["id"])
            now = results(args.target)
            if now.get(c["id"]) != kept.get(c["id"]):  # another process has run it meanwhile
                progress.advance(task)
                continue
            row = runner.run(c)
            keep(args.target, row)
            count[row["status"]] += 1
            if args.json:
                print(json.dumps(row), flush=True)
            elif row["status"] in ("failed", "refused", "slow"):
                console.print(f"{row['id']}: {row['status']}: {row['reason']}", markup=False, highlight=False)
            progress.advance(task)
    console.print(f"{args.target}: " + (", ".join(f"{n} {s}" for s, n in count.items()) or "nothing to do"))
    kept = results(args.target)
    return int(any(kept[c["id"]]["status"] == "failed" for c in chosen))


if __name__ == "__main__":
    sys.exit(main())
