"""Killed processes, full disks, compilers that hang or exhaust memory, and concurrent processes: no file is half
written, nothing is lost, and there is one message."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.caches import own_cache
from support.programs import product

import qmlir
from qmlir.core.cache import Cache
from qmlir.tuning import Database
from qmlir.tuning.measure import read_json

# Repeats the writes of the compiler and the tuner: entries of a cache under locks, a database, results.
WRITER = """
import hashlib, random, sys
from pathlib import Path
from qmlir.core.cache import Cache
from qmlir.tuning import Database, Record, measure
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
r, cache = random.Random(seed), Cache(folder / "cache")
def payload(key):
    return hashlib.sha256(key.encode()).digest() * (1000 + int(key[:2], 16) * 200)
(folder / f"ready{seed}").write_text("")
while True:
    key = f"{r.randrange(40):02x}" + "0" * 62
    if r.random() < 0.3:
        cache.drop(key)
    assert cache.get_or_build(key, lambda: payload(key)) == payload(key)
    path = folder / "tuning.json"
    known = Database.read(path) if path.exists() else Database()
    record = Record((("a", r.randrange(9)),), r.random() + 0.1, 1.0, "d" * 200)
    known.merged(Database({f"k{r.randrange(50)}": {record}})).write(path)
    measure._write(folder, {str(i): {"seconds": 1.0, "baseline": 1.0} for i in range(r.randrange(200))})
"""


def payload(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest() * (1000 + int(key[:2], 16) * 200)


def check_sound(folder: Path) -> None:
    """Check that every cache entry that can be read is correct, and the files of the tuner too."""
    cache = Cache(folder / "cache")
    for number in range(40):
        key = f"{number:02x}" + "0" * 62
        assert cache.get(key) in (None, payload(key))
    if (folder / "tuning.json").exists():
        Database.read(folder / "tuning.json")
    if (folder / "results.json").exists():
        assert all(row["seconds"] == 1.0 for row in read_json(folder / "results.json").values())


def killed(folder: Path, count: int) -> int:
    """Kill `count` writers at random times, two at a time in the same folder. Returns how many were still running."""
    r, ended = random.Random(count), 0
    for number in range(0, count, 2):
        # No pipes, which a kill would leave open.
        writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(n)]) for n in (number, number + 1)]
        for n in (number, number + 1):
            while not (folder / f"ready{n}").exists():
                assert writers[n - number].poll() is None
                time.sleep(0.002)
        time.sleep(r.random() * 0.08)
        for writer in writers:
            ended += writer.poll() is None
            writer.kill()
            writer.wait()
        check_sound(folder)
    return ended


def test_kills_leave_nothing_corrupt(tmp_path: Path) -> None:
    assert killed(tmp_path, 6) == 6


@pytest.mark.slow
def test_two_hundred_kills_leave_nothing_corrupt(tmp_path: Path) -> None:
    assert killed(tmp_path, 200) == 200
    assert (tmp_path / "tuning.json").exists()
    assert list((tmp_path / "cache").rglob("*.vmfb"))


@pytest.mark.slow
def test_kills_of_the_command_itself(tmp_path: Path) -> None:
    """SIGKILL to parent and child of `qmlir compile` at random times of its run; afterwards the command succeeds."""
    source, out = tmp_path / "a.mlir", tmp_path / "a.vmfb"
    source.write_text(product(16, 64, 32))
    environment = {**os.environ, "QMLIR_CACHE_DIR": str(own_cache(tmp_path / "cache"))}
    command = [sys.executable, "-m", "qmlir", "compile", str(source), "-o", str(out), "-q"]
    r = random.Random(5)
    for _ in range(20):
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        time.sleep(r.random() * 1.5)
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()
        if out.exists():
            qmlir.Artifact.open(out)
            out.unlink()
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    qmlir.Artifact.open(out)


# ---- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("mounting a small file system takes root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def fill(path: Path) -> None:
    """Write a file until the disk is full."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(handle, bytes(4096))
    os.close(handle)
    assert shutil.disk_usage(path).free == 0


@pytest.mark.slow
def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """A program is compiled without being cached; an unwritable output is refused in one line; existing files stay."""
    source = tmp_path / "a.mlir"
    source.write_text(product(16, 64, 32))
    (small_disk / "old.vmfb").write_bytes(b"before")
    fill(small_disk / "filler")
    environment = {**os.environ, "QMLIR_CACHE_DIR": str(small_disk / "cache")}

    def compiled(out: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "qmlir", "compile", str(source), "-o", str(out), "-q"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = compiled(tmp_path / "out.vmfb")
    assert (done.returncode, done.stderr) == (0, ""), "a full cache only costs the next compilation"
    qmlir.Artifact.open(tmp_path / "out.vmfb")
    done = compiled(small_disk / "old.vmfb")
    assert done.returncode == 1
    assert done.stderr == f"qmlir: error: cannot write {small_disk / 'old.vmfb'}: No space left on device\n"
    assert (small_disk / "old.vmfb").read_bytes() == b"before"
    assert not list(small_disk.rglob("*.tmp"))


@pytest.mark.slow
def test_a_read_only_cache(small_disk: Path, tmp_path: Path) -> None:
    """Entries are read, and missing ones are compiled without being stored. A read-only mount applies to root too."""
    source = tmp_path / "a.mlir"
    source.write_text(product(16, 64, 32))
    environment = {**os.environ, "QMLIR_CACHE_DIR": str(own_cache(small_disk / "cache"))}
    command = [sys.executable, "-m", "qmlir", "compile", "-o", str(tmp_path / "a.vmfb"), "-q", str(source)]
    assert subprocess.run([*command, "-t", "cpu:x86-64-v3"], env=environment, check=False).returncode == 0
    before = sorted(small_disk.rglob("*"))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for target in ("cpu:x86-64-v3", "cpu:x86-64"):
        done = subprocess.run([*command, "-t", target], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert sorted(small_disk.rglob("*")) == before


# ---- a compiler that hangs or exhausts memory

HANGING = """
import time
from qmlir.cli.child import breadcrumb
breadcrumb("a long loop\\n")
time.sleep(600)
"""
DEAF = """
import time
from qmlir.cli.child import WRITING
WRITING.acquire()  # what ends it waits for this
time.sleep(600)
"""
GREEDY = """
kept = []
while True:
    kept.append(bytearray(1 << 24))
"""
PARENT = """
import importlib, sys
from qmlir.cli.child import ProcessLimits, run_in_child
work = lambda: importlib.import_module({module!r}) and 0
sys.exit(run_in_child(work, ["qmlir"], "x.mlir", ProcessLimits({seconds}, {memory})))
"""


def child_of(folder: Path, text: str, seconds: float | None, memory: int | None) -> subprocess.CompletedProcess[str]:
    (folder / "played.py").write_text(text)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    script = PARENT.format(module="played", seconds=seconds, memory=memory)
    return subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True,
                          text=True, check=False, timeout=60)  # fmt: skip


def test_a_compiler_that_hangs(tmp_path: Path) -> None:
    start = time.monotonic()
    done = child_of(tmp_path, HANGING, 1.0, None)
    assert (done.returncode, done.stderr) == (1, "qmlir: error: x.mlir: the compiler did not finish in 1 s\n")
    assert time.monotonic() - start < 30


@pytest.mark.slow
def test_a_compiler_that_does_not_end_when_it_is_told(tmp_path: Path) -> None:
    done = child_of(tmp_path, DEAF, 1.0, None)
    assert (done.returncode, done.stderr) == (1, "qmlir: error: x.mlir: the compiler did not finish in 1 s\n")


def test_a_compiler_that_eats_memory(tmp_path: Path) -> None:
    done = child_of(tmp_path, GREEDY, None, 1 << 30)
    message = "qmlir: error: x.mlir: the compiler needs more memory than 1 GiB (--memory)\n"
    assert (done.returncode, done.stderr) == (1, message)


@pytest.mark.slow
def test_memory_of_the_real_compiler(tmp_path: Path) -> None:
    source = tmp_path / "a.mlir"
    source.write_text(product(16, 64, 32))
    command = [sys.executable, "-m", "qmlir", "compile", str(source), "-o", str(tmp_path / "a.vmfb"), "--no-cache"]
    done = subprocess.run([*command, "--memory", "0.3"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr == f"qmlir: error: {source}: the compiler needs more memory than 0.3 GiB (--memory)\n"
    assert not (tmp_path / "a.vmfb").exists()
    assert subprocess.run([*command, "--memory", "16", "-q"], check=False).returncode == 0


# ---- concurrent compilations

WORKER = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import qmlir
x = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
def work(i):
    y = qmlir.ops.scaled_matmul(x, np.ones((4, 2), np.int8), out_dtype="i32")
    return bool((y == x.astype(np.int32).sum(1, keepdims=True)).all())
with ThreadPoolExecutor(8) as pool:
    print(json.dumps(all(pool.map(work, range(8)))))
"""


@pytest.mark.slow
def test_two_processes_and_eight_threads_compile_the_same(tmp_path: Path) -> None:
    environment = {**os.environ, "QMLIR_CACHE_DIR": str(own_cache(tmp_path / "cache"))}
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER], env=environment,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]  # fmt: skip
    for worker in workers:
        out, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, err
        assert json.loads(out) is True
    kept = sorted(p.suffix for p in (tmp_path / "cache").glob("??/*"))
    assert kept == [".sha256", ".vmfb"], "one entry, and no lock"
