"""The kernels have no register spills and no shared memory bank conflicts."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.configured import TARGETS as CONFIGURED_TARGETS, Configuration, shipped
from ptx.program import interpret
from ptx.shipped import SCHEMES, TARGETS, product, rows

from qmlir.targets import resolve


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize(
    ("dtype", "group"),
    [("i8", 0), ("i4", 64), *(pytest.param(*x, marks=pytest.mark.slow) for x in (("i4", 0), ("i2", 0)))],
)
@pytest.mark.parametrize("m", [pytest.param(4, marks=pytest.mark.slow), pytest.param(16, marks=pytest.mark.slow), 64])
def test_operands_meet_every_bank_once(m: int, dtype: str, group: int) -> None:
    made = interpret(product("cuda:sm_80", m, 128, 256, dtype, group))
    rng = np.random.default_rng(1)
    made.main(rng.integers(-128, 128, (m, 256), dtype=np.int8), np.full((m, 1), 0.5, np.float32))
    loads = {t: n for t, n in made.conflicts.items() if "ldmatrix" in t or "cp.async" in t}
    assert not loads, loads


@pytest.mark.sweep(slow=6)
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "group"), SCHEMES)
def test_nothing_spills(target: str, dtype: str, group: int) -> None:
    for row in rows(target, dtype, group):
        assert row["spills"] == 0, row
        assert row["registers"] <= 255


EVERY = [one for target in CONFIGURED_TARGETS for one in shipped(target)]
# The most registers per thread, by strategy, over all targets.
MOST = {
    "gemv-int8": 48, "mma-sync-int8": 228, "mma-sync-fp8": 254, "mma-sync-fp8-fast": 230, "mma-sync-weight-only": 163,
    "wgmma-int8": 226, "wgmma-fp8-fast": 255,
}  # fmt: skip
# In the fast tier: the widest tile; the narrowest, whose warps split K; the widest wgmma tile (Hopper); and one whose
# accumulators ptxas would spill to fit another block on a multiprocessor.
SOME = {
    "cuda:sm_80 mma-sync-int8 mma-sync-int8-tile:128x256x64x2x4x1x4 i8 i8 0",
    "cuda:sm_80 mma-sync-int8 mma-sync-int8-tile:16x32x512x1x1x4x3 i8 i8 0",
    "cuda:sm_90a wgmma-int8 wgmma-int8-tile:128x256x128x8x1x1x4 i8 i8 0",
    "cuda:sm_120 mma-sync-fp8-fast mma-sync-fp8-fast-tile:64x64x128x2x4x1x4 e4m3 e4m3 128",
}


@pytest.mark.sweep(fast=4, slow=134)
@pytest.mark.parametrize(
    "one", [pytest.param(c, id=c.key, marks=[] if c.key in SOME else [pytest.mark.slow]) for c in EVERY]
)
def test_every_configuration_fits_its_registers(one: Configuration) -> None:
    row = one.row()
    if "declined" in row:
        assert one.key not in SOME
        return
    assert row["spills"] == row["stack"] == 0
    assert row["registers"] <= MOST[one.strategy]
    assert row["shared"] <= resolve(one.target).capabilities.shared_memory


def test_some_configurations_are_there() -> None:
    assert {c.key for c in EVERY} >= SOME
    assert {c.strategy for c in EVERY} == set(MOST)
