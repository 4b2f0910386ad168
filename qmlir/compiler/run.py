"""One run of the compiler: builds the module, runs qmlir's passes, runs IREE, all in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from ..core.drivers import driver_named
from ..core.files import write_atomically
from ..core.mlir import ir, load_dialects, release_contexts, session
from ..core.spelling import LEVELS
from ..errors import UsageError
from ..ir.resources import kept_resources
from ..ir.signature import assert_sizes, drop_attributes
from ..ir.util_globals import has_state
from ..kernels.zero_copy import zero_copy_arguments
from ..passes.base import State
from ..passes.core.drop_attributes import DropAttributesPass
from ..passes.core.verify import VerifyPass
from ..passes.pipeline import Pipeline
from ..passes.workarounds.iree_3_13.guard import GuardPass
from ..targets import Target
from .helper import attach_helper
from .invocation import invoke
from .manifest import attach_manifest, describe, for_tasks, packer_text, work_of
from .notes import refuse_notes
from .options import Options, parameter_loader
from .parsing import show
from .registry import ImportedSource
from .stages import STAGES, default_pipeline, stage_pipeline

AfterStage: TypeAlias = "Callable[[str, ir.Module], None]"


def run_compiler(
    build: Callable[[ir.Context], ir.Module],
    target: Target,
    options: Options,
    *,
    until: str | None = None,
    after: AfterStage | None = None,
    code: Path | None = None,
    state: State | None = None,
) -> bytes:
    """Build the module, run qmlir's passes and IREE, and return the `.vmfb`.

    Args:
        until: stop after this level; the result is empty then.
        after: called with each level's name and module.
        code: folder for the device code.
        state: receives the decisions and notes of the passes, also those made before a pass fails.
    """
    try:
        return _run(build, target, options, until, after, code, state)
    finally:
        release_contexts()


def _run(
    build: Callable[[ir.Context], ir.Module], target: Target, options: Options, until: str | None,
    after: AfterStage | None, code: Path | None, state: State | None,
) -> bytes:  # fmt: skip
    """`run_compiler` without `release_contexts`, which must run after the locals of this frame are gone."""
    dump = options.dump_stages
    if dump is not None:
        _make_folder(dump)
        code = code or dump / "executable"

    def done(level: str, module: ir.Module) -> None:
        if after is not None:
            after(level, module)
        if dump is not None:
            write_atomically(dump / f"{LEVELS.index(level)}-{level}.mlir", f"{show(module)}\n".encode())

    # FBGEMM's recipe computes in f64, which IREE would silently demote to f32.
    flags = ["--iree-input-demote-f64-to-f32=false", *target.compiler_flags, *options.flags]
    if code is not None:
        _make_folder(code)
        flags.append(f"--iree-hal-dump-executable-files-to={code}")
    try:
        compiler = session(flags)
    except ValueError as e:
        raise UsageError(f"IREE does not take the flags {' '.join(options.flags)}: {e}") from None
    ctx = compiler.context
    load_dialects(ctx)
    with ctx, ir.Location.unknown(), kept_resources():
        module = build(ctx)
        if dump is not None or after is not None:
            done(options.start, module)
        if until == options.start:
            return b""
        state = state or State()
        state.parameters = parameter_loader(options)
        report = build.report if isinstance(build, ImportedSource) else None
        if report is not None:
            state.notes.extend(report.warnings())
        VerifyPass().run(module, state)  # `describe` and the passes read the ops
        manifest = describe(module, target, options)
        text = options.pipeline
        if text is not None:
            Pipeline.parse(text).run(module, state)
            if options.strict:
                refuse_notes(state.notes)
            DropAttributesPass().run(module, state)
            GuardPass().run(module, state)  # the ops that it refuses would crash IREE
        else:
            text = default_pipeline(target, options.start, options.choice)
            if options.start == "configured":
                GuardPass().run(module, state)  # the source may not be what its level claims
            for level in list(STAGES)[LEVELS.index(options.start) :]:
                Pipeline.parse(stage_pipeline(target, level, options.choice)).run(module, state)
                if options.strict:
                    refuse_notes(state.notes)
                done(level, module)
                if level == until:
                    return b""
        if until is not None:
            return b""
        if report is not None:
            manifest.import_report = report.to_json()
        manifest.pipeline = text
        manifest.notes = list(state.notes)
        manifest.strategies = [d.summary() for d in state.decisions]
        # The contractions of a source at level `configured` are not known: their strategies were chosen in another run.
        manifest.work = work_of(manifest.strategies) if options.start != "configured" else None
        manifest.task_work = work_of(for_tasks(manifest.strategies)) if options.start != "configured" else None
        if driver_named(manifest.driver).local:
            manifest.zero_copy = zero_copy_arguments(module)
        assert_sizes(module, manifest.functions)
        manifest.has_state = has_state(module)
        drop_attributes(module)
        if options.keep_parameters == "mapped":
            manifest.packer = packer_text(module, compiler, target, options)
        attach_manifest(module, manifest)
        attach_helper(module, _compile_helper, cached=options.cache)
        return invoke(compiler, module, target.source_passes, target.code_passes)


def _compile_helper(build: Callable[[ir.Context], ir.Module], target: Target) -> bytes:
    return run_compiler(build, target, Options())


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"cannot make the folder {path}: {e.strerror or e}") from None
