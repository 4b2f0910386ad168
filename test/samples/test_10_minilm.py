"""samples/10_minilm: a real model, quantised by torch in five ways."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "10_minilm"
SCHEMES = ("int8-dynamic", "int8-weight", "int4-group", "pt2e-static", "pt2e-dynamic")


def run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SAMPLE.parents[1]), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, str(SAMPLE / "run.py"), *arguments], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.sweep(slow=2)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_agrees_with_torch(scheme: str) -> None:
    output = run("--scheme", scheme)
    assert any(line.startswith(scheme) for line in output.splitlines())
    assert "WRONG" not in output


@pytest.mark.slow
@pytest.mark.sweep(slow=2)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_quantised_linear_alone_is_exact(scheme: str) -> None:
    """Given the input that the program computed for it, each layer equals the numpy reference."""
    output = run("--scheme", scheme, "--layers")
    assert f"{scheme} " in output
    assert "exact alone" in output
    assert "WRONG" not in output


@pytest.mark.slow
def test_on_lavapipe(lavapipe: str) -> None:
    assert "WRONG" not in run("--scheme", "int8-dynamic", "--target", lavapipe, "--sentences", "40")
