"""Cooperative matrices: those that a device lists, those that IREE is told of, and the signedness flags in its code."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.executables import spirv_modules

import qmlir
from qmlir import TensorSpec
from qmlir.compiler.device_code import spirv_instructions, spirv_multiplies
from qmlir.errors import TargetError
from qmlir.targets import all_targets, resolve
from qmlir.targets.base import Device
from qmlir.targets.vulkan import description
from qmlir.targets.vulkan.properties import Properties, properties

_ARC = Properties(
    name="Arc 7", subgroup=16, subgroups=(16, 16), shared_memory=65536, threads=1024,
    workgroup_sizes=(1024, 1024, 64), workgroup_counts=(65535, 65535, 65535),
    features=frozenset({"int8", "int16", "fp16", "8-bit storage", "int8 dot product", "cooperative matrix"}),
    matrices=("KHR_F32_8x16x16_F16", "KHR_I32_8x16x32_I8"),
)  # fmt: skip


def _product(target: str, dtype: str, m: int | None = 40) -> qmlir.Artifact:
    w = np.random.default_rng(0).integers(-8, 8, (48, 64)).astype(np.int8)
    more: dict[str, Any] = {"rhs_scale": np.ones((48, 1), np.float16)} if dtype == "f16" else {}
    return qmlir.ops.scaled_matmul.compile(TensorSpec((m, 64), dtype), w, rhs_transposed=True, target=target, **more)


def _shapes(artifact: qmlir.Artifact) -> list[str]:
    """The matrix kinds that the chosen kernels multiply."""
    plans = [a["plan"] for e in artifact.manifest.strategies for a in e["answers"] if a["strategy"] == e["chosen"]]
    return [plan["mma"] for plan in plans]


def _multiplies(artifact: qmlir.Artifact) -> list[tuple[int, ...]]:
    """The operand words of the matrix products (OpCooperativeMatrixMulAddKHR), without the opcode."""
    modules = spirv_modules(artifact.vmfb)
    return [tuple(rest) for module in modules for opcode, rest in spirv_instructions(module) if opcode == 4459]


def test_a_description_has_the_matrices_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda: (_ARC,))
    target = description.target_for(Device("vulkan", 0, "Arc 7", ""))
    assert target is not None
    assert (target.spelling, target.capabilities.mma) == ("vulkan:present", _ARC.matrices)
    assert "KHR" not in target.device_attribute  # IREE does not know these names


def test_a_name_promises_no_matrices_that_the_driver_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    old = replace(_ARC, name="NVIDIA GeForce RTX 4090", subgroup=32, subgroups=(32, 32), matrices=())
    monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda: (old,))
    target = description.target_for(Device("vulkan", 0, old.name, ""))
    assert target is not None
    assert (target.spelling, target.capabilities.mma) == ("vulkan:present", ())


@pytest.mark.sweep(fast=3, slow=60)
@pytest.mark.parametrize(
    ("target", "dtype", "shape"),
    [
        ("rdna3", "i8", "WMMAR3_I32_16x16x16_I8"),
        ("ada", "i8", "KHR_I32_16x16x32_I8"),
        ("turing", "f16", "NV_WMMA_F32_16x16x16_F16"),
        ("rdna4", "f16", "WMMAR4_F32_16x16x16_F16"),
        ("xe2", "i8", "KHR_I32_8x16x32_I8"),
        ("xe2", "f16", "KHR_F32_8x16x16_F16"),
    ],
)
def test_named_targets_use_theirs(target: str, dtype: str, shape: str) -> None:
    """The matrices in the SPIR-V have the type and size of the target's matrix kind."""
    artifact = _product(f"vulkan:{target}", dtype)
    assert _shapes(artifact) == [shape]
    found = sum((spirv_multiplies(module) for module in spirv_modules(artifact.vmfb)), Counter())
    multiplied = [name for name in found if name.startswith("OpCooperativeMatrixMulAddKHR ")]
    assert multiplied == [f"OpCooperativeMatrixMulAddKHR {shape.split('_')[-2]} {dtype}"]


@pytest.mark.slow
def test_other_matrices_are_refused_at_load(monkeypatch: pytest.MonkeyPatch, lavapipe: str) -> None:
    (found,) = properties()
    for theirs, kind in (((), "i8"), (("KHR_F32_8x8x8_F16",), "i8"), (("KHR_I32_8x8x8_I8",), "f16")):
        mine = replace(found, matrices=("KHR_F32_8x8x8_F16", "KHR_I32_8x8x8_I8"))
        monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda mine=mine: (mine,))
        artifact = _product("vulkan", kind)
        assert artifact.manifest.target == "vulkan:present"
        other = replace(found, matrices=theirs)
        monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda other=other: (other,))
        with pytest.raises(
            TargetError, match=rf"multiplies cooperative matrices 8x8x8 of {kind}, and .* lists no such"
        ):
            qmlir.load(artifact, device="vulkan://0")


def test_codes_and_sums_are_signed() -> None:
    """All four signedness flags are set: with those of A and B only, Mesa computes a product of unsigned codes."""
    found = _multiplies(_product("vulkan:rdna3", "i8"))
    assert {words[5:] for words in found} == {(0b1111,)}
    assert {words[5:] for words in _multiplies(_product("vulkan:rdna3", "f16"))} == {()}


_TEXT = """
func.func @main(%x: tensor<40x64xi8>) -> tensor<40x48xi32> {
  %w = arith.constant dense<3> : tensor<48x64xi8>
  %y = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"], rhs_transposed = true
  } : (tensor<40x64xi8>, tensor<48x64xi8>) -> tensor<40x48xi32>
  return %y : tensor<40x48xi32>
}
"""


def test_dumped_code_is_signed(tmp_path: Path) -> None:
    qmlir.compile(_TEXT, target="vulkan:ada", dump_stages=tmp_path)
    dumped = [words for f in (tmp_path / "executable").glob("*.spv") for opcode, words in
              spirv_instructions(f.read_bytes()) if opcode == 4459]  # fmt: skip
    assert {words[5:] for words in dumped} == {(0b1111,)}


WITH_MATRICES = [target.spelling for target in all_targets() if target.backend == "vulkan" and target.capabilities.mma]


@pytest.mark.slow
def test_saved_programs_open(tmp_path: Path) -> None:
    """In a fresh process, for every target with cooperative matrices."""
    for spelling in WITH_MATRICES:
        artifact = _product(spelling, "i8")
        assert {words[5:] for words in _multiplies(artifact)} == {(0b1111,)}
        artifact.save(tmp_path / f"{resolve(spelling).name}.vmfb")
    code = "import sys, qmlir; [print(qmlir.inspect(path).facts['target']) for path in sys.argv[1:]]"
    files = [str(tmp_path / f"{resolve(spelling).name}.vmfb") for spelling in WITH_MATRICES]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=False)
    assert done.stdout.split() == WITH_MATRICES, done.stderr


def test_weights_that_look_like_code_stay() -> None:
    """Here a constant holds SPIR-V's magic number, a header and a product of signed codes with unsigned sums."""
    looks = [0x07230203, 0x10600, 0, 9, 0, 7 << 16 | 4459, 1, 2, 3, 4, 5, 3]
    bias = np.array([30, *looks, *range(35)], np.uint32).view(np.float32)
    w = np.random.default_rng(0).integers(-8, 8, (48, 64)).astype(np.int8)
    artifact = qmlir.ops.scaled_matmul.compile(
        TensorSpec((40, 64), "i8"), w, rhs_transposed=True, bias=bias, lhs_scale=np.float32(1), target="vulkan:ada"
    )
    assert bias.tobytes() in artifact.vmfb
    assert {words[5:] for words in _multiplies(artifact)} == {(0b1111,)}


def test_tiles_that_do_not_fit_shared_memory_are_not_taken(monkeypatch: pytest.MonkeyPatch, lavapipe: str) -> None:
    """Vulkan guarantees only 16 KiB."""
    (found,) = properties()
    small = replace(found, matrices=("KHR_I32_8x8x8_I8",), shared_memory=16384)
    monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda: (small,))
    artifact = _product("vulkan", "i8")
    (decision,) = artifact.manifest.strategies
    assert decision["chosen"] != "matrix"
    reason = next(a["reason"] for a in decision["answers"] if a["strategy"] == "matrix")
    assert reason == "a workgroup's tiles take 21504 bytes of shared memory, and the device has 16384"


def test_stock_tiles_are_for_kinds_that_iree_knows() -> None:
    assert description.known_to_iree(resolve("vulkan:ada").capabilities.mma) == ()
    assert description.known_to_iree(resolve("vulkan:rdna3").capabilities.mma) == ("WMMAR3_I32_16x16x16_I8",)
