"""The table of targets: spellings, errors, descriptions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qmlir
from qmlir import TensorSpec, targets
from qmlir.cli.devices import listed
from qmlir.core.drivers import DRIVERS
from qmlir.core.iree import tool_path
from qmlir.core.mlir import context, ir
from qmlir.errors import TargetError
from qmlir.targets import all_targets, backend_of, devices, resolve
from qmlir.targets.base import Device
from qmlir.targets.cpu.host import CODE_FEATURES
from qmlir.targets.gpu import parse_mma

ALL = [target.spelling for target in all_targets()]


@pytest.mark.parametrize("spelling", ALL)
def test_every_target_is_complete(spelling: str) -> None:
    target = resolve(spelling)
    assert target.spelling == spelling
    assert target.status in (targets.RUNS, targets.MEASURED, targets.EMULATED, targets.COMPILED)
    json.dumps(target.row())
    assert target.driver in DRIVERS
    has = target.capabilities
    assert (has.compute_capability is not None and has.unit_registers > 0) == (target.backend == "cuda")
    assert (has.simds > 0 and has.simd_registers > 0 and has.sum_registers > 0) == (target.backend == "rocm")
    names = [strategy.name for strategy in backend_of(target).strategies(target)]
    assert names[-1] == "stock"
    assert len(set(names)) == len(names)
    for name in target.capabilities.mma:
        parse_mma(name)
    with context():
        module = ir.Module.create()
        target.attach(module)
        assert module.operation.verify()
        assert ("hal.device.targets" in module.operation.attributes) == (target.backend != "cpu")


@pytest.mark.parametrize("spelling", [s for s in ALL if s.startswith("vulkan:")])
def test_vulkan_descriptions_are_the_ones_that_give_right_int8(spelling: str) -> None:
    target = resolve(spelling)
    assert "dot = dp4xi8toi32" in target.device_attribute
    own = {"lavapipe": (8,), "valhall4": (16,), "rdna3": (32, 64), "rdna4": (32, 64), "xe2": (16,)}
    assert target.capabilities.subgroup_sizes == own.get(target.name, (32,))


# Features of LLVM's CPU models that the code generator uses only through intrinsics, or not in 64-bit code.
NO_CODE = """
    adx aes avx512bmm cldemote clflushopt clwb clzero cmov crc32 cx16 cx8 enqcmd fsgsbase fxsr invpcid mmx movdir64b
    movdiri mwaitx pclmul pconfig pku prefetchi prfchw ptwrite rdpid rdpru rdrnd rdseed sahf serialize sgx sha shstk sse
    tsxldtrk uintr waitpkg wbnoinvd x87 xsave xsavec xsaveopt xsaves"""
# Only CPUs with both AVX-512 and avxvnniint16 have these.
DIAMOND_RAPIDS = """
    amx-avx512 amx-complex amx-fp8 amx-movrs avx10.1 avx10.2 ccmp cmpccxadd egpr jmpabs movrs ndd nf ppx push2pop2
    sha512 sm3 sm4 zu"""


@pytest.mark.sweep(fast=4, slow=6)
@pytest.mark.parametrize("spelling", [s for s in ALL if s.startswith("cpu:")])
def test_a_cpu_has_the_features_that_code_is_made_of(spelling: str, tmp_path: Path) -> None:
    """Regression: a host accepted a program for `cpu:znver4` with an instruction it lacks (SSE4a's `extrq`)."""
    target = resolve(spelling)
    source = tmp_path / "f.mlir"
    source.write_text("func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
    command = [str(tool_path("iree-compile")), str(source), "--compile-to=flow", *target.compiler_flags]
    flow = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used: set[str] = set()
    found = re.search(r'cpu_features = "([^"]*)"', flow)
    assert found
    for feature in found[1].split(","):  # the last occurrence of a feature counts
        (used.add if feature[0] == "+" else used.discard)(feature[1:])
    if "neon" not in target.capabilities.cpu_features:
        newest = DIAMOND_RAPIDS.split() if "avxvnniint16" in used else []
        assert used - CODE_FEATURES - {*NO_CODE.split(), *newest} == set()
    # LLVM knows that every 64-bit Arm CPU has neon, and does not always list it.
    assert (used | {"neon"}) & CODE_FEATURES == {*target.capabilities.cpu_features} | {"neon"}


def test_importing_loads_neither_compiler_nor_runtime() -> None:
    code = (
        "import sys; from qmlir import targets; targets.all_targets(); target = targets.resolve('rocm:gfx942');"
        "targets.backend_of(target).strategies(target);"
        "assert not [m for m in sys.modules if m.startswith('iree')], 'iree was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("spelling", "hint"),
    [
        ("rocm:gfx94", "rocm:gfx942"),
        ("cuda:sm_81", "cuda:sm_80"),
        ("vulkn:ada", "vulkan:ada"),
        ("cpu:saphirerapids", "cpu:sapphirerapids"),
        ("cpu:", "cpu:"),
        ("metal", "cpu, cuda, rocm, vulkan"),
        ("", "cpu, cuda, rocm, vulkan"),
    ],
)
def test_unknown_names_get_near_ones(spelling: str, hint: str) -> None:
    with pytest.raises(TargetError, match=hint) as error:
        resolve(spelling)
    assert repr(spelling) in str(error.value)


def test_bare_cpu_is_this_host() -> None:
    target = resolve("cpu")
    assert (target.spelling, target.name) == ("cpu", "host")
    assert target.host
    assert devices.present_device(target) == target.host


@pytest.mark.parametrize("backend", ["cuda", "rocm", "vulkan"])
def test_bare_gpu_without_a_device_lists_the_names(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "devices", lambda driver: ())
    with pytest.raises(TargetError, match=r"no .* device is present") as error:
        resolve(backend)
    for spelling in ALL:
        if spelling.startswith(backend):
            assert spelling in str(error.value)


@pytest.mark.parametrize(
    ("backend", "driver", "name", "arch", "expected"),
    [
        ("cuda", "cuda", "NVIDIA H200", "sm_90", "cuda:sm_90a"),
        ("cuda", "cuda", "NVIDIA B200", "sm_100", "cuda:sm_90"),
        ("cuda", "cuda", "NVIDIA GeForce RTX 5090", "sm_120", "cuda:sm_120a"),
        ("cuda", "cuda", "NVIDIA GB10", "sm_121", "cuda:sm_120"),
        ("cuda", "cuda", "Orin", "sm_87", "cuda:sm_86"),
        ("rocm", "hip", "AMD Instinct MI300X", "gfx942", "rocm:gfx942"),
        ("vulkan", "vulkan", "llvmpipe (LLVM 15.0.6, 256 bits)", "", "vulkan:lavapipe"),
        ("vulkan", "vulkan", "NVIDIA GeForce RTX 4090", "", "vulkan:ada"),
        ("vulkan", "vulkan", "NVIDIA GeForce RTX 3060 Laptop GPU", "", "vulkan:ampere"),
        ("vulkan", "vulkan", "AMD Radeon RX 7900 XTX (RADV NAVI31)", "", "vulkan:rdna3"),
        ("vulkan", "vulkan", "AMD Radeon RX 9070 XT (RADV GFX1201)", "", "vulkan:rdna4"),
        ("vulkan", "vulkan", "Mali-G715", "", "vulkan:valhall4"),
        ("vulkan", "vulkan", "Intel(R) Arc(tm) B580 Graphics (BMG G21)", "", "vulkan:xe2"),
        ("vulkan", "vulkan", "Intel(R) Arc(TM) 140V GPU (16GB)", "", "vulkan:xe2"),
    ],
)
def test_bare_gpu_is_the_present_device(
    backend: str, driver: str, name: str, arch: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "devices", lambda asked: (Device(asked, 0, name, arch),) if asked == driver else ())
    assert resolve(backend).spelling == expected
    assert devices.present_device(resolve(expected)) == name
    rows = {row["driver"]: row for row in listed()}
    assert (rows[driver]["uri"], rows[driver]["name"], rows[driver]["targets"][0]) == (f"{driver}://0", name, expected)
    assert not rows[driver]["emulated"]
    assert all(row["emulated"] for other, row in rows.items() if other not in ("cpu", driver))


@pytest.mark.parametrize(
    ("backend", "name", "arch"),
    [
        ("vulkan", "Adreno (TM) 740", ""),
        ("vulkan", "Intel(R) Arc(tm) A770 Graphics (DG2)", ""),
        ("rocm", "AMD Radeon VII", "gfx906"),
        ("cuda", "Quadro P400", "sm_61"),
    ],
)
def test_a_device_that_nothing_describes(backend: str, name: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "devices", lambda driver: (Device(driver, 0, name, arch),))
    with pytest.raises(TargetError, match="no target describes") as error:
        resolve(backend)
    assert name in str(error.value)
    driver = {"rocm": "hip"}.get(backend, backend)
    assert [row["targets"] for row in listed() if row["driver"] == driver] == [[]]


def test_programs_run_on_the_devices_that_are_listed(tmp_path: Path) -> None:
    codes, spec = np.arange(-32, 32, dtype=np.int8).reshape(8, 8), TensorSpec((8, 8), "i8")
    for row in (row for row in listed() if row["uri"] and row["targets"]):
        file = tmp_path / f"{row['driver']}.vmfb"
        qmlir.ops.scaled_matmul.compile(spec, spec, target=row["targets"][0]).save(file)
        assert np.array_equal(qmlir.load(file, device=row["uri"]).main(codes, codes), codes.astype(np.int32) @ codes)


def test_asking_for_devices_never_raises() -> None:
    for driver in ("cuda", "hip", "vulkan", "no-such-driver"):
        assert isinstance(devices.devices(driver), tuple)


def test_a_cpu_program_that_this_host_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from qmlir.targets.cpu import host

    monkeypatch.setattr(host, "host_features", lambda: frozenset({"sse2", "sse3"}))
    assert devices.present_device(resolve("cpu:x86-64"))
    assert not devices.present_device(resolve("cpu:sapphirerapids"))
    assert not devices.present_device(resolve("cpu:aarch64"))
