"""One way to make a fusion barrier: `qmlir.ir.barriers`, which asks for a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qmlir.ir.barriers import FAULT_OF, PER_TARGET, Reason
from qmlir.targets import all_targets

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for folder in ("qmlir", "dialect", "passes")
    for path in (ROOT / folder).rglob("*.py")
}
OTHER_WAYS = r"OptimizationBarrierOp|do_not_fuse|create\(\s*\"util\.optimization_barrier\""


def test_nothing_else_makes_one() -> None:
    assert [name for name, text in SOURCES.items() if re.search(OTHER_WAYS, text)] == ["qmlir/ir/barriers.py"]


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_given(reason: Reason) -> None:
    given = rf"\bfusion_barrier(?:_behind)?\([^#]*?Reason\.{reason.name}\b"
    assert any(re.search(given, text) for name, text in SOURCES.items() if name != "qmlir/ir/barriers.py")


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_a_fault(reason: Reason) -> None:
    """Here, or every file that gives the reason states the fault; each fault has its canary (`test_canaries.py`)."""
    given = rf"\bfusion_barrier(?:_behind)?\([^#]*?Reason\.{reason.name}\b"
    files = [text for name, text in SOURCES.items() if name != "qmlir/ir/barriers.py" and re.search(given, text)]
    assert reason in FAULT_OF or all(re.search(r"^FAULTS\b", text, re.M) for text in files)


def test_targets_name_the_reasons_that_they_have() -> None:
    named = {reason for target in all_targets() for reason in target.barriers}
    assert named == PER_TARGET
