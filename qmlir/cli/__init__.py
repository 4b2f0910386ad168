"""The command line: `qmlir compile | run | import | check | bench | tune | inspect | explain | targets | cache |
completion`, and `qmlir-opt` (module `opt`).

Each command is one file with `add(subparsers)` and `run(args) -> int`. Commands call the public API only. Exit
codes: 0 ok, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TextIO

from .. import __version__

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
        from .arguments import wrapped
        from .child import in_child, limit_memory, obey_parent
        from .progress import be_verbose

        if in_child():
            obey_parent()
        parser = build_parser()
        args = parse(parser, words)
        if args.version:
            print(wrapped(versions()))
            return 0
        if args.command is None:
            parser.print_help(sys.stderr)
            return 2
        args.words = words
        if in_child():
            limit_memory(getattr(args, "memory", None))
        if args.verbose:
            be_verbose()
        return int(args.run(args))

    return guarded(body, "qmlir")


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """The arguments. Python's argparse makes an empty list of `--option=--`; that is an option without its argument."""
    args = parser.parse_args(words)
    empty = [w for w in words if w.endswith("=--") or (w.startswith("-") and w != "--" and w[2:] == "--")]
    if empty and any(v == [] or (isinstance(v, list) and [] in v) for v in vars(args).values()):
        parser.error(f"argument {empty[0].removesuffix('=--')}: expected one argument")
    return args


def versions() -> str:
    """Versions of what compiles and runs, and the devices that are here."""
    import platform
    from importlib.metadata import version

    from .devices import listed

    found = [f"{row['driver']}: {row['name']} {row['arch']}".strip() for row in listed()]
    return "\n".join([
        f"qmlir {__version__} (IREE compiler {version('iree-base-compiler')}, runtime {version('iree-base-runtime')})",
        f"Python {platform.python_version()}, numpy {version('numpy')}, {platform.system()} {platform.machine()}",
        *(f"device {text}" for text in found),
    ])  # fmt: skip


def guarded(body: Callable[[], int], program: str) -> int:
    """Turn our errors into messages and exit codes."""
    from ..errors import QmlirError

    shown = warnings.showwarning

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
        line: str | None = None,
    ) -> None:  # fmt: skip
        """A deprecation in the words of a command."""
        if issubclass(category, DeprecationWarning):
            print(f"{program}: note: {message}", file=sys.stderr)
        else:
            shown(message, category, filename, lineno, file, line)

    warnings.showwarning = show
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
    except OSError as e:
        # A disk that is full, a name that is too long: what the system says of a file is the person's to mend.
        name = f"{e.filename}: " if e.filename is not None else ""
        print(f"{program}: error: {name}{e.strerror or e}", file=sys.stderr)
        return 1
    except MemoryError:
        print(f"{program}: error: out of memory", file=sys.stderr)
        return 1
    except Exception as e:
        print(f"{program}: {_internal(e)}", file=sys.stderr)
        return 1
    finally:
        warnings.showwarning = shown


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
