"""Tunes products of ten shapes on this CPU, one after the other, and reports the speedup.

    python -m benchmarks.tuning FOLDER --budget 60 --database tuning.json

Weights are constants (random codes, baked in); activations are int8 with one scale per row. An interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from qmlir.compiler.tuning_database import BETTER
from qmlir.tuning import Database, tune

from .harness import environment

# M, N, K: layers of a decoder with one and with a few tokens, of a prompt, of an encoder; one ragged shape.
SHAPES = ((1, 1024, 1024), (1, 4096, 4096), (4, 2048, 2048), (16, 1024, 1024), (32, 4096, 1024), (64, 512, 512),
          (128, 768, 3072), (128, 1024, 1024), (512, 512, 512), (7, 333, 500))  # fmt: skip

TEXT = """\
util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<{n}x{k}xi8>
util.global private @s = #flow.parameter.named<"model"::"s"> : tensor<{n}x1xf32>
func.func @main(%x: tensor<{m}x{k}xi8>, %x_scale: tensor<{m}x1xf32>) -> tensor<{m}x{n}xf32> {{
  %w = util.global.load @w : tensor<{n}x{k}xi8>
  %s = util.global.load @s : tensor<{n}x1xf32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %x_scale, %s) {{
    rhs_transposed = true, operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
  }} : (tensor<{m}x{k}xi8>, tensor<{n}x{k}xi8>, tensor<{m}x1xf32>, tensor<{n}x1xf32>) -> tensor<{m}x{n}xf32>
  return %0 : tensor<{m}x{n}xf32>
}}
"""


def write(folder: Path, m: int, n: int, k: int) -> tuple[Path, Path]:
    """Writes the program of a shape and its weights. Returns both paths."""
    rng = np.random.default_rng(n * k)
    source, weights = folder / f"{m}x{n}x{k}.mlir", folder / f"{n}x{k}.safetensors"
    source.write_text(TEXT.format(m=m, n=n, k=k))
    arrays = {"w": rng.integers(-127, 128, (n, k), dtype=np.int8), "s": np.full((n, 1), 0.01, np.float32)}
    save_file(arrays, weights)
    return source, weights


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of programs and candidates")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for a shape")
    parser.add_argument("--target", default="cpu")
    numbers = range(len(SHAPES))
    parser.add_argument("--only", type=int, nargs="+", choices=numbers, metavar="I", help="numbers of shapes")
    parser.add_argument("--database", type=Path, default=Path("tuning.json"))
    parser.add_argument("--json", type=Path, help="figures")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    known = Database.read(args.database) if args.database.exists() else Database()
    rows = []
    for number, (m, n, k) in enumerate(SHAPES):
        if args.only and number not in args.only:
            continue
        source, weights = write(args.folder, m, n, k)
        found, report = tune(source, args.folder / source.stem, target=args.target, budget=args.budget,
                             parameters={"model": str(weights)})  # fmt: skip
        known = known.merged(found)
        known.write(args.database)
        best = min((r for r in report.rows), key=lambda r: r.ratio)
        gain = 1 / best.ratio if best.ratio <= BETTER else 1.0
        rows.append({"shape": [m, n, k], "gain": gain, "choice": dict(report.choice), "compiled": report.compiled,
                     "measured": len(report.rows), "seconds": best.seconds, "baseline": best.baseline})  # fmt: skip
        print(f"{m} x {n} x {k}: {gain:.3f} times as fast as untuned; {report}", flush=True)
    mean = math.exp(sum(math.log(r["gain"]) for r in rows) / len(rows))
    print(f"geometric mean of {len(rows)} shapes: {mean:.3f}")
    if args.json is not None:
        found = {"environment": environment(), "budget": args.budget, "geometric_mean": mean, "rows": rows}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
