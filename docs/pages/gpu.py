"""Writes benchmarks-gpu.md: the measurements of `benchmarks.gpu` on devices."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = """\
# GPU benchmarks

*This page is written by `python docs/generate.py` from `benchmarks/results/gpu-*.json`, which `DIR/run --json FILE`
writes on a machine with the device, in a folder that `python -m benchmarks.gpu build DIR` makes.*

First every kernel family is checked on the device against `qmlir.reference`, integers exactly, each program three
times. Then the works are measured. A call of qmlir, from Python, runs a program of many products on operands that
together are larger than the cache. The program returns the largest of the products' first rows. (On the H100 it
returned all 64 results, each of which costs a call some microseconds.) A peer runs the same number of torch calls,
timed by the device's events. `us` is the median time of one product, and `kernels` the part of it that the device
spends in kernels; `ratio` is qmlir's time divided by the peer's, measured in alternation.

Missed goals, and where the time goes (counted with NVIDIA's profiler):

* One to sixteen rows by 4-bit codes, 16-bit activations: a kernel takes 15 us, whereas memory would take 6. A
  scheduler has 3 warps, and started an instruction in every second clock when unpacking and scaling eight codes took
  15 instructions; now it takes 13. Even for one row the tensor core multiplies its tile of 16 rows.
* fp8 products with sums in f32, as the semantics require: each code is converted to f16 in registers for `mma.sync`,
  which reaches two thirds of the rate of `wgmma` on f16 in memory. Products with the sums of the fp8 instruction
  (`wgmma-fp8-fast`) were measured with tiles of 128 x 192: 1.26 to 1.40 of torch._scaled_mm's time. The present tiles
  of 128 x 128 took 133 us; those of 128 x 192 took 142 (4096 x 4096 x 4096, the kernel alone).
* On the H200's host, the overhead of a call in addition to its kernels is 300 to 580 us for a program of some 60
  products: its 130 arguments, the launches, and the start of the first kernel. That is two fifths of the time of w8a8
  with few rows, and nearly all of the time of experts' products for one token, which include a check of the ids.
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
