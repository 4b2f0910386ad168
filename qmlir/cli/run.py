"""`qmlir run`: call a function of a compiled program."""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .. import signing
from ..core.files import write_atomically
from ..core.spelling import function_named
from ..errors import InputError, UsageError
from . import progress
from .arguments import add_emulate, add_old_name, add_source, command, count, parameter_file
from .compile import check_writable

if TYPE_CHECKING:
    from ..dialect.dtypes import Array
    from ..emulation.program import Emulation


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "run", "[options] IN", "run a compiled program",
                "Call a function of IN, a .vmfb that qmlir made.")  # fmt: skip
    add_source(p, "program")
    p.add_argument("-f", "--function", default="main", metavar="NAME", help="the function to call")
    p.add_argument("-i", "--arguments", action="append", default=[], metavar="FILE",
                   help="an argument (.npy), or all of them (.npz)")  # fmt: skip
    add_old_name(p, "--input", "--arguments")
    p.add_argument("-o", "--output", action="append", default=[], metavar="FILE",
                   help="write a result to an .npy file (default: print)")  # fmt: skip
    p.add_argument("--device", help="local-sync, local-task, vulkan://0, ...")
    add_emulate(p)
    p.add_argument("--order-seed", type=int, metavar="N", help="with --emulate: workgroups and waves in random order")
    p.add_argument("--parameters", action="append", default=[], type=parameter_file, metavar="SCOPE=FILE",
                   help="weights of a program that keeps its parameters")  # fmt: skip
    p.add_argument("--sha256", metavar="HASH", help="refuse a file that has another SHA-256")
    add_old_name(p, "--verify-hash", "--sha256")
    p.add_argument("--verify-key", metavar="FILE", help="refuse one not signed by this public key (.pem)")
    p.add_argument("--repeats", type=count, default=1, metavar="N", help="call N times, print the time of one")
    add_old_name(p, "--repeat", "--repeats")
    p.add_argument("--json", action="store_true", help="print shapes, dtypes, time as JSON")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:

    # Verify before anything of the file is used: it holds native code.
    expected = args.sha256
    if args.verify_key is not None:
        signed = signing.verify(args.program, args.verify_key)
        if expected is not None:
            signing.check_digest(Path(args.program).read_bytes(), expected, args.program)
        expected = signed
    progress.tell(f"loading {args.program}")
    if args.emulate and args.repeats > 1:
        raise UsageError("--emulate measures no time: leave out --repeats")
    if args.order_seed is not None and not args.emulate:
        raise UsageError("--order-seed goes with --emulate")
    with progress.counter(args.quiet) as step:
        return _run(args, expected, step)


def _run(args: argparse.Namespace, expected: str | None, step: Callable[[str], None]) -> int:
    import numpy as np

    import qmlir

    from ..runtime import inputs

    emulate: bool | Emulation = False
    if args.emulate:
        from ..emulation.program import Emulation, options_of

        emulate = options_of(Emulation(args.order_seed), args.program, step)
    program = qmlir.load(
        args.program, device=args.device, parameters=dict(args.parameters), sha256=expected, emulate=emulate
    )
    function = function_named(program.functions, args.function, args.program)
    arrays = inputs.ordered(arguments_of(args.arguments), function.signature)
    for i, path in enumerate(args.output):
        check_writable(Path(path), args.program, *args.arguments, *args.output[:i])
    if args.output and len(args.output) != len(function.signature.outputs):
        count = len(function.signature.outputs)
        raise UsageError(f"{args.function} has {count} results, but -o names {len(args.output)} files")
    times = []
    for _ in range(args.repeats):
        start = time.perf_counter()
        results = function(*arrays)
        times.append(time.perf_counter() - start)
    results = results if isinstance(results, tuple) else (results,)
    for path, array in zip(args.output, results, strict=False):
        _save(path, array)
    median = sorted(times)[len(times) // 2]
    if args.json:
        rows = [{"shape": list(r.shape), "dtype": str(r.dtype)} for r in results]
        time_of = {} if args.emulate else {"seconds": median, "calls": args.repeats}
        print(json.dumps({"results": rows, **time_of}))
        return 0
    if not args.output:
        for i, array in enumerate(results):
            print(f"result {i}: {function.signature.outputs[i]}")
            print(np.asarray(array))
    if args.repeats > 1 and not args.quiet:
        print(f"{median * 1e6:.1f} us a call (median of {args.repeats})", file=sys.stderr)
    return 0


def _save(path: str, array: Array) -> None:
    """Write an .npy file atomically."""

    import numpy as np

    data = io.BytesIO()
    np.save(data, np.asarray(array), allow_pickle=False)
    write_atomically(Path(path), data.getvalue())


def arguments_of(paths: list[str]) -> list[Array] | dict[str, Array]:
    """The arrays of .npy and .npz files in order; those of a single .npz file by name."""
    arrays: list[Array] = []
    for path in paths:
        try:
            loaded = _load(path)
        except FileNotFoundError:
            raise InputError(f"cannot read {path}: there is no such file") from None
        except (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as e:
            reason = "Python objects in it are not read" if "allow_pickle" in str(e) else str(e)
            raise InputError(f"cannot read {path}: it is damaged or not a .npy or .npz file ({reason})") from None
        if isinstance(loaded, dict) and len(paths) == 1:
            return loaded
        arrays += loaded.values() if isinstance(loaded, dict) else [loaded]
    return arrays


def _load(path: str) -> Array | dict[str, Array]:
    import numpy as np

    loaded: Array | np.lib.npyio.NpzFile = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        return {name: loaded[name] for name in loaded.files}
