"""Cooperative matrices: what a device lists, what IREE is told, and the signs in the code it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir import TensorSpec
from qmlir.device_code import spirv_instructions
from qmlir.errors import TargetError
from qmlir.targets import resolve
from qmlir.targets.devices import Device
from qmlir.targets.vulkan import description
from qmlir.targets.vulkan.properties import Properties, properties
from qmlir.targets.vulkan.signs import signed

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
    """Of the matrices that the chosen kernels multiply."""
    plans = [a["plan"] for e in artifact.manifest["strategies"] for a in e["answers"] if a["strategy"] == e["chosen"]]
    return [plan["mma"] for plan in plans]


def _multiplies(artifact: qmlir.Artifact) -> list[tuple[int, ...]]:
    """The words of the matrix products behind their opcode."""
    words = np.frombuffer(artifact.vmfb, np.uint32)
    (start,) = np.flatnonzero(words == 0x07230203)
    module = words[start : start + words[start - 1]].tobytes()
    return [tuple(rest) for opcode, rest in spirv_instructions(module) if opcode == 4459]


def test_a_description_has_the_matrices_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda: (_ARC,))
    target = description.target_for(Device("vulkan", 0, "Arc 7", ""))
    assert target is not None
    assert (target.spelling, target.mma) == ("vulkan:present", _ARC.matrices)
    assert "KHR" not in target.device_attribute  # IREE knows no such names


def test_a_name_promises_no_matrices_that_the_driver_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    old = replace(_ARC, name="NVIDIA GeForce RTX 4090", subgroup=32, subgroups=(32, 32), matrices=())
    monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda: (old,))
    target = description.target_for(Device("vulkan", 0, old.name, ""))
    assert target is not None
    assert (target.spelling, target.mma) == ("vulkan:present", ())


@pytest.mark.parametrize(
    ("target", "dtype", "shape"),
    [
        ("rdna3", "i8", "WMMAR3_I32_16x16x16_I8"),
        ("ada", "i8", "KHR_I32_16x16x32_I8"),
        ("turing", "f16", "NV_WMMA_F32_16x16x16_F16"),
        ("rdna4", "f16", "WMMAR4_F32_16x16x16_F16"),
    ],
)
def test_named_targets_use_theirs(target: str, dtype: str, shape: str) -> None:
    artifact = _product(f"vulkan:{target}", dtype)
    assert _shapes(artifact) == [shape]
    assert _multiplies(artifact)


def test_other_matrices_are_refused_at_load(monkeypatch: pytest.MonkeyPatch, lavapipe: str) -> None:
    (found,) = properties()
    for theirs, kind in (((), "i8"), (("KHR_F32_8x8x8_F16",), "i8"), (("KHR_I32_8x8x8_I8",), "f16")):
        mine = replace(found, matrices=("KHR_F32_8x8x8_F16", "KHR_I32_8x8x8_I8"))
        monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda mine=mine: (mine,))
        artifact = _product("vulkan", kind)
        assert artifact.manifest["target"] == "vulkan:present"
        other = replace(found, matrices=theirs)
        monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda other=other: (other,))
        with pytest.raises(
            TargetError, match=rf"multiplies cooperative matrices 8x8x8 of {kind}, and .* lists no such"
        ):
            qmlir.load(artifact, device="vulkan://0")


def test_codes_and_sums_are_signed() -> None:
    """All four of the operands' flags: with those of A and B only the product is one of unsigned codes to Mesa."""
    found = _multiplies(_product("vulkan:rdna3", "i8"))
    assert {words[5:] for words in found} == {(0b1111,)}
    assert {words[5:] for words in _multiplies(_product("vulkan:rdna3", "f16"))} == {()}


def test_only_the_flags_of_sums_are_set() -> None:
    def module(mask: int) -> list[int]:
        return [0x07230203, 0x10600, 0, 9, 0, 7 << 16 | 4459, 1, 2, 3, 4, 5, mask, 3 << 16 | 17, 4459, 3]

    def words(program: list[int]) -> list[int]:
        return np.frombuffer(signed(np.array(program, np.uint32).tobytes()), np.uint32).tolist()

    assert words(module(3)) == module(15)
    assert words(module(1)) == module(1)  # codes of one side are unsigned: not ours
    inside = [1, 2, 15, *module(3), 7 << 16 | 4459, 1, 2, 3, 4, 5, 3]  # a file: the module's length is in front of it
    assert words(inside) == [1, 2, 15, *module(15), 7 << 16 | 4459, 1, 2, 3, 4, 5, 3]


def test_stock_tiles_are_for_kinds_that_iree_knows() -> None:
    assert description.known_to_iree(resolve("vulkan:ada").mma) == ()
    assert description.known_to_iree(resolve("vulkan:rdna3").mma) == ("WMMAR3_I32_16x16x16_I8",)
