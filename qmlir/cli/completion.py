"""`qmlir completion`: a script that completes commands, options, targets and files in a shell."""

from __future__ import annotations

import argparse
from types import ModuleType

from ..errors import UsageError
from .arguments import command

SHELLS = ("bash", "zsh", "tcsh")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "completion", "{bash,zsh,tcsh}", "print a completion script for a shell",
                "Print a script that completes qmlir's commands, options, targets and files. For bash: qmlir "
                "completion bash > ~/.local/share/bash-completion/completions/qmlir")  # fmt: skip
    p.add_argument("shell", choices=SHELLS, help=argparse.SUPPRESS)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise UsageError("completion scripts need shtab: pip install 'qmlir[completion]'") from None

    parser: argparse.ArgumentParser = args.parser  # the parser of all commands
    _set_completions(parser, shtab)
    print(shtab.complete(parser, args.shell))
    return 0


def _set_completions(parser: argparse.ArgumentParser, shtab: ModuleType) -> None:
    """Let arguments complete to files or folders, by their metavars, and --target to the names of targets."""
    from ..targets import BACKENDS, all_targets

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _set_completions(child, shtab)
        elif action.dest == "target":
            action.choices = [*BACKENDS, *(t.spelling for t in all_targets())]
        elif action.metavar in ("IN", "FILE"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
