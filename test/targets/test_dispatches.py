"""A product with quantised weights is one dispatch on every AMD GPU and on Vulkan, for any number of rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels.gpu_products import PRODUCTS, functions

import qmlir
from qmlir.compiler.device_code import kernels
from qmlir.targets import all_targets
from qmlir.targets.rocm import isa

TARGETS = [t.spelling for t in all_targets() if t.backend in ("rocm", "vulkan")]
ROWS = (1, 4, 16, 33, 128, None)
SAMPLE = [
    ("w8a8, zero points", None, "rocm:gfx1100"),
    ("w8a8", None, "rocm:gfx1151"),  # three rounds along K, which spilled when LLVM unrolled them
    ("w4a8, group 128", 4, "rocm:gfx950"),
    ("w4a16, group 32", 33, "rocm:gfx942"),
    ("w4a8, group 64, zero points", 128, "vulkan:rdna4"),
    ("w8a8, requantised", None, "vulkan:hopper"),
    ("w4a8", 1, "vulkan:valhall4"),
    ("w8a16", 128, "rocm:gfx942"),
]


def _check(name: str, m: int | None, target: str, folder: Path) -> None:
    flags = (f"--iree-hal-dump-executable-files-to={folder}",)
    artifact = qmlir.ops.scaled_matmul.compile(target=target, flags=flags, **PRODUCTS[name].arguments(m))
    assert artifact.source("configured").count("flow.dispatch ") <= 1
    found = kernels(folder)
    assert len(found) == len(functions(artifact.manifest.strategies[0]))
    for kernel in found:
        if "a8" in name:
            assert kernel.kind in ("matrix", "dot"), kernel
    for file in folder.glob("*.rocmasm"):
        for found in isa.resources(file.read_text()):
            assert found.spilled == 0, found
            assert found.scratch_bytes == 0, found


@pytest.mark.sweep(fast=8, slow=60)
@pytest.mark.parametrize(("name", "m", "target"), SAMPLE)
def test_one_dispatch(name: str, m: int | None, target: str, tmp_path: Path) -> None:
    _check(name, m, target, tmp_path)


@pytest.mark.sweep(slow=108)
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("name", [n for n in PRODUCTS if "a32" not in n and "abf16" not in n])
def test_every_product_is_one_dispatch(name: str, m: int | None, target: str, tmp_path: Path) -> None:
    _check(name, m, target, tmp_path)
