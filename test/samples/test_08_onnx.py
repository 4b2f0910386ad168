"""samples/08_onnx: the same predictions as onnxruntime on every image, in both formats of its quantiser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "08_onnx"


@pytest.mark.slow
def test_sample_runs(target: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SAMPLE.parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(SAMPLE / "run.py"), "--target", target], env=environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("same prediction as onnxruntime on 1797 of 1797 digits") == 3
    assert done.stdout.count(" 0 left") == 3
