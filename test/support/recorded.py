"""Record the programs that tests run on the CPU, and run them on other devices.

A pytest plugin compiles every program that a test compiles for `cpu` for another target too, and records its calls. The
results on the CPU, which the test compares with a peer, are the results that the other device has to return.

    QMLIR_RECORD=DIR QMLIR_RECORD_TARGET=cuda:sm_90a pytest -p support.recorded test/frontends
    python test/support/torch_samples.py --target cuda:sm_90a --record DIR        # torch's operator samples
    python test/support/recorded.py run DIR             # on the emulated device, or on the present one
    python test/support/recorded.py pack DIR FOLDER     # for a machine with the device: FOLDER/run --checks

Programs with state, with weights in files, or with a pipeline of their own are left out.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import lzma
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

CALLS_OF_A_PROGRAM = 2
LARGEST_CALL = 1 << 20  # bytes of arguments and results
LARGEST_PROGRAM = 400_000  # bytes; larger programs are not packed
SECONDS = 60.0  # per program on an emulated device
TOLERANCE = {"f32": 1e-4, "f16": 4e-3, "bf16": 2e-2, "f64": 1e-4}  # relative to the largest result


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


class Recorder:
    """Records by wrapping the compiler and the calls of programs."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder, self.target = folder, target
        self.test = ""
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        from qmlir.compiler import compilation
        from qmlir.ops import operation
        from qmlir.runtime.function import Function

        compile_built, call = compilation.compile_built, Function.__call__

        @functools.wraps(compile_built)
        def compiled(build: Any, target: Any, options: Any, key: Any) -> Any:
            artifact = compile_built(build, target, options, key)
            if target.spelling == "cpu" and not options.keep_parameters and options.pipeline is None:
                self.program(artifact, lambda other: compile_built(build, other, _plain(options), None))
            return artifact

        @functools.wraps(call)
        def called(function: Any, *args: Any) -> Any:
            results = call(function, *args)
            self.call(_digest(function._program._loaded[0].vmfb), function.name, args, results)
            return results

        compilation.compile_built = compiled
        operation.compile_built = compiled
        Function.__call__ = called  # type: ignore[method-assign]
        self._start_other_process()

    def _start_other_process(self) -> None:
        """Record the calls that `conformance.opened` makes in another process."""
        from conformance.opened import Opened, _Server

        init, ask = Opened.__init__, _Server.ask
        digests: dict[int, str] = {}

        @functools.wraps(init)
        def opened(program: Any, artifact: Any, options: Any) -> None:
            init(program, artifact, options)
            digests[program._number] = _digest(artifact.vmfb)

        @functools.wraps(ask)
        def asked(server: Any, what: str, *arguments: Any) -> Any:
            answer = ask(server, what, *arguments)
            if what == "call":
                number, name, arrays = arguments
                self.call(digests[number], name, arrays, answer[0])
            return answer

        Opened.__init__ = opened  # type: ignore[method-assign]
        _Server.ask = asked  # type: ignore[method-assign]

    def program(self, artifact: Any, compile_for: Any) -> None:
        from qmlir import QmlirError
        from qmlir.targets import resolve

        about = self.folder / f"{_digest(artifact.vmfb)}.json"
        signature = artifact.functions.get("main")
        if about.exists() or artifact.manifest.has_state or signature is None:
            return
        found: dict[str, Any] = {"test": self.test, "target": self.target}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                other = compile_for(resolve(self.target))
        except QmlirError as e:
            about.write_text(json.dumps({**found, "refused": str(e)[:2000]}))
        else:
            write_program(about, self.test, other)

    def call(self, digest: str, function: str, args: Any, results: Any) -> None:
        about = self.folder / f"{digest}.json"
        if function != "main" or not about.with_suffix(".vmfb").exists():
            return
        found = json.loads(about.read_text())
        number = len(list(self.folder.glob(f"{digest}-*.npz")))
        assert len(args) == len(found["inputs"])
        if number < CALLS_OF_A_PROGRAM:
            write_call(about, number, args, results if isinstance(results, (tuple, list)) else (results,))


def write_program(about: Path, test: str, artifact: Any) -> None:
    """Write a program, with the name of its test."""
    signature = artifact.functions["main"]
    about.with_suffix(".vmfb").write_bytes(artifact.vmfb)
    found = {"test": test, "target": artifact.target, "driver": artifact.manifest.driver,
             "inputs": [s.dtype for _, s in signature.inputs],
             "outputs": [s.dtype for s in signature.outputs]}  # fmt: skip
    about.write_text(json.dumps(found))


def write_call(about: Path, number: int, args: Sequence[Any], results: Sequence[Any]) -> None:
    """Write the arguments and the expected results of a call, unless they are larger than `LARGEST_CALL`."""
    arrays = {f"input{i}": _bits(a) for i, a in enumerate(args)} | {
        f"output{i}": _bits(a) for i, a in enumerate(results)
    }
    if sum(a.nbytes for a in arrays.values()) <= LARGEST_CALL:
        np.savez_compressed(about.with_name(f"{about.stem}-{number}.npz"), **arrays)  # type: ignore[arg-type]


def _plain(options: Any) -> Any:
    return replace(options, choice={}, flags=(), cache=False)


def _bits(array: Any) -> Any:
    """The array; one of an ml_dtypes type as unsigned integers."""
    from qmlir.dialect.arrays import to_numpy

    made = np.ascontiguousarray(to_numpy(array, "recorded")).reshape(np.shape(array))
    return made if made.dtype.type.__module__ == "numpy" else made.view(f"u{made.dtype.itemsize}")


class _Names:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def pytest_runtest_setup(self, item: Any) -> None:
        self.recorder.test = item.nodeid


def pytest_configure(config: Any) -> None:
    if "QMLIR_RECORD" in os.environ:
        recorder = Recorder(Path(os.environ["QMLIR_RECORD"]), os.environ.get("QMLIR_RECORD_TARGET", "cuda:sm_90a"))
        recorder.start()
        config.pluginmanager.register(_Names(recorder))


# ---- what was recorded


@dataclass(frozen=True)
class Recorded:
    """A program: its test, the target's refusal or the program's file, and the files of its calls."""

    test: str
    target: str
    refused: str
    file: Path
    calls: tuple[Path, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    driver: str = ""

    @property
    def tolerance(self) -> float:
        return max((TOLERANCE.get(dtype, 0.0) for dtype in self.outputs), default=0.0)


def read(folder: Path) -> Iterator[Recorded]:
    for about in sorted(folder.glob("*.json")):
        found = json.loads(about.read_text())
        calls = tuple(sorted(folder.glob(f"{about.stem}-*.npz")))
        if "refused" in found or calls:
            yield Recorded(
                found["test"], found["target"], found.get("refused", ""), about.with_suffix(".vmfb"), calls,
                tuple(found.get("inputs", ())), tuple(found.get("outputs", ())), found.get("driver", ""),
            )  # fmt: skip


def pack(recorded: Path, folder: Path) -> None:
    """Write a folder as `benchmarks.gpu build` does, with checks only."""
    from benchmarks.gpu.build import fetch_wheel, write_runner

    (folder / "programs").mkdir(parents=True)
    checks: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for r in read(recorded):
        case = {"name": r.test, "family": r.test.split("::")[0], "target": r.target}
        if r.refused:
            checks.append({**case, "refused": r.refused})
            continue
        vmfb = r.file.read_bytes()
        if len(vmfb) > LARGEST_PROGRAM:
            continue
        file = f"programs/{r.file.name}.xz"
        (folder / file).write_bytes(lzma.compress(vmfb, preset=6))
        inputs = [{"name": f"input{i}", "dtype": dtype} for i, dtype in enumerate(r.inputs)]
        program = {"file": file, "driver": r.driver, "draw": [], "inputs": inputs, "outputs": r.outputs}
        for call in r.calls:
            with np.load(call) as values:
                arrays |= {f"{call.stem}/{name}": values[name] for name in values.files}
            given = [f"{call.stem}/input{i}" for i in range(len(r.inputs))]
            expected = [f"{call.stem}/output{i}" for i in range(len(r.outputs))]
            checks.append({**case, "program": program, "tolerance": r.tolerance, "inputs": given, "expected": expected})
    np.savez_compressed(folder / "arrays.npz", **arrays)
    contents = {"target": checks[0]["target"], "versions": {}, "checks": checks, "works": []}
    (folder / "works.json").write_text(json.dumps(contents) + "\n")
    write_runner(folder)
    print(f"{len(checks)} checks, {sum('refused' in c for c in checks)} refused; {fetch_wheel(folder / 'wheels')}")


def run(recorded: Path, only: str) -> int:
    """Call every program on the emulated device of its target, or on the present one; return how many are not right.
    Each runs in a child process, for at most `SECONDS`."""
    from support import children

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "runner"))  # for `judge`
    every = {r.file.stem: r for r in read(recorded) if only in r.test}
    wrong = 0
    for stem, found in children.outcomes(list(every), lambda stem: _outcome(every[stem]), SECONDS):
        wrong += found != "right"
        if found != "right":
            print(f"{every[stem].target} {every[stem].test} ({stem}): {found}", flush=True)
    print(f"{len(every) - wrong} right, {wrong} not")
    return wrong


def _outcome(r: Recorded) -> str:
    """`right`, or the description of what is wrong."""
    import judge

    import qmlir
    from qmlir.dialect.dtypes import DTYPES
    from qmlir.emulation.backends import emulated_targets

    if r.refused:
        return f"refused: {r.refused.replace(chr(10), ' | ')[:300]}"
    for call in r.calls:
        with np.load(call) as values:
            arrays = dict(values)
        given = [arrays[f"input{i}"] for i in range(len(r.inputs))]
        given = [
            a.view(DTYPES[d].numpy) if DTYPES[d].kind == "float" else a for a, d in zip(given, r.inputs, strict=True)
        ]
        try:
            made = qmlir.load(r.file, emulate=r.target in emulated_targets()).main(*given)
        except qmlir.QmlirError as e:
            return f"{type(e).__name__}: {e}"[:300]
        got = [_bits(a) for a in (made if isinstance(made, tuple) else (made,))]
        expected = [arrays[f"output{i}"] for i in range(len(r.outputs))]
        found = judge.judged([got], expected, list(r.outputs), r.tolerance)
        if found["result"] != "right":
            return str(found["why"])
    return "right"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "pack"))
    parser.add_argument("recorded", type=Path, metavar="DIR")
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="TEXT", help="run: tests with TEXT in their names")
    args = parser.parse_args()
    if args.what == "pack":
        pack(args.recorded, args.folder)
        return 0
    return int(run(args.recorded, args.only) > 0)


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]
    raise SystemExit(main())
