"""Kernels that share their chunks among a team of threads: correct with concurrent callers, forks and process exits, on
any number of threads, and without a team."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.runtime.team import supported
from qmlir.targets.cpu.threads import board, cost

pytestmark = pytest.mark.skipif(not supported(), reason="kernels for this system have no forks in them")

# Runs in a separate process, because the number of threads is per process. `CASES` are calls with their results:
# products of floats and codes, which have kernels on every x86 with AVX2, with values whose sums are exact.
START = """
import dataclasses, os, random, sys, threading, time
import numpy as np
import qmlir

T = qmlir.TensorSpec
rng = np.random.default_rng(0)
CASES = []
for m, k, n in ((1, 256, 512), (5, 512, 512), (16, 512, 1000)):
    w = rng.integers(-128, 128, (k, n), dtype=np.int8)
    scale = np.full((1, n), 0.125, np.float32)
    artifact = qmlir.ops.scaled_matmul.compile(T((m, k), "f32"), w, rhs_scale=scale)
    program = qmlir.load(artifact)
    for _ in range(3):
        x = rng.integers(-8, 9, (m, k)).astype(np.float32)
        CASES.append((program, x, qmlir.reference.scaled_matmul(x, w, rhs_scale=scale)))
TEAM = program._team

def right(count, seed=0):
    order = random.Random(seed)
    chosen = (CASES[order.randrange(len(CASES))] for _ in range(count))
    return sum(np.array_equal(p.main(x), y) for p, x, y in chosen) == count

def joined():  # helpers join when the machine gives them a CPU, which a loaded one does late
    until = time.monotonic() + 30
    while not TEAM.statistics()["joined"] and time.monotonic() < until:
        right(20)
    return TEAM.statistics()["joined"] > 0
"""


def run(code: str, threads: int, timeout: int = 60) -> str:
    """Run the program, which must end successfully. Returns its output."""
    environment = {**os.environ, "QMLIR_THREADS": str(threads), "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(
        # Python 3.12 and later warn of every fork of a process with threads.
        [sys.executable, "-W", "error::RuntimeWarning", "-W", "ignore:This process:DeprecationWarning", "-c",
         START + code],
        env=environment, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


CALLERS = """
wrong = []
def body(i):
    for turn in range({turns}):
        if not right({calls}, 1000 * i + turn):
            wrong.append(i)
        time.sleep(0.0005)  # long enough for helpers to go to sleep
callers = [threading.Thread(target=body, args=(i,)) for i in range({callers})]
for c in callers: c.start()
for c in callers: c.join()
print(len(wrong), TEAM.helpers, joined())
"""


def test_helpers_join_and_results_are_right() -> None:
    """With one thread more than most test machines have to spare."""
    assert run("print(right(400), TEAM.helpers, joined())", 3).split() == ["True", "2", "True"]


def test_concurrent_callers_with_more_helpers_than_cpus() -> None:
    out = run(CALLERS.format(turns=5, calls=60, callers=4), 5)
    assert out.split() == ["0", "4", "True"]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 5])
def test_eight_callers_of_ten_thousand_calls(threads: int) -> None:
    out = run(CALLERS.format(turns=20, calls=500, callers=8), threads, timeout=600)
    assert out.split() == ["0", str(threads - 1), "True"]


FORK = """
stop = []
def busy():
    while not stop: right(10)
caller = threading.Thread(target=busy)
caller.start()
codes = []
for i in range({children}):
    child = os.fork()
    if not child:
        fine = right(50)
        if i % 2:  # programs of a fork that are loaded there have helpers again
            program = qmlir.load(artifact)
            fine = fine and program._team.helpers == {threads} - 1 and right(50)
        sys.exit(0 if fine else 1)
    codes.append(os.waitpid(child, 0)[1])
stop.append(1)
caller.join()
print(codes, right(50))
"""


def test_children_of_a_fork_compute_and_end() -> None:
    """Forks during another thread's call. Regression: children waited forever for threads of the parent's devices."""
    assert run(FORK.format(children=2, threads=3), 3) == "[0, 0] True\n"


@pytest.mark.slow
def test_a_child_of_a_fork_compiles() -> None:
    """Regression: the child waited for the threads of IREE's compiler, which stay in the parent, or crashed at exit."""
    code = """
def compiled(k):  # of weights that no cache knows
    w = np.random.default_rng().integers(-128, 128, (k, 32), dtype=np.int8)
    program = qmlir.load(qmlir.ops.scaled_matmul.compile(T((2, k), "i8"), w, out_dtype="i32"))
    return np.array_equal(program.main(np.ones((2, k), np.int8)), np.ones((2, k), np.int32) @ w)

print(compiled(63), flush=True)
for k in (64, 65):
    child = os.fork()
    if not child:
        sys.exit(0 if compiled(k) else 1)
    print(os.waitpid(child, 0)[1], flush=True)
"""
    assert run(code, 2) == "True\n0\n0\n"


def test_a_child_of_a_fork_has_worker_threads_of_its_own() -> None:
    """Regression: the child waited forever for the worker threads of its parent."""
    code = """
tasks, main = [qmlir.load(artifact, device="local-task") for _ in range(2)], program.main
function, expected = tasks[0].main, main(x)
assert np.array_equal(function(x), expected)
tasks[1].manifest = dataclasses.replace(tasks[1].manifest, has_state=True)
child = os.fork()
if not child:
    assert np.array_equal(function(x), expected) and np.array_equal(tasks[0].main(x), expected)
    try:
        tasks[1].main(x)
    except qmlir.errors.TargetError as e:
        sys.exit("load it again in this process" not in str(e))
print(os.waitpid(child, 0)[1])
"""
    assert run(code, 3) == "0\n"


@pytest.mark.slow
def test_many_children_of_a_fork() -> None:
    assert run(FORK.format(children=20, threads=3), 3, timeout=600) == f"{[0] * 20} True\n"


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("end", ["", "sys.exit(0)", "os._exit(0)", "time.sleep(0.05)"])
def test_process_ends_while_helpers_spin_and_while_they_sleep(end: str) -> None:
    assert run(f"print(right(20), flush=True); {end}", 3) == "True\n"


def test_exception_of_a_caller_leaves_the_team_usable() -> None:
    code = """
try:
    program.main(x[:, :3])
except qmlir.errors.InputError:
    print(right(50), joined())
"""
    assert run(code, 3) == "True True\n"


def test_one_thread_has_no_team() -> None:
    assert run("print(right(20), TEAM)", 1) == "True None\n"


def product(m: int, k: int, n: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (k, n), dtype=np.int8)
    x = rng.integers(-8, 9, (m, k)).astype(np.float32)
    scale = np.full((1, n), 0.125, np.float32)
    artifact = qmlir.ops.scaled_matmul.compile(qmlir.TensorSpec((m, k), "f32"), w, rhs_scale=scale, target="cpu")
    return artifact, x, qmlir.reference.scaled_matmul(x, w, rhs_scale=scale)


def test_task_system_is_for_what_is_not_ours() -> None:
    artifact, *_ = product(32, 512, 512)
    stock = all(s["chosen"] == "stock" for s in artifact.manifest.strategies)
    assert artifact.manifest.work == 32 * 512 * 512
    assert artifact.manifest.task_work == (artifact.manifest.work if stock else 0)


def test_plain_runtime_runs_it_on_one_thread(tmp_path: Path) -> None:
    """`iree-run-module`, which has no team of threads, computes the same bytes."""
    artifact, x, expected = product(5, 256, 200)
    if all(s["chosen"] == "stock" for s in artifact.manifest.strategies):
        pytest.skip("this CPU has no kernel of ours")
    artifact.save(tmp_path / "p.vmfb")
    np.save(tmp_path / "x.npy", x)
    import iree._runtime_libs as libs

    tool = Path(libs.__path__[0]) / "iree-run-module"
    command = [str(tool), "--device=local-sync", f"--module={tmp_path}/p.vmfb", "--function=main",
               f"--input=@{tmp_path}/x.npy", f"--output=@{tmp_path}/y.npy"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_board_has_a_line_for_each_participant() -> None:
    words = [board.LOCK, board.GATE, board.LEFT, board.JOB, board.WAKES, board.SLEEPERS, board.STOP, board.JOINED]
    assert len({w // board.LINE for w in words}) == len(words)
    assert board.CPU_MASK + board.CPU_MASK_BYTES <= board.COUNTERS
    assert board.COUNTERS + board.MOST_PARTICIPANTS * board.LINE <= board.SIZE
    assert board.ENTERED >= board.MOST_PARTICIPANTS


def test_cost_model_orders_its_numbers() -> None:
    assert cost.FORK_NS < cost.WAKE_NS
    assert cost.nanoseconds(2 * 4096 * 4096, 4096 * 4096) > cost.WAKE_NS
    assert cost.nanoseconds(2 * 64 * 64, 64 * 64) < cost.FORK_NS
