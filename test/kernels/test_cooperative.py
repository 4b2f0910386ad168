"""Kernels on cooperative matrices run on a lavapipe that supports them, next to the system's (tools/lavapipe.sh)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernels import cooperative

ROOT = Path(__file__).resolve().parents[2]
QUICK = [
    "w4a8, group 64, zero points, 33 rows",
    "w4a16, group 32, 33 rows",
    "convolution of i8, 2 groups",
    "w8a8, zero points, 33 rows, K shared",
]


def _right(newer: Path, names: list[str]) -> None:
    command = [str(newer), sys.executable, cooperative.__file__, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [f["case"] for f in found] == names, done.stderr[-2000:]
    wrong = [f"{f['case']}: {f['wrong']}" for f in found if f["wrong"]]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_run_on_lavapipe(newer: Path) -> None:
    _right(newer, QUICK)


@pytest.mark.slow
@pytest.mark.sweep(slow=8)
@pytest.mark.parametrize("part", range(16))
def test_all_run_on_lavapipe(newer: Path, part: int) -> None:
    _right(newer, [name for name in cooperative.CASES if name not in QUICK][part::16])


@pytest.mark.slow
@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_without_signed_sums(newer: Path, tmp_path: Path) -> None:
    """The canary of qmlir-sign-matrix-sums, and the control for the tests above: they would find a wrong result. The
    cache is its own: that of the session may hold the right program."""
    code = (
        "import sys; sys.path.insert(0, 'test')\n"
        "from qmlir.passes.workarounds.iree_3_13.sign_matrix_sums import SignMatrixSumsPass\n"
        "SignMatrixSumsPass.run = lambda *_: None\n"
        "from kernels import cooperative\n"
        "cooperative.main(['w8a8, 33 rows'])"
    )
    done = subprocess.run([str(newer), sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          cwd=ROOT, timeout=600, env={**os.environ, "QMLIR_CACHE_DIR": str(tmp_path)})  # fmt: skip
    wrong = json.loads(done.stdout)["wrong"]
    assert "not equal" not in (wrong or "")
