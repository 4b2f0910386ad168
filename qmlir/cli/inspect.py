"""`qmlir inspect`: what is in a program or a compiled file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..core.spelling import CODE_LEVELS
from ..errors import UsageError
from .arguments import add_compilation, add_limits, add_source, command, compilation, width


def add(commands: Any) -> None:
    """The command's arguments."""
    p = command(commands, "inspect", "[options] IN", "show what is in a program or a .vmfb",
                "Show what is in IN (.mlir, .vmfb): functions, ops, schemes, bytes, target and what it needs, "
                "strategies, versions; or, with --source, its text at a level or its "
                "device code (asm, ptx, isa, spirv).")  # fmt: skip
    add_source(p)
    p.add_argument("--source", metavar="LEVEL", choices=CODE_LEVELS,
                   help="print the text: " + ", ".join(CODE_LEVELS[:5]))  # fmt: skip
    p.add_argument("--dispatch", metavar="NAME", help="of this dispatch alone: its name or a part of it")
    p.add_argument("--read-outside", action="store_true",
                   help="read the files that a .vmfb names, wherever they are")  # fmt: skip
    add_compilation(p)
    add_limits(p)
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from .child import Limits, breadcrumb, in_child, run_in_child

    if args.dispatch is not None and args.source is None:
        raise UsageError("--dispatch goes with --source: dispatch, asm, ptx, isa or spirv")
    if args.read_outside and (args.source is None or Path(args.input).suffix != ".vmfb"):
        raise UsageError("--read-outside goes with --source of a .vmfb")
    if not in_child():
        return run_in_child("qmlir", args.words, "qmlir", args.input, Limits.of(args), args.quiet)
    import qmlir

    breadcrumb(f"the inspection of {args.input}\n")
    if args.source is not None:
        if Path(args.input).suffix == ".vmfb":
            text = qmlir.Artifact.open(args.input).source(args.source, args.dispatch, read_outside=args.read_outside)
        else:
            text = qmlir.source(args.input, args.source, dispatch=args.dispatch, **compilation(args))
        print(text.rstrip("\n"))
        return 0
    found = qmlir.inspect(args.input, start=args.start, parameters=dict(args.parameters))
    print(json.dumps(found.to_json(), indent=2) if args.json else found.text(width()))
    return 0
