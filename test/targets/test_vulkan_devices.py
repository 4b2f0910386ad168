"""The properties that a Vulkan device reports, and programs that do not fit the device."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import qmlir
from qmlir import TensorSpec
from qmlir.errors import TargetError
from qmlir.targets import resolve
from qmlir.targets.base import Device
from qmlir.targets.devices import devices
from qmlir.targets.vulkan import description
from qmlir.targets.vulkan.properties import Properties, properties

_PHONE = Properties(
    name="Phone 7", subgroup=16, subgroups=(16, 16), shared_memory=32768, threads=512,
    workgroup_sizes=(512, 512, 64), workgroup_counts=(65535, 65535, 65535),
    features=frozenset({"int8", "int16", "fp16", "8-bit storage", "int8 dot product"}),
)  # fmt: skip


def test_the_device_is_read(lavapipe: str) -> None:
    (found,) = properties()
    named = resolve(lavapipe)
    assert found.name.startswith("llvmpipe")
    assert (found.subgroup,) == named.capabilities.subgroup_sizes
    assert found.shared_memory == named.capabilities.shared_memory
    assert found.features >= {"int8", "8-bit storage", "int8 dot product"}
    assert resolve("vulkan") == named


def test_an_unknown_device_gets_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda: (_PHONE,))
    target = description.target_for(Device("vulkan", 0, "Phone 7 (its driver)", ""))
    assert target is not None
    assert target.spelling == "vulkan:present"
    assert target.capabilities.subgroup_sizes == (16,)
    for text in ("subgroup_size_choices = [16]", "compute = fp32|fp16|int32|int16|int8", "[512, 512, 64]"):
        assert text in target.device_attribute


def test_a_device_with_other_subgroups_than_its_name_says(monkeypatch: pytest.MonkeyPatch, lavapipe: str) -> None:
    """As lavapipe on a machine with wider vectors."""
    (found,) = properties()
    wider = replace(found, subgroup=16, subgroups=(16, 16))
    monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda: (wider,))
    target = resolve("vulkan")
    assert (target.spelling, target.capabilities.subgroup_sizes) == ("vulkan:present", (16,))
    assert "qmlir-cut-loops" in target.passes


def test_a_device_without_int8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = replace(_PHONE, features=frozenset({"int8"}))
    monkeypatch.setattr("qmlir.targets.vulkan.properties.properties", lambda: (old,))
    with pytest.raises(TargetError, match="'Phone 7' has no 8-bit storage, int8 dot product; choose another target"):
        description.target_for(Device("vulkan", 0, "Phone 7", ""))


def _product(target: str) -> qmlir.Artifact:
    w = np.ones((16, 32), np.int8)
    return qmlir.ops.scaled_matmul.compile(TensorSpec((2, 32), "i8"), w, rhs_transposed=True, target=target)


def test_sums_are_bounded_on_a_software_device_without_a_name(monkeypatch: pytest.MonkeyPatch, lavapipe: str) -> None:
    """Regression: llvmpipe leaves loops after 65535 iterations; only the target `vulkan:lavapipe` had the bound."""
    monkeypatch.setattr(description, "names_for", lambda device: ())
    x, w = TensorSpec((2, None), "f32"), TensorSpec((None, 3), "f32")
    for target in (lavapipe, "vulkan"):
        made = qmlir.ops.scaled_matmul.compile(x, w, target=target)
        answers = {a["strategy"]: a for a in made.manifest.strategies[0]["answers"]}
        assert answers["stock"]["plan"]["longest_sum"] == 65535


def test_another_subgroup_size_is_refused_at_load(lavapipe: str) -> None:
    (device,) = devices("vulkan")
    name = re.escape(properties()[0].name)
    with pytest.raises(TargetError, match=rf"vulkan:ada .*subgroups of 32, and those of '{name}' have 8"):
        qmlir.load(_product("vulkan:ada"), device=device.uri)
    qmlir.load(_product(lavapipe), device=device.uri)


def test_a_built_description_runs(monkeypatch: pytest.MonkeyPatch, lavapipe: str) -> None:
    monkeypatch.setattr(description, "names_for", lambda device: ())
    artifact = _product("vulkan")
    assert artifact.manifest.target == "vulkan:present"
    x = np.arange(64, dtype=np.int8).reshape(2, 32)
    np.testing.assert_array_equal(qmlir.load(artifact).main(x), np.repeat(x.sum(1)[:, None], 16, 1).astype(np.float32))
