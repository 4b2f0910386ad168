"""What the kernels take of a multiprocessor: no spills, and no access to shared memory that waits for a bank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx.assemble import assemble
from ptx.program import interpret

import qmlir
from qmlir import TensorSpec

TARGETS = ("cuda:sm_80", "cuda:sm_86", "cuda:sm_89", "cuda:sm_90a", "cuda:sm_120")


def product(target: str, m: int | None, n: int, k: int, dtype: str, group: int) -> Any:
    """A program of one product by constant codes `[N, K]`, requantised."""
    rng = np.random.default_rng(0)
    low, high = {"i8": (-128, 128), "i4": (-8, 8), "i2": (-2, 2)}[dtype]
    return qmlir.ops.scaled_matmul.compile(
        TensorSpec((m, k), "i8"), rng.integers(low, high, (n, k), dtype=np.int8), rhs_transposed=True, rhs_dtype=dtype,
        lhs_scale=TensorSpec((m, 1), "f32"), rhs_scale=np.full((n, k // group if group else 1), 0.01, np.float32),
        bias=np.zeros(n, np.float32), activation="relu", out_dtype="f16", target=target,
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "group"), [("i8", 0), ("i4", 0), ("i4", 64), ("i2", 0)])
@pytest.mark.parametrize("m", [4, 16, 64])
def test_operands_meet_every_bank_once(m: int, dtype: str, group: int) -> None:
    made = interpret(product("cuda:sm_80", m, 128, 256, dtype, group))
    rng = np.random.default_rng(1)
    made.main(rng.integers(-128, 128, (m, 256), dtype=np.int8), np.full((m, 1), 0.5, np.float32))
    loads = {t: n for t, n in made.conflicts.items() if "ldmatrix" in t or "cp.async" in t}
    assert not loads, loads


# The products that choose each of the tiles: a few rows, some, many; narrow and wide.
SIZES = [(1, 4096, 4096), (16, 4096, 4096), (33, 256, 1024), (64, 1024, 4096), (256, 4096, 4096), (4096, 4096, 4096)]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "group"), [("i8", 0), ("i4", 0), ("i4", 128), ("i2", 64)])
def test_nothing_spills(target: str, dtype: str, group: int) -> None:
    for m, n, k in [*SIZES, (None, 4096, 4096)]:
        # The weight's values matter to nothing here, its size does: smaller ones choose the same tiles on fewer units.
        artifact = product(target, m, n // 4, k // 4, dtype, group)
        for usage in assemble(artifact.source("ptx")):
            assert usage.spill_stores == usage.spill_loads == 0, (m, n, k, usage)
            assert usage.registers <= 255
