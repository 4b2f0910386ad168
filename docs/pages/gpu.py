"""What `benchmarks.gpu` measured on devices."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = """\
# GPU benchmarks

*This page is written by `python docs/generate.py` from `benchmarks/results/gpu-*.json`, which `DIR/run --json FILE`
writes on a machine with the device, in a folder that `python -m benchmarks.gpu build DIR` makes.*

First every kernel family is checked on the device against `qmlir.reference`, integers exactly, each program three
times. Then works are measured. A call of qmlir runs a program of many products on operands that together are larger
than the cache, from Python, and returns when the largest of their first rows is there (the H100's returned all 64
results, each of which costs a call some microseconds); a peer runs as many calls of torch, timed by the
device's events. `us` is the median time of one product, and `kernels` what the device spends of it in kernels; `ratio`
is qmlir's time over the peer's, measured in alternation.

Missed goals, and where the time goes (counted with NVIDIA's profiler):

* One to sixteen rows by codes of four bits, 16-bit activations: a kernel takes 15 us where memory would take 6. A
  scheduler has 3 warps, and started an instruction in every second clock while 15 of them took eight codes apart and
  scaled them; 13 do now. The tensor core's tile of 16 rows is multiplied for one row too.
* Products of fp8 with sums in f32, as the semantics say: each code is converted to f16 in registers for `mma.sync`,
  which reaches two thirds of what `wgmma` does with f16 that is in memory. Sums as the instruction keeps them
  (`wgmma-fp8-fast`) were measured with tiles of 128 x 192: 1.26 to 1.40 of torch._scaled_mm's time. Those of 128 x 128,
  which are there now, took 133 us where they took 142 (4096 x 4096 x 4096, the kernel alone).
* What a call takes beside its kernels is 300 to 580 us on the H200's host where a program has some 60 products: its
  130 arguments, the launches, and the first kernel's start. Of w8a8 of few rows it is two fifths; of experts' products
  for one token, which come with a check of the ids, nearly all of it.
* The first convolution of ResNet-50 reads its three channels code by code.
"""


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """The text of benchmarks-gpu.md."""
    return _HEAD + "".join(_machine(found) for found in results)


def _machine(found: Mapping[str, Any]) -> str:
    has = found["environment"]
    versions = f"torch {has.get('torch')}, IREE {has.get('iree-base-runtime')}"
    text = f"\n## {has['gpu']}\n\n{versions}, `{found['target']}`.\n"
    by_target: dict[str, list[str]] = {}
    for check in found["checks"]:
        by_target.setdefault(check["target"], []).append(check["result"])
    for target, kinds in by_target.items():
        counted = ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds))
        text += f"\nChecks of `{target}`: {counted}.\n"
    rows = [row for row in found["works"] if "us" in row]
    for kind in dict.fromkeys(row["row"] for row in rows):
        text += f"\n### {kind}\n\n| work | us | kernels | T/s | GB/s | peer | us | ratio | goal |\n{'|---' * 9}|\n"
        mine = [row for row in rows if row["row"] == kind]
        for row in mine:
            text += "".join(_lines(row))
        for peer in dict.fromkeys(peer for row in mine for peer in row["ratios"]):
            mean = statistics.geometric_mean([row["ratios"][peer] for row in mine if peer in row["ratios"]])
            text += f"\nGeometric mean against {peer}: {mean:.2f}.\n"
    return text


def _lines(row: Mapping[str, Any]) -> list[str]:
    us, goals = row["us"]["ours"], dict(row["goals"])
    kernels = f"{row['kernels']:.1f}" if "kernels" in row else ""
    first = f"| {row['name']} | {us:.1f} | {kernels} | {row['ops_per_s'] / 1e12:.0f} | {row['bytes_per_s'] / 1e9:.0f} |"
    lines = []
    for peer, ratio in row["ratios"].items():
        goal = f"{goals[peer]:.2f}{'' if ratio <= goals[peer] else ', missed'}" if peer in goals else ""
        lines.append(f"{first} {peer} | {row['us'][peer]:.1f} | {ratio:.2f} | {goal} |\n")
        first = "| | | | | |"
    return lines
