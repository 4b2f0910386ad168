"""The command line: `qmlir compile | run | import | targets | cache`, and `qmlir-opt` (module `opt`).

Each command is one file with `add(subparsers)` and `run(args) -> int`. Commands call the public API only. Exit
codes: 0 ok, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence

from .. import __version__

COMMANDS = ("compile", "run", "import_", "targets", "cache")


def build_parser() -> argparse.ArgumentParser:
    """The parser of `qmlir`."""
    parser = argparse.ArgumentParser(
        prog="qmlir",
        description="Compile and run quantised linear algebra.",
        epilog="exit codes: 0 ok, 1 failed, 2 wrong usage",
    )
    parser.add_argument("--version", action="store_true", help="print the versions of qmlir and IREE")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f".{name}", __name__).add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Errors are one message on stderr, never a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)

    def body() -> int:
        from .child import in_child, obey_parent

        if in_child():
            obey_parent()
        parser = build_parser()
        args = parser.parse_args(words)
        if args.version:
            from importlib.metadata import version

            print(f"qmlir {__version__} (IREE compiler {version('iree-base-compiler')}, "
                  f"runtime {version('iree-base-runtime')})")  # fmt: skip
            return 0
        if args.command is None:
            parser.print_help(sys.stderr)
            return 2
        args.words = words
        return int(args.run(args))

    return guarded(body, "qmlir")


def guarded(body: Callable[[], int], program: str) -> int:
    """Turn our errors into messages and exit codes."""
    from ..errors import QmlirError

    try:
        return body()
    except QmlirError as e:
        print(f"{program}: {_prefixed(str(e))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except Exception as e:
        print(f"{program}: {_internal(e)}", file=sys.stderr)
        return 1


def _internal(e: Exception) -> str:
    """A defect of ours: one line for the person, the traceback in a file for the report."""
    import tempfile
    import traceback

    from .. import settings

    folder = settings.reproducer_folder()
    folder.mkdir(parents=True, exist_ok=True)
    handle, path = tempfile.mkstemp(prefix="qmlir-internal-", suffix=".log", dir=folder)
    with open(handle, "w") as f:
        f.write("".join(traceback.format_exception(e)))
    return f"error: internal error ({type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}); details: {path}"


def _prefixed(text: str) -> str:
    """`error: ...`, unless the message brings a place and the word itself."""
    return text if ": error: " in text.splitlines()[0] else f"error: {text}"
