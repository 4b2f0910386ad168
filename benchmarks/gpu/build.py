"""Writes the folder of the GPU benchmarks: programs, arguments, expected results, the runner."""

from __future__ import annotations

import functools
import io
import json
import lzma
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import qmlir
from qmlir import QmlirError, TensorSpec
from qmlir.compiler.compilation import compile_built
from qmlir.compiler.options import Options
from qmlir.core import bindings, cuda, faults
from qmlir.dialect.dtypes import Array, from_numpy
from qmlir.runtime.artifact import Artifact
from qmlir.targets import resolve

from .checks import Check, checks
from .works import Work, works

RUNNER = Path(__file__).with_name("runner")
CHECK_TARGETS = ("cuda:sm_90a", "cuda:sm_80", "vulkan:ada")
TARGET = "cuda:sm_90a"
LIMIT_BYTES = 60_000_000
_PLAIN = frozenset(("i8", "u8", "i32", "f16", "f32"))


class Folder:
    """The folder that is being written. A journal records the finished entries, so that an interrupted build resumes.

    Raises:
        FileExistsError: the folder holds something else, or was begun by another version or for another target.
    """

    def __init__(self, path: Path, what: dict[str, Any]) -> None:
        self.path = path
        self.journal, self.parts = path / "journal.jsonl", path / "parts"
        if path.exists() and any(path.iterdir()) and not self.journal.exists():
            raise FileExistsError(f"{path} is not empty")
        for folder in (path / "programs", self.parts):
            folder.mkdir(parents=True, exist_ok=True)
        self.arrays: dict[str, Array] = {}
        self.programs = 0
        self.done: dict[str, Any] = {}
        if not self.journal.exists():
            self.journal.write_text(json.dumps(what) + "\n")
        first, *lines = self.journal.read_text().splitlines()
        if json.loads(first) != json.loads(json.dumps(what)):
            raise FileExistsError(f"{path} was begun as {first}: another folder")
        for line in lines:
            entry = json.loads(line)
            self.done[entry["key"]] = entry["value"]
            self.programs = entry["programs"]
        for part in sorted(self.parts.glob("*.npz")):
            with np.load(part) as found:
                self.arrays |= {name: found[name] for name in found.files}

    def kept(self, key: str, make: Callable[[], Any]) -> Any:
        """The result of `make()`, or of an earlier build by its journal. Also keeps the arrays that `make` adds."""
        if key not in self.done:
            before = set(self.arrays)
            value = make()
            new = {name: array for name, array in self.arrays.items() if name not in before}
            if new:
                np.savez(self.parts / f"{len(self.done):04}.npz", **new)  # type: ignore[arg-type]
            with self.journal.open("a") as journal:
                journal.write(json.dumps({"key": key, "value": value, "programs": self.programs}) + "\n")
            self.done[key] = value
        return self.done[key]

    def finish(self) -> None:
        """Write the arrays, and remove the journal and its files."""
        np.savez_compressed(self.path / "arrays.npz", **self.arrays)  # type: ignore[arg-type]
        shutil.rmtree(self.parts)
        self.journal.unlink()

    def program(self, artifact: Artifact) -> dict[str, Any]:
        """Store a program. `draw`: the byte ranges of its large constants, which the runner fills with random bytes."""
        name = f"programs/{self.programs:03}.vmfb.xz"
        self.programs += 1
        (self.path / name).write_bytes(lzma.compress(artifact.vmfb, preset=6))
        return {
            "file": name,
            "driver": artifact.manifest.driver,
            "draw": constants(artifact.vmfb),
            "strategies": [s["chosen"] for s in artifact.manifest.strategies],
            "inputs": [{"name": n, "dtype": s.dtype} for n, s in artifact.functions["main"].inputs],
            "outputs": [s.dtype for s in artifact.functions["main"].outputs],
        }

    def array(self, name: str, value: Any) -> str:
        """Store an array by name; types that numpy lacks are stored as unsigned integers."""
        array = np.ascontiguousarray(value)
        if from_numpy(array.dtype) not in _PLAIN:
            array = array.view(f"u{array.dtype.itemsize}")
        self.arrays[name] = array
        return name


def constants(vmfb: bytes) -> list[tuple[int, int]]:
    """The byte ranges (start, length) of a program's large constants."""
    found = []
    with zipfile.ZipFile(io.BytesIO(vmfb)) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith("_const") and entry.file_size >= 1 << 16:
                at = entry.header_offset
                names = int.from_bytes(vmfb[at + 26 : at + 28], "little") + int.from_bytes(
                    vmfb[at + 28 : at + 30], "little"
                )
                found.append((at + 30 + names, entry.file_size))
    return found


def add_check(folder: Folder, check: Check, target: str) -> list[dict[str, Any]]:
    """The cases of a check, or one case with the reason if the target refuses it."""
    cases: list[dict[str, Any]] = []
    stored: dict[str, Any] | None = None
    for m in check.rows:
        name = f"{check.family}: {check.name}, {m} rows"
        case: dict[str, Any] = {"name": name, "family": check.family, "target": target, "tolerance": check.tolerance}
        try:
            if stored is None or not check.dynamic:
                stored = folder.program(check.compile(target, m))
        except QmlirError as e:
            return [{**case, "refused": str(e).splitlines()[0]}]
        operands = check.operands(m)
        inputs = [folder.array(f"{name}/{i['name']}", operands[i["name"]]) for i in stored["inputs"]]
        cases.append({**case, "program": stored, "inputs": inputs, "expected": [folder.array(name, check.expected(m))]})
    return cases


def add_work(folder: Folder, work: Work, target: str) -> dict[str, Any]:
    """The description of a work, with its program or the reason why it was refused."""
    facts = {
        "name": work.name, "row": work.row, "operations": work.operations, "bytes": work.bytes,
        "peers": list(work.peers), "goals": [[g.peer, g.ratio] for g in work.goals], "problem": work.problem,
        "share": work.share, "repeats": work.repeats, "copies": work.copies,
        "operands": [_argument(o) for o in work.operands], "shared": [_argument(o) for o in work.shared],
    }  # fmt: skip
    try:
        return {**facts, "program": folder.program(compile_work(work, target))}
    except QmlirError as e:
        return {**facts, "refused": str(e).splitlines()[0]}


def _argument(o: Any) -> dict[str, Any]:
    return {"name": o.name, "dtype": o.dtype, "shape": list(o.shape), "fill": o.fill, "limit": o.limit}


def compile_work(work: Work, target: str) -> Artifact:
    """Compile one program of `repeats` products, which use the sets of operands in turn."""
    choice = {"strategy": work.strategy} if work.strategy else {}
    return compile_built(lambda ctx: _module(work), resolve(target), Options(cache=False, choice=choice), None)


def _module(work: Work) -> Any:
    """The module of a work. `@sets` multiplies each set of operands once; `@main` calls it as often as needed, so that
    a constant weight is packed only once. `@main` returns the elementwise maximum of the products' first rows, because
    IREE allocates memory for each result in every call, which should not count as time of a product."""
    from qmlir.core.mlir import arith, func, ir
    from qmlir.dialect.ops.common import tensor_type
    from qmlir.ir.build import crop
    from qmlir.ir.signature import DTYPE, NAME

    turns = work.repeats // work.copies
    count = work.copies * len(work.operands)
    named = [(f"{o.name}_{i}", o) for i in range(work.repeats) for o in work.operands]
    named += [(o.name, o) for o in work.shared]
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        sets, (result, *_) = _sets(work)
        first = (*(1 for _ in result.shape[:-1]), result.shape[-1])
        types, output = [tensor_type(o.shape, o.dtype) for _, o in named], tensor_type(first, result.dtype)
        main = func.FuncOp("main", ir.FunctionType.get(types, [output]))
        main.attributes["arg_attrs"] = _dictionaries([{NAME: name, DTYPE: o.dtype} for name, o in named])
        main.attributes["res_attrs"] = _dictionaries([{DTYPE: result.dtype}])
        with ir.InsertionPoint(main.add_entry_block()):
            arguments = list(main.arguments)
            shared = arguments[work.repeats * len(work.operands) :]
            made = []
            for turn in range(turns):
                made += func.CallOp(sets, [*arguments[turn * count : (turn + 1) * count], *shared]).results
            larger = arith.maxsi if isinstance(output.element_type, ir.IntegerType) else arith.maximumf
            rows = (crop(value, [0] * len(first), first) for value in made)
            func.ReturnOp([functools.reduce(larger, rows)])
    return module


def _sets(work: Work) -> tuple[Any, list[TensorSpec]]:
    """A private function with one product per set of operands, and the specs of its results."""
    from qmlir.core.mlir import func, ir
    from qmlir.dialect.ops.common import tensor_type
    from qmlir.ir.build import dense

    operation = qmlir.ops.BY_NAME[work.op]
    named = [o for _ in range(work.copies) for o in work.operands] + list(work.shared)
    types = [tensor_type(o.shape, o.dtype) for o in named]
    f = func.FuncOp("sets", ir.FunctionType.get(types, []), visibility="private")
    specs = {o.name: TensorSpec(o.shape, o.dtype) for o in (*work.operands, *work.shared)}
    constant = {n: np.asarray(v, np.float32) for n, v in work.constants.items()}
    specs |= {n: TensorSpec(v.shape, "f32") for n, v in constant.items()}
    results = []
    with ir.InsertionPoint(f.add_entry_block()):
        arguments = list(f.arguments)
        fixed = {o.name: v for o, v in zip(work.shared, arguments[-len(work.shared) :], strict=True)}
        fixed |= {n: dense(v) for n, v in constant.items()}
        for i in range(work.copies):
            own = arguments[i * len(work.operands) : (i + 1) * len(work.operands)]
            operands = fixed | {o.name: v for o, v in zip(work.operands, own, strict=True)}
            if work.weight is not None:
                weight = _weight(work, i)
                operands["rhs"], specs["rhs"] = dense(weight), TensorSpec(weight.shape, "u8")
            results += operation.emit(operands, specs, work.attributes)
        func.ReturnOp([value for value, _ in results])
    f.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [value.type for value, _ in results]))
    return f, [spec for _, spec in results]


def _dictionaries(rows: Sequence[dict[str, str]]) -> Any:
    from qmlir.core.mlir import ir

    return ir.ArrayAttr.get([ir.DictAttr.get({k: ir.StringAttr.get(v) for k, v in row.items()}) for row in rows])


def _weight(work: Work, number: int) -> Array:
    """Constant codes that compress well, different for each set. The runner replaces them by random bytes."""
    assert work.weight is not None
    n, k = work.weight.shape
    pattern = np.resize(np.arange(251, dtype=np.uint8), n * k * work.weight.bits // 8)
    return np.roll(pattern, 1 + number).reshape(n, -1)


def build(
    path: Path, target: str = TARGET, check_targets: Sequence[str] = CHECK_TARGETS, *, tiny: bool = False,
    only: Sequence[str] = (), wheel: bool = True, say: Callable[[str], None] = print,
) -> dict[str, Any]:  # fmt: skip
    """Write the folder. Returns the contents of its works.json.

    Args:
        target: the works are compiled for it.
        check_targets: the checks are compiled for each of them.
        tiny: small sizes, for the tests.
        only: works and checks whose names contain one of these texts.
        wheel: fetch the runtime's wheel for the device's Python.
    """
    versions = {"qmlir": qmlir.__version__, "iree": version("iree-base-runtime")}
    what = {"target": target, "checks": list(check_targets), "tiny": tiny, "only": list(only), "versions": versions}
    folder = Folder(path, what)
    start = time.perf_counter()

    def wanted(name: str) -> bool:
        return not only or any(o.lower() in name.lower() for o in only)

    cases = []
    for one in check_targets:
        for check in checks():
            if wanted(f"{check.family}: {check.name}") and one in (check.targets or (one,)):
                key = f"{one}, {check.family}: {check.name}"
                cases += folder.kept(key, functools.partial(add_check, folder, check, one))
                say(f"{time.perf_counter() - start:5.0f} s  {key}")
        say(f"{one}: {sum('refused' not in c for c in cases if c['target'] == one)} checks")
    measured = []
    for work in works(tiny):
        if wanted(work.name):
            measured.append(folder.kept(work.name, functools.partial(add_work, folder, work, target)))
            why = f": {measured[-1]['refused']}" if "refused" in measured[-1] else ""
            say(
                f"{time.perf_counter() - start:5.0f} s  {work.name}: {work.repeats} products of {work.copies} sets{why}"
            )
    folder.finish()
    contents = {"target": target, "versions": versions, "checks": cases, "works": measured}
    (path / "works.json").write_text(json.dumps(contents, indent=1) + "\n")
    write_runner(path)
    if wheel:
        say(fetch_wheel(path / "wheels"))
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    say(f"{path}: {size / 1e6:.1f} MB, {folder.programs} programs, in {time.perf_counter() - start:.0f} s")
    if size > LIMIT_BYTES:
        raise ValueError(f"{path} has {size / 1e6:.1f} MB, more than {LIMIT_BYTES / 1e6:.0f}")
    return contents


def write_runner(path: Path) -> None:
    """Copy the runner, and the modules of qmlir's runtime that open a CUDA device."""
    shutil.copytree(RUNNER, path / "runner", ignore=shutil.ignore_patterns("__pycache__"))
    opens = path / "runner" / "core"
    opens.mkdir()
    for module in (bindings, cuda, faults):
        shutil.copy(module.__file__, opens)
    run = path / "run"
    run.write_text('#!/bin/sh\nexec "${PYTHON:-python3}" "$(dirname "$0")/runner" "$@"\n')
    run.chmod(0o755)


def fetch_wheel(folder: Path) -> str:
    """Download the runtime's wheel for CPython 3.12 and newer on x86-64 Linux with pip. Returns a message."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
               "--python-version", "3.12", "--implementation", "cp", "--platform", "manylinux_2_28_x86_64", "--dest",
               str(folder), f"iree-base-runtime=={version('iree-base-runtime')}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return "no wheel of iree-base-runtime: the runner needs it installed"
    return f"wheel: {', '.join(f.name for f in folder.iterdir())}"
