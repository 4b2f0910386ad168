"""`qmlir bench`: measure the speed of programs."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from ..core.files import write_atomically
from ..errors import UsageError
from .arguments import (
    add_arguments,
    add_emulate,
    add_limits,
    add_old_name,
    add_parameters,
    add_source,
    add_target,
    command,
    count,
    positive,
)
from .child import ProcessLimits, breadcrumb, run_in_child
from .compile import check_writable
from .run import arguments_of


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "bench", "[options] IN...", "measure the speed of programs",
                "Measure programs (.mlir, .onnx, .pt2, .vmfb) in alternation: median, 10th and 90th percentile of a "
                "call, share of the roofline.")  # fmt: skip
    add_source(p, "programs", nargs="+")
    p.add_argument(
        "--against", action="append", default=[], metavar="OTHER", help="a program to compare with, or onnxruntime"
    )
    add_old_name(p, "--vs", "--against")
    add_arguments(p)
    p.add_argument("--seconds", type=positive, default=1.0, metavar="S", help="how long to measure (default: 1)")
    p.add_argument("--warmup", type=count, default=3, metavar="N", help="calls before (default: 3)")
    p.add_argument("--rounds", type=count, metavar="N", help="how many rounds of calls, instead of a time")
    add_old_name(p, "--repeats", "--rounds")
    p.add_argument("--threads", type=count, metavar="N", help="worker threads of the CPU")
    p.add_argument("--device", help="local-sync, local-task, vulkan://0, ...")
    p.add_argument("--limits", type=stated_limits, metavar="OPS,BYTES", help="roofline: per second, as 2e12,30e9")
    add_target(p)
    add_emulate(p)
    add_parameters(p)
    add_limits(p)
    p.add_argument("--plot", metavar="FILE", help="write a picture (.png, .svg)")
    p.add_argument("--csv", metavar="FILE", help="write the figures as CSV")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def stated_limits(text: str) -> tuple[float, float]:
    """`OPS,BYTES` as two positive numbers."""
    try:
        operations, bandwidth = (float(part) for part in text.split(","))
        if operations > 0 and bandwidth > 0:
            return operations, bandwidth
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r}: write operations and bytes a second, such as 2e12,30e9")


def run(args: argparse.Namespace) -> int:
    return run_in_child(lambda: _bench(args), args.words, args.programs[0], ProcessLimits.of(args), args.quiet)


def _bench(args: argparse.Namespace) -> int:
    if args.threads is not None:
        os.environ["QMLIR_THREADS"] = str(args.threads)  # before the device is created
    import qmlir

    from ..tools.measure import Limits

    if args.emulate:
        return _count(args)
    for path in (args.plot, args.csv):
        if path is not None:
            check_writable(Path(path), *args.programs, *args.against)
    limits = None if args.limits is None else Limits(args.limits[0], args.limits[1], "as stated")
    report = qmlir.bench(
        *args.programs, against=args.against, function=args.function, size=args.size, shapes=dict(args.shapes),
        arguments=arguments_of(args.arguments) if args.arguments else None, seconds=args.seconds,
        warmup=args.warmup, rounds=args.rounds, device=args.device, limits=limits, seed=args.seed,
        step=lambda text: breadcrumb(f"{text}\n"), target=args.target,
        parameters=dict(args.parameters),
    )  # fmt: skip
    if args.plot is not None:
        report.plot(args.plot)
    if args.csv is not None:
        write_atomically(Path(args.csv), report.to_csv().encode())
    if args.json:
        print(json.dumps(report.to_json(), indent=2))
    elif not (args.quiet and (args.csv or args.plot)):
        print(report.text())
    return 0


def _count(args: argparse.Namespace) -> int:
    """Count what the programs execute on emulated devices."""
    from ..tools.count import count

    for name, given in (
        ("--plot", args.plot), ("--csv", args.csv), ("--device", args.device), ("--limits", args.limits),
        ("--rounds", args.rounds), ("--against onnxruntime", "onnxruntime" in args.against),
    ):  # fmt: skip
        if given:
            raise UsageError(f"--emulate counts, and measures no time: leave out {name}")
    report = count(
        *args.programs, *args.against, target=args.target, function=args.function, size=args.size,
        shapes=dict(args.shapes), arguments=arguments_of(args.arguments) if args.arguments else None,
        seed=args.seed, step=lambda text: breadcrumb(f"{text}\n"), parameters=dict(args.parameters),
    )  # fmt: skip
    print(json.dumps(report.to_json(), indent=2) if args.json else report.text())
    return 0
