"""`qmlir compile`: a program to one .vmfb."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from .._spelling import CODE_LEVELS, LEVELS
from ..errors import UsageError


def add(commands: Any) -> None:
    """The command's arguments."""
    p = commands.add_parser("compile", help="compile a program to one .vmfb", description=__doc__)
    p.add_argument("input", help="an .mlir file, or one that a front end reads: .onnx")
    p.add_argument("-o", "--output", help="the .vmfb to write (default: the input's name with .vmfb)")
    p.add_argument("-t", "--target", default="cpu", help="cpu, cuda:sm_90a, rocm:gfx942, vulkan:ada, ...")
    p.add_argument("--parameters", action="append", default=[], type=parameter_file, metavar="SCOPE=FILE",
                   help="weights for a parameter scope: .safetensors, .irpa or .gguf")  # fmt: skip
    p.add_argument("--keep-parameters", action="store_true", help="load the weights at run time")
    p.add_argument("--pipeline", help="passes to run instead of the default ones")
    p.add_argument("--start", default="import", metavar="LEVEL", choices=LEVELS,
                   help=f"level of the input: {', '.join(LEVELS)}")  # fmt: skip
    p.add_argument("--stop", metavar="LEVEL", choices=CODE_LEVELS,
                   help=f"stop at a level and write its text: {', '.join(CODE_LEVELS)}")  # fmt: skip
    p.add_argument("--dump-stages", metavar="DIR", help="write the IR of every level and the device code to a folder")
    p.add_argument("--iree-flag", action="append", default=[], metavar="FLAG",
                   help="a flag for IREE, such as =--iree-opt-level=O3")  # fmt: skip
    p.add_argument("--timeout", type=float, help="seconds after which compilation is given up")
    p.add_argument("--no-cache", action="store_true", help="neither read nor write the compilation cache")
    p.add_argument("--strict", action="store_true", help="fail where a part would be slow on the target")
    p.add_argument("--json", action="store_true", help="print the manifest")
    p.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    p.set_defaults(run=run)


def parameter_file(item: str) -> tuple[str, str]:
    """`SCOPE=FILE` as a pair."""
    scope, eq, path = item.partition("=")
    if not eq or not path:
        raise argparse.ArgumentTypeError(f"{item!r}: write SCOPE=FILE")
    return scope, path


def run(args: argparse.Namespace) -> int:
    from .child import in_child, run_in_child

    if not in_child():
        return run_in_child("qmlir", args.words, "qmlir", args.input, args.timeout)
    return _compile(args)


def _compile(args: argparse.Namespace) -> int:
    import time

    import qmlir

    from ..compiler import text_at
    from .child import breadcrumb, published, publishing

    source = Path(args.input)
    if source.is_dir():
        raise UsageError(f"cannot read {source}: it is a folder")
    output = Path(args.output) if args.output else source.with_suffix(".mlir.out" if args.stop else ".vmfb")
    check_writable(output)
    breadcrumb(f"the compilation for {args.target}\n")
    start = time.perf_counter()
    options: dict[str, Any] = {
        "target": args.target, "pipeline": args.pipeline, "start": args.start,
        "parameters": dict(args.parameters), "keep_parameters": args.keep_parameters,
        "flags": tuple(args.iree_flag), "strict": args.strict,
    }  # fmt: skip
    if args.stop:
        from ..artifact import write_atomically

        text = (text_at(source, args.stop, **options).rstrip("\n") + "\n").encode()
        with publishing():
            write_atomically(output, text)
            published()
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qmlir.SlowFallbackWarning)  # told below, in the words of a compiler
        artifact = qmlir.compile(source, dump_stages=args.dump_stages, cache=not args.no_cache, **options)
    if not args.quiet:
        for note in artifact.notes:
            print(": ".join(filter(None, ("qmlir", note.severity, note.location, note.message))), file=sys.stderr)
    imported = artifact.import_report
    with publishing():
        artifact.save(output)
        published()
    if args.json:
        print(json.dumps(artifact.manifest, indent=2))
    elif not args.quiet:
        seconds = time.perf_counter() - start
        print(f"{output}: {artifact.target}, {len(artifact.vmfb):,} bytes, {seconds:.2f} s")
        for name, signature in artifact.functions.items():
            print(f"  {name}{signature}")
        if imported is not None:
            print(f"  imported: {len(imported['raised'])} quantised operators raised, {len(imported['fused'])} taken "
                  f"into another, {len(imported['left'])} left")  # fmt: skip
    return 0


def check_writable(path: Path) -> None:
    """Refuse a hopeless output before the work."""
    import os

    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot write {path}: no permission in {path.parent}")
