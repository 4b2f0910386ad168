"""MXFP8 and MXFP4 on CDNA4's scaled matrix instructions: in the assembly, and as numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.forms import FORMS

import qmlir
from qmlir import TensorSpec
from qmlir._mlir import context, ir
from qmlir.dialect.dtypes import DTYPES

INSTRUCTION = "v_mfma_scale_f32_16x16x128_f8f6f4"
MX = {f.name: f for f in FORMS if f.name.endswith("MX (32, e8m0)") and " f16 x" not in f.name}


def _choice(artifact: Any) -> str:
    return str(artifact.manifest["strategies"][0]["chosen"])


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
    (reason,) = (a["reason"] for a in artifact.manifest["strategies"][0]["answers"] if a["strategy"] == "scaled-mma")
    assert reason == "rocm:gfx1201 has no scaled matrix instruction"


@pytest.mark.parametrize("dtype", ["e4m3", "e2m1"])
def test_the_contraction_means_the_product(dtype: str) -> None:
    """What IREE is given for CDNA4, compiled for the CPU instead."""
    rng = np.random.default_rng(3)
    m, n, k = 16, 32, 256
    d = DTYPES[dtype]

    def codes(rows: int) -> Any:
        if dtype == "e2m1":
            return rng.integers(0, 16, (rows, k)).astype(np.int8)
        return (rng.standard_normal((rows, k)) * 4).astype(d.numpy)

    def scales(rows: int) -> Any:
        return (2.0 ** rng.integers(-6, 3, (rows, k // 32))).astype(DTYPES["e8m0"].numpy)

    lhs, rhs, lhs_scale, rhs_scale = codes(m), codes(n), scales(m), scales(n)
    more = {"lhs_dtype": "e2m1", "rhs_dtype": "e2m1"} if dtype == "e2m1" else {}
    kind = "i8" if dtype == "e2m1" else dtype
    artifact = qmlir.ops.scaled_matmul.compile(
        TensorSpec((m, k), kind), rhs, lhs_scale=TensorSpec(lhs_scale.shape, "e8m0"), rhs_scale=rhs_scale,
        rhs_transposed=True, target="rocm:gfx950", **more,
    )  # fmt: skip
    assert _choice(artifact) == "scaled-mma"
    with context():
        module = ir.Module.parse(artifact.source("configured"))
        del module.operation.attributes["hal.device.targets"]
        text = str(module)
    got = qmlir.load(qmlir.compile(text, start="configured", target="cpu")).main(lhs, lhs_scale)
    want = qmlir.reference.scaled_matmul(
        lhs, rhs, lhs_scale=lhs_scale, rhs_scale=rhs_scale, rhs_transposed=True, **more
    )
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3 * np.abs(want).max())
