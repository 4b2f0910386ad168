"""Assemble the kernels of products over a range of sizes for every CUDA target, and print what ptxas reports.

python test/ptx/shipped.py          # one JSON object per kernel; exit status 1 if one spills
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:  # as a script
    sys.path.insert(0, str(HERE.parent))

from ptx.assemble import assemble  # noqa: E402

import qmlir  # noqa: E402
from qmlir import TensorSpec  # noqa: E402

TARGETS = ("cuda:sm_80", "cuda:sm_86", "cuda:sm_89", "cuda:sm_90a", "cuda:sm_120")
SCHEMES = (("i8", 0), ("i4", 0), ("i4", 128), ("i2", 64))
# M, N, K: products that choose different tiles. The weights' values do not matter here, but their size takes time.
SIZES = (
    (1, 1024, 1024), (16, 1024, 1024), (33, 64, 256), (64, 256, 1024), (256, 1024, 1024), (2048, 2048, 1024),
    (None, 1024, 1024),
)  # fmt: skip


def product(target: str, m: int | None, n: int, k: int, dtype: str, group: int) -> Any:
    """Compile one product by a constant weight `[N, K]`, with bias, activation and an f16 result."""
    rng = np.random.default_rng(0)
    low, high = {"i8": (-128, 128), "i4": (-8, 8), "i2": (-2, 2)}[dtype]
    return qmlir.ops.scaled_matmul.compile(
        TensorSpec((m, k), "i8"), rng.integers(low, high, (n, k), dtype=np.int8), rhs_transposed=True, rhs_dtype=dtype,
        lhs_scale=TensorSpec((m, 1), "f32"), rhs_scale=np.full((n, k // group if group else 1), 0.01, np.float32),
        bias=np.zeros(n, np.float32), activation="relu", out_dtype="f16", target=target,
    )  # fmt: skip


def rows(target: str, dtype: str, group: int) -> list[dict[str, Any]]:
    """One row for each kernel of the products of a scheme."""
    found = []
    for m, n, k in SIZES:
        artifact = product(target, m, n, k, dtype, group)
        decision = artifact.manifest.strategies[0]
        plan = next(a["plan"] for a in decision["answers"] if a["strategy"] == decision["chosen"])
        for usage in assemble(artifact.source("ptx")):
            found.append({
                "target": target, "weight": f"{dtype}, groups of {group}" if group else dtype,
                "product": f"{'?' if m is None else m} x {n} x {k}", "strategy": decision["chosen"],
                "tile": plan.get("tile"), "stages": plan.get("stages"), "threads": plan.get("threads"),
                "shared": usage.shared + plan.get("shared_bytes", 0), "registers": usage.registers,
                "spills": usage.spill_stores + usage.spill_loads,
            })  # fmt: skip
    return found


def main() -> int:
    found = [row for target in TARGETS for dtype, group in SCHEMES for row in rows(target, dtype, group)]
    for row in found:
        print(json.dumps(row))
    return 1 if any(row["spills"] for row in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
