"""Short codes are multiplied at the top of their byte, as `code << (8 - bits)`, if i32 sums of them cannot wrap. Tested
with the largest products, over the longest K for which this holds and over a longer one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernels.gpu_products import functions, interpreted
from ptx.program import interpret

import qmlir
from qmlir import TensorSpec
from qmlir.kernels.weights import fits_top_of_byte

LONGEST = (2**31 - 1) // (128 * 128)
CASES = [
    ("cuda:sm_80", 1, "i4", "gemv-int8"),
    pytest.param("cuda:sm_80", 16, "i2", "mma-sync-int8", marks=pytest.mark.slow),
    pytest.param("rocm:gfx942", 2, "i4", "cooperative", marks=pytest.mark.slow),
    pytest.param("vulkan:ada", 2, "i4", "cooperative", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    ("k", "group", "fits"), [(LONGEST, None, True), (LONGEST + 1, None, False), (1 << 20, LONGEST, True),
                             (1 << 20, LONGEST + 1, False)],
)  # fmt: skip
def test_the_longest_sum(k: int, group: int | None, fits: bool) -> None:
    kernel: Any = SimpleNamespace(k=k, group=group, rhs=SimpleNamespace(decode=None))
    assert fits_top_of_byte(kernel) == fits
    assert fits == ((group or k) * 128 * 128 < 2**31)


@pytest.mark.sweep(fast=2, slow=3)
@pytest.mark.parametrize(("target", "rows", "dtype", "strategy"), CASES)
@pytest.mark.parametrize("k", [LONGEST // 16 * 16, LONGEST + 1])
def test_longest_sums_of_short_codes(
    target: str, rows: int, dtype: str, strategy: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmlir.kernels.weights._LARGE", 1 << 30)  # the interpreter does not read dense resources
    bits = int(dtype[1:])
    w = np.full((8, k), -(1 << (bits - 1)), np.int8)
    w[-1] = -w[-1] - 1  # codes of the whole range, as fewer bits would hold them otherwise
    artifact = qmlir.ops.scaled_matmul.compile(
        TensorSpec((rows, k), "i8"), w, rhs_dtype=dtype, rhs_transposed=True,
        out_dtype="i32", target=target,
    )  # fmt: skip
    (decision,) = artifact.manifest.strategies
    assert decision["chosen"] == strategy
    assert functions(decision)[-1]["weight_bits"] == (bits if k <= LONGEST else 8)
    x = np.full((rows, k), -128, np.int8)
    got: Any
    if target.startswith("cuda"):
        got = interpret(artifact).main(x)
    else:
        got = interpreted(artifact, {"lhs": x}, (rows, 8), np.int32, rows)
    np.testing.assert_array_equal(got, np.tile(-128 * k * w[:, 0].astype(np.int64), (rows, 1)))
