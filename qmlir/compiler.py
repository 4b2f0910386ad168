"""From a source to an artifact: import, our passes, IREE, all in this process."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import __version__, settings
from ._mlir import compiler_version
from ._spelling import CODE_LEVELS, LEVELS
from .artifact import MANIFEST_KEY, Artifact
from .cache import Cache, key_of
from .device_code import OPCODES, assembly_parts, spirv_instructions
from .errors import (
    CompileError,
    Diagnostic,
    ParseError,
    QmlirError,
    SlowFallbackWarning,
    TuningWarning,
    UsageError,
    caller,
)
from .files import write_atomically
from .frontends.registry import ImportedSource, find, front_ends
from .isolation import Limits, in_fork
from .spec import Signature
from .strategy import choice_text
from .targets import Target, resolve

if TYPE_CHECKING:
    from .passes.base import State

# The passes behind each level; a program is at the level once they have run.
_STAGES: dict[str, str] = {
    "qmlir": "qmlir-verify,qmlir-bake-parameters,qmlir-fold",
    "linalg": "qmlir-lower-to-linalg,canonicalize,cse",
    "configured": "qmlir-attention{{target={target}}},qmlir-select{{target={target}{choice}}},"
    "{target_passes}qmlir-guard",
}
# Files that IREE dumps of each dispatch, and for each kind of device code.
_DEVICE_CODE = {"dispatch": (".mlir",), "asm": (".s",), "ptx": (".ptx",), "isa": (".rocmasm", ".s"), "spirv": (".spv",)}

AfterStage = Callable[[str, Any], None]
KeepParameters = bool | Literal["mapped"]
KEEP_PARAMETERS: tuple[KeepParameters, ...] = (False, True, "mapped")


def stage_pipeline(target: Target, level: str, choice: Mapping[str, Any] | None = None) -> str:
    """The text of the passes that bring a program to `level`."""
    own = "".join(f"{p}," for p in target.passes)
    chosen = f" choice={choice_text(choice)}" if choice else ""
    return _STAGES[level].format(target=target.spelling, target_passes=own, choice=chosen)


def default_pipeline(target: Target, start: str = "import", choice: Mapping[str, Any] | None = None) -> str:
    """The text of the passes that a program at level `start` still has to go through."""
    return ",".join(stage_pipeline(target, s, choice) for s in list(_STAGES)[LEVELS.index(start) :])


@dataclass(frozen=True)
class Options:
    """How to compile.

    Attributes:
        pipeline: text of the passes instead of the default one.
        start: level that the source is at (a dumped stage to restart from).
        parameters: `{scope: file}` of weights (.safetensors, .irpa, .gguf): baked in as constants.
        keep_parameters: weights are loaded with the program instead; "mapped", from a file of packed ones.
        flags: more flags for IREE.
        dump_stages: folder that gets one file a stage.
        cache: whether compiled programs are kept on disk.
        strict: refuse a program of which a part is known to be slow on the target.
        choice: values of what the target's strategies leave open.
        limits: compile in a child process that may use this much.
        origin: where the source is, for the manifest: `rebuilding.rebuilder` compiles it again from there.
    """

    pipeline: str | None = None
    start: str = "import"
    parameters: Mapping[str, str] = field(default_factory=dict)
    keep_parameters: KeepParameters = False
    flags: tuple[str, ...] = ()
    dump_stages: Path | None = None
    cache: bool = True
    strict: bool = False
    choice: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits | None = None
    origin: Mapping[str, Any] | None = None


def compile(
    source: Any,
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
    import_options: Mapping[str, Any] | None = None,
    tuning: str | os.PathLike[str] | None = None,
    choice: Mapping[str, Any] | None = None,
    isolated: bool = False,
    timeout: float | None = None,
    memory: int | None = None,
) -> Artifact:
    """Compile a program for one target.

    Args:
        source: path of an `.mlir` file, MLIR text, an `ir.Module`, or what a front end accepts: the path of an `.onnx`
            file, an `onnx.ModelProto`, a `torch.export.ExportedProgram`.
        target: `cpu`, `cpu:znver4`, `cuda:sm_90a`, `rocm:gfx942`, `vulkan:ada`, ...
        pipeline: passes to run instead of the default ones.
        start: level of the source when it is a dumped stage: `import`, `qmlir`, `linalg`, `configured`.
        parameters: weight files by the scope that the program's `#flow.parameter.named` attributes name.
        keep_parameters: load weights when the program is loaded instead of baking them in. It brings them into the
            layouts of its kernels then, on CPU.
        map_parameters: keep them so that `qmlir.load` does that once for each weight file, and every process that loads
            the program maps the result into memory (no other runtime can load it).
        flags: more flags for IREE.
        dump_stages: folder for the IR at every level and the device code.
        cache: keep the result in the compilation cache.
        strict: what would be a `SlowFallbackWarning` is a CompileError.
        import_options: options of the front end that imports the source.
        tuning: a database that `qmlir tune` wrote, or `"shipped"` for the one in this package, which is also asked
            where the database has nothing: the program is compiled as was best; what neither knows is a
            `TuningWarning`, once.
        choice: values of what the target's strategies leave open (`qmlir tune` tries them), before a database's.
        isolated: compile in a child process (a fork of this one): a crash of the compiler is a CompileError.
        timeout: seconds after which compiling ends in a CompileError; implies `isolated`.
        memory: bytes that compiling may take; more is a CompileError; implies `isolated`.

    Raises:
        FrontEndError: a front end could not import the source.
        ParseError, VerifyError, PassError, CompileError: with the places in the source.
        TargetError: for an unknown target. UsageError: for a source or option that makes no sense.
    """
    if start not in LEVELS:
        raise UsageError(f"unknown level {start!r}; levels are {', '.join(LEVELS)}")
    for name, limit in (("timeout", timeout), ("memory", memory)):
        if limit is not None and limit <= 0:
            raise UsageError(f"{name} is {limit!r}; it must be more than 0")
    options = Options(
        pipeline, start, dict(parameters or {}), _kept(keep_parameters, map_parameters), tuple(flags),
        Path(dump_stages) if dump_stages is not None else None, cache, strict,
    )  # fmt: skip
    program = program_of(source, import_options or {}, start)
    resolved = resolve(target)
    made = dict(choice or {})
    if tuning is not None:
        made = {**_tuned(program, resolved, options, tuning), **made}
    options = replace(options, choice=made, flags=(*choice_flags(resolved, made), *options.flags))
    limits = Limits(timeout, memory) if isolated or timeout is not None or memory is not None else None
    options = replace(options, origin=_origin(program, options), limits=limits)
    key = None
    if cache and options.dump_stages is None:
        files = {scope: _file_digest(path) for scope, path in options.parameters.items()}
        key = key_of([program.key(), program.name, resolved.spelling, resolved.capabilities(), options.pipeline,
                      options.start, files, options.keep_parameters, options.flags, dict(options.choice)])  # fmt: skip
    return compile_built(program, resolved, options, key)


@dataclass(frozen=True)
class MlirSource:
    """A source that the compiler reads itself; called with a context, it parses."""

    text: str
    name: str

    def __call__(self, ctx: Any) -> Any:
        return parse(self.text, self.name)

    @property
    def path(self) -> str | None:
        """The file that the text is from."""
        return None if self.name == "-" else self.name

    @property
    def settings(self) -> Mapping[str, Any]:
        return {}

    def key(self) -> str:
        return self.text


Program = MlirSource | ImportedSource


def program_of(source: Any, settings: Mapping[str, Any], start: str = "import") -> Program:
    """What builds the program of a source."""
    found = find(source)
    if found is None:
        if settings:
            raise UsageError(f"the source is MLIR, which takes no import options ({', '.join(sorted(settings))})")
        return MlirSource(*_source_text(source))
    if start != "import":
        raise UsageError(f"{found} imports sources, which start at level 'import', not at {start!r}")
    return ImportedSource(found, source, settings)


def _kept(keep_parameters: KeepParameters, map_parameters: bool) -> KeepParameters:
    """Both arguments of `compile` as the one of `Options`."""
    if keep_parameters == "mapped":
        warnings.warn("keep_parameters='mapped' is deprecated: use map_parameters=True", DeprecationWarning,
                      stacklevel=caller())  # fmt: skip
    elif not isinstance(keep_parameters, bool):
        raise UsageError(f"keep_parameters is {keep_parameters!r}; it may be True or False")
    return "mapped" if map_parameters else keep_parameters


def compile_built(build: Callable[[Any], Any], target: Target, options: Options, key: str | None) -> Artifact:
    """Compile what `build(context)` makes. `key` is its cache key, None to leave the cache alone."""
    from .artifact import read_manifest

    def made() -> bytes:
        return run_compiler(build, target, options).vmfb

    def fresh() -> bytes:
        return made() if options.limits is None else in_fork(made, options.limits)

    if key is not None:
        vmfb = Cache().get_or_build(key, fresh)
    else:
        vmfb = fresh()
    artifact = Artifact(vmfb, read_manifest(vmfb, "the compiled program"))
    if options.strict:  # the program may come from the cache
        refuse_notes(artifact.notes)
    warn_once(artifact.notes)
    artifact.rebuild = lambda level, dispatch: rebuild(build, target, options, level, dispatch)
    return artifact


def choice_flags(target: Target | str, choice: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What a choice says to IREE."""
    if not choice:
        return ()
    from .tuning.choices import flags_of

    return flags_of(resolve(target) if isinstance(target, str) else target, choice)


def _tuned(program: Program, target: Target, options: Options, tuning: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The best known choice, {} when that is the default or none is known, which is said."""
    from .tuning.choices import best_choice
    from .tuning.database import Database

    found = best_choice(program, target, options, Database.of(tuning))
    if found is None:
        text = f"{os.fspath(tuning)} has no result for this program on {target.spelling}: qmlir tune finds one"
        if text not in _warned:
            warnings.warn(text, TuningWarning, stacklevel=caller())
            _warned.add(text)
    return found or {}


def _origin(program: Program, options: Options) -> dict[str, Any] | None:
    """Which file a program came from, and with what it was compiled; None when it was no file."""
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


_warned: set[str] = set()


def warn_once(notes: Sequence[Diagnostic]) -> None:
    """Warn of each note, in the name of whoever called this package, once a process."""
    for note in notes:
        if str(note) not in _warned:
            warnings.warn(str(note).replace(": warning: ", ": ", 1), SlowFallbackWarning, stacklevel=caller())
            _warned.add(str(note))


def refuse_notes(notes: Sequence[Diagnostic]) -> None:
    """Raise a CompileError when there is any."""
    if notes:
        raise CompileError([replace(n, severity="error") for n in notes])


def text_at(source: Any, level: str, *, target: str = "cpu", dispatch: str | None = None, **options: Any) -> str:
    """The program as text at `level` (see `Artifact.source`), `dispatch` alone when it is named. Options are those
    of `compile`."""
    program = program_of(source, options.pop("import_options", None) or {}, options.get("start", "import"))
    resolved = resolve(target)
    options["flags"] = (*choice_flags(resolved, options.get("choice")), *options.get("flags", ()))
    options["parameters"] = dict(options.get("parameters") or {})
    options["keep_parameters"] = _kept(options.get("keep_parameters", False), options.pop("map_parameters", False))
    return rebuild(program, resolved, Options(**options), level, dispatch)


def builder(source: Any, import_options: Mapping[str, Any] | None = None) -> Callable[[Any], Any]:
    """What makes the module of a source in a context: for tools that look at programs without compiling them."""
    return program_of(source, import_options or {})


def rebuild(
    build: Callable[[Any], Any], target: Target, options: Options, level: str, dispatch: str | None = None
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


def device_code(folder: Path, kind: str, dispatch: str | None = None) -> str:
    """The text of the dumped executables of one kind; of one dispatch when it is named, by its name or a part of it.

    Raises:
        UsageError: there is none of the kind, or no or more than one dispatch of that name.
    """
    found = sorted((p for p in folder.iterdir() if p.suffix in _DEVICE_CODE[kind]), key=_numbered)
    if not found:
        have = ", ".join(sorted({p.suffix for p in folder.iterdir()})) or "none"
        raise UsageError(f"this target makes no {kind} (its files: {have})")
    texts = {p.stem: _disassemble(p) if p.suffix == ".spv" else p.read_text(errors="replace") for p in found}
    if dispatch is None:
        return "\n".join(texts.values())
    if kind in ("asm", "ptx", "isa"):
        texts = {name: part for text in texts.values() for name, part in assembly_parts(text)}
    fitting = [n for n in texts if n == dispatch] or [n for n in texts if dispatch in n]
    if len(fitting) != 1:
        what = "several dispatches are" if fitting else "no dispatch is"
        # A CPU's file also holds the library that is linked in.
        own = [n for n in texts if re.search(r"_(dispatch|encoding|initializer|hoisted)_", n)]
        names = "".join(f"\n  {n}" for n in fitting or own or texts)
        raise UsageError(f"{what} called {dispatch!r}:{names}")
    return texts[fitting[0]]


def _numbered(path: Path) -> list[Any]:
    """Sorts dispatch_2 before dispatch_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def _disassemble(path: Path) -> str:
    """SPIR-V as text: by spirv-dis where it is installed and knows the module's extensions (Debian 12's does not know
    cooperative matrices), else a plain listing of opcodes and words."""
    import shutil
    import subprocess

    tool = shutil.which("spirv-dis")
    if tool is not None:
        done = subprocess.run([tool, str(path)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
    return spirv_listing(path.read_bytes())


def spirv_listing(data: bytes) -> str:
    """One line an instruction: its opcode's name or number, and its words."""
    lines = (
        f"{OPCODES.get(opcode, f'Op{opcode}')} {' '.join(map(str, words))}".rstrip()
        for opcode, words in spirv_instructions(data)
    )
    return "\n".join(lines)


def show(module: Any) -> str:
    """A module as text with locations; large constants elided only where the text is for reading."""
    return str(module.operation.get_asm(enable_debug_info=True))


# ------------------------------------------------------------------------------------------------- the source


def _source_text(source: Any) -> tuple[str, str]:
    """Text and name of a source."""
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source):
        path = Path(source)
        try:
            return path.read_text(), str(path)
        except UnicodeDecodeError:
            raise ParseError([Diagnostic("the file is no MLIR text", f"{path}:1:1")]) from None
        except OSError as e:
            if isinstance(source, str) and "@" in source:
                return source, "-"
            raise UsageError(f"cannot read {path}: {e.strerror or e}") from None
    if isinstance(source, str):
        return source, "-"
    if hasattr(source, "operation"):
        return show(source), "-"
    raise UsageError(
        f"cannot compile a {type(source).__module__}.{type(source).__qualname__}; give the path of an .mlir file, MLIR "
        f"text, an ir.Module, or what a front end accepts ({', '.join(f.name for f in front_ends())})"
    )


def parse(text: str, name: str) -> Any:
    """Parse in the current context. Raises ParseError with `name`:line:col."""
    from ._mlir import ir
    from ._spelling import location_text

    if "\0" in text:
        raise ParseError([Diagnostic("the file is no MLIR text: it holds NUL characters", f"{name}:1:1")])
    try:
        located = ir.Module.parse(text) if name == "-" else _parse_named(text, name)
    except ir.MLIRError as e:
        found = [Diagnostic(d.message, _renamed(location_text(d.location), name)) for d in e.error_diagnostics]
        raise ParseError(found or [Diagnostic(str(e).splitlines()[0], name)]) from None
    from .dialect.saved import may_be_old, upgrade

    if may_be_old(text):
        place = "" if name == "-" else f"{name}: "
        for note in upgrade(located):
            warnings.warn(place + note, DeprecationWarning, stacklevel=caller())
    return located


def _parse_named(text: str, name: str) -> Any:
    """Parse so that locations carry the file's name."""
    from ._mlir import ir

    path = Path(name)
    if path.is_file() and path.read_text() == text:
        return ir.Module.parseFile(str(path))
    return ir.Module.parse(text)


def _renamed(location: str, name: str) -> str:
    return location.replace("-:", f"{name}:", 1) if location.startswith("-:") and name != "-" else location


def _file_digest(path: str) -> str:
    try:
        with open(path, "rb") as f:
            return (
                hashlib.file_digest(f, "sha256").hexdigest()
                if hasattr(hashlib, "file_digest")
                else (hashlib.sha256(f.read()).hexdigest())
            )
    except OSError as e:
        raise UsageError(f"cannot read the parameter file {path}: {e.strerror or e}") from None


# ----------------------------------------------------------------------------------------------- the compiler


@dataclass
class Compiled:
    vmfb: bytes
    manifest: dict[str, Any]


def run_compiler(
    build: Callable[[Any], Any],
    target: Target,
    options: Options,
    *,
    until: str | None = None,
    after: AfterStage | None = None,
    code: Path | None = None,
    state: State | None = None,
) -> Compiled:
    """Build, run our passes, run IREE.

    Args:
        until: stop after this level (the result's vmfb is empty then).
        after: called with each level's name and module.
        code: folder for the device code.
        state: where the passes leave what they find out; also what they had found when one of them fails.
    """
    from ._mlir import ir, load_dialects, session
    from .passes.base import State
    from .passes.core.guard import GuardPass
    from .passes.core.verify import VerifyPass
    from .passes.pipeline import Pipeline
    from .signature import assert_sizes, drop_attributes
    from .util_globals import has_state

    dump = options.dump_stages
    if dump is not None:
        _make_folder(dump)
        code = code or dump / "executable"

    def done(level: str, module: Any) -> None:
        if after is not None:
            after(level, module)
        if dump is not None:
            write_atomically(dump / f"{LEVELS.index(level)}-{level}.mlir", f"{show(module)}\n".encode())

    # fbgemm's recipe is stated in f64; IREE would demote it silently.
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
    with ctx, ir.Location.unknown():
        module = build(ctx)
        if dump is not None or after is not None:
            done(options.start, module)
        if until == options.start:
            return Compiled(b"", {})
        state = state or State()
        state.parameters = parameter_loader(options)
        report = build.report if isinstance(build, ImportedSource) else None
        if report is not None:
            state.notes.extend(report.warnings())
        VerifyPass().run(module, state)  # what follows reads the ops
        manifest = describe(module, target, options)
        text = options.pipeline
        if text is not None:
            Pipeline.parse(text).run(module, state)
            if options.strict:
                refuse_notes(state.notes)
            GuardPass().run(module, state)  # what it refuses would crash IREE
        else:
            text = default_pipeline(target, options.start, options.choice)
            for level in list(_STAGES)[LEVELS.index(options.start) :]:
                Pipeline.parse(stage_pipeline(target, level, options.choice)).run(module, state)
                if options.strict:
                    refuse_notes(state.notes)
                done(level, module)
                if level == until:
                    return Compiled(b"", manifest)
        if until is not None:
            return Compiled(b"", manifest)
        if report is not None:
            manifest["import"] = report.to_json()
        manifest["pipeline"] = text
        manifest["notes"] = [dataclasses.asdict(n) for n in state.notes]
        manifest["strategies"] = [d.summary() for d in state.decisions]
        # A program that comes configured has had its contractions chosen before: how many there are is not known.
        manifest["work"] = _work(manifest["strategies"]) if options.start != "configured" else None
        manifest["task_work"] = _work(_for_tasks(manifest["strategies"])) if options.start != "configured" else None
        if manifest["driver"].startswith("local"):
            from .kernels.borrowed import borrowed

            manifest["borrowed"] = borrowed(module)
        assert_sizes(module, {name: Signature.from_json(f) for name, f in manifest["functions"].items()})
        manifest["has_state"] = has_state(module)
        drop_attributes(module)
        if options.keep_parameters == "mapped":
            manifest["packer"] = _packer(module, compiler, target, options)
        attach_manifest(module, manifest)
        attach_helper(module, options.cache)
        return Compiled(_invoke(compiler, module, target.source_passes, target.code_passes), manifest)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"cannot make the folder {path}: {e.strerror or e}") from None


def _for_tasks(strategies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The contractions that the runtime's task system shares out: kernels of ours do that themselves."""

    def shared(s: dict[str, Any]) -> bool:
        plans: list[dict[str, Any]] = [a["plan"] for a in s["answers"] if a["strategy"] == s["chosen"]]
        return any(plan.get("route") == "kernel" for plan in plans)

    return [s for s in strategies if not shared(s)]


def _work(strategies: list[dict[str, Any]]) -> int | None:
    """Multiply-adds of one call; None when some size is dynamic."""
    total = 0
    for s in strategies:
        sizes = [*s["batch"], s["m"], s["n"], s["k"]]
        if any(x is None for x in sizes):
            return None
        product = 1
        for x in sizes:
            product *= x
        total += product
    return total


_DIAGNOSTIC = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def _invoke(compiler: Any, module: Any, source_passes: Sequence[str] = (), code_passes: Sequence[str] = ()) -> bytes:
    """IREE's own pipeline; its diagnostics become a CompileError. `source_passes` run where the module's executables
    hold what they compute, `code_passes` where they hold the target's own operations, before they are serialised."""
    from ._mlir import api

    found: list[str] = []

    def collect(severity: int, message: int, length: int, _: Any) -> None:
        if severity == 2:
            found.append(ctypes.string_at(message, length).decode(errors="replace"))

    invocation = compiler.invocation()
    # In the C API, but not wrapped by the bindings. A handler attached to the context instead crashes in
    # `execute`, which has released the GIL.
    library = api.ctypes_dl._dylib
    enable = library.ireeCompilerInvocationEnableCallbackDiagnostics
    enable.restype = None
    enable.argtypes = [ctypes.c_void_p, ctypes.c_int, _DIAGNOSTIC, ctypes.c_void_p]
    handler = _DIAGNOSTIC(collect)  # lives until the invocation is closed
    enable(invocation._inv_p, 0, handler, None)
    verify = library.ireeCompilerInvocationSetVerifyIR
    verify.restype, verify.argtypes = None, [ctypes.c_void_p, ctypes.c_bool]
    verify(invocation._inv_p, settings.verify_iree())
    output = None
    try:
        if _execute(invocation, module, source_passes, code_passes):
            output = api.Output.open_membuffer()
            try:
                invocation.output_vm_bytecode(output)
                return bytes(output.map_memory())
            except ValueError as e:
                found = found or [str(e)]
        raise CompileError([_iree_diagnostic(m) for m in found[:4]] or [Diagnostic("IREE failed without a reason")],
                           "IREE could not compile the program:")  # fmt: skip
    finally:
        if output is not None:
            output.close()
        invocation.close()


def _execute(invocation: Any, module: Any, source_passes: Sequence[str], code_passes: Sequence[str]) -> bool:
    """Run IREE's pipeline, in parts where something of ours is done between its phases."""
    from .kernels.hidden import hide, put_back
    from .passes.base import State
    from .passes.registry import parse_pass

    def run_passes(texts: Sequence[str]) -> None:
        for text in texts:
            parse_pass(text).run(module, State())

    stops: list[tuple[bytes, Callable[[], None]]] = []
    hidden = hide(module)
    invocation.import_module(module.operation)
    if hidden or source_passes:  # executables are not yet compiled

        def at_sources() -> None:
            if hidden:
                put_back(module, hidden)
            run_passes(source_passes)

        stops.append((b"executable-sources", at_sources))
    if code_passes:  # they hold the target's own operations
        stops.append((b"executable-targets", lambda: run_passes(code_passes)))
    for phase, act in stops:
        _set_phase(invocation, "To", phase)
        if not invocation.execute():
            return False
        act()
        _set_phase(invocation, "From", phase)
    _set_phase(invocation, "To", b"end")
    return bool(invocation.execute())


def _set_phase(invocation: Any, which: str, phase: bytes) -> None:
    """Where IREE's pipeline starts ("From") or stops ("To"): in the C API, but not wrapped by the bindings."""
    from ._mlir import api

    setter = getattr(api.ctypes_dl._dylib, f"ireeCompilerInvocationSetCompile{which}Phase")
    setter.restype, setter.argtypes = None, [ctypes.c_void_p, ctypes.c_char_p]
    setter(invocation._inv_p, phase)


def _iree_diagnostic(text: str) -> Diagnostic:
    """The first line, without the dump of IR that IREE appends."""
    first = text.strip().splitlines()[0] if text.strip() else "unknown error"
    first = re.sub(r":? *(%[\w#:]+ = .*|#hal\..*|<\{.*)$", "", first)[:400]
    match = re.match(r'(?:loc\()?"?([^"\s]+?)"?:(\d+):(\d+)\)?:\s*(?:error:\s*)?(.*)', first)
    if match:
        return Diagnostic(match.group(4), f"{match.group(1)}:{match.group(2)}:{match.group(3)}")
    return Diagnostic(first.removeprefix("error: "))


def parameter_loader(options: Options) -> Callable[[str, str], Any] | None:
    """Reads arrays of parameter files by scope and key."""
    if not options.parameters or options.keep_parameters:
        return None
    from .parameters import ParameterFiles

    return ParameterFiles(options.parameters).load


# ----------------------------------------------------------------------------------------------- the manifest


def describe(module: Any, target: Target, options: Options) -> dict[str, Any]:
    """The manifest but for what the passes find out."""
    from ._spelling import location_text
    from .inputs import roles
    from .inspection import op_counts
    from .passes.core.bake_parameters import named_parameters, parameter_scopes
    from .signature import function_signatures, schemes

    functions = function_signatures(module)
    if not functions:
        place = location_text(module.operation.location)
        raise ParseError([Diagnostic("the program has no public function", place)])
    scopes = parameter_scopes(module)
    kept = options.keep_parameters or not options.parameters
    unused = sorted(set(options.parameters) - set(scopes))
    if unused and options.start == "import":
        raise UsageError(
            f"the program has no parameters of scope {unused[0]!r}; its scopes: {', '.join(scopes) or 'none'}"
        )
    return {
        "qmlir": __version__,
        "iree": compiler_version(),
        "target": target.spelling,
        "capabilities": target.capabilities(),
        "driver": target.driver,
        "cpu_features": list(target.cpu_features),
        "functions": {name: s.to_json() for name, s in functions.items()},
        "arguments": roles(module),
        "ops": op_counts(module),
        "schemes": schemes(module),
        "parameters": scopes if kept else [],
        "parameter_types": named_parameters(module) if kept else [],
        "source": options.origin,
    }


def _packer(module: Any, compiler: Any, target: Target, options: Options) -> str | None:
    """The program that packs the weights of `module`, taken out of it, as the manifest holds it."""
    from .kernels.at_load import taken_out
    from .packed import SCOPE, to_text

    packer = taken_out(module, SCOPE)
    if packer is None:
        return None
    attach_manifest(packer, {**describe(packer, target, options), "strategies": []})
    return to_text(_invoke(compiler, packer))


def attach_manifest(module: Any, manifest: dict[str, Any]) -> None:
    """Store the manifest as a reflection attribute of the first public function."""
    from ._mlir import ir
    from .signature import public_functions

    f = public_functions(module)[0]
    f.attributes["iree.reflection"] = ir.DictAttr.get(
        {MANIFEST_KEY: ir.StringAttr.get(json.dumps(manifest, separators=(",", ":")))}
    )


def attach_helper(module: Any, cached: bool) -> None:
    """Store the helper's program in one whose kernels share their work (`targets/cpu/threads`)."""
    from ._mlir import ir
    from .targets.cpu.threads.board import HELPER, SETTER
    from .targets.cpu.threads.team import helper_text

    setter = next((op for op in module.body.operations if op.operation.name == "func.func"
                   and op.attributes["sym_name"].value == SETTER), None)  # fmt: skip
    if setter is not None:
        setter.attributes["iree.reflection"] = ir.DictAttr.get({HELPER: ir.StringAttr.get(helper_text(cached))})


__all__ = ["Options", "QmlirError", "compile", "compile_built", "default_pipeline", "run_compiler"]
