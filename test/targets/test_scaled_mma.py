"""MXFP8 and MXFP4 on CDNA4's scaled matrix instructions: the assembly uses them, and the results are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.forms import FORMS

import qmlir
from qmlir import TensorSpec
from qmlir.dialect.dtypes import DTYPES

INSTRUCTION = "v_mfma_scale_f32_16x16x128_f8f6f4"
MX = {f.name: f for f in FORMS if f.name.endswith("MX (32, e8m0)") and " f16 x" not in f.name}


def _choice(artifact: Any) -> str:
    return str(artifact.manifest.strategies[0]["chosen"])


def _assembly(name: str, m: int | None, folder: Path) -> tuple[str, str]:
    artifact = MX[name].compile("rocm:gfx950", m=m, flags=(f"--iree-hal-dump-executable-files-to={folder}",))
    return _choice(artifact), "".join(file.read_text() for file in folder.glob("*.rocmasm"))


@pytest.mark.parametrize("name", MX)
def test_the_instruction_is_used(name: str, tmp_path: Path) -> None:
    choice, assembly = _assembly(name, 128, tmp_path)
    assert choice == "scaled-mma"
    assert INSTRUCTION in assembly


@pytest.mark.slow
@pytest.mark.parametrize("m", [16, 33])
@pytest.mark.parametrize("name", MX)
def test_the_instruction_is_used_for_other_rows(name: str, m: int, tmp_path: Path) -> None:
    assert INSTRUCTION in _assembly(name, m, tmp_path)[1]


def test_without_scaled_instructions_there_is_another_way() -> None:
    artifact = MX["scaled_matmul: e4m3 x e4m3, MX (32, e8m0)"].compile("rocm:gfx1201")
    (reason,) = (a["reason"] for a in artifact.manifest.strategies[0]["answers"] if a["strategy"] == "scaled-mma")
    assert reason == "rocm:gfx1201 has no matrix instruction with block scales"


@pytest.mark.parametrize("m", [None, 18])
def test_what_is_no_whole_instruction_is_not_padded(m: int | None) -> None:
    artifact = qmlir.ops.scaled_matmul.compile(
        TensorSpec((m, 160), "e4m3"), np.ones((32, 160), DTYPES["e4m3"].numpy), rhs_transposed=True,
        lhs_scale=TensorSpec((m, 5), "e8m0"), rhs_scale=np.ones((32, 5), DTYPES["e8m0"].numpy), target="rocm:gfx950",
    )  # fmt: skip
    (reason,) = (a["reason"] for a in artifact.manifest.strategies[0]["answers"] if a["strategy"] == "scaled-mma")
    assert reason == "a K of 160 is not a multiple of the instruction's K, so codes and scales would have to be padded"
    assert artifact.source("configured").count("flow.dispatch ") == 1


SIZES = [(16, 32, 256)]
SLOW_SIZES = [(17, 40, 128), (33, 16, 384), (128, 64, 512), (16, 130, 128), (250, 48, 256)]


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(
    ("m", "n", "k"), [*SIZES, *(pytest.param(*size, marks=pytest.mark.slow) for size in SLOW_SIZES)]
)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2", "e2m1"])
def test_the_instructions_compute_the_product(dtype: str, m: int, n: int, k: int, tmp_path: Path) -> None:
    _executed(dtype, m, n, k, tmp_path)


def test_equal_scales_of_the_weights(tmp_path: Path) -> None:
    _executed("e4m3", 16, 32, 256, tmp_path, equal=True)


@pytest.mark.parametrize("rows", [1, pytest.param(40, marks=pytest.mark.slow)])
def test_rows_at_run_time_and_what_follows(rows: int, tmp_path: Path) -> None:
    """Operands with different code types, a dynamic number of rows, and an epilogue in the same kernel."""
    bias = np.arange(48, dtype=np.float32)
    _executed("e4m3", rows, 48, 256, tmp_path, other="e5m2", dynamic=True, bias=bias, activation="relu")


def _executed(
    dtype: str, m: int, n: int, k: int, tmp_path: Path, equal: bool = False, other: str = "", dynamic: bool = False,
    **finished: Any,
) -> None:  # fmt: skip
    """Compile, run on the emulated device and compare. `other`: the weight's type if it is not the activation's."""
    pytest.importorskip("tinygrad")
    rng = np.random.default_rng(m + n + k)

    def codes(rows: int, dtype: str) -> Any:
        if dtype == "e2m1":
            return rng.integers(0, 16, (rows, k)).astype(np.int8)
        return (rng.standard_normal((rows, k)) * 4).astype(DTYPES[dtype].numpy)

    def scales(rows: int) -> Any:
        return (2.0 ** rng.integers(-6, 3, (rows, k // 32))).astype(DTYPES["e8m0"].numpy)

    lhs, rhs, lhs_scale, rhs_scale = codes(m, dtype), codes(n, other or dtype), scales(m), scales(n)
    if equal:
        rhs_scale = np.full_like(rhs_scale, 0.5)
    more = finished | ({"lhs_dtype": "e2m1", "rhs_dtype": "e2m1"} if dtype == "e2m1" else {})
    rows = None if dynamic else m
    kind = "i8" if dtype == "e2m1" else dtype
    artifact = qmlir.ops.scaled_matmul.compile(
        TensorSpec((rows, k), kind), rhs, lhs_scale=TensorSpec((rows, k // 32), "e8m0"), rhs_scale=rhs_scale,
        rhs_transposed=True, target="rocm:gfx950", flags=(f"--iree-hal-dump-executable-files-to={tmp_path}",), **more,
    )  # fmt: skip
    assert _choice(artifact) == "scaled-mma"
    assert INSTRUCTION in "".join(file.read_text() for file in tmp_path.glob("*.rocmasm"))
    program = qmlir.load(artifact, emulate=True)
    want = qmlir.reference.scaled_matmul(
        lhs, rhs, lhs_scale=lhs_scale, rhs_scale=rhs_scale, rhs_transposed=True, **more
    )
    got = program.main(lhs, lhs_scale)
    assert program.emulated.counts.instructions["matrix"] > 0
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())
