"""A new operation in three files: `definition.py` defines it, `lowering.py` lowers it to linalg, and this file calls
it, compiles it for other targets and compares it with numpy.

    python samples/12_new_operation/run.py

In the project itself, the definition, the lowering and the numpy reference are files in dialect/ops, passes/core/lower
and dialect/reference (docs/adding-an-op.md).
"""

from __future__ import annotations

import sys
from pathlib import Path

import lowering  # noqa: F401  (registers the rule)
import numpy as np
from definition import RequantizeOp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from report import Report, target_option

import qmlir


def main() -> int:
    """The sample; returns the exit code."""
    target = target_option(__doc__)
    requantize = qmlir.ops.Operation(RequantizeOp)
    rng = np.random.default_rng(0)
    sums = rng.integers(-(2**20), 2**20, (33, 64), dtype=np.int32)
    scale = (rng.random(64) * 2**-12).astype(np.float32)
    expected = np.clip(np.round(sums.astype(np.float32) * scale), -128, 127).astype(np.int8)
    report = Report("A new operation", target)
    report.exact("requantize", "i32[33, 64]", lambda: requantize(sums, scale, target=target), expected)
    for other in ("cuda:sm_80", "rocm:gfx942", "vulkan:ada"):
        artifact = requantize.compile(qmlir.TensorSpec((None, 64), "i32"), scale, target=other)
        print(f"{other}: {len(artifact.vmfb):,} bytes")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
