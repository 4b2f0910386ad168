"""What a person may hand to qmlir, as surfaces to fuzz: each makes mutated inputs of good ones and feeds them to the
public API or the command line. An input passes when it is taken or refused by an error of ours (exit code 0, 1 or 2);
any other exception, or the end of the process, is a finding.

    python test/robustness/fuzz.py [SURFACE...] --count 1000 --seed 7
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from support.programs import product

import qmlir
from qmlir.core.cache import Cache
from qmlir.errors import QmlirError
from qmlir.runtime.artifact import Artifact
from qmlir.tuning import Database, Record
from qmlir.tuning.measure import read_plan, read_results

Random = random.Random


class Finding(Exception):
    """An input that was neither taken nor refused."""


# ------------------------------------------------------------------------------------------------- mutations

TOKENS = ["0", "-1", "9223372036854775807", "99999999999999999999", "?", "x", "i8", "f32", "bf16", "tensor<", ">", "{",
          "}", "(", ")", ":", "->", "dense<", '"', "%x", "loc(", "array<i32: 1>", "nan", "0x", "//", "\\", "\n", "#map",
          "vector<4xi8>", "memref<4xi8>", "1.0e400", "!qmlir", "\t", "é", "module {", "attributes"]  # fmt: skip


def mutated_text(r: Random, text: str) -> str:
    """A few edits of tokens, lines and characters."""
    for _ in range(r.randint(1, 4)):
        if not text:
            return r.choice(TOKENS)
        i, j = sorted((r.randrange(len(text)), r.randrange(len(text))))
        kind = r.randrange(7)
        if kind == 0:
            text = text[:i] + text[min(j, i + r.randint(1, 20)) :]
        elif kind == 1:
            text = text[:i] + r.choice(TOKENS) + text[i:]
        elif kind == 2:
            text = text[:i] + text[i : min(j, i + 40)] + text[i:]
        elif kind == 3:
            text = text[:i]
        elif kind == 4:
            lines = text.split("\n")
            k = r.randrange(len(lines))
            lines[k] = r.choice(lines)
            text = "\n".join(lines)
        elif kind == 5:
            words = text.split(" ")
            words[r.randrange(len(words))] = r.choice(words) if r.random() < 0.5 else r.choice(TOKENS)
            text = " ".join(words)
        else:
            text = text[:i] + chr(r.choice([0, 9, 10, 34, 48, 57, 92, 123, 255, 0x2028])) + text[i + 1 :]
    return text


def mutated_bytes(r: Random, data: bytes) -> bytes:
    """Flipped bits, cut and repeated parts."""
    made = bytearray(data)
    for _ in range(r.randint(1, 6)):
        if not made:
            return bytes(r.randbytes(r.randrange(64)))
        i = r.randrange(len(made))
        kind = r.randrange(5)
        if kind == 0:
            made[i] ^= 1 << r.randrange(8)
        elif kind == 1:
            del made[i : i + r.randint(1, 64)]
        elif kind == 2:
            made[i:i] = r.randbytes(r.randint(1, 16))
        elif kind == 3:
            del made[i:]
        else:
            made[i : i + 4] = r.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"PK\x05\x06"])
    return bytes(made)


VALUES: list[Any] = [None, True, False, 0, -1, 1, 2**63, 1e308, -0.0, "", "x", "..", "/etc/passwd", [], {}, [[]],
                     [None], {"": ""}, "nan", "4x8xi8", [1, 2], {"a": {"b": []}}]  # fmt: skip


def mutated_json(r: Random, data: Any, depth: int = 0) -> Any:
    """A value somewhere in a JSON tree exchanged, removed or repeated."""
    if depth > 6 or r.random() < 0.12 or not isinstance(data, (dict, list)) or not data:
        return copy.deepcopy(r.choice(VALUES))
    if isinstance(data, dict):
        made = dict(data)
        key = r.choice(list(made))
        kind = r.randrange(8)
        if kind == 0:
            del made[key]
        elif kind == 1:
            made[r.choice(["", "x", "targets", "name"])] = made.pop(key)
        else:
            made[key] = mutated_json(r, made[key], depth + 1)
        return made
    some = list(data)
    i = r.randrange(len(some))
    kind = r.randrange(6)
    if kind == 0:
        del some[i]
    elif kind == 1:
        some.append(copy.deepcopy(some[i]))
    else:
        some[i] = mutated_json(r, some[i], depth + 1)
    return some


# -------------------------------------------------------------------------------------------------- surfaces

Feed = Callable[[Random], None]
SURFACES: dict[str, tuple[Callable[[Path], Feed], float]] = {}


def surface(name: str, share: float) -> Callable[[Callable[[Path], Feed]], Callable[[Path], Feed]]:
    """Register what opens a surface in a folder of its own; `share` of all inputs go to it."""

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
    """Good programs: one of each example in the dialect's tests, and a layer."""
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
    """A manifest whose values are not what we write, in a file that is sound otherwise."""
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
    """A cache folder in which anything may lie."""
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
            if kept.get(key) not in (None, payload):
                raise Finding("a damaged entry was read")
            if kept.get_or_build(key, lambda: payload) != payload:
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
    """Words of a command line. Files are small, or there are none; so every command ends soon."""
    from qmlir.cli import COMMANDS, build_parser, guarded, parse

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
    """A `.vmfb` with one part exchanged, its checksums right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            new.writestr(entry, content if entry.filename == name else old.read(entry))
    return out.getvalue()


__all__ = ["SURFACES", "Finding", "QmlirError", "Random"]
