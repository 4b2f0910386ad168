"""What the documentation says of the kernels for AMD is what the compiler makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kernels.amd_shipped import RESULTS, TARGETS, configurations, measured

ROWS = json.loads(RESULTS.read_text())


def kept(target: str, scheme: str, m: int | None) -> list[dict[str, Any]]:
    """The rows of one configuration."""
    return [r for r in ROWS if (r["target"], r["scheme"], r["m"]) == (target, scheme, m)]


def test_nothing_is_kept_in_scratch() -> None:
    assert {(r["target"], r["scheme"], r["m"]) for r in ROWS} == {(t, *c) for t in TARGETS for c in configurations()}
    for row in ROWS:
        assert (row["scratch"], row["spilled"]) == (0, 0), row
        # Scales of the scaled instructions are bytes.
        assert row["bytes_one_by_one"] == 0 or row["strategy"] == "scaled-mma", row


def test_the_inner_loop_of_mi300_is_matrix_instructions() -> None:
    rows = [r for r in ROWS if r["target"] == "rocm:gfx942" and r["scheme"].startswith("w8a8") and r["m"] == 2048]
    assert len(rows) == 2
    assert all(r["share"] >= 0.6 for r in rows), rows


def test_many_rows_at_run_time_are_matrix_instructions_too() -> None:
    rows = [r for r in ROWS if r["target"] == "rocm:gfx942" and r["scheme"] in ("w8a8", "w8a8, zero points", "w4a8")]
    most = [r for r in rows if r.get("rows", "").startswith("more than")]
    assert len(most) == 3
    assert all(r["share"] >= 0.6 for r in most), most


@pytest.mark.parametrize(("target", "scheme", "m"), [("rocm:gfx942", "w8a8, zero points", 128)])
def test_a_row_is_what_is_compiled(target: str, scheme: str, m: int | None) -> None:
    assert measured(scheme, m, target) == kept(target, scheme, m)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_row_is_what_is_compiled(target: str) -> None:
    for scheme, m in configurations():
        assert measured(scheme, m, target) == kept(target, scheme, m)
