"""Fusion barriers are only made by `qmlir.ir.barriers`, which requires a reason."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import qmlir
from qmlir.compiler import invocation
from qmlir.core.mlir import collect, context, ir
from qmlir.ir.barriers import FAULT_OF, PER_TARGET, Reason, drop_fusion_barriers
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
    """`FAULT_OF` or every file that gives the reason states the fault, which has a canary (`test_canaries.py`)."""
    given = rf"\bfusion_barrier(?:_behind)?\([^#]*?Reason\.{reason.name}\b"
    files = [text for name, text in SOURCES.items() if name != "qmlir/ir/barriers.py" and re.search(given, text)]
    assert reason in FAULT_OF or all(re.search(r"^FAULTS\b", text, re.M) for text in files)


def test_targets_name_the_reasons_that_they_have() -> None:
    named = {reason for target in all_targets() for reason in target.barriers}
    assert named == PER_TARGET


@pytest.mark.parametrize("reason", Reason)
def test_those_of_dispatches_can_be_dropped(reason: Reason) -> None:
    barrier = f'util.optimization_barrier {{qmlir.barrier_reason = "{reason.value}"}} %x : tensor<4xf32>'
    text = f"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{ %0 = {barrier}\n return %0 : tensor<4xf32> }}"
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        drop_fusion_barriers(module)
        left = len(collect(module, "util.optimization_barrier"))
    assert left == (reason in (Reason.LOOP_START, Reason.STATE))


def test_the_host_waits_behind_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At a barrier that is left when IREE divides a program into command buffers, the host waits for the device."""
    found = []

    def drop(module: ir.Module) -> None:
        before = len(collect(module, "util.optimization_barrier"))
        drop_fusion_barriers(module)
        found.append((before, len(collect(module, "util.optimization_barrier"))))

    monkeypatch.setattr(invocation, "drop_fusion_barriers", drop)
    source = tmp_path / "apart.mlir"
    source.write_text("""
        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          %0 = arith.addf %x, %x : tensor<4xf32>
          %1 = util.optimization_barrier {qmlir.barrier_reason = "patches"} %0 : tensor<4xf32>
          %2 = arith.mulf %1, %1 : tensor<4xf32>
          return %2 : tensor<4xf32>
        }""")
    program = qmlir.load(qmlir.compile(source, target="cpu", start="configured", cache=False))
    assert program.main(np.float32([1, 2, 3, 4])).tolist() == [4, 16, 36, 64]
    assert found == [(1, 0)]
