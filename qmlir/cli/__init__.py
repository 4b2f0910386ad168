"""The command line: `qmlir compile | run | import | check | bench | tune | inspect | explain | sign | targets |
devices | cache | completion`, and `qmlir-opt` (module `opt`).

Each command is one file with `add(subparsers)` and `run(args) -> int`. Commands call the public API only. Exit
codes: 0 ok, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from .. import __version__
from .guarded import guarded

COMMANDS = (
    "compile", "run", "import_", "check", "bench", "tune", "inspect", "explain", "sign", "targets", "devices", "cache",
    "completion",
)  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """The parser of `qmlir`."""
    from .arguments import Help

    parser = argparse.ArgumentParser(
        prog="qmlir",
        description="Compile and run quantised linear algebra.",
        epilog="exit codes: 0 ok, 1 failed, 2 wrong usage",
        formatter_class=Help,
    )
    parser.add_argument("--version", action="store_true", help="print the versions of qmlir and IREE, and the devices")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f".{name}", __name__).add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Errors are one message on stderr, never a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)

    def body() -> int:
        from .arguments import parse, wrapped
        from .progress import be_verbose

        parser = build_parser()
        args = parse(parser, words)
        if args.version:
            print(wrapped(versions()))
            return 0
        if args.command is None:
            parser.print_help(sys.stderr)
            return 2
        args.words, args.parser = ["qmlir", *words], parser
        if args.verbose:
            be_verbose()
        return int(args.run(args))

    return guarded(body, "qmlir")


def versions() -> str:
    """The versions of qmlir and its dependencies, and the devices of this machine."""
    import platform

    from .devices import listed

    found = [f"{row['driver']}: {row['name']} {row['arch']}".strip() for row in listed()]
    return "\n".join([
        f"qmlir {__version__} (IREE compiler {_installed('iree-base-compiler')}, "
        f"runtime {_installed('iree-base-runtime')})",
        f"Python {platform.python_version()}, numpy {_installed('numpy')}, {platform.system()} {platform.machine()}",
        *(f"device {text}" for text in found),
    ])  # fmt: skip


def _installed(package: str) -> str:
    """The version of a package, or "not installed": programs run without the compiler."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
