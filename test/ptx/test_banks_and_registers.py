"""What the kernels take of a multiprocessor: no spills, and no access to shared memory that waits for a bank."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.program import interpret
from ptx.shipped import SCHEMES, TARGETS, product, rows


@pytest.mark.parametrize(("dtype", "group"), [("i8", 0), ("i4", 0), ("i4", 64), ("i2", 0)])
@pytest.mark.parametrize("m", [4, 16, 64])
def test_operands_meet_every_bank_once(m: int, dtype: str, group: int) -> None:
    made = interpret(product("cuda:sm_80", m, 128, 256, dtype, group))
    rng = np.random.default_rng(1)
    made.main(rng.integers(-128, 128, (m, 256), dtype=np.int8), np.full((m, 1), 0.5, np.float32))
    loads = {t: n for t, n in made.conflicts.items() if "ldmatrix" in t or "cp.async" in t}
    assert not loads, loads


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "group"), SCHEMES)
def test_nothing_spills(target: str, dtype: str, group: int) -> None:
    for row in rows(target, dtype, group):
        assert row["spills"] == 0, row
        assert row["registers"] <= 255
