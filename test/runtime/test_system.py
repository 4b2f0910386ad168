"""Resources that the operating system lacks or refuses: affinity masks, CPUs in use by others, AMX tiles, devices."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir import settings
from qmlir.errors import ArtifactError, PassError, TargetError
from qmlir.runtime.program import load
from qmlir.targets import devices
from qmlir.targets.cpu import host
from qmlir.targets.strategy import Decline
from qmlir.tuning.cpus import own_cpus

T = qmlir.TensorSpec


def run(code: str, **environment: str) -> str:
    """Run code in a separate process, which must succeed. Returns its output."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def doubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved program, `2 * x`."""
    weight = 2 * np.eye(8, dtype=np.int8)
    artifact = qmlir.ops.scaled_matmul.compile(T((2, 8), "i8"), weight, out_dtype="i32")
    return artifact.save(tmp_path_factory.mktemp("system") / "doubled.vmfb")


WITHOUT_MASKS = """
import random  # asks Linux too
import os
for name in ("sched_getaffinity", "sched_setaffinity", "register_at_fork"):
    delattr(os, name)
import numpy as np, qmlir
from qmlir.tuning.cpus import own_cpus
program = qmlir.load({path!r}, device="local-task")
with own_cpus(1):
    print(program.main(np.ones((2, 8), np.int8)).tolist() == [[2] * 8] * 2, qmlir.settings.threads() == os.cpu_count())
"""


def test_a_system_without_affinity_masks(doubled: Path) -> None:
    """Regression: loading failed: macOS and Windows lack `os.sched_getaffinity`, Windows also `os.register_at_fork`."""
    assert run(WITHOUT_MASKS.format(path=str(doubled)), QMLIR_THREADS="") == "True True"


WORKERS = """
import os, qmlir, time
from pathlib import Path
qmlir.load({path!r}, device="local-task")
until, found = time.monotonic() + 20, None
while found != {want!r} and time.monotonic() < until:  # threads of a loaded machine start late
    time.sleep(0.01)
    workers = [t for t in Path("/proc/self/task").iterdir() if "worker" in (t / "comm").read_text()]
    found = sorted(sorted(os.sched_getaffinity(int(t.name))) for t in workers)
print(found)
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(settings.cpus()) < 2, reason="one CPU")
def test_workers_of_a_process_that_leaves_cpus_to_others_are_not_pinned(doubled: Path) -> None:
    """Regression: two processes with QMLIR_THREADS=4 on 8 CPUs were both pinned to the first four."""
    cpus = settings.cpus()
    fewer = [cpus] * (len(cpus) - 1)
    assert run(WORKERS.format(path=str(doubled), want=fewer), QMLIR_THREADS=str(len(fewer))) == str(fewer)
    every = [[cpu] for cpu in cpus]
    assert run(WORKERS.format(path=str(doubled), want=every), QMLIR_THREADS="") == str(every)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(settings.cpus()) < 2, reason="one CPU")
def test_two_measurements_have_cpus_of_their_own() -> None:
    """Regression: each was pinned to the first CPUs."""
    code = """
from qmlir import settings
from qmlir.tuning.cpus import own_cpus
with own_cpus(1):
    print(settings.cpus())
"""
    before = settings.cpus()
    with own_cpus(1):
        mine = settings.cpus()
        assert len(mine) == 1
        os.sched_setaffinity(0, before)  # a child inherits this mask
        theirs = run(code)
    assert settings.cpus() == before
    assert theirs in {str([cpu]) for cpu in before} - {str(mine)}


def test_amx_tiles_that_the_system_refuses(doubled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the answer to the request for tiles was ignored, and an illegal instruction killed the process."""
    artifact = qmlir.Artifact.open(doubled)
    artifact.manifest.cpu_features = ["amx-tile"]
    plan = {"route": "im2col", "matmul": {"route": "kernel", "micro": "amx-int8"}}
    row = {"strategy": "amx-int8-conv", "accepted": True, "plan": plan, "seconds": None, "note": ""}
    artifact.manifest.strategies = [{"chosen": "amx-int8-conv", "answers": [row]}]
    monkeypatch.setattr(host, "host_features", lambda: frozenset({"amx-tile"}))
    monkeypatch.setattr(host.ctypes, "CDLL", lambda *a, **k: Refusing())
    with pytest.raises(ArtifactError, match=r"AMX tiles, which the system does not let this process use: arch_"):
        load(artifact)
    row["plan"] = {"route": "kernel", "micro": "avx512-vnni"}
    load(artifact)


class Refusing:
    """A C library whose system calls fail."""

    def syscall(self, *arguments: int) -> int:
        assert arguments == (158, 0x1023, 18)
        return -1


def test_a_driver_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the first failure was remembered as "no device" for the life of the process."""
    import iree.runtime as rt

    class Driver:
        def query_available_devices(self) -> list[dict[str, Any]]:
            return [{"device_id": 1, "name": "Mali-G715"}]

    answers: list[Any] = [RuntimeError("c/x.c:1: RESOURCE_EXHAUSTED; no memory left; while creating"), Driver()]

    def get(driver: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(rt, "get_driver", get)
    monkeypatch.setattr(devices, "_found", {}, raising=False)
    with pytest.raises(TargetError, match=r"no vulkan device is present \(no memory left\)"):
        qmlir.targets.resolve("vulkan")
    assert qmlir.targets.resolve("vulkan").spelling == "vulkan:valhall4"
    assert qmlir.targets.resolve("vulkan").spelling == "vulkan:valhall4"  # and is not asked a third time


def test_a_plan_whose_own_product_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: this raised an AssertionError, or with `python -O` an AttributeError."""
    from qmlir.targets.cpu.kernels.strategy import KernelStrategy

    monkeypatch.setattr(KernelStrategy, "of_group", lambda self, op: Decline("a reason", "a remedy"), raising=False)
    monkeypatch.setattr(KernelStrategy, "check", lambda self, kernel: Decline("a reason", "a remedy"))
    weight = np.ones((32, 3, 3, 1024), np.int8)  # rows too long to gather from the image
    said = r"took this conv2d of i8 x i8 -> i32, .* a reason \(a remedy\); .* choice=\{'strategy': 'stock'\}"
    with pytest.raises(PassError, match=said):
        qmlir.ops.conv2d_q.compile(T((1, 16, 16, 1024), "i8"), weight, target="cpu:znver4")


class Lost:
    """The context of a program whose device is lost."""

    def invoke(self, *_: object) -> None:
        raise RuntimeError("Error invoking function: queue.c:6000: DATA_LOSS; [vkWaitSemaphores] VK_ERROR_DEVICE_LOST")


def test_a_lost_device_is_opened_again(lavapipe: str) -> None:
    """Regression: once a driver had lost its device, all calls and programs of the process failed."""
    text = """
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %a, %b : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    artifact = qmlir.compile(text, target=lavapipe)
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    first, second, third = (load(artifact) for _ in range(3))
    first.main._context = Lost()  # type: ignore[assignment]
    with pytest.raises(TargetError, match="DEVICE_LOST: the device is lost; the next call, or program, opens it again"):
        first.main(x, y)
    after = load(artifact)
    assert first._device is second._device is not after._device
    for program in (first, second, after, first):
        assert np.array_equal(program.main(x, y), x + y)
    assert first._copy is not None
    assert first._copy._device is after._device
    third.manifest = replace(third.manifest, has_state=True)
    with pytest.raises(TargetError, match="has state, which its device lost with everything else; load it again"):
        third.main(x, y)
    after.manifest, after.main._context = third.manifest, Lost()  # type: ignore[assignment]
    with pytest.raises(TargetError, match="the device is lost, and the program's state with it; load it again"):
        after.main(x, y)
