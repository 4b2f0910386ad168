"""Shows the levels of a program that was loaded from a file, by compiling its source again.

A manifest is not trusted, because anybody may have written the file. Only what this package declares is applied: the
flags of strategies' knobs, qmlir's passes and `passes.registry.UPSTREAM`, the known levels. Files that the manifest
names are read if they are in the program's folder or in the current folder; others only if the caller allows it.
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
    """A function that shows the levels of an artifact that was loaded from a file, if its source is unchanged.

    Args:
        read_outside: also read files that the manifest names outside of the artifact's and the current folder.

    Raises:
        ArtifactError: the manifest asks for flags, passes or levels that qmlir does not declare.
        UsageError: the source was not a file, is gone, has changed, or is in another folder.
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
            raise UsageError(f"the program was compiled from {file}, which does not exist; compile it again")
        else:
            outside.append(file)
    if outside:
        raise UsageError(
            f"{name} names files that are neither in its folder nor in the current one: {', '.join(outside)}; to read "
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
    """Raise ArtifactError if a manifest asks for something that a file may not ask for."""

    def refuse(what: str, remedy: str) -> ArtifactError:
        return ArtifactError(f"{name} {what}, and none of that was applied; {remedy}")

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
        raise refuse("has an unknown value of keep_parameters", f"{', '.join(map(str, KEEP_PARAMETERS))} are known")
    if import_options:
        raise refuse(f"names options of a front end ({', '.join(map(str, import_options))})", again)
    if (text := options.get("pipeline")) is not None and (not isinstance(text, str) or undeclared(text)):
        shown = ", ".join(undeclared(text)) if isinstance(text, str) else "which is not text"
        raise refuse(f"names passes or options of passes that qmlir does not declare ({shown})", again)


def _places(file: str, artifact: Artifact) -> Iterator[Path]:
    """The paths at which a file of a manifest may be: relative to the current folder, then to the artifact's folder."""
    yield Path(file)
    if artifact.path is not None and not Path(file).is_absolute():
        yield artifact.path.parent / file


def _inside(file: Path, artifact: Artifact) -> bool:
    """Whether a file is in the current folder or the artifact's, after links are followed. A path that is outside by
    its name alone is not accessed, because that may contact another machine."""
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
    """The text of a program at `level`, or its device code; of one dispatch if `dispatch` names it."""
    if level in LEVELS:
        if dispatch is not None:
            raise UsageError(f"there are no dispatches at level {level!r}; IREE forms them: dispatch, asm, ptx, ...")
        if options.pipeline is not None and level != options.start:
            raise UsageError(f"a custom pipeline has no level {level!r}; qmlir-opt shows what a pipeline makes")
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
