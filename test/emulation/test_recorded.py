"""Programs that other tests compare with a peer on the CPU, run on other devices (support/recorded.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = Path(__file__).resolve().parents[1]
# A pooling of equal elements, and a cache whose lengths are reduced. Sums of all elements do not compile for lavapipe.
CHOSEN = [
    "frontends/test_onnx_operators.py::test_an_average_of_whole_windows",
    "frontends/test_onnx_decoders.py::test_grouped_queries[next-of-two-lengths]",
]
SUMS = ["frontends/test_short_sums.py::test_onnx[10-float16-0.0009765625]"]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "names"), [("cuda:sm_90a", [*CHOSEN, *SUMS]), ("vulkan:lavapipe", CHOSEN)])
def test_what_other_tests_call(target: str, names: list[str], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if target == "vulkan:lavapipe":
        request.getfixturevalue("lavapipe")
    environment = {
        **os.environ, "QMLIR_RECORD": str(tmp_path), "QMLIR_RECORD_TARGET": target,
        "PYTHONPATH": os.pathsep.join([str(TEST.parent), str(TEST)]),
    }  # fmt: skip
    chosen = [str(TEST / name) for name in names]
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "support.recorded", *chosen]
    recorded = subprocess.run(pytest_run, env=environment, capture_output=True, text=True, check=False, cwd=TEST.parent)
    assert recorded.returncode == 0, recorded.stdout[-2000:]
    command = [sys.executable, str(TEST / "support" / "recorded.py"), "run", str(tmp_path)]
    judged = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=TEST.parent)
    assert judged.returncode == 0, judged.stdout + judged.stderr[-2000:]
    assert f"{len(names)} right, 0 not" in judged.stdout
