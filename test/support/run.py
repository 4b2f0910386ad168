"""Compile every form for every target of the support matrix and record which instructions the code uses.

python test/support/run.py                       # the cells that matrix.json lacks
python test/support/run.py --all --only 'e4m3'   # again, rows whose name contains the text
python test/support/run.py --json                # results on stdout; matrix.json is not written

Each cell is compiled in a child process: a crash or an endless compilation is a result too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:  # as a script
    sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from support.forms import FORMS, Form, M  # noqa: E402
from support.judge import problem  # noqa: E402

RESULTS = HERE / "matrix.json"
TARGETS = (
    "cuda:sm_80", "cuda:sm_90a", "rocm:gfx942", "rocm:gfx950", "rocm:gfx1100", "rocm:gfx1201", "vulkan:rdna3",
    "vulkan:ada",
)  # fmt: skip
SECONDS = 60
_PRODUCTS = ("product", "matmul", "conv")  # in the names of kernels that multiply

Cell = dict[str, Any]


def compile_cell(form: Form, target: str, m: int | None = M) -> Cell:
    """The outcome of one form: the instruction and the number of kernels, or the refusal."""
    from conformance.opened import inspected
    from qmlir import QmlirError
    from qmlir.compiler.device_code import kernels

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            artifact = form.compile(target, m=m, flags=(f"--iree-hal-dump-executable-files-to={folder}",))
        except QmlirError as e:
            return {"status": "refused", "error": type(e).__name__, "reason": _reason(e)}
        found = kernels(Path(folder))
    assert inspected(artifact)["target"] == artifact.target
    products = [s for s in artifact.manifest.strategies if s["kind"] != "depthwise_conv2d"]
    best = [k for k in found if k.kind in ("matrix", "dot")]
    scalar = [k for k in found if k.kind not in ("matrix", "dot", "")]
    cell: Cell = {"status": "compiled", "kernels": len(found)}
    if form.product:
        # If no kernel has a matrix instruction, the product's kernel is the one that multiplies.
        shown = best or sorted(scalar, key=lambda k: not any(x in k.name for x in _PRODUCTS))
        cell |= {"products": len(products), "fast": len(best), "kind": shown[0].kind if shown else "",
                 "instruction": shown[0].instruction if shown else ""}  # fmt: skip
    if artifact.notes:
        cell["notes"] = [n.message for n in artifact.notes]
    return cell


def _reason(error: Any) -> str:
    """The message without the parts that differ between runs: names of temporary files and of a reproducer."""
    found = getattr(error, "diagnostics", ())
    return "\n".join(d.message for d in found) or str(error)


def _worker(pipe: Any) -> None:
    os.environ["QMLIR_CACHE_DIR"] = tempfile.mkdtemp(prefix="qmlir-support-")  # a cached program has no code dumps
    while (job := pipe.recv()) is not None:
        index, target, m = job
        pipe.send(compile_cell(FORMS[index], target, m))


class Compiler:
    """A child process that compiles cells; a new one after a crash."""

    def __init__(self) -> None:
        self._process: Any = None

    def cell(self, index: int, target: str, m: int | None = M) -> Cell:
        if self._process is None:
            spawn = multiprocessing.get_context("spawn")
            self._pipe, theirs = spawn.Pipe()
            self._process = spawn.Process(target=_worker, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        self._pipe.send((index, target, m))
        try:
            if self._pipe.poll(SECONDS):
                result: Cell = self._pipe.recv()
                return result
            reason = f"compilation took more than {SECONDS} seconds"
        except (EOFError, ConnectionError):
            reason = "the compiler crashed"
        self.close(kill=True)
        return {"status": "failed", "reason": reason}

    def close(self, kill: bool = False) -> None:
        if self._process is None:
            return
        if kill:
            self._process.kill()
        else:
            self._pipe.send(None)
        self._process.join()
        self._process = None


def read(path: Path = RESULTS) -> dict[str, dict[str, Cell]]:
    """`{form: {target: cell}}`."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def cells(only: str, targets: Sequence[str], done: dict[str, dict[str, Cell]]) -> Iterator[tuple[int, str]]:
    """The form indices and targets to compile: rows whose name contains `only`, without the cells in `done`."""
    for index, form in enumerate(FORMS):
        if only in form.name:
            yield from ((index, t) for t in targets if t not in done.get(form.name, {}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name holds this")
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: all eight")
    parser.add_argument("--all", action="store_true", help="compile again what matrix.json has")
    parser.add_argument("--json", action="store_true", help="print the results, write nothing")
    args = parser.parse_args()
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    results = {} if args.json else read()
    known = {f.name for f in FORMS}
    results = {name: row for name, row in results.items() if name in known}
    todo = list(cells(args.only, args.target or TARGETS, {} if args.all else results))
    compiler, saved = Compiler(), time.monotonic()

    def save() -> None:
        if not args.json:
            ordered = {f.name: {t: results[f.name][t] for t in TARGETS if t in results[f.name]}
                       for f in FORMS if f.name in results}  # fmt: skip
            RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")

    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("cells", total=len(todo))
        try:
            for index, target in todo:
                progress.update(bar, description=f"{FORMS[index].name} on {target}"[:60])
                results.setdefault(FORMS[index].name, {})[target] = compiler.cell(index, target)
                progress.advance(bar)
                if time.monotonic() - saved > 5:
                    save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            progress.console.print("interrupted: the next run goes on from here")
            compiler.close(kill=True)
            save()
            return 130
    compiler.close()
    save()
    if args.json:
        print(json.dumps(results, indent=1))
    by_name = {f.name: f for f in FORMS}
    judged = ((name, t, problem(by_name[name], t, cell)) for name, row in results.items() for t, cell in row.items())
    wrong = [f"{name} on {target}: {text}" for name, target, text in judged if text]
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
