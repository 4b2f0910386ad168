"""The compilation cache: its key holds everything that matters, and it never returns a partial or damaged entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.caches import own_cache
from support.programs import product

import qmlir
from qmlir.compiler import compilation
from qmlir.core import cache as cache_module
from qmlir.core.cache import Cache, key_of
from qmlir.errors import UsageError
from qmlir.ops import scaled_matmul
from qmlir.runtime.manifest import Manifest
from qmlir.spec import TensorSpec as T

TEXT = product(4, 8, 16)


class Counter:
    """Counts compilations; returns `stub` instead of compiling if it is given."""

    def __init__(self, real: Callable[..., Any], stub: bytes | None) -> None:
        self.real, self.stub, self.count = real, stub, 0

    def __call__(self, *args: Any, **kw: Any) -> Any:
        self.count += 1
        return self.stub if self.stub is not None else self.real(*args, **kw)


@pytest.fixture(scope="module")
def compiled() -> bytes:
    return qmlir.compile(TEXT, cache=False).vmfb


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def counter(compiled: bytes, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Replace compilations: each returns the same program at once, because the tests only count them."""
    found = Counter(compilation.run_compiler, compiled)
    monkeypatch.setattr(compilation, "run_compiler", found)
    return found


def files(folder: Path) -> list[str]:
    """Suffixes of the files in the folder, except the results of the host's AMX self-test."""
    return sorted(p.suffix for p in folder.rglob("*") if p.is_file() and p.parent != Cache(folder).tests("").parent)


# ---- hits and misses


def test_a_second_compilation_is_none(folder: Path, counter: Counter, compiled: bytes) -> None:
    for _ in range(3):
        assert qmlir.compile(TEXT).vmfb == compiled
    assert counter.count == 1
    assert files(folder) == [".sha256", ".vmfb"]
    qmlir.compile(TEXT, cache=False)
    assert counter.count == 2


def test_a_dump_is_not_served_from_the_cache(folder: Path, counter: Counter, tmp_path: Path) -> None:
    for _ in range(2):
        qmlir.compile(TEXT, dump_stages=tmp_path / "stages")
    assert counter.count == 2
    assert not folder.exists()


BASE: dict[str, Any] = {"lhs": T((4, 8), "i8"), "rhs": T((8, 16), "i8"), "out_dtype": "i32"}
WEIGHTS = np.arange(128, dtype=np.int8).reshape(8, 16)
OTHER = {
    "shape": {"lhs": T((5, 8), "i8")},
    "dynamic shape": {"lhs": T((None, 8), "i8")},
    "dtype": {"lhs": T((4, 8), "u8")},
    "out dtype": {"out_dtype": "f32"},
    "attribute": {"rhs_dtype": "i4"},
    "float attribute": {"out_dtype": "f32", "alpha": 0.5},
    "close float attribute": {"out_dtype": "f32", "alpha": 0.5000001},
    "operand": {"out_dtype": "f32", "lhs_scale": T((), "f32")},
    "operand's shape": {"out_dtype": "f32", "lhs_scale": T((4, 1), "f32")},
    "operand's role": {"out_dtype": "f32", "rhs_scale": T((), "f32")},
    "target": {"target": "cpu:x86-64-v4"},
    "other backend": {"target": "cuda:sm_80"},
    "flag": {"flags": ("--iree-opt-level=O3",)},
    "constant": {"rhs": WEIGHTS},
    "constant's content": {"rhs": WEIGHTS ^ 1},
}


def test_the_key_holds_everything(folder: Path, counter: Counter) -> None:
    variants = {"base": {}, **OTHER}
    for change in variants.values():
        scaled_matmul.compile(**{**BASE, **change})
    assert counter.count == len(variants), "two variants share an entry"
    for change in variants.values():
        scaled_matmul.compile(**{**BASE, **change})
    assert counter.count == len(variants), "a variant was not found again"
    assert len(Cache().entries()) == len(variants)


def test_the_key_of_a_text_holds_everything(folder: Path, counter: Counter, tmp_path: Path) -> None:
    weights = tmp_path / "p.safetensors"
    weights.write_bytes(b"1")
    variants: list[dict[str, Any]] = [
        {},
        {"source": TEXT.replace("4x", "5x")},
        {"source": TEXT.replace("operand_names", 'bias_stage = "acc", operand_names', 1)},
        {"target": "vulkan:ada"},
        {"target": "vulkan:turing"},
        {"pipeline": "qmlir-verify,qmlir-lower-to-linalg"},
        {"pipeline": "qmlir-verify,qmlir-lower-to-linalg,cse"},
        {"start": "qmlir"},
        {"flags": ("--iree-opt-level=O3",)},
        {"flags": ("--iree-opt-level=O2",)},
        {"choice": {"strategy": "stock"}},
        {"choice": {"strategy": "stock", "opt_level": "O2"}},
        {"parameters": {"a": str(weights)}},
        {"parameters": {"b": str(weights)}},
        {"parameters": {"a": str(weights)}, "keep_parameters": True},
    ]
    for change in variants:
        qmlir.compile(**{"source": TEXT, **change})
    weights.write_bytes(b"2")
    qmlir.compile(TEXT, parameters={"a": str(weights)})
    assert counter.count == len(variants) + 1


def test_the_key_holds_the_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(["program"])
    assert before == key_of(["program"])
    monkeypatch.setattr(cache_module, "toolchain", lambda: "qmlir 99, iree 99")
    assert key_of(["program"]) != before


@pytest.mark.parametrize("part", ["", "passes", "targets/cpu", "dialect/ops", "compiler", "core", "checkpoint", "ops"])
def test_the_toolchain_changes_with_a_source(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / part / "a.py"
    source.parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(cache_module, "PACKAGE", tmp_path)
    fresh = cache_module.toolchain.__wrapped__
    without = fresh()
    source.write_text("1")
    before = fresh()
    assert before != without
    assert before == fresh()
    source.write_text("12")
    assert fresh() != before


VERSIONS = ("qmlir 0.1.0 aaaa, iree 3.13.0", "qmlir 0.1.0 bbbb, iree 3.13.0", "qmlir 0.1.0 aaaa, iree 3.14.0")


def test_no_change_meets_a_stale_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of shape, dtype, group size, target, flag or version alone is another program, and the cache returns the
    requested program, not a similar one."""
    real, kept = compilation.run_compiler, Counter(compilation.run_compiler, None)

    def stamped(build: Any, target: Any, options: Any, **kw: Any) -> Any:
        # IREE's compilation is slow and not tested here: the text that IREE would get is stored instead of the program.
        kept.count += 1
        found: dict[str, Any] = {}
        real(build, target, options, until="qmlir", after=lambda level, module: found.__setitem__(level, str(module)))
        text = json.dumps([found["qmlir"], target.spelling, list(options.flags), cache_module.toolchain()])
        return text.encode()

    monkeypatch.setattr(compilation, "run_compiler", stamped)
    monkeypatch.setattr(
        "qmlir.compiler.compilation.read_manifest", lambda data, name: Manifest(target="", driver="", functions={})
    )

    def scheme(**change: Any) -> dict[str, Any]:
        k, group = change.pop("k", 64), change.pop("group", 32)
        m, weight = change.pop("m", 4), change.pop("weight", "i4")
        scale = np.ones((8, k // group), np.float32)
        return {"lhs": T((m, k), "i8"), "rhs": np.zeros((8, k), np.int8), "rhs_dtype": weight, "rhs_scale": scale,
                "rhs_transposed": True, **change}  # fmt: skip

    changes: dict[str, dict[str, Any]] = {
        "base": {}, "M": {"m": 5}, "dynamic M": {"m": None}, "K": {"k": 96}, "dtype": {"weight": "i2"},
        "result": {"out_dtype": "f16"}, "group size": {"group": 16}, "no groups": {"group": 64},
        "target": {"target": "cpu:x86-64"}, "backend": {"target": "vulkan:ada"},
        "flag": {"flags": ("--iree-opt-level=O3",)},
        "two flags": {"flags": ("--iree-opt-level=O3", "--iree-opt-level=O2")},
    }  # fmt: skip
    seen: dict[bytes, str] = {}
    for version in VERSIONS:
        monkeypatch.setattr(cache_module, "toolchain", lambda version=version: version)
        for name, change in changes.items():
            for _ in range(2):  # the second time from the cache
                vmfb = scaled_matmul.compile(**scheme(**change)).vmfb
                assert seen.setdefault(vmfb, f"{version} {name}") == f"{version} {name}", "a stale entry"
    assert kept.count == len(seen) == len(changes) * len(VERSIONS)


# ---- damage


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "flipped":
        path.write_bytes(data[:30] + bytes([data[30] ^ 1]) + data[31:])
    elif how == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    else:
        path.unlink()


@pytest.mark.parametrize("part", [".vmfb", ".sha256"])
@pytest.mark.parametrize("how", ["truncated", "emptied", "flipped", "binary", "removed"])
def test_a_damaged_entry_is_rebuilt(how: str, part: str, folder: Path, counter: Counter, compiled: bytes) -> None:
    qmlir.compile(TEXT)
    [entry] = Cache().entries()
    damage(entry.with_suffix(part), how)
    assert qmlir.compile(TEXT).vmfb == compiled
    assert counter.count == 2
    assert qmlir.compile(TEXT).vmfb == compiled
    assert counter.count == 2, "the entry is sound again"
    assert files(folder) == [".sha256", ".vmfb"]


def test_an_interrupted_writer_leaves_no_entry(folder: Path, counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is written last, and an entry without a digest is never read."""
    real = cache_module.write_atomically

    def stop(path: Path, data: bytes) -> Path:
        if path.suffix == ".sha256":
            raise KeyboardInterrupt
        return real(path, data)

    monkeypatch.setattr(cache_module, "write_atomically", stop)
    with pytest.raises(KeyboardInterrupt):
        qmlir.compile(TEXT)
    assert not list(folder.rglob("*.lock"))
    monkeypatch.setattr(cache_module, "write_atomically", real)
    qmlir.compile(TEXT)
    assert counter.count == 2
    assert files(folder) == [".sha256", ".vmfb"]


# ---- folders that cannot be written


def test_a_folder_that_is_none(
    tmp_path: Path, counter: Counter, compiled: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    for _ in range(2):
        assert qmlir.compile(TEXT).vmfb == compiled
    assert counter.count == 2
    assert Cache().entries() == []
    assert Cache().clear() == 0


def test_a_full_disk_only_costs_the_next_compilation(
    folder: Path, counter: Counter, compiled: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> Path:
        raise UsageError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(cache_module, "write_atomically", full)
    for _ in range(2):
        assert qmlir.compile(TEXT).vmfb == compiled
    assert counter.count == 2
    assert files(folder) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_read(folder: Path, counter: Counter, compiled: bytes) -> None:
    qmlir.compile(TEXT)
    places = [folder, *(p for p in folder.iterdir() if p.is_dir())]
    for place in places:
        place.chmod(0o500)
    try:
        assert qmlir.compile(TEXT).vmfb == compiled
        assert counter.count == 1
        qmlir.compile(TEXT.replace("4x", "5x"))
        assert counter.count == 2
    finally:
        for place in places:
            place.chmod(0o700)


# ---- several at once


def test_threads_that_want_the_same_compile_it_once(folder: Path, compiled: bytes) -> None:
    cache, built, barrier = Cache(), [], threading.Barrier(4)

    def build() -> bytes:
        built.append(threading.get_ident())
        return compiled

    def want(_: int) -> bytes:
        barrier.wait()
        return cache.get_or_build("ab" * 32, build)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(want, range(4))) == {compiled}
    assert len(built) == 1
    assert files(folder) == [".sha256", ".vmfb"]


def test_a_build_that_fails_frees_the_key(folder: Path, compiled: bytes) -> None:
    def broken() -> bytes:
        raise RuntimeError("no")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            Cache().get_or_build("cd" * 32, broken)
    assert Cache().get_or_build("cd" * 32, lambda: compiled) == compiled
    assert files(folder) == [".sha256", ".vmfb"]


WORKER = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import qmlir
from qmlir.compiler import compilation
count, real = [], compilation.run_compiler
compilation.run_compiler = lambda *a, **k: (count.append(1), real(*a, **k))[1]
x = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
def work(i):
    # Threads 0 and 2 want one program, 1 and 3 another.
    y = qmlir.ops.scaled_matmul(x, np.ones((4, 2 + i % 2), np.int8), out_dtype="i32")
    return (y == x.astype(np.int32).sum(1, keepdims=True)).all() and y.shape == (3, 2 + i % 2)
with ThreadPoolExecutor(4) as pool:
    print(json.dumps([bool(all(pool.map(work, range(4)))), len(count)]))
"""


@pytest.mark.slow
def test_two_processes_with_four_threads_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = own_cache(tmp_path / "cache")
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(folder))
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    results = []
    for worker in workers:
        out, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, err
        results.append(json.loads(out))
    assert all(right for right, _ in results)
    # Two programs: one of the processes compiled each, unless the other took the lock just as the first released it.
    assert 2 <= sum(count for _, count in results) <= 4
    assert files(folder) == [".sha256", ".sha256", ".vmfb", ".vmfb"]


# ---- the command's view


def test_entries_and_clear(folder: Path, counter: Counter) -> None:
    assert Cache().entries() == []
    qmlir.compile(TEXT)
    qmlir.compile(TEXT, target="cpu:x86-64")
    assert [p.suffix for p in Cache().entries()] == [".vmfb", ".vmfb"]
    assert Cache().clear() == 2
    assert files(folder) == []
    qmlir.compile(TEXT)
    assert counter.count == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cache, "drop", lambda *_: None)  # as in another user's folder
        with pytest.raises(UsageError, match="1 of 1 entries cannot be removed"):
            Cache().clear()


def test_a_failed_compilation_is_not_kept(folder: Path) -> None:
    wrong = TEXT.replace("8x16", "9x16")
    for _ in range(2):
        with pytest.raises(qmlir.QmlirError, match="K differs"):
            qmlir.compile(wrong)
    assert files(folder) == []
