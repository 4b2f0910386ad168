"""`qmlir cache`: the compilation cache."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    """The command's arguments."""
    p = commands.add_parser("cache", help="show or clear the compilation cache", description=__doc__)
    p.add_argument("action", choices=("path", "ls", "clear"))
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..cache import Cache

    cache = Cache()
    if args.action == "path":
        print(cache.folder)
    elif args.action == "ls":
        for entry in cache.entries():
            print(f"{entry.stat().st_size:>12,}  {entry.stem}")
    else:
        print(f"{cache.clear()} entries removed from {cache.folder}")
    return 0
