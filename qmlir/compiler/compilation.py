"""`qmlir.compile`: compiles a source to an artifact, through the compilation cache."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.cache import Cache, key_of
from ..core.isolation import ProcessLimits, in_fork
from ..core.rows import SourceRow
from ..core.spelling import LEVELS
from ..errors import TuningWarning, UsageError
from ..runtime.artifact import Artifact, read_manifest
from ..targets import Target, resolve
from ..targets.strategy import Choice, current_choice
from .choices import best_choice, choice_flags
from .notes import refuse_notes, warn, warn_once
from .options import KeepParameters, Options, file_digest, kept_parameters
from .rebuilding import rebuild
from .run import run_compiler
from .sources import SourceProgram, program_of
from .tuning_database import Database

if TYPE_CHECKING:
    from ..core.mlir import ir


def compile(
    source: object,
    *,
    target: str = "cpu",
    pipeline: str | None = None,
    start: str = "import",
    parameters: Mapping[str, str] | None = None,
    keep_parameters: KeepParameters = False,
    map_parameters: bool = False,
    flags: Sequence[str] = (),
    dump_stages: str | os.PathLike[str] | None = None,
    cache: bool = True,
    strict: bool = False,
    import_options: Mapping[str, object] | None = None,
    tuning: str | os.PathLike[str] | None = None,
    choice: Choice | None = None,
    isolated: bool = False,
    timeout: float | None = None,
    memory: int | None = None,
) -> Artifact:
    """Compile a program for one target. Returns an `Artifact`: the `.vmfb` in memory, and its manifest.

    Args:
        source: path of an `.mlir` file, MLIR text, an `ir.Module`, or what a front end accepts: the path of an `.onnx`
            file, an `onnx.ModelProto`, a `torch.export.ExportedProgram`, the path of its `.pt2` file.
        target: `cpu`, `cpu:znver4`, `cuda:sm_90a`, `rocm:gfx942`, `vulkan:ada`, ...
        pipeline: passes to run instead of the default ones.
        start: level of the source if it is a dumped stage: `import`, `qmlir`, `linalg`, `configured`.
        parameters: weight files by the scope that the program's `#flow.parameter.named` attributes name.
        keep_parameters: leave the weights in their files; `qmlir.load` reads them. On CPUs the program packs them for
            its kernels while it is loaded.
        map_parameters: implies `keep_parameters`; `qmlir.load` packs the weights once for each weight file, keeps the
            result in the compilation cache, and maps it into memory, which processes share. Other runtimes cannot load
            such a program.
        flags: additional flags for IREE's compiler.
        dump_stages: folder to which the IR at every level and the device code are written.
        cache: read and write the compilation cache.
        strict: raise a CompileError instead of a `SlowFallbackWarning`.
        import_options: options of the front end that imports the source.
        tuning: path of a database that `qmlir tune` wrote, or `"shipped"` for the one in this package, which is also
            used for programs that the former has no record of. The program is compiled with the best choice on record;
            if there is none, a `TuningWarning` says so once.
        choice: values for the knobs of the target's strategies, as `qmlir tune` tries them; they take precedence over
            `tuning`.
        isolated: compile in a child process (a fork of this one): a crash of the compiler is a CompileError.
        timeout: seconds; a longer compilation is ended and raises a CompileError. Implies `isolated`.
        memory: bytes (`--memory` of the command line: GiB); a compilation that needs more is ended and raises a
            CompileError. Implies `isolated`.

    Raises:
        FrontEndError: a front end could not import the source.
        ParseError, VerifyError, PassError, CompileError: a program that is wrong or that the target refuses; the
            message has the places in the source.
        TargetError: an unknown target.
        UsageError: an unsupported source or option.
    """
    if start not in LEVELS:
        raise UsageError(f"unknown level {start!r}; levels are {', '.join(LEVELS)}")
    for name, limit in (("timeout", timeout), ("memory", memory)):
        if limit is not None and not limit > 0:  # nor NaN
            raise UsageError(f"{name} is {limit!r}; it must be more than 0")
    options = Options(
        pipeline, start, dict(parameters or {}), kept_parameters(keep_parameters, map_parameters), tuple(flags),
        Path(dump_stages) if dump_stages is not None else None, cache, strict,
    )  # fmt: skip
    program = program_of(source, import_options or {}, start)
    resolved = resolve(target)
    made = current_choice(choice or {})
    if tuning is not None:
        made = {**_tuned(program, resolved, options, tuning), **made}
    options = replace(options, choice=made, flags=(*choice_flags(resolved, made), *options.flags))
    limits = ProcessLimits(timeout, memory) if isolated or timeout is not None or memory is not None else None
    options = replace(options, origin=_origin(program, options), limits=limits)
    key = None
    if cache and options.dump_stages is None:
        files = {scope: file_digest(path) for scope, path in options.parameters.items()}
        key = key_of([program.key(), program.name, resolved.spelling, resolved.row(), options.pipeline,
                      options.start, files, options.keep_parameters, options.flags, dict(options.choice)])  # fmt: skip
    return compile_built(program, resolved, options, key)


def compile_built(
    build: Callable[[ir.Context], ir.Module], target: Target, options: Options, key: str | None
) -> Artifact:
    """Compile the module that `build(context)` returns. `key` is its cache key; None bypasses the cache."""

    def made() -> bytes:
        return run_compiler(build, target, options)

    def fresh() -> bytes:
        return made() if options.limits is None else in_fork(made, options.limits)

    if key is not None:
        vmfb = Cache().get_or_build(key, fresh)
    else:
        vmfb = fresh()
    artifact = Artifact(vmfb, read_manifest(vmfb, "the compiled program"))
    if options.strict:  # checked again here, because the program may come from the cache
        refuse_notes(artifact.notes)
    warn_once(artifact.notes)
    artifact.rebuild = lambda level, dispatch: rebuild(build, target, options, level, dispatch)
    return artifact


def _tuned(program: SourceProgram, target: Target, options: Options, tuning: str | os.PathLike[str]) -> Choice:
    """The best known choice; {} if that is the default, or if none is known, of which the user is warned."""
    found = best_choice(program, target, options, Database.of(tuning))
    if found is None:
        text = f"{os.fspath(tuning)} has no result for this program on {target.spelling}: qmlir tune finds one"
        warn(text, TuningWarning)
    return found or {}


def _origin(program: SourceProgram, options: Options) -> SourceRow | None:
    """The source file of a program and its compile options, for the manifest; None if the source is not a file."""
    if program.path is None:
        return None
    return {
        "path": program.path,
        "sha256": hashlib.sha256(program.key().encode()).hexdigest(),
        "import_options": dict(program.settings),
        "options": {
            "pipeline": options.pipeline, "start": options.start, "parameters": dict(options.parameters),
            "keep_parameters": options.keep_parameters, "flags": list(options.flags), "choice": dict(options.choice),
        },
    }  # fmt: skip


def text_at(
    source: object, level: str, *, target: str = "cpu", dispatch: str | None = None, pipeline: str | None = None,
    start: str = "import", parameters: Mapping[str, str] | None = None, keep_parameters: KeepParameters = False,
    map_parameters: bool = False, flags: Sequence[str] = (), cache: bool = True, strict: bool = False,
    import_options: Mapping[str, object] | None = None, choice: Choice | None = None,
) -> str:  # fmt: skip
    """Return the text of a program at a level instead of a compiled program.

    Args:
        source: any source that `qmlir.compile` accepts.
        level: `import`, `qmlir`, `linalg`, `configured`, `dispatch`, `asm`, `ptx`, `isa` or `spirv`; see
            `Artifact.source`.
        dispatch: name of the one dispatch whose text is returned.
        The others are those of `qmlir.compile`.

    Raises:
        UsageError: an unknown level or dispatch.
        QmlirError: the errors that `qmlir.compile` raises.
    """
    program = program_of(source, import_options or {}, start)
    resolved = resolve(target)
    made = current_choice(choice or {})
    options = Options(
        pipeline, start, dict(parameters or {}), kept_parameters(keep_parameters, map_parameters),
        (*choice_flags(resolved, made), *flags), None, cache, strict, made,
    )  # fmt: skip
    return rebuild(program, resolved, options, level, dispatch)
