"""Sweeps, and slices of the slow tier: each slow test is in one of N slices; after a time limit no test starts."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

HOOKS = Path(__file__).resolve().parents[1] / "support" / "slices.py"
TESTS = """
import time, pytest

@pytest.mark.parametrize("i", range(12))
@pytest.mark.slow
def test_slow(i):
    time.sleep({seconds})
    assert i != {wrong}

@pytest.mark.slow
@pytest.mark.long
def test_of_minutes():
    raise AssertionError("in no slice")

def test_fast():
    raise AssertionError("not slow")
"""


SWEEP = """
import pytest

pytestmark = pytest.mark.sweep(fast=3, slow=3)

@pytest.mark.parametrize("i", range(5))
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_of_many(target, i):
    pass

@pytest.mark.parametrize("i", [pytest.param(0, marks=pytest.mark.slow), 1, 2])
def test_one_is_slow_anyway(i):
    pass

def test_alone():
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(HOOKS.read_text())
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    slow: the slow tier\n    long: of minutes\n    sweep: a share\n    rare: left out\n"
    )
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text(TESTS.format(seconds=0, wrong=99))
    return tmp_path


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "pytest", "-rA", *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take longer than the tests
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def passed(output: str) -> list[str]:
    return [line.removeprefix("PASSED ") for line in output.splitlines() if line.startswith("PASSED ")]


def test_slices_hold_each_slow_test_once_in_an_order_of_their_own(folder: Path) -> None:
    slices = [passed(run(folder, "--slice", f"{100 + i}/3")) for i in range(3)]
    assert [len(names) for names in slices] == [12, 12, 12]
    assert sorted(name for names in slices for name in names) == sorted(
        f"test_{f}.py::test_slow[{i}]" for f in "abc" for i in range(12)
    )
    orders = []
    for names in slices:
        files = [name.partition("::")[0] for name in names]
        orders.append(tuple(dict.fromkeys(files)))
        assert sum(a != b for a, b in pairwise(files)) == 2  # the tests of a file are together
    assert len(set(orders)) > 1


@pytest.mark.slow
def test_nothing_starts_after_the_limit(folder: Path) -> None:
    (folder / "test_a.py").write_text(TESTS.format(seconds=0.3, wrong=99))
    output = run(folder, "test_a.py", "--slice", "5/1", "--slice-seconds", "1")
    assert 1 <= len(passed(output)) <= 4
    ran = len(passed(output))
    assert f"(--slice 5/1): {ran} ran, {12 - ran} did not: the time of the slice was over" in output
    assert "0 ran, 12 did not" in run(folder, "test_a.py", "--slice", "5/1", "--slice-seconds", "0")


def test_a_failure_fails_the_slice(folder: Path) -> None:
    (folder / "test_b.py").write_text(TESTS.format(seconds=0, wrong=3))
    output = run(
        folder, "-p", "xdist", "-n", "2", "--dist", "loadgroup", "--slice", "0/1", "--slice-seconds", "60", code=1
    )
    assert "1 failed, 35 passed" in output
    assert "(--slice 0/1): 36 ran\n" in output


@pytest.mark.parametrize("text", ["3", "1/0", "a/2", "-1/3"])
def test_what_is_no_slice_is_refused(text: str, folder: Path) -> None:
    run(folder, f"--slice={text}", code=4)


def test_two_marks_of_a_sweep_are_refused(folder: Path) -> None:
    marks = "@pytest.mark.sweep(slow=3)\n@pytest.mark.sweep(fast=3)\n"
    (folder / "test_a.py").write_text(SWEEP.replace("def test_alone", f"{marks}def test_alone"))
    done = subprocess.run([sys.executable, "-m", "pytest", "test_a.py"], cwd=folder, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_a.py::test_alone is marked as a sweep twice" in done.stderr


@pytest.mark.slow
def test_tiers_share_a_sweep(folder: Path) -> None:
    (folder / "test_sweep.py").write_text(SWEEP)
    fast = [name.partition("::")[2] for name in passed(run(folder, "test_sweep.py", "-m", "not slow"))]
    assert sorted(name.partition("[")[0] for name in fast) == [
        "test_alone", *["test_of_many"] * 4, "test_one_is_slow_anyway"
    ]  # fmt: skip
    assert "test_one_is_slow_anyway[0]" not in fast
    assert len(passed(run(folder, "test_sweep.py", "-m", "slow"))) == 8
    runs = [set(passed(run(folder, "test_sweep.py", "-m", "slow and not rare", "--sweep", str(i)))) for i in range(3)]
    assert sorted(len(names) for names in runs) == [2, 3, 3]
    assert len(set.union(*runs)) == 8
    assert len(passed(run(folder, "test_sweep.py"))) == 14
    assert len(passed(run(folder, "test_sweep.py", "--slice", "0/1"))) == 8
