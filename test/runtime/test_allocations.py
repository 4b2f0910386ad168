"""A call allocates its results and one scratch buffer for all intermediates; once warm, it allocates nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import iree._runtime_libs as libs
import numpy as np
import pytest

import qmlir
from benchmarks.cpu.works import works
from qmlir.targets.cpu.host import host_features

pytestmark = pytest.mark.sweep(fast=3, slow=40)

WORKS = {w.name: w for w in works()}
# Name -> 1 if the program has intermediates, 0 if not.
PROGRAMS = {
    "w8a8 16x4096x4096": 0,
    "w4a8 16x4096x4096": 0,
    "w4a16 16x4096x4096": 0,
    "w8a8 512x4096x4096 from f32": 1,
    "conv b1 3x3/1 56x56x64->64": 0,
    "depthwise 3x3/1 112x112x32": 0,
    "mlp 128 x 4096->11008->4096": 1,
    "digits batch 64": 1,
    "resnet18 batch 1": 1,
}
# Kernels that pad the image themselves, and depthwise convolution kernels, need AVX-512.
AVX512 = ("conv b1 3x3/1 56x56x64->64", "depthwise 3x3/1 112x112x32", "digits batch 64", "resnet18 batch 1")
MOE = "moe 8x2048x1408 top 2, 16 tokens"


def runtime_tool(name: str) -> str:
    return str(Path(libs.__path__[0]) / name)


def allocations(artifact: qmlir.Artifact, arguments: list[Any], folder: Path) -> int:
    """Return how often one call allocates, according to the runtime's profile."""
    artifact.save(folder / "program.vmfb")
    inputs = []
    for i, argument in enumerate(arguments):
        path = folder / f"{i}.npy"
        np.save(path, argument)
        inputs.append(f"--input=@{path}")
    profile = folder / "program.ireeprof"
    subprocess.run(
        [runtime_tool("iree-run-module"), f"--module={folder / 'program.vmfb'}", "--device=local-sync",
         "--function=main", *inputs, "--device_profiling_mode=host-execution", f"--device_profiling_output={profile}",
         f"--output=@{folder / 'out.npy'}"],
        check=True, capture_output=True,
    )  # fmt: skip
    told = subprocess.run(
        [runtime_tool("iree-profile"), "statistics", str(profile)], check=True, capture_output=True, text=True
    ).stdout
    return sum(int(count) for count in re.findall(r"alloca +count=(\d+)", told))


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_call_allocates_its_result_and_one_scratch(name: str, tmp_path: Path) -> None:
    if name in AVX512 and "avx512vnni" not in host_features():
        pytest.skip("the host has no AVX512-VNNI")
    artifact, arguments = WORKS[name].tiny().program()
    assert len(artifact.functions["main"].outputs) == 1
    assert allocations(artifact, arguments, tmp_path) == 1 + PROGRAMS[name]


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize("name", [*PROGRAMS, MOE])
def test_calls_take_their_memory_from_the_pool(name: str) -> None:
    artifact, arguments = WORKS[name].tiny().program()
    program = qmlir.load(artifact)
    statistics = program._device.allocator
    for _ in range(2):
        program.main(*arguments)
    before = statistics.statistics["device_bytes_allocated"]
    for _ in range(10):
        program.main(*arguments)
    assert statistics.statistics["device_bytes_allocated"] == before
