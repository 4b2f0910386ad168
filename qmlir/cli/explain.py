"""`qmlir explain`: show which strategies of a target accept a program's contractions, and why others decline."""

from __future__ import annotations

import argparse
import json

from .arguments import add_compilation, add_limits, add_source, command, compilation, width
from .child import ProcessLimits, breadcrumb, run_in_child


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "explain", "[options] IN", "show how a target compiles a program, and why",
                "For every contraction of IN (.mlir, .onnx, .pt2, .vmfb): each strategy of the target, best first, "
                "accepted or declined with its reason, the plan, an estimate, and what would make it fit.")  # fmt: skip
    add_source(p)
    add_compilation(p)
    add_limits(p)
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when the target refuses the program."""

    return run_in_child(lambda: _explain(args), args.words, args.input, ProcessLimits.of(args), args.quiet)


def _explain(args: argparse.Namespace) -> int:
    import qmlir

    breadcrumb(f"the choice of strategies for {args.target}\n")
    found = qmlir.explain(args.input, **compilation(args))
    print(json.dumps(found.to_json(), indent=2) if args.json else found.text(width()))
    return 0 if found.ok else 1
