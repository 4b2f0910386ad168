"""The kinds of user input to qmlir, as surfaces to fuzz: each mutates valid inputs and feeds them to the public API or
the command line. An input passes if it is accepted or refused by one of qmlir's errors (exit code 0, 1 or 2); any other
exception, or the end of the process, is a finding.

    python test/robustness/fuzz.py [SURFACE...] --count 1000 --seed 7
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from robustness.mutations import Random, mutated_bytes, mutated_json, mutated_text
from support.programs import product

import qmlir
from qmlir.core.cache import Cache
from qmlir.errors import QmlirError
from qmlir.runtime.artifact import Artifact
from qmlir.tuning import Database, Record
from qmlir.tuning.measure import read_plan, read_results


class Finding(Exception):
    """An input that was neither accepted nor refused."""


Feed = Callable[[Random], None]
SURFACES: dict[str, tuple[Callable[[Path], Feed], float]] = {}


def surface(name: str, share: float) -> Callable[[Callable[[Path], Feed]], Callable[[Path], Feed]]:
    """Register a function that opens a surface in a folder of its own. `share` is the surface's share of all inputs."""

    def register(opened: Callable[[Path], Feed]) -> Callable[[Path], Feed]:
        SURFACES[name] = (opened, share)
        return opened

    return register


LAYER = """\
func.func @main(%x: tensor<?x4xi8> {qmlir.name = "x"}, %x_scale: tensor<?x1xf32>) -> tensor<?x3xi8> {
  %w = arith.constant dense<[[1, -2, 3, -4], [5, 6, -7, 8], [-9, 10, 11, -12]]> : tensor<3x4xi8>
  %w_scale = arith.constant dense<[[0.5], [0.25], [0.125]]> : tensor<3x1xf32>
  %out_scale = arith.constant dense<2.0> : tensor<f32>
  %y = "qmlir.scaled_matmul"(%x, %w, %x_scale, %w_scale, %out_scale) {
    rhs_transposed = true, activation = "relu",
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "out_scale"]
  } : (tensor<?x4xi8>, tensor<3x4xi8>, tensor<?x1xf32>, tensor<3x1xf32>, tensor<f32>) -> tensor<?x3xi8> loc("fc1")
  return %y : tensor<?x3xi8>
}
"""


def programs() -> list[str]:
    """Valid programs: a layer, a product, and up to two examples from each file of the dialect's tests."""
    folder = Path(__file__).resolve().parents[1] / "dialect"
    texts = [LAYER, product(4, 8, 16)]
    for file in sorted(folder.glob("*/*.mlir")):
        texts += [part for part in file.read_text().split("// -----") if "func.func" in part][:2]
    return [t for t in texts if len(t) < 6000]


@surface("mlir", 0.14)
def mlir(folder: Path) -> Feed:
    """Text of a program, through the parser and the passes."""
    from qmlir.compiler.compilation import text_at

    texts = programs()
    levels = ("import", "qmlir", "linalg", "configured")

    def feed(r: Random) -> None:
        text_at(mutated_text(r, r.choice(texts)) + "\n", r.choice(levels), target="cpu:x86-64-v3")

    return feed


@surface("vmfb", 0.08)
def vmfb(folder: Path) -> Feed:
    """Bytes of a compiled file."""
    good = qmlir.compile(LAYER, target="cpu:x86-64-v3").vmfb
    path = folder / "f.vmfb"

    def feed(r: Random) -> None:
        path.write_bytes(mutated_bytes(r, good))
        Artifact.open(path)

    return feed


@surface("manifest", 0.16)
def manifest(folder: Path) -> Feed:
    """A manifest with values that qmlir does not write, in an otherwise intact artifact."""
    made = qmlir.compile(LAYER, target="cpu:x86-64-v3")
    names = (made.manifest.target, made.manifest.driver)

    def feed(r: Random) -> None:
        changed = made.manifest.to_json()
        for _ in range(r.randint(1, 3)):
            changed = mutated_json(r, changed)
        artifact = Artifact(made.vmfb, Manifest.from_json(changed))
        what = r.randrange(5)
        if what == 0:
            str(qmlir.inspect(artifact))
        elif what == 1:
            str(qmlir.explain(artifact))
        elif what == 2:
            _ = artifact.functions, artifact.notes, artifact.target, artifact.import_report
        elif what == 3:
            if (artifact.manifest.target, artifact.manifest.driver) == names:
                qmlir.load(artifact)
        else:
            artifact._repr_html_()

    from qmlir.runtime.manifest import Manifest

    return feed


def database_of(r: Random) -> Database:
    choice = (("chunk_rows", r.choice([24, 48])), ("strategy", "stock"))
    return Database({f"k{i}": {Record(choice, r.random() + 0.1, 1.0, "d") for _ in range(2)} for i in range(3)})


@surface("database", 0.2)
def database(folder: Path) -> Feed:
    """A tuning database."""
    path = folder / "t.json"

    def feed(r: Random) -> None:
        database_of(r).write(path)
        text = path.read_text()
        if r.random() < 0.7:
            path.write_text(json.dumps(mutated_json(r, json.loads(text))))
        else:
            path.write_bytes(mutated_bytes(r, text.encode()))
        read = Database.read(path).merged(database_of(r))
        for key in read.entries:
            read.best(key)
        read.write(path)
        if Database.read(path) != read:
            raise Finding("what was written is not what is read")

    return feed


@surface("candidates", 0.1)
def candidates(folder: Path) -> Feed:
    """A folder of `tune --emit`: plan and results."""
    plan = {"key": "k", "target": "cpu", "host": "", "sha256": "0", "parameters": {}, "function": "main", "size": 4,
            "candidates": [{"name": "000", "choice": {}, "file": "000.vmfb"},
                           {"name": "001", "choice": {"a": "b"}}]}  # fmt: skip
    results = {"000": {"seconds": 1.0, "baseline": 1.0}, "001": {"error": "no"}}

    def feed(r: Random) -> None:
        from qmlir.tuning.search import conclude

        for name, data in (("plan.json", plan), ("results.json", results)):
            if r.random() < 0.6:
                (folder / name).write_text(json.dumps(mutated_json(r, data)))
            else:
                (folder / name).write_bytes(mutated_bytes(r, json.dumps(data).encode()))
        read_plan(folder)
        read_results(folder)
        str(conclude(folder, "d")[1])

    return feed


@surface("cache", 0.1)
def cache(folder: Path) -> Feed:
    """A cache folder with damaged, missing and foreign files."""
    payload = b"a program" * 50

    def feed(r: Random) -> None:
        place = folder / "cache"
        shutil.rmtree(place, ignore_errors=True)
        kept = Cache(place)
        keys = [f"{r.randrange(4):02x}" + "0" * 62 for _ in range(2)]
        for key in keys:
            kept.put(key, payload)
        files = [p for p in place.rglob("*") if p.is_file()]
        for _ in range(r.randint(1, 3)):
            _spoil(r, r.choice(files), place)
        for key in keys:
            if kept.get(key) not in (None, payload) or kept.get_or_build(key, lambda: payload) != payload:
                raise Finding("a damaged entry was read")
        kept.entries()
        kept.clear()

    return feed


def _spoil(r: Random, path: Path, place: Path) -> None:
    kind = r.randrange(6)
    with contextlib.suppress(OSError):
        if kind == 0:
            path.write_bytes(mutated_bytes(r, path.read_bytes()))
        elif kind == 1:
            path.unlink()
        elif kind == 2:
            path.unlink()
            path.mkdir()
        elif kind == 3:
            path.unlink()
            path.symlink_to(r.choice(["/nonexistent", str(path), "/dev/null"]))
        elif kind == 4:
            (place / r.choice(["zz", "00", "a.vmfb", "00.lock"])).write_bytes(b"x")
        else:
            path.with_suffix(".lock").write_bytes(b"")


@surface("arguments", 0.17)
def arguments(folder: Path) -> Feed:
    """Words of a command line. Files are small or missing, so every command ends soon."""
    from qmlir.cli import COMMANDS, build_parser
    from qmlir.cli.arguments import parse
    from qmlir.cli.guarded import guarded

    os.environ["QMLIR_IN_CHILD"] = str(folder / "step")
    (folder / "bad.mlir").write_text("module { nonsense")
    (folder / "bad.vmfb").write_bytes(b"PK")
    (folder / "bad.json").write_text("{")
    np.save(folder / "x.npy", np.zeros((2, 2), np.int8))
    parser = build_parser()
    options = sorted({o for p in _parsers(parser) for a in p._actions for o in a.option_strings})
    values = [str(folder / n) for n in ("bad.mlir", "bad.vmfb", "bad.json", "x.npy", "none")] + [
        "", "-", "--", "cpu", "cuda:sm_90a", "vulkan:none", "rocm", "1", "-1", "0", "nan", "inf", "1e999",
        "99999999999", "a=b", "a=", "=", "a=1x2", "x" * 300, "é", "\n", "5m", "import", "asm", "main",
        "model=x.npy", "1,2",
    ]  # fmt: skip
    commands = [*(name.rstrip("_") for name in COMMANDS), "bogus", ""]

    def feed(r: Random) -> None:
        words = [r.choice(commands)]
        for _ in range(r.randint(0, 5)):
            words.append(r.choice(options) if r.random() < 0.45 else r.choice(values))
            if r.random() < 0.1:
                words[-1] += "=" + r.choice(values)
        if words[0] == "cache" and "clear" in words:
            return

        def body() -> int:
            args = parse(parser, words)
            if args.version or args.command is None:
                return 0
            args.words = words
            return int(args.run(args))

        out, err = io.StringIO(), io.StringIO()
        code: Any = None
        before = Path.cwd()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = guarded(body, "qmlir")
        except SystemExit as e:
            code = e.code
        finally:
            os.chdir(before)
        if code not in (0, 1, 2) or "internal error" in err.getvalue() or "Traceback" in err.getvalue():
            raise Finding(f"{words}: exit code {code}, {err.getvalue()[-2000:]}")
        if code and not err.getvalue() and words[0] not in ("check", "explain"):
            raise Finding(f"{words}: exit code {code} without a word")

    return feed


def _parsers(parser: Any) -> list[Any]:
    found = [parser]
    for action in parser._actions:
        if hasattr(action, "choices") and isinstance(action.choices, dict):
            found += action.choices.values()
    return found


@surface("calls", 0.05)
def calls(folder: Path) -> Feed:
    """Arguments of a compiled function."""
    program = qmlir.load(qmlir.compile(LAYER))
    kinds = [np.int8, np.uint8, np.float32, np.float64, np.int64, np.bool_, np.complex64, object, "S3", "M8[s]"]

    def array(r: Random) -> Any:
        shape = tuple(r.choice([0, 1, 2, 3, 4, 5]) for _ in range(r.randint(0, 4)))
        if r.random() < 0.1:
            return r.choice([None, 3, "x", [1, 2], [[1], [2, 3]], {}, b"1", np.int8(4)])
        made = np.zeros(shape, r.choice(kinds))
        return made.T if r.random() < 0.3 else made[::-1] if shape and r.random() < 0.3 else made

    def feed(r: Random) -> None:
        given = [array(r) for _ in range(r.choice([0, 1, 2, 2, 2, 2, 3]))]
        if len(given) == 2 and r.random() < 0.4:
            m = r.randint(0, 5)
            given = [np.ones((m, 4), np.int8), np.full((r.choice([m, m, m + 1]), 1), r.choice([0, 1, np.nan, np.inf]))]
            given[1] = given[1].astype(r.choice([np.float32, np.float32, np.float64]))
        program.main(*given)

    return feed


def rezipped(data: bytes, name: str, content: bytes) -> bytes:
    """A `.vmfb` with one part replaced, and correct checksums."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            new.writestr(entry, content if entry.filename == name else old.read(entry))
    return out.getvalue()


@surface("checkpoint", 0.1)
def checkpoint(folder: Path) -> Feed:
    """Files of a checkpoint, of which every tensor is read."""
    from checkpoint import decoders, writers as w
    from robustness import checkpoints as good

    seeds = {"gptq": (good.gptq(), w.gptq_config()), "awq": (good.AWQ, w.awq_config()),
             "bnb": (good.BNB, w.bnb_config()), "ct": (good.CT, w.ct_config("pack-quantized", good.INT4))}  # fmt: skip
    for name, given in seeds.items():
        w.write_folder(folder / name, *given)
    decoders.write_gguf(folder / "m.gguf", decoders.Sizes(layers=1, hidden=32, inner=32, vocabulary=8))
    place = folder / "fuzzed"
    place.mkdir(exist_ok=True)
    gguf = (folder / "m.gguf").read_bytes()

    def feed(r: Random) -> None:
        name = r.choice([*seeds, "m.gguf"])
        path = place / name
        if name in seeds:
            path.mkdir(exist_ok=True)
            victim = r.choice(["model.safetensors", "config.json"])
            for file in ("model.safetensors", "config.json"):
                data = (folder / name / file).read_bytes()
                (path / file).write_bytes(mutated_bytes(r, data) if file == victim else data)
        else:
            path.write_bytes(mutated_bytes(r, gguf))
        _read_all(path)

    return feed


def _read_all(path: Path) -> None:
    """Read every tensor of a checkpoint, then raise the first refusal."""
    from qmlir.checkpoint import QuantizedWeight
    from qmlir.errors import CheckpointError

    refused: CheckpointError | None = None
    try:
        model = qmlir.checkpoint.open(path)
        for name in model:
            try:
                value = model[name]
                if isinstance(value, QuantizedWeight):
                    value.dequantize()
                elif value.shape != model.shape(name):
                    raise Finding(f"{name} has another shape than it says")
            except CheckpointError as e:
                refused = refused or e
    except CheckpointError as e:
        refused = e
    if refused is not None:
        if str(path if path.is_dir() else path.parent) not in str(refused):
            raise Finding(f"the file is not named: {refused}")
        raise refused


@surface("onnx", 0.05)  # must be last: it limits the address space of the process
def onnx(folder: Path) -> Feed:
    """Bytes of an ONNX model. The limited address space makes a giant allocation fail."""
    import resource

    from robustness import onnx_models as good

    from qmlir.compiler.compilation import text_at
    from qmlir.errors import FrontEndError

    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    made = [m.SerializeToString() for m in (good.product(), good.qlinear_conv(), good.nbits(), good.typed())]
    path = folder / "fuzz.onnx"

    def feed(r: Random) -> None:
        path.write_bytes(mutated_bytes(r, r.choice(made)) or b"x")
        try:
            text_at(path, "import")
        except FrontEndError as e:
            if e.__cause__ is not None:
                raise Finding("another error than the front end's own") from e
            raise

    return feed


__all__ = ["SURFACES", "Finding", "QmlirError", "Random"]
