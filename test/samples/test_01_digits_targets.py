"""The digits model compiles for every GPU target of the table, and its products use the matrix instructions.

The batch is static, 16: with a dynamic one, IREE's SPIR-V route computes one output element per workgroup.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qmlir.compiler.compilation import compile as compile_program
from qmlir.targets import all_targets

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "01_digits"
GPU = [t.spelling for t in all_targets() if t.backend != "cpu"]

# Backend, or one target: (kind of device code, pattern that must occur in it).
WANTED = {
    "cuda": ("ptx", r"mma\.sync\.aligned\.m16n8k32\S*s8|wgmma\S*s8"),
    "rocm:gfx90a": ("isa", r"v_mfma_i32_\w*i8"),
    "rocm:gfx942": ("isa", r"v_mfma_i32_\w*_i8"),
    "rocm:gfx950": ("isa", r"v_mfma_i32_\w*_i8"),
    "rocm": ("isa", r"v_wmma_i32_\w*iu8"),
    "vulkan:rdna3": ("spirv", r"OpCooperativeMatrixMulAddKHR"),
    "vulkan:rdna4": ("spirv", r"OpCooperativeMatrixMulAddKHR"),
    "vulkan": ("spirv", r"OpSDot"),
}


@pytest.mark.sweep(slow=6)
@pytest.mark.slow
@pytest.mark.parametrize("spelling", GPU)
def test_matrix_instructions(spelling: str) -> None:
    text = (SAMPLE / "digits.mlir").read_text()
    static = text.replace("tensor<?x", "tensor<16x")
    assert static != text
    artifact = compile_program(static, target=spelling, parameters={"digits": str(SAMPLE / "digits.safetensors")})
    assert len(artifact.vmfb) > 10_000
    kind, pattern = WANTED.get(spelling) or WANTED[spelling.split(":")[0]]
    code = artifact.source(kind)
    assert re.search(pattern, code), f"{spelling}: no {pattern} in the {kind}"


DYNAMIC = ("cuda:sm_80", "rocm:gfx942", "rocm:gfx1100", "vulkan:rdna3")


@pytest.mark.slow
@pytest.mark.parametrize("spelling", DYNAMIC)
def test_a_dynamic_batch_compiles_too(spelling: str) -> None:
    artifact = compile_program(
        SAMPLE / "digits.mlir", target=spelling, parameters={"digits": str(SAMPLE / "digits.safetensors")}
    )
    assert artifact.functions["main"].inputs[0][1].shape == (None, 8, 8, 1)
