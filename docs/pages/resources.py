"""amd-kernels.md and cuda-kernels.md: registers and shared memory of the kernels, as the tests have recorded them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TEST = Path(__file__).resolve().parents[2] / "test"
if str(_TEST) not in sys.path:
    sys.path.insert(0, str(_TEST))

from ptx.configured import shipped  # noqa: E402

_AMD = _TEST / "kernels" / "amd_resources.json"
_CUDA = _TEST / "ptx" / "configurations.json"

_AMD_HEAD = """\
# Kernels for AMD: resources

*This page is written by `python docs/generate.py` from `test/kernels/amd_resources.json`, which
`python test/kernels/amd_shipped.py` reads from the assembly of compiled programs. The tests compile a part of it again,
the slow tier all of it.*

Weights of {n} x {k} codes, constant; M is the number of rows ("any": known at run time only; a range of rows: so are
they, and this is the kernel that the host takes for so many). Static sizes of the convolution count images of
28 x 28 x 128, ranges their pixels; of the experts they count tokens. The strategy is the one that was chosen
([kernels](kernels.md)): `matrix` and `cooperative` are kernels of ours, `mma` are tiles of IREE's. The last column is
the part of the main loop's issue cycles that are matrix instructions, counted for CDNA's as
`qmlir/targets/rocm/isa.py` says. Nothing spills, and nothing is in scratch memory. No such GPU has run them.
"""


def amd_page() -> str:
    """The text of amd-kernels.md."""
    rows = json.loads(_AMD.read_text())
    parts = [_AMD_HEAD.format(n=2048, k=1024)]
    for target in dict.fromkeys(row["target"] for row in rows):
        head = "scheme", "M", "strategy", "workgroup", "VGPRs", "SGPRs", "LDS, bytes", "scratch", "matrix share"
        parts.append(f"\n## {target}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
        for row in (r for r in rows if r["target"] == target):
            cells = [
                row["scheme"], row["m"] or row.get("rows", "any"), row["strategy"],
                " x ".join(map(str, row["workgroup"])), row["vgprs"], row["sgprs"], row["lds"], row["scratch"],
                f"{row['share']:.0%}" if row["share"] else "",
            ]  # fmt: skip
            parts.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(parts) + "\n"


_CUDA_HEAD = """\
# Kernels for CUDA: resources

*This page is written by `python docs/generate.py` from `test/ptx/configurations.json`, which
`python test/ptx/configured.py` records.*

What ptxas says of the tiles that are shipped, as far as they have been recorded (the command goes on where it was
stopped), each compiled for a product of 96 rows (4 for `gemv`), 256 columns and
1024 codes along K, with bias, activation and a 16-bit result: registers of a thread, KiB of shared memory.
The slow tier of the tests compiles and assembles all of them again, and fails when one spills. Where a tile does not
fit a target, or its groups along K, the cell is empty.
"""


def cuda_page() -> str:
    """The text of cuda-kernels.md."""
    rows = [row for row in json.loads(_CUDA.read_text()) if "declined" not in row]
    targets = list(dict.fromkeys(row["target"] for row in rows))
    spills = sum(bool(row["spills"] or row["stack"]) for row in rows)
    most = max(row["registers"] for row in rows)
    told = (
        f"\n{len(rows)} kernels have been recorded so far ({_recorded(targets)}), {spills} of them with spills; "
        f"at most {most} registers. No such GPU has run them.\n"
    )
    return _CUDA_HEAD + told + "".join(_tables(rows, targets))


def _recorded(targets: list[str]) -> str:
    """How many of each target's configurations the record has, declined ones too."""
    keys = {row["key"] for row in json.loads(_CUDA.read_text())}
    each = ((t, [c.key for c in shipped(t)]) for t in targets)
    return ", ".join(f"{t}: {sum(k in keys for k in own)} of {len(own)}" for t, own in each)


def _tables(rows: list[dict[str, Any]], targets: list[str]) -> Iterator[str]:
    for strategy in dict.fromkeys(row["strategy"] for row in rows):
        mine = [row for row in rows if row["strategy"] == strategy]
        yield f"\n## {strategy}\n\n| tile (M, N, K, warps along them, stages) | product | threads | "
        yield " | ".join(t.removeprefix("cuda:") for t in targets) + " |\n"
        yield "|" + "---|" * (3 + len(targets)) + "\n"
        for choice, product in dict.fromkeys((row["choice"], row["product"]) for row in mine):
            found = {r["target"]: r for r in mine if (r["choice"], r["product"]) == (choice, product)}
            tile = choice.partition(":")[2].replace("x", " x ") or "-"
            threads = next(iter(found.values()))["threads"]
            cells = (f"{r['registers']}, {r['shared'] / 1024:.0f}" if (r := found.get(t)) else "" for t in targets)
            yield f"| {tile} | {product} | {threads} | {' | '.join(cells)} |\n"
