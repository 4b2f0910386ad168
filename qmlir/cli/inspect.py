"""`qmlir inspect`: show the contents of a program or a compiled file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..core.files import write_atomically
from ..core.spelling import CODE_LEVELS
from ..errors import UsageError
from .arguments import add_compilation, add_limits, add_source, command, compilation, width
from .child import ProcessLimits, breadcrumb, run_in_child


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "inspect", "[options] IN", "show the contents of a program or a .vmfb",
                "Show the contents of IN (.mlir, .onnx, .pt2, .vmfb): functions, ops, schemes, bytes, target and its "
                "needs, strategies, versions; or, with --source, its text at a level or its "
                "device code (asm, ptx, isa, spirv).")  # fmt: skip
    add_source(p)
    p.add_argument("--source", metavar="LEVEL", choices=CODE_LEVELS,
                   help="print the text: " + ", ".join(CODE_LEVELS[:5]))  # fmt: skip
    p.add_argument("--dispatch", metavar="NAME", help="only this dispatch: its name or a part of it")
    p.add_argument("--layout", metavar="TARGET",
                   help="draw the matrix instruction IN of TARGET: which lane holds what")  # fmt: skip
    p.add_argument("-o", "--output", metavar="FILE.svg", help="with --layout: write the picture there")
    p.add_argument("--read-outside", action="store_true",
                   help="read the files that a .vmfb names, wherever they are")  # fmt: skip
    add_compilation(p)
    add_limits(p)
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:

    if args.layout is not None:
        return _layout(args)
    if args.output is not None:
        raise UsageError("-o goes with --layout")
    if args.json and args.source is not None:
        raise UsageError("--json prints the contents, --source the text: give one of them")
    if args.dispatch is not None and args.source is None:
        raise UsageError("--dispatch goes with --source: dispatch, asm, ptx, isa or spirv")
    if args.read_outside and (args.source is None or Path(args.input).suffix != ".vmfb"):
        raise UsageError("--read-outside goes with --source of a .vmfb")
    return run_in_child(lambda: _inspect(args), args.words, args.input, ProcessLimits.of(args), args.quiet)


def _inspect(args: argparse.Namespace) -> int:
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


def _layout(args: argparse.Namespace) -> int:
    """Show which lane holds which elements of a matrix instruction's operands and result."""
    from ..targets import resolve
    from ..tools import layouts

    if args.source is not None:
        raise UsageError("--layout shows an instruction, --source a program: give one of them")
    name, fragments = layouts.fragments(resolve(args.layout), args.input)
    if args.output is not None:
        write_atomically(Path(args.output), layouts.svg(name, fragments).encode())
    elif args.json:
        print(json.dumps(layouts.to_json(name, fragments), indent=2))
    else:
        print(layouts.text(name, fragments))
    return 0
