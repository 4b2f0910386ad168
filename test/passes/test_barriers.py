"""One way to make a fusion barrier: `qmlir.ir.barriers`, which asks for a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qmlir.ir.barriers import PER_TARGET, Reason
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
    given = rf"\bfusion_barrier\([^#]*?Reason\.{reason.name}\b"
    assert any(re.search(given, text) for name, text in SOURCES.items() if name != "qmlir/ir/barriers.py")


def test_targets_name_the_reasons_that_they_have() -> None:
    named = {reason for target in all_targets() for reason in target.barriers}
    assert named == PER_TARGET
