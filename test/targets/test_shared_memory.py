"""Programs with a dynamic number of rows hold several kernels; each requests its own shared memory, which fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.executables import cuda_shared_bytes, spirv_modules, spirv_shared_bytes

import qmlir
from qmlir import TensorSpec
from qmlir.targets import all_targets, resolve
from qmlir.targets.rocm.isa import resources

# Bytes of shared memory that a workgroup may have: CUDA C++ programming guide, "Technical specifications per compute
# capability"; AMD's ISA guides, LDS.
CUDA = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_90": 232448, "sm_90a": 232448, "sm_120": 101376,
        "sm_120a": 101376}  # fmt: skip
LDS = {"gfx950": 163840}  # 65536 elsewhere
QUICK = ("sm_80", "sm_86", "sm_90a", "gfx950", "ada")


def _targets(backend: str) -> list[Any]:
    names = [target.name for target in all_targets() if target.backend == backend]
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


def _artifact(target: str, size: int, **more: Any) -> qmlir.Artifact:
    """s8 x s8 with per-token and per-channel scales and a dynamic number of rows."""
    return qmlir.ops.scaled_matmul.compile(
        TensorSpec((None, size), "i8"), np.ones((size, size), np.int8), rhs_transposed=True, target=target,
        lhs_scale=TensorSpec((None, 1), "f32"), rhs_scale=np.ones((size, 1), np.float32), **more,
    )  # fmt: skip


def _plans(artifact: qmlir.Artifact) -> list[dict[str, Any]]:
    (decision,) = artifact.manifest.strategies
    assert decision["chosen"] == "multi-version-m"
    plan = next(a["plan"] for a in decision["answers"] if a["strategy"] == "multi-version-m")
    return [kernel for kernel in plan.values() if isinstance(kernel, dict)]


@pytest.mark.sweep(fast=3, slow=60)
@pytest.mark.parametrize("target", _targets("cuda"))
def test_each_cuda_kernel_asks_for_its_own(target: str, tmp_path: Path) -> None:
    artifact = _artifact(f"cuda:{target}", 4096)
    artifact.save(tmp_path / "x.vmfb")
    asked = list(cuda_shared_bytes((tmp_path / "x.vmfb").read_bytes()).values())
    assert resolve(f"cuda:{target}").capabilities.shared_memory == CUDA[target]
    assert max(asked) <= CUDA[target]
    assert len(asked) > 2
    assert asked == [kernel["shared_bytes"] for kernel in _plans(artifact)]


@pytest.mark.sweep(fast=3, slow=60)
@pytest.mark.parametrize("target", [*QUICK[:2], "sm_120"])
def test_a_convolution_asks_for_what_its_tiles_need(target: str, tmp_path: Path) -> None:
    """Regression: it requested the bytes of its image tiles twice, so sm_120 refused kernels that fit."""
    image = TensorSpec((None, 4, 4, 32), "i8")
    artifact = qmlir.ops.conv2d_q.compile(
        image, np.ones((64, 3, 3, 32), np.int8), weight_layout="FHWC", padding=[1, 1, 1, 1], target=f"cuda:{target}",
        input_scale=np.float32(1), weight_scale=np.ones(64, np.float32),
    )  # fmt: skip
    artifact.save(tmp_path / "x.vmfb")
    asked = list(cuda_shared_bytes((tmp_path / "x.vmfb").read_bytes()).values())
    assert max(asked) <= CUDA[target]
    assert asked == [kernel["shared_bytes"] for kernel in _plans(artifact)]


@pytest.mark.slow
@pytest.mark.parametrize("target", _targets("rocm"))
def test_each_amd_kernel_has_its_own(target: str) -> None:
    artifact = _artifact(f"rocm:{target}", 512)
    has = [kernel.shared_bytes for kernel in resources(artifact.source("isa"))]
    assert resolve(f"rocm:{target}").capabilities.shared_memory == LDS.get(target, 65536)
    assert max(has) <= LDS.get(target, 65536)
    assert has == [kernel.get("shared_bytes", 0) for kernel in _plans(artifact)]


@pytest.mark.parametrize("target", _targets("vulkan"))
def test_each_vulkan_kernel_has_its_own(target: str) -> None:
    artifact = _artifact(f"vulkan:{target}", 512)
    for module in spirv_modules(artifact.vmfb):
        has = list(spirv_shared_bytes(module).values())
        assert max(has) <= resolve(f"vulkan:{target}").capabilities.shared_memory
        assert has == [kernel.get("shared_bytes", 0) for kernel in _plans(artifact)]
