"""`qmlir check`: run a program in two ways and compare the results value by value."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .arguments import (
    add_arguments,
    add_compilation,
    add_emulate,
    add_limits,
    add_old_name,
    add_source,
    command,
    compilation,
    wrapped,
)
from .child import ProcessLimits, breadcrumb, run_in_child
from .compile import check_writable
from .run import arguments_of


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "check", "[options] IN", "compare a program with a reference, target or program",
                "Run IN (.mlir, .onnx, .pt2, .vmfb) in two ways and compare the outputs; if they differ, find the "
                "first layer that differs. Exit code 1 when a value is beyond the tolerance.")  # fmt: skip
    add_source(p, "input_file")
    p.add_argument(
        "--against", default="reference", metavar="OTHER", help="reference, onnxruntime, a target, .mlir, .vmfb"
    )
    p.add_argument("--tolerance", type=float, metavar="X", help="floats: error by largest value (default: by type)")
    p.add_argument("--codes", type=int, default=0, metavar="N", help="integers: error allowed for 0.1 %% (default: 0)")
    add_old_name(p, "--tol", "--tolerance")
    p.add_argument("--layers", action="store_true", help="compare every intermediate value")
    add_arguments(p)
    add_compilation(p)
    add_emulate(p)
    add_limits(p)
    p.add_argument("--plot", metavar="FILE", help="write a picture of the errors (.png, .svg)")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return run_in_child(lambda: _check(args), args.words, args.input_file, ProcessLimits.of(args), args.quiet)


def _check(args: argparse.Namespace) -> int:
    import qmlir

    if args.plot is not None:
        check_writable(Path(args.plot), args.input_file, args.against)
    report = qmlir.check(
        args.input_file, against=args.against, function=args.function, layers=args.layers,
        arguments=arguments_of(args.arguments) if args.arguments else None,
        tolerance=qmlir.Tolerance(args.tolerance, args.codes), size=args.size, shapes=dict(args.shapes),
        seed=args.seed, emulate=args.emulate, step=lambda text: breadcrumb(f"{text}\n"), **compilation(args),
    )  # fmt: skip
    if args.plot is not None:
        report.plot(args.plot)
    if args.json:
        print(json.dumps(report.to_json(), indent=2))
    elif not args.quiet:
        print(wrapped(report.text()))
    return 0 if report.ok else 1
