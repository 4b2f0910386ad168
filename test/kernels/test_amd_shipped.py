"""The resources of AMD kernels stay within bounds: nothing spills, and main loops are mostly matrix instructions.

`python test/kernels/amd_shipped.py` prints all the figures.
"""

from __future__ import annotations

import pytest
from kernels.amd_shipped import CONVOLUTIONS, TARGETS, Row, configurations, measured

pytestmark = pytest.mark.sweep(fast=100, slow=80)

# The most vector registers (including accumulation registers), scalar registers and bytes of LDS.
MOST = {
    "rocm:gfx90a": (276, 48, 26112), "rocm:gfx942": (274, 48, 34816), "rocm:gfx950": (274, 48, 50688),
    "rocm:gfx1100": (242, 96, 13824), "rocm:gfx1151": (242, 96, 13824), "rocm:gfx1201": (224, 96, 13824),
}  # fmt: skip
# The most scalar registers of Stream-K kernels, which count their shares of K in them. Occupancy does not suffer: a
# SIMD has as many for each of the waves that it can run.
_SCALARS = 100
# Least share of the main loop's issue cycles that are matrix instructions, for many rows on gfx90a, gfx942 and gfx950.
SHARES = {
    "w8a8": (0.65, 0.75, 0.75), "w8a8, zero points": (0.72, 0.73, 0.82), "w4a8": (0.65, 0.68, 0.68),
    "w4a8, group 128": (0.41, 0.42, 0.41), "w4a8, group 128, zero points": (0.35, 0.36, 0.36),
    "w4a16, group 128": (0.39, 0.39, 0.44), "conv2d w8a8, 3x3": (0.69, 0.58, 0.59),
    "conv2d w8a8, 3x3, NCHW": (0.54, 0.42, 0.41), "conv2d w8a8, 3x3, 4 groups": (0.47, 0.41, 0.41),
    "conv2d w8a16, 3x3": (0.45, 0.39, 0.44), "e4m3, blocks 1x128 by 128x128": (0.14, 0.14, 0.0),
    "MXFP8": (0.09, 0.09, 0.12), "MXFP4": (0.06, 0.06, 0.06),
}  # fmt: skip


def of_many_rows(row: Row) -> bool:
    return (
        row["m"] == 2048
        or row.get("rows", "").startswith("more than")
        or bool(row["m"] and row["scheme"] in CONVOLUTIONS)
    )


def judged(rows: list[Row]) -> None:
    assert rows
    for row in rows:
        assert (row["scratch"], row["spilled"]) == (0, 0), row
        # The scales of scaled matrix instructions are bytes.
        assert row["bytes_one_by_one"] == 0 or row["strategy"] == "scaled-mma", row
        taken = (row["vgprs"], row["sgprs"], row["lds"])
        vector, scalar, lds = MOST[row["target"]]
        most = (vector, _SCALARS, lds) if "stream_k" in row else (vector, scalar, lds)
        assert all(a <= b for a, b in zip(taken, most, strict=True)), row
        if row["share"] is not None and of_many_rows(row) and row["scheme"] in SHARES:
            least = SHARES[row["scheme"]][TARGETS.index(row["target"])]
            assert row["share"] >= least, row


@pytest.mark.sweep(fast=300, slow=80)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("scheme", "m"), configurations(), ids=str)
def test_registers_scratch_and_share_of_matrix_instructions(target: str, scheme: str, m: int | None) -> None:
    judged(measured(scheme, m, target))


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "m"), [("w8a8", 2048), ("w8a8, zero points", None)], ids=str)
def test_the_inner_loop_of_mi300_is_matrix_instructions(scheme: str, m: int | None) -> None:
    rows = measured(scheme, m, "rocm:gfx942")
    judged(rows)
    assert [row for row in rows if of_many_rows(row) and row["share"] >= 0.6]
