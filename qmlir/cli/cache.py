"""`qmlir cache`: the compilation cache."""

from __future__ import annotations

import argparse

from ..core.cache import Cache
from .arguments import command


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "cache", "[options] {path,ls,clear}", "show or clear the compilation cache",
                "Show where compiled programs are kept, list them with their sizes, or remove them all.")  # fmt: skip
    p.add_argument("action", choices=("path", "ls", "clear"), help=argparse.SUPPRESS)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:

    cache = Cache()
    if args.action == "path":
        print(cache.folder)
    elif args.action == "ls":
        for entry in cache.entries():
            print(f"{entry.stat().st_size:>12,}  {entry.stem}")
    else:
        removed = cache.clear()
        if not args.quiet:
            print(f"{removed} entries removed from {cache.folder}")
    return 0
