"""Arguments that several commands share, and help that fits a screen of 24 lines and 80 columns."""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypedDict

from ..core.spelling import LEVELS

if TYPE_CHECKING:
    from rich.console import Console


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. An unknown option is refused, with similar ones of its command. argparse reads
    `--option=--` as an empty list, which is refused as an option without its argument."""
    args, unknown = parser.parse_known_args(words)
    if unknown:
        _refuse(parser, getattr(args, "command", None), unknown)
    empty = [w for w in words if w.endswith("=--") or (w.startswith("-") and w != "--" and w[2:] == "--")]
    if empty and any(v == [] or (isinstance(v, list) and [] in v) for v in vars(args).values()):
        parser.error(f"argument {empty[0].removesuffix('=--')}: expected one argument")
    return args


def _refuse(parser: argparse.ArgumentParser, command: str | None, unknown: Sequence[str]) -> NoReturn:
    """Exit for wrong usage: arguments that the command does not have."""
    commands = next((a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)), {})
    parser = commands.get(command or "", parser)
    options = [o for a in parser._actions if a.help != argparse.SUPPRESS for o in a.option_strings if o[:2] == "--"]
    given = next((w.partition("=")[0] for w in unknown if w.startswith("--")), None)
    near = difflib.get_close_matches(given, options, n=2, cutoff=0.7) if given is not None else []
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


class Help(argparse.HelpFormatter):
    """Help with one line per option. Positional arguments are in the usage line and in the description."""

    def __init__(self, prog: str) -> None:
        width = shutil.get_terminal_size((80, 24)).columns
        super().__init__(prog, max_help_position=28, width=min(width, 100) - 1)
        self._action_max_length = 14  # aligns the commands, whose length argparse does not count

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        # `-t, --target TARGET`, not `-t TARGET, --target TARGET`.
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        return f"{', '.join(action.option_strings)} {metavar}"


def command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, usage: str, help: str, description: str
) -> argparse.ArgumentParser:
    """Add a command's parser. `usage` is the text after the command's name."""
    p: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=description, usage=f"qmlir {name} {usage}", formatter_class=Help
    )
    p.add_argument("-q", "--quiet", action="store_true", help="print only what was asked for")
    p.add_argument("-v", "--verbose", action="store_true", help="print each step and its time on stderr")
    return p


def add_source(p: argparse.ArgumentParser, dest: str = "input", nargs: str | None = None) -> None:
    """Add the argument for the command's program."""
    p.add_argument(dest, metavar="IN", help=argparse.SUPPRESS, nargs=nargs)


def add_compilation(p: argparse.ArgumentParser) -> None:
    """Add the options for compiling a program that is given as source."""
    add_target(p)
    add_parameters(p)
    p.add_argument("--start", default="import", metavar="LEVEL", choices=LEVELS,
                   help=f"level of IN: {', '.join(LEVELS)}")  # fmt: skip
    p.add_argument("--flags", action="append", default=[], metavar="FLAG",
                   help="a flag for IREE: =--iree-opt-level=O3")  # fmt: skip
    add_old_name(p, "--iree-flag", "--flags")


def add_old_name(p: argparse.ArgumentParser, old: str, new: str) -> None:
    """Add an option's former name, which works and prints the new one."""
    option = next(a for a in p._actions if new in a.option_strings)
    p.add_argument(old, action=_OldName, option=option, dest=option.dest, type=option.type or str,
                   default=argparse.SUPPRESS, help=argparse.SUPPRESS)  # fmt: skip


class _OldName(argparse.Action):
    """The action of an option's former name."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, option: argparse.Action, type: Callable[[str], object],
        default: object, help: str,
    ) -> None:  # fmt: skip
        super().__init__(option_strings, dest, type=type, default=default, help=help)
        self.option = option

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option: str | None = None,
    ) -> None:
        print(f"{parser.prog}: note: {option} is deprecated: use {self.option.option_strings[-1]}", file=sys.stderr)
        self.option(parser, namespace, values, option)


def add_arguments(p: argparse.ArgumentParser) -> None:
    """Add the options for the arguments of the called function, from files or generated."""
    p.add_argument("-f", "--function", default="main", metavar="NAME", help="the function to call")
    p.add_argument("-i", "--arguments", action="append", default=[], metavar="FILE", help="arguments (.npy, .npz)")
    p.add_argument("--shapes", action="append", default=[], type=shape, metavar="ARG=4x8", help="shape of an argument")
    p.add_argument("--size", type=count, default=4, metavar="N", help="for dynamic sizes (default: 4)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random arguments")
    add_old_name(p, "--input", "--arguments")
    add_old_name(p, "--shape", "--shapes")


def add_emulate(p: argparse.ArgumentParser) -> None:
    p.add_argument("--emulate", action="store_true", help="run on an emulated GPU: slow, checks every access")


def add_target(p: argparse.ArgumentParser) -> None:
    p.add_argument("-t", "--target", default="cpu", help="cpu, cuda:sm_90a, rocm:gfx942, vulkan:ada, ...")


def add_parameters(p: argparse.ArgumentParser) -> None:
    p.add_argument("--parameters", action="append", default=[], type=parameter_file, metavar="SCOPE=FILE",
                   help="weights: .safetensors, .irpa or .gguf")  # fmt: skip


def add_limits(p: argparse.ArgumentParser) -> None:
    """Add the limits of the child process."""
    p.add_argument("--timeout", type=positive, metavar="S", help="give up after S seconds")
    p.add_argument("--memory", type=gibibytes, metavar="GIB", help="give up above GIB GiB (memory= in Python: bytes)")


def positive(text: str) -> float:
    """A number above 0, and not NaN."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def gibibytes(text: str) -> int:
    """A positive number of GiB, as bytes."""
    try:
        size = int(float(text) * 2**30)
    except (ValueError, OverflowError):
        size = 0
    if not 0 < size < 2**62:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GiB above 0")
    return size


class CompilationArguments(TypedDict):
    """Options of `qmlir.compile` that several commands have."""

    target: str
    start: str
    parameters: dict[str, str]
    flags: tuple[str, ...]


def compilation(args: argparse.Namespace) -> CompilationArguments:
    """The options of `qmlir.compile` that `add_compilation` adds."""
    return {
        "target": args.target, "start": args.start, "parameters": dict(args.parameters),
        "flags": tuple(args.flags),
    }  # fmt: skip


def parameter_file(item: str) -> tuple[str, str]:
    """`SCOPE=FILE` as a pair."""
    scope, eq, path = item.partition("=")
    if not eq or not path:
        raise argparse.ArgumentTypeError(f"{item!r}: write SCOPE=FILE")
    return scope, path


def chosen(item: str) -> tuple[str, int | str]:
    """`KNOB=VALUE` as a pair; numbers are integers."""
    name, eq, value = item.partition("=")
    if not eq or not name or not value:
        raise argparse.ArgumentTypeError(f"{item!r}: write KNOB=VALUE")
    return name, int(value) if value.isdigit() else value


def count(text: str) -> int:
    """A number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def shape(item: str) -> tuple[str, tuple[int, ...]]:
    """`NAME=4x8` as a pair."""
    name, eq, sizes = item.partition("=")
    if not eq or not all(part.isdigit() for part in sizes.split("x")):
        raise argparse.ArgumentTypeError(f"{item!r}: write NAME=4x8")
    return name, tuple(int(part) for part in sizes.split("x"))


def wrapped(text: str) -> str:
    """Wrap lines that are wider than the terminal; leave the text unchanged if the output is a file."""
    columns = width()
    if columns is None:
        return text
    made: list[str] = []
    for line in text.splitlines():
        if len(line) <= columns:
            made.append(line)
        else:
            made += textwrap.wrap(line, max(columns, 40), subsequent_indent=" " * 4, break_long_words=False,
                                  break_on_hyphens=False)  # fmt: skip
    return "\n".join(made)


def width() -> int | None:
    """Columns to wrap reports to: the terminal's, or what COLUMNS says; None if the output is a file."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size((80, 24)).columns
    return None


def console() -> Console:
    """What tables are printed to: they fit the terminal, and in a file no cell is cut or wrapped."""
    from rich.console import Console

    return Console(width=width() or 500)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their column names, wrapped to the terminal; in a file each row is one line."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)
