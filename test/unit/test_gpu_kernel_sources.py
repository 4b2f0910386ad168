"""Bounds on the sources of the GPU kernels, so that no second form is added of something that exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "qmlir"
FOLDERS = ("targets/gpu_kernels", *(f"targets/{t}/kernels" for t in ("cuda", "rocm", "vulkan")), "kernels/tile")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_files_and_classes_are_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400, "split the file by what its parts do"
    for made in ast.walk(ast.parse(text)):
        if isinstance(made, ast.ClassDef):
            methods = [m.name for m in made.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("_")]
            assert len(methods) <= 15, f"{made.name} does too much: {', '.join(methods)}"


def test_all_products_follow_the_one_loop() -> None:
    """Every product is a subclass of the loop; only the loop iterates over K and sums groups."""
    from qmlir.targets.cuda.kernels.fp8 import _Block as fp8
    from qmlir.targets.cuda.kernels.gemv import _Block as gemv
    from qmlir.targets.cuda.kernels.wgmma_fp8 import _Block as wgmma_fp8
    from qmlir.targets.cuda.kernels.wgmma_gemm import WgmmaBlock
    from qmlir.targets.gpu_kernels.dot import DotLoop as dot
    from qmlir.targets.gpu_kernels.loop import TileLoop
    from qmlir.targets.rocm.kernels.matrix import Wave
    from qmlir.targets.rocm.kernels.scaled import _ScaledWave as scaled
    from qmlir.targets.vulkan.kernels.matrix import _Threads as cooperative

    for product in (fp8, gemv, wgmma_fp8, WgmmaBlock, dot, Wave, scaled, cooperative):
        assert issubclass(product, TileLoop)
        assert product._stored is TileLoop._stored
