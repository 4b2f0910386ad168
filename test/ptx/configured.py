"""Assemble every shipped configuration of the CUDA kernels for every CUDA target, and print what ptxas reports.

python test/ptx/configured.py [--target cuda:sm_80]     # one JSON object per kernel; exit status 1 if one spills
python test/ptx/configured.py --against before.json     # only lines that differ from an earlier output

Each tile of a strategy is requested by its choice (`qmlir.targets.cuda.kernels.configurations`), for a product that it
fits and, for most strategies, for one with groups along K, whose sums take additional registers.
`test_banks_and_registers.py` has the bounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:  # as a script
    sys.path.insert(0, str(HERE.parent))

from ptx.assemble import assemble  # noqa: E402

import qmlir  # noqa: E402
from qmlir import TensorSpec  # noqa: E402
from qmlir.dialect.dtypes import DTYPES  # noqa: E402
from qmlir.targets import resolve  # noqa: E402
from qmlir.targets.cuda.kernels import configurations  # noqa: E402

TARGETS = ("cuda:sm_80", "cuda:sm_86", "cuda:sm_89", "cuda:sm_90a", "cuda:sm_120")
# Weight-only products have scales of the type of their activation, as in checkpoints.
SCALES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
# By strategy, the products to compile: the activation's type, the weight's, and the group size (0: no groups).
PRODUCTS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "gemv-int8": (("i8", "i8", 0), ("i8", "i4", 128)),
    "mma-sync-int8": (("i8", "i8", 0), ("i8", "i4", 0), ("i8", "i4", 128), ("i8", "i2", 64)),
    "wgmma-int8": (("i8", "i8", 0),),
    "mma-sync-fp8": (("e4m3", "e4m3", 0), ("e4m3", "e4m3", 128)),
    "mma-sync-fp8-fast": (("e4m3", "e4m3", 0), ("e4m3", "e4m3", 128)),
    "wgmma-fp8-fast": (("e4m3", "e4m3", 0), ("e4m3", "e4m3", 128), ("e5m2", "e4m3", 64)),
    "mma-sync-weight-only": (("f16", "i4", 128), ("bf16", "i8", 0)),
}


@dataclass(frozen=True)
class Configuration:
    """A choice of a strategy on a target, and the product to compile with it."""

    target: str
    strategy: str
    choice: str
    lhs: str
    rhs: str
    group: int

    @property
    def key(self) -> str:
        return " ".join((self.target, self.strategy, self.choice or "-", self.lhs, self.rhs, str(self.group)))

    def artifact(self, n: int = 256, k: int = 1024) -> Any:
        """Compile one product by a constant weight `[N, K]`, with bias, activation and a 16-bit result."""
        m = 4 if self.strategy.startswith("gemv") else 96
        d = DTYPES[self.rhs]
        rng = np.random.default_rng(0)
        weight = rng.standard_normal((n, k)).astype(d.numpy) if d.kind == "float" else rng.integers(
            d.lo, d.hi + 1, (n, k)).astype(np.int8)  # fmt: skip
        knob, _, tile = self.choice.partition(":")
        scale = {} if self.lhs in ("f16", "bf16") else {"lhs_scale": TensorSpec((m, 1), "f32")}
        return qmlir.ops.scaled_matmul.compile(
            TensorSpec((m, k), self.lhs), weight, rhs_transposed=True,
            **({"rhs_dtype": self.rhs} if d.bits < 8 else {}), **scale,
            rhs_scale=np.full((n, k // self.group if self.group else 1), 0.01, SCALES.get(self.lhs, np.float32)),
            bias=np.zeros(n, np.float32), activation="relu", out_dtype=self.lhs if not scale else "f16",
            target=self.target, choice={"strategy": self.strategy, **({knob: tile} if tile else {})},
        )  # fmt: skip

    def row(self) -> dict[str, Any]:
        """Return what ptxas reports, or why the strategy declines the product with this choice."""
        artifact = self.artifact()
        decision = artifact.manifest.strategies[0]
        product = f"{self.lhs} x {self.rhs}" + (f", groups of {self.group}" if self.group else "")
        row: dict[str, Any] = {"key": self.key, "target": self.target, "strategy": self.strategy,
                               "choice": self.choice, "product": product}  # fmt: skip
        if decision["chosen"] != self.strategy:
            reason = next(a["reason"] for a in decision["answers"] if a["strategy"] == self.strategy)
            return {**row, "declined": reason}
        plan = next(a["plan"] for a in decision["answers"] if a["strategy"] == self.strategy)
        (usage,) = assemble(artifact.source("ptx"))
        return {**row, "threads": plan["threads"], "registers": usage.registers,
                "shared": max(usage.shared, plan["shared_bytes"]), "spills": usage.spill_stores + usage.spill_loads,
                "stack": usage.stack}  # fmt: skip


def shipped(target: str) -> Iterator[Configuration]:
    """Every configuration of a target."""
    for strategy, choice in configurations(resolve(target)):
        for lhs, rhs, group in PRODUCTS[strategy]:
            yield Configuration(target, strategy, choice, lhs, rhs, group)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: all")
    parser.add_argument("--against", type=Path, metavar="FILE", help="print what FILE lacks; exit 1 if anything")
    args = parser.parse_args()
    known = set(args.against.read_text().splitlines()) if args.against else set()
    wrong = 0
    for target in args.target or TARGETS:
        for one in shipped(target):
            row = one.row()
            if (line := json.dumps(row)) not in known:
                wrong += bool(known)
                print(line, flush=True)
            wrong += bool(row.get("spills"))
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
