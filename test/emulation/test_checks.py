"""The checks that `benchmarks.gpu` makes on a device, made on an emulated one."""

from __future__ import annotations

import numpy as np
import pytest

import qmlir
from benchmarks.gpu.checks import HOPPER, Check, checks

pytestmark = pytest.mark.sweep(slow=60)
EVERY = [
    (check, target) for check in checks() for target in (HOPPER, "cuda:sm_80") if target in (check.targets or (target,))
]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "target"), EVERY, ids=[f"{t}, {c.family}, {c.name}" for c, t in EVERY])
def test_check(check: Check, target: str) -> None:
    for m in check.rows:
        program = qmlir.load(check.compile(target, m), emulate=True)
        operands = check.operands(m)
        got = program.main(*(operands[name] for name, _ in program.main.signature.inputs))
        want = check.expected(m)
        largest = max(float(np.abs(want.astype(np.float64)).max(initial=0)), 1e-30)
        error = float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0)) / largest
        assert error <= check.tolerance, f"{m} rows"
