"""Builds the folder of the GPU benchmarks, which runs on another machine.

python -m benchmarks.gpu build DIR [--target cuda:sm_90a] [--only NAME] [--no-wheel]
python -m benchmarks.gpu list

Then, on a machine with the device: DIR/run [--help]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .build import CHECK_TARGETS, TARGET, build
from .works import works


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("build", help="compile, and write one folder")
    make.add_argument("dir", type=Path, metavar="DIR", help="a new folder, or one whose build was stopped")
    make.add_argument("--target", default=TARGET, help=f"what is measured is compiled for it (default: {TARGET})")
    make.add_argument("--check", action="append", metavar="TARGET",
                      help=f"what is checked is compiled for it (default: {', '.join(CHECK_TARGETS)})")  # fmt: skip
    make.add_argument("--only", action="append", default=[], metavar="NAME", help="works and checks with NAME in them")
    make.add_argument("--tiny", action="store_true", help="small sizes: a trial of the folder, no measurement")
    make.add_argument("--no-wheel", action="store_true", help="do not fetch the runtime's wheel")
    commands.add_parser("list", help="name what is measured")
    args = parser.parse_args(argv)
    if args.command == "list":
        for work in works():
            goals = ", ".join(f"<= {g.ratio} of {g.peer}" for g in work.goals)
            print(f"{work.row:34} {work.name:56} {goals}")
        return 0
    try:
        build(args.dir, args.target, args.check or CHECK_TARGETS, tiny=args.tiny, only=args.only,
              wheel=not args.no_wheel)  # fmt: skip
    except FileExistsError as e:
        parser.error(str(e))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
