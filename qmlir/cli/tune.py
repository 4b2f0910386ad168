"""`qmlir tune`: compile a program in several ways, measure them and record the best choices."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from .. import settings
from ..errors import UsageError
from .arguments import add_parameters, add_source, add_target, command, count
from .child import breadcrumb, run_in_child
from .compile import check_writable


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "tune", "[options] [IN]", "find the fastest choices for a program",
                "Compile IN (.mlir, .onnx, .pt2) in the ways that the target's strategies leave open, measure them, "
                "and write the best choices to a database, which qmlir compile --tuning reads.")  # fmt: skip
    add_source(p, nargs="?")
    add_target(p)
    add_parameters(p)
    p.add_argument("--budget", type=duration, default=300.0, metavar="T", help="time for all: 90s, 5m (default: 5m)")
    p.add_argument("--database", default="tuning.json", metavar="FILE", help="results are added to it (tuning.json)")
    p.add_argument("--folder", metavar="DIR", help="keeps candidates, to continue an interrupted search")
    p.add_argument("--size", type=count, default=4, metavar="N", help="for dynamic sizes (default: 4)")
    p.add_argument("-f", "--function", default="main", metavar="NAME", help="the function to call")
    p.add_argument("--jobs", type=count, metavar="N", help="compilations at once")
    p.add_argument("--emit", metavar="DIR", help="only compile, into DIR")
    p.add_argument("--measure", metavar="DIR", help="only measure what --emit compiled; needs no compiler")
    p.add_argument("--dask", metavar="ADDRESS", help="measure on a Dask cluster: tcp://host:8786")
    p.add_argument("--merge", action="append", default=[], metavar="FILE", help="only add other databases")
    p.set_defaults(run=run)


def duration(text: str) -> float:
    """`90s`, `5m`, `1h` or a number of seconds, in seconds."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    try:
        seconds = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: write a time such as 90s or 5m")
    return seconds


def run(args: argparse.Namespace) -> int:

    if not (args.input or args.measure or args.merge):
        raise UsageError("give a program to tune, or --measure DIR, or --merge FILE")
    return run_in_child(lambda: _tune(args), args.words, args.input or args.measure or "databases", quiet=args.quiet)


def _tune(args: argparse.Namespace) -> int:
    from ..compiler.tuning_database import Database
    from ..tuning.cluster import measure_on_cluster
    from ..tuning.measure import measure_folder, read_plan
    from ..tuning.search import conclude, device_name, emit, tune

    def step(text: str) -> None:
        breadcrumb(f"{text}\n")

    path = Path(args.database)
    if args.emit is None:
        check_writable(path, *([args.input] if args.input else []))
    known = Database.read(path) if path.exists() and args.emit is None else Database()
    if args.merge:
        for other in args.merge:
            known = known.merged(Database.read(other))
        known.write(path)
        if not args.quiet:
            print(f"{path}: {len(known.entries)} programs, {sum(map(len, known.entries.values()))} records")
        return 0
    if args.measure:
        folder = Path(args.measure)
        if args.dask:
            measure_on_cluster(folder, args.dask, args.budget, step)
        else:
            measure_folder(folder, args.budget, step)
        found, report = conclude(folder, device_name(read_plan(folder)["target"]))
    else:
        source = Path(args.input)
        parameters = dict(args.parameters)
        if args.emit:
            plan = emit(source, Path(args.emit), target=args.target, function=args.function, size=args.size,
                        budget=args.budget, jobs=args.jobs, parameters=parameters, step=step)  # fmt: skip
            if not args.quiet:
                print(f"{args.emit}: {sum('file' in c for c in plan['candidates'])} candidates to measure")
            return 0
        name = hashlib.sha256(f"{source.resolve()} {args.target}".encode()).hexdigest()[:16]
        folder = Path(args.folder) if args.folder else settings.cache_folder() / "tuning" / name
        found, report = tune(source, folder, target=args.target, budget=args.budget, function=args.function,
                             size=args.size, jobs=args.jobs, parameters=parameters, step=step)  # fmt: skip
    known.merged(found).write(path)
    if not args.quiet:
        print(report)
    return 0
