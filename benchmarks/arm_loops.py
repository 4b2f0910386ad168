"""How close the inner loops of the Arm kernels come to the peak rate of their multiply instruction, by LLVM's model of
the core.

python benchmarks/arm_loops.py                         # every case, on the cores below
python benchmarks/arm_loops.py --mca llvm-mca-19 --core neoverse-v2 --loop

Each case is compiled, and its loop with the most `smmla`, `sdot` or `fmla` is analysed by llvm-mca. llvm-mca models how
many instructions a core issues per cycle and the latency of each, but neither caches nor branches. The share is the
rate of the multiply instructions in the loop, divided by their rate in a loop that contains nothing else. The loops
have not been run on any of these cores.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

# The core whose model llvm-mca uses -> the target that is compiled for.
CORES = {
    "neoverse-n1": "cpu:neoverse-n1", "neoverse-n2": "cpu:neoverse-n2", "neoverse-v1": "cpu:neoverse-v1",
    "neoverse-v2": "cpu:neoverse-v2", "apple-m1": "cpu:apple-m1",
}  # fmt: skip
MULTIPLIES = re.compile(r"^\s*(smmla|sdot|fmla)\s+v")
_ITERATIONS = 200


@dataclass(frozen=True)
class Case:
    """A product `[rows, 512] x [256, 512]`; `group` codes along K share a scale, or all of them if it is 0."""

    lhs: str
    rhs: str
    rows: int
    group: int = 0

    @property
    def name(self) -> str:
        group = f", groups of {self.group}" if self.group else ""
        return f"{self.lhs} x {self.rhs}{group}, {self.rows} row{'s' if self.rows > 1 else ''}"

    def assembly(self, target: str) -> str:
        import qmlir
        from qmlir.dialect.dtypes import DTYPES

        n, k = 256, 512
        kind = DTYPES[self.rhs]
        codes = np.arange(n * k).reshape(n, k) % 2**kind.bits - (2 ** (kind.bits - 1) if self.rhs[0] == "i" else 0)
        scale = np.full((n, k // self.group if self.group else 1), 0.5, np.float32)
        artifact = qmlir.ops.scaled_matmul.compile(
            qmlir.TensorSpec((self.rows, k), self.lhs), codes.astype(kind.numpy), rhs_transposed=True,
            rhs_dtype=self.rhs, rhs_scale=scale, target=target, out_dtype="f32",
        )  # fmt: skip
        return str(artifact.source("asm"))


CASES = (
    Case("i8", "i8", 96), Case("i8", "i8", 1), Case("i8", "i4", 96), Case("i8", "i4", 96, 128), Case("i8", "i4", 1),
    Case("f32", "i4", 96, 128), Case("f32", "i8", 96),
)  # fmt: skip


def loops(assembly: str) -> Iterator[list[str]]:
    """The instructions of each innermost loop: from a label to the branch back to it, with no label in between."""
    body: list[str] | None = None
    label = ""
    for line in assembly.splitlines():
        if found := re.match(r"^(\.?L\w+):", line):
            body, label = [], found[1]
        elif body is not None and line.startswith("\t") and not line.startswith("\t."):
            if re.match(rf"\s+b\.\w+\s+{re.escape(label)}\s*$|\s+cbn?z\s+\w+, {re.escape(label)}\s*$", line):
                yield [*body, line]
                body = None
            elif re.match(r"\s+(b|ret|bl|br)\b", line):
                body = None
            else:
                body.append(line)


def multiplications(lines: list[str]) -> int:
    """The number of multiply instructions."""
    return sum(bool(MULTIPLIES.match(line)) for line in lines)


def cycles(mca: str, core: str, lines: list[str]) -> float:
    """Cycles of one iteration of the loop, by llvm-mca."""
    # llvm-mca does not model branches; their labels are not in the text.
    text = "\n".join(line for line in lines if not re.match(r"\s+(b\.|cbn?z)", line))
    command = [mca, "-mtriple=aarch64", f"-mcpu={core}", "-mattr=+dotprod,+i8mm,+bf16", f"-iterations={_ITERATIONS}"]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    total = re.search(r"Total Cycles:\s+(\d+)", ran.stdout)
    assert total is not None
    return int(total[1]) / _ITERATIONS


def measured(mca: str, core: str, assembly: str) -> dict[str, Any] | None:
    """The rates of the loop with the most multiply instructions; None if no loop multiplies."""
    best = max(loops(assembly), key=multiplications)
    count = multiplications(best)
    if not count:
        return None
    name = next(found[1] for line in best if (found := MULTIPLIES.match(line)))
    kind = "4s" if name == "fmla" else "16b"
    alone = [f"\t{name}\tv{i}.4s, v30.{kind}, v31.{kind}" for i in range(24)]
    fastest = len(alone) / cycles(mca, core, alone)
    rate = count / cycles(mca, core, best)
    return {"instruction": name, "rate": rate, "most": fastest, "share": rate / fastest, "loop": best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mca", default="llvm-mca-19", help="LLVM's machine code analyser, 17 or newer")
    parser.add_argument("--core", action="append", choices=sorted(CORES))
    parser.add_argument("--loop", action="store_true", help="print the loops too")
    args = parser.parse_args()
    os.environ["QMLIR_CACHE_DIR"] = tempfile.mkdtemp(prefix="qmlir-arm-loops-")
    print("| core | product | instruction | a cycle | at most | share |\n|---|---|---|---|---|---|")
    for core in args.core or CORES:
        for case in CASES:
            found = measured(args.mca, core, case.assembly(CORES[core]))
            if found is None:
                print(f"| {core} | {case.name} | none | | | |")
                continue
            rates = f"{found['rate']:.2f} | {found['most']:.2f} | {100 * found['share']:.0f} %"
            print(f"| {core} | {case.name} | `{found['instruction']}` | {rates} |")
            if args.loop:
                print("\n".join(found["loop"]))


if __name__ == "__main__":
    main()
