"""`qmlir compile`: compile a program to one .vmfb."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

from ..core.files import is_stream, write_atomically
from ..core.spelling import CODE_LEVELS
from ..errors import TuningWarning, UsageError
from .arguments import (
    CompilationArguments,
    add_compilation,
    add_limits,
    add_source,
    chosen,
    command,
    compilation,
    width,
    wrapped,
)
from .child import ProcessLimits, breadcrumb, published, publishing, run_in_child


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "compile", "[options] IN", "compile a program to one .vmfb",
                "Compile IN, an .mlir file or one that a front end reads (.onnx, .pt2), to one .vmfb.")  # fmt: skip
    add_source(p)
    p.add_argument("-o", "--output", metavar="FILE", help="the .vmfb to write (default: IN's name with .vmfb)")
    add_compilation(p)
    kept = p.add_mutually_exclusive_group()
    kept.add_argument("--keep-parameters", action="store_true", help="load the weights at run time")
    kept.add_argument("--map-parameters", action="store_true",
                      help="pack them once per weight file, and map them into memory")  # fmt: skip
    p.add_argument("--pipeline", metavar="PASSES", help="passes to run instead of the default ones")
    p.add_argument("--stop", metavar="LEVEL", choices=CODE_LEVELS,
                   help="write the text of a level, or asm, ptx, isa, spirv")  # fmt: skip
    p.add_argument("--dump-stages", metavar="DIR", help="write every level and the device code to DIR")
    p.add_argument("--tuning", metavar="FILE", help="a database of qmlir tune: use its best choices")
    p.add_argument("--choice", action="append", default=[], type=chosen, metavar="KNOB=VALUE",
                   help="a choice that qmlir tune tries")  # fmt: skip
    add_limits(p)
    p.add_argument("--no-cache", action="store_true", help="neither read nor write the compilation cache")
    p.add_argument("--strict", action="store_true", help="fail if a part would be slow on the target")
    p.add_argument("--json", action="store_true", help="print the manifest")
    p.set_defaults(run=run)


class _Options(CompilationArguments):
    """The options that `qmlir.compile` and `text_at` share."""

    pipeline: str | None
    keep_parameters: bool
    map_parameters: bool
    strict: bool
    choice: dict[str, int | str]


def run(args: argparse.Namespace) -> int:
    return run_in_child(lambda: _compile(args), args.words, args.input, ProcessLimits.of(args), args.quiet)


def _compile(args: argparse.Namespace) -> int:

    import qmlir

    from ..compiler.compilation import text_at

    source = Path(args.input)
    if source.is_dir():
        raise UsageError(f"cannot read {source}: it is a folder")
    output = Path(args.output) if args.output else source.with_suffix(".mlir.out" if args.stop else ".vmfb")
    check_writable(output, args.input)
    breadcrumb(f"the compilation for {args.target}\n")
    start = time.perf_counter()
    options: _Options = {
        **compilation(args), "pipeline": args.pipeline, "keep_parameters": args.keep_parameters,
        "map_parameters": args.map_parameters, "strict": args.strict, "choice": dict(args.choice),
    }  # fmt: skip
    if args.stop:
        if args.json:
            raise UsageError("--json prints the manifest, which a program that stops at a level does not have")
        text = (text_at(source, args.stop, **options).rstrip("\n") + "\n").encode()
        with publishing():
            write_atomically(output, text)
            published()
        return 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", qmlir.SlowFallbackWarning)  # printed below, like a compiler's warnings
        warnings.simplefilter("always", TuningWarning)
        artifact = qmlir.compile(
            source, dump_stages=args.dump_stages, cache=not args.no_cache, tuning=args.tuning, **options
        )
    if not args.quiet:
        for warning in caught:
            print(f"qmlir: note: {warning.message}", file=sys.stderr)
    if not args.quiet:
        for note in artifact.notes:
            print(": ".join(filter(None, ("qmlir", note.severity, note.location, note.message))), file=sys.stderr)
    if args.verbose:
        from ..compiler.explanation import of_manifest

        passes = artifact.manifest.pipeline.replace(",", ", ")
        print(wrapped(f"passes: {passes}\n{of_manifest(artifact.manifest).text(width())}"), file=sys.stderr)
    imported = artifact.import_report
    with publishing():
        artifact.save(output)
        published()
    if args.json:
        print(json.dumps(artifact.manifest.to_json(), indent=2))
    elif not args.quiet:
        seconds = time.perf_counter() - start
        print(f"{output}: {artifact.target}, {len(artifact.vmfb):,} bytes, {seconds:.2f} s")
        for name, signature in artifact.functions.items():
            print(f"  {name}{signature}")
        if imported is not None:
            print(f"  imported: {len(imported['raised'])} quantised operators raised, {len(imported['fused'])} taken "
                  f"into another, {len(imported['left'])} left")  # fmt: skip
    return 0


def check_writable(path: Path, *others: str) -> None:
    """Refuse, before the work, an output that cannot be written or is another file of the same command."""
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if is_stream(path):
        return
    if os.path.realpath(path) in map(os.path.realpath, others):
        raise UsageError(f"cannot write {path}: the same command already uses this file")
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write {path}: no permission in {folder}")
