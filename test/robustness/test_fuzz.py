"""Mutated inputs of every surface (`surfaces.py`), in separate processes: none ends the process or gives an internal
error. The fast tier tries a few hundred, the slow tier more than 50,000, different ones for each commit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")
# Inputs of the slow tier, by surface: 64,000 in all.
COUNTS = {"mlir": 6000, "vmfb": 5000, "manifest": 9000, "database": 10000, "candidates": 6000, "cache": 6000,
          "arguments": 6000, "calls": 4000, "checkpoint": 6000, "onnx": 6000}  # fmt: skip


def fuzz(folder: Path, count: int, seed: int, *surfaces: str) -> dict[str, dict[str, float]]:
    command = [
        sys.executable,
        str(FUZZ),
        *surfaces,
        "--count",
        str(count),
        "--seed",
        str(seed),
        "--folder",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    step = (folder / "step").read_text() if (folder / "step").exists() else "the start"
    assert done.returncode == 0, f"exit code {done.returncode} at {step}: {done.stderr[-3000:]}"
    told: dict[str, dict[str, float]] = json.loads(done.stdout)
    return told


def test_a_few_inputs_of_every_surface(tmp_path: Path) -> None:
    told = fuzz(tmp_path, 250, 0)
    assert set(told) == set(COUNTS), "a surface that the slow tier does not know"
    for name, found in told.items():
        if name not in ("cache", "arguments"):  # these check their errors themselves
            assert found["refused"] > 0, f"{name}: nothing was refused: the mutations are too mild"


def test_the_slow_tier_is_large_enough() -> None:
    assert sum(COUNTS.values()) >= 50_000


@pytest.mark.sweep(slow=26)
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("surface", COUNTS)
def test_many_inputs(surface: str, rotation: int, tmp_path: Path) -> None:
    told = fuzz(tmp_path, COUNTS[surface], rotation, surface)
    assert told[surface]["inputs"] == COUNTS[surface]


def test_a_finding_is_told(tmp_path: Path) -> None:
    """The control: a surface that fails ends the run, which prints the seed."""
    script = (
        f"import sys; sys.argv = ['fuzz', 'database', '--count', '5', '--folder', {str(tmp_path)!r}]\n"
        f"sys.path.insert(0, {str(FUZZ.parent)!r})\n"
        "import fuzz\n"
        "def opened(folder):\n    def feed(r):\n        raise KeyError('x')\n    return feed\n"
        "fuzz.SURFACES['database'] = (opened, 1.0)\n"
        "raise SystemExit(fuzz.main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "database: finding at --seed 0, input 0" in done.stderr
