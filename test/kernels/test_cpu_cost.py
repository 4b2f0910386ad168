"""What compiling a large weight costs: memory, and the size of the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# A process of its own: peak memory is the process's. 4096 x 11008 weights are 43 MiB as int8.
COMPILE = """
import json, resource, sys, time
import numpy as np
import qmlir
T = qmlir.TensorSpec
code = sys.argv[1]
rng = np.random.default_rng(0)
low, high = (-128, 128) if code == "i8" else (-8, 8)
w = rng.integers(low, high, (11008, 4096)).astype(np.int8)
start = time.process_time()
artifact = qmlir.ops.scaled_matmul.compile(
    T((None, 4096), "i8"), w, rhs_transposed=True, rhs_dtype=code, out_dtype="i32"
)
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([seconds, peak, len(artifact.vmfb), artifact.manifest["strategies"][0]["chosen"]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("code", "weights"), [("i8", 4096 * 11008), ("i4", 4096 * 11008 // 2)])
def test_memory_and_size_of_a_large_weight(code: str, weights: int, tmp_path: Path) -> None:
    environment = {**os.environ, "QMLIR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    _, peak, size, chosen = json.loads(done.stdout.splitlines()[-1])
    assert chosen in ("avx512-vnni", "avx-vnni", "stock")
    assert peak < 2 << 30
    assert size < 1.05 * weights
