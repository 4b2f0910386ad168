"""What the documentation says of the kernels for AMD is what the compiler makes."""

from __future__ import annotations

import json

import pytest
from kernels.amd_shipped import RESULTS, TARGETS, configurations, measured

ROWS = json.loads(RESULTS.read_text())


def test_nothing_is_kept_in_scratch() -> None:
    assert {(r["target"], r["scheme"], r["m"]) for r in ROWS} == {(t, *c) for t in TARGETS for c in configurations()}
    for row in ROWS:
        assert (row["scratch"], row["spilled"], row["bytes_one_by_one"]) == (0, 0, 0), row


def test_the_inner_loop_of_mi300_is_matrix_instructions() -> None:
    rows = [r for r in ROWS if r["target"] == "rocm:gfx942" and r["scheme"].startswith("w8a8") and r["m"] == 2048]
    assert len(rows) == 2
    assert all(r["share"] >= 0.6 for r in rows), rows


@pytest.mark.parametrize(("target", "scheme", "m"), [("rocm:gfx942", "w8a8, zero points", 128)])
def test_a_row_is_what_is_compiled(target: str, scheme: str, m: int | None) -> None:
    (row,) = (r for r in ROWS if (r["target"], r["scheme"], r["m"]) == (target, scheme, m))
    assert measured(scheme, m, target) == row


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_row_is_what_is_compiled(target: str) -> None:
    for row in (r for r in ROWS if r["target"] == target):
        assert measured(row["scheme"], row["m"], target) == row
