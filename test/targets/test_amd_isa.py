"""The inner loops of AMD kernels: their share of matrix instructions, counted in issue cycles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir import TensorSpec
from qmlir.targets.rocm import isa

LOOP = """
\t.type\tkernel,@function
kernel:
\ts_mov_b32 s0, 0
.LBB0_1:
\tds_read_b128 v[0:3], v20
\tglobal_load_dwordx4 v[4:7], v[8:9], off
\ts_waitcnt lgkmcnt(0)
\tv_mfma_i32_16x16x32_i8 a[0:3], v[0:1], v[2:3], a[0:3]
\tv_mfma_i32_16x16x32_i8 a[0:3], v[0:1], v[2:3], a[0:3]
; a comment
\ts_cbranch_scc1 .LBB0_1
.LBB0_2:
\tv_add_u32_e32 v0, 1, v0
\ts_cbranch_scc1 .LBB0_2
\ts_endpgm
amdhsa.kernels:
  - .args:
      - .offset: 0
    .group_segment_fixed_size: 4096
    .name:           kernel
    .private_segment_fixed_size: 16
    .sgpr_count:     20
    .sgpr_spill_count: 1
    .vgpr_count:     40
    .vgpr_spill_count: 3
"""


def test_resources() -> None:
    assert isa.resources(LOOP) == (isa.KernelResources("kernel", 40, 20, 4096, 16, 4),)


def test_the_main_loop_and_its_count() -> None:
    loop = isa.main_loop(LOOP)
    assert [x for x in loop if x.startswith("v_")] == ["v_mfma_i32_16x16x32_i8"] * 2
    # Two matrix instructions of 16 cycles each, 8 cycles for 1 KiB from LDS, and three issue slots of 4 cycles.
    assert isa.matrix_share(loop) == pytest.approx(32 / (32 + 8 + 12))
    assert isa.cycles("v_mfma_f32_32x32x8_f16") == 32
    assert isa.cycles("v_fma_f64") == 8
    assert isa.cycles("ds_read2_b64") == 8
    assert isa.cycles("ds_read_u8") == 4


def test_a_worse_loop_is_seen() -> None:
    """The share falls if vector code is between the matrix instructions, or if codes are read one by one."""
    good = isa.matrix_share(isa.main_loop(LOOP))
    slow = LOOP.replace("\ts_waitcnt", "\tds_read_u8 v1, v20\n" * 16 + "\ts_waitcnt")
    assert isa.matrix_share(isa.main_loop(slow)) < good / 2
    assert isa.main_loop(LOOP.replace("v_mfma_i32_16x16x32_i8", "v_mul_lo_u32")) == ()


def _products(zeros: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, (1024, 1024)).astype(np.int8)
    made: dict[str, Any] = {"lhs": TensorSpec((4096, 1024), "i8"), "rhs": codes, "rhs_transposed": True}
    made |= {"lhs_scale": TensorSpec((4096, 1), "f32"), "rhs_scale": np.ones((1024, 1), np.float32)}
    return made | ({"rhs_zero_point": rng.integers(-9, 9, (1024, 1)).astype(np.int32)} if zeros else {})


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("zeros", [False, True])
def test_w8a8_on_mi300(zeros: bool, tmp_path: Path) -> None:
    """IREE's tiles; with zero points qmlir's kernel, which also sums the rows of the lhs."""
    flags = (f"--iree-hal-dump-executable-files-to={tmp_path}",)
    made = qmlir.ops.scaled_matmul.compile(target="rocm:gfx942", flags=flags, **_products(zeros))
    assert made.manifest.strategies[0]["chosen"] == ("matrix" if zeros else "mma")
    (file,) = tmp_path.glob("*.rocmasm")
    assembly = file.read_text()
    assert isa.matrix_share(isa.main_loop(assembly)) >= 0.6
    assert "ds_read_u8" not in assembly
    (kernel,) = isa.resources(assembly)
    assert kernel.scratch_bytes == kernel.spilled == 0
