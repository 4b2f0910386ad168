"""samples/02 to 09, and 12: each agrees with the reference and says so in a table, and a wrong result is noticed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SAMPLES.parent)}
FUNCTIONS = {
    "02_composable_kernel_gemm": (
        "Activation_Mul_Clamp<PassThrough>", "Add_Activation_Mul_Clamp<Relu>", "Add_Activation_Mul2_Clamp<Relu>",
    ),
    "03_composable_kernel_conv": (
        "Activation_Mul_Clamp<PassThrough>", "Add_Activation_Mul2_Clamp<Relu>", "Add_Mul2_Activation_Mul_Clamp<TanH>",
    ),
    "04_executorch": (
        "linear_q4gsw", "linear_dq8ca_q4gsw", "q8ta_linear", "q8ta_conv2d",
    ),
    "05_bitblas": ("zeros_mode='original'", "zeros_mode='quantized'", "zeros_mode='rescale'", "int8 x int4"),
    "06_aiter": ("gemm_bias", "gemm_gelu", "cutlass_gemm", "int8_gemm", "grouped_gemm"),
    "07_moe": ("layer",),
    "09_checkpoint": ("Q4_0", "Q8_0", "MXFP4"),
    "12_new_operation": ("requantize",),
}  # fmt: skip
# One sample of each kind in the fast tier: test/compat and test/numerics test the functions that the others call.
QUICK = ("05_bitblas", "12_new_operation")


def run(sample: str, target: str, folder: Path) -> str:
    command = [sys.executable, str(SAMPLES / sample / "run.py"), "--target", target]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_sample_is_here() -> None:
    assert {p.parent.name for p in SAMPLES.glob("*/run.py")} - {"01_digits", "08_onnx", "10_minilm"} == set(FUNCTIONS)


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize("sample", [s if s in QUICK else pytest.param(s, marks=pytest.mark.slow) for s in FUNCTIONS])
def test_sample_runs(sample: str, tmp_path: Path) -> None:
    output = run(sample, "cpu", tmp_path)
    for name in FUNCTIONS[sample]:
        row = next(line for line in output.splitlines() if f" {name} " in line)
        assert "exact" in row or "of the bound" in row or "codes differ" in row
        assert " us " in row
    assert "WRONG" not in output


@pytest.mark.slow
@pytest.mark.parametrize("sample", FUNCTIONS)
def test_sample_runs_on_lavapipe(sample: str, lavapipe: str, tmp_path: Path) -> None:
    assert "WRONG" not in run(sample, lavapipe, tmp_path)


@pytest.fixture(scope="module")
def report() -> Any:
    spec = importlib.util.spec_from_file_location("samples_report", SAMPLES / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wrong_code_is_noticed(report: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table, codes = report.Report("title", "cpu"), np.arange(2000, dtype=np.int8)
    table.exact("same", "i8", lambda: codes, codes)
    assert table.finish() == 0
    other = codes.copy()
    other[7] += 1
    table.exact("one off", "i8", lambda: other, codes, codes=1)
    assert table.finish() == 0
    table.exact("not exact", "i8", lambda: other, codes)
    table.exact("another type", "i8", lambda: codes.astype(np.int32), codes)
    assert table.finish() == 1
    printed = capsys.readouterr()
    assert "WRONG" in printed.out
    assert printed.err.splitlines() == [
        "not exact differs from the reference",
        "another type differs from the reference",
    ]


def test_a_float_outside_its_bound_is_noticed(report: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ref = np.linspace(1, 2, 50)
    table = report.Report("title", "cpu")
    table.close("near", "f32", lambda: ref.astype(np.float32), ref, np.abs(ref))
    assert table.finish() == 0
    table.close("far", "f32", lambda: (ref + 1e-5).astype(np.float32), ref, np.abs(ref))
    table.close("nan", "f32", lambda: np.full(50, np.nan, np.float32), ref, np.abs(ref))
    assert table.finish() == 1
    assert "far differs" in capsys.readouterr().err
