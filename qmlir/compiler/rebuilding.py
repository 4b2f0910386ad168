"""The levels of a program that was loaded from a file, which take its source and compile it again.

A manifest is what somebody wrote into a file. Of what it asks for, only that is done which this package declares: the
flags of the knobs of strategies, its own passes and `passes.registry.UPSTREAM`, its levels. Files that it names are
read where they lie beside the program or in the current folder; others only when the caller says so.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.rows import OptionsRow
from ..core.spelling import CODE_LEVELS, LEVELS
from ..errors import ArtifactError, UsageError
from ..passes.pipeline import undeclared
from ..runtime.artifact import Artifact
from ..targets import Target, resolve
from ..targets.strategy import saved_choice
from .choices import choice_flags
from .disassembly import device_code
from .options import KEEP_PARAMETERS, Options
from .parsing import show
from .run import run_compiler
from .sources import program_of

if TYPE_CHECKING:
    from ..core.mlir import ir


def rebuilder(artifact: Artifact, read_outside: bool = False) -> Callable[[str, str | None], str]:
    """What shows the levels of an artifact that was loaded from a file: its source, where it still is what it was.

    Args:
        read_outside: also read files that the manifest names outside of the artifact's and the current folder.

    Raises:
        ArtifactError: the manifest asks for what qmlir declares nowhere.
        UsageError: the source was no file, is gone, has changed, or lies outside.
    """
    origin = artifact.manifest.source
    if not isinstance(origin, Mapping):
        raise UsageError("the program was compiled from memory, and its source is not kept; compile it again")
    name = str(artifact.path or "the program")
    target = resolve(artifact.target)
    kept = origin["options"]
    _check_declared(kept, origin["import_options"], target, name)
    named = {"": str(origin["path"]), **{str(scope): str(file) for scope, file in kept["parameters"].items()}}
    files: dict[str, str] = {}
    outside: list[str] = []
    for scope, file in named.items():
        places = list(_places(file, artifact))
        readable = [p for p in places if read_outside or _inside(p, artifact)]
        there = next((p for p in readable if _is_file(p)), None)
        if there is not None:
            files[scope] = str(there)
        elif readable == places:
            raise UsageError(f"the program was compiled from {file}, which is not here; compile it again")
        else:
            outside.append(file)
    if outside:
        raise UsageError(
            f"{name} names files that lie neither beside it nor in the current folder: {', '.join(outside)}; to read "
            "them, say so: artifact.source(level, read_outside=True), or qmlir inspect --read-outside"
        )
    program = program_of(files.pop(""), {}, kept["start"])
    if hashlib.sha256(program.key().encode()).hexdigest() != origin["sha256"]:
        raise UsageError(f"the program was compiled from {named['']}, which has changed since; compile it again")
    options = Options(
        pipeline=kept.get("pipeline"),
        start=kept["start"],
        parameters=files,
        keep_parameters=kept.get("keep_parameters", False),
        flags=tuple(kept["flags"]),
        choice=saved_choice(kept.get("choice", {})),
    )
    return lambda level, dispatch: rebuild(program, target, options, level, dispatch)


def _check_declared(options: OptionsRow, import_options: Mapping[str, object], target: Target, name: str) -> None:
    """Refuse what a file may not ask for."""

    def refuse(what: str, remedy: str) -> ArtifactError:
        return ArtifactError(f"{name} {what}, and nothing of that was done; {remedy}")

    again = "if they are yours, compile the source again with them (qmlir.source, or qmlir inspect SOURCE)"
    try:
        declared = choice_flags(target, saved_choice(options.get("choice", {})))
    except UsageError as e:
        raise refuse(f"makes a choice that no strategy of {target.spelling} declares", str(e)) from None
    if foreign := [f for f in options["flags"] if f not in declared]:
        raise refuse(f"names compiler flags that qmlir does not declare ({' '.join(foreign)})", again)
    if options["start"] not in LEVELS:
        raise refuse(f"starts at an unknown level ({options['start']})", f"levels are {', '.join(LEVELS)}")
    if options.get("keep_parameters", False) not in KEEP_PARAMETERS:
        raise refuse("keeps its parameters in an unknown way", f"{', '.join(map(str, KEEP_PARAMETERS))} are known")
    if import_options:
        raise refuse(f"names options of a front end ({', '.join(map(str, import_options))})", again)
    if (text := options.get("pipeline")) is not None and (not isinstance(text, str) or undeclared(text)):
        shown = ", ".join(undeclared(text)) if isinstance(text, str) else "which is not text"
        raise refuse(f"names passes or options of passes that qmlir does not declare ({shown})", again)


def _places(file: str, artifact: Artifact) -> Iterator[Path]:
    """Where a file of a manifest may lie: as the current folder has it, or as the artifact's has it."""
    yield Path(file)
    if artifact.path is not None and not Path(file).is_absolute():
        yield artifact.path.parent / file


def _inside(file: Path, artifact: Artifact) -> bool:
    """Whether a file lies in the current folder or the artifact's, links followed. One that does not by its name alone
    is not even looked at: that may ask another machine for it."""
    folders = [Path.cwd(), *([artifact.path.parent] if artifact.path is not None else [])]
    absolute = Path(os.path.abspath(file))
    if not any(absolute.is_relative_to(os.path.abspath(folder)) for folder in folders):
        return False
    try:
        return any(file.resolve().is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, ValueError, RuntimeError):
        return False


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except (OSError, ValueError):  # a name that is too long, a NUL in it
        return False


def rebuild(
    build: Callable[[ir.Context], ir.Module], target: Target, options: Options, level: str, dispatch: str | None = None
) -> str:
    """The text of a program at `level`, or its device code; of one dispatch when it is named."""
    if level in LEVELS:
        if dispatch is not None:
            raise UsageError(f"there are no dispatches at level {level!r}; IREE forms them: dispatch, asm, ptx, ...")
        if options.pipeline is not None and level != options.start:
            raise UsageError(f"a pipeline of one's own has no level {level!r}; qmlir-opt shows what a pipeline makes")
        if LEVELS.index(level) < LEVELS.index(options.start):
            raise UsageError(f"the program starts at level {options.start!r}, which comes after {level!r}")
        found: dict[str, str] = {}
        run_compiler(build, target, options, until=level, after=lambda s, m: found.__setitem__(s, show(m)))
        return found[level]
    if level not in CODE_LEVELS:
        raise UsageError(f"unknown level {level!r}; levels are {', '.join(CODE_LEVELS)}")
    with tempfile.TemporaryDirectory() as folder:
        if level == "dispatch":
            dump = f"--iree-hal-dump-executable-sources-to={folder}"
            run_compiler(build, target, replace(options, flags=(*options.flags, dump)))
        else:
            run_compiler(build, target, options, code=Path(folder))
        return device_code(Path(folder), level, dispatch)
