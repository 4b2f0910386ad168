"""Figures from the assembly of an AMD kernel: its resources, and where its inner loop spends its issue cycles.

Issue cycles are those of one wave on its SIMD, from AMD's "CDNA3 Instruction Set Architecture" guide:

* a matrix instruction occupies the matrix core for m * n * k / rate cycles, at `rate` multiply-adds per cycle and SIMD
  (section 7.1: passes of four cycles; MI300X's 2614.9 Top/s of int8 are 304 units * 4 SIMDs * 512 * 2.1 GHz);
* a vector instruction of 64 lanes takes the 16-lane SIMD four cycles, one on 64-bit floats eight;
* an LDS instruction moves 128 bytes per cycle, and takes at least the four cycles of an issue slot;
* every other instruction (memory, scalar, branch, wait, barrier) takes one issue slot.

Waiting is not counted: whether another wave hides it can only be measured on a device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Multiply-adds per cycle of one CDNA3 SIMD, by the operands' type as the instruction's name spells it.
_RATES = {"i8": 512, "fp8": 512, "bf8": 512, "f16": 256, "bf16": 256, "f32": 32, "f64": 32}
_MATRIX = re.compile(r"v_mfma_\w+?_(\d+)x(\d+)x(\d+)_?(i8|fp8|bf8|f16|bf16|f32|f64)")
_SLOT, _LANES, _LDS_BYTES = 4, 64, 128


@dataclass(frozen=True)
class KernelResources:
    """The resources of one kernel, from its metadata."""

    name: str
    vector_registers: int
    scalar_registers: int
    shared_bytes: int
    scratch_bytes: int
    spilled: int  # registers, vector and scalar


def resources(assembly: str) -> tuple[KernelResources, ...]:
    """The resources of each kernel of a file."""
    found = []
    for part in re.split(r"^  - ", assembly[assembly.find("amdhsa.kernels:") :], flags=re.M)[1:]:
        if ".vgpr_count:" not in part:
            continue

        def number(key: str, part: str = part) -> int:
            match = re.search(rf"\.{key}: +(\d+)", part)
            return int(match.group(1)) if match else 0

        name = re.search(r"^\s*\.name: +(\S+)", part, re.M)
        found.append(
            KernelResources(
                name=name.group(1) if name else "",
                vector_registers=number("vgpr_count"),
                scalar_registers=number("sgpr_count"),
                shared_bytes=number("group_segment_fixed_size"),
                scratch_bytes=number("private_segment_fixed_size"),
                spilled=number("vgpr_spill_count") + number("sgpr_spill_count"),
            )
        )
    return tuple(found)


def functions(assembly: str) -> dict[str, str]:
    """The code of each kernel of a file, by its name."""
    names = [r.name for r in resources(assembly)]
    parts = {name: assembly[assembly.index(f"\n{name}:") :] for name in names}
    return {name: part[: part.index(".Lfunc_end")] for name, part in parts.items()}


def loops(assembly: str) -> tuple[tuple[str, ...], ...]:
    """The instructions of each innermost loop, in order."""
    lines = assembly.splitlines()
    labels = {m.group(1): i for i, line in enumerate(lines) if (m := re.match(r"(\.L\w+):", line))}
    spans = []
    for i, line in enumerate(lines):
        jump = re.match(r"\s+s_c?branch\w*\s+(\.L\w+)", line)
        if jump and labels.get(jump.group(1), i) < i:
            spans.append((labels[jump.group(1)], i))
    inner = [s for s in spans if not any(s[0] <= t[0] and t[1] <= s[1] and t != s for t in spans)]
    return tuple(tuple(x for line in lines[a : b + 1] if (x := _instruction(line))) for a, b in inner)


def _instruction(line: str) -> str:
    match = re.match(r"\s+([a-z]\w+)", line)
    return match.group(1) if match else ""


def cycles(instruction: str) -> float:
    """Issue cycles of one instruction."""
    if matrix := _MATRIX.match(instruction):
        m, n, k = (int(x) for x in matrix.groups()[:3])
        return m * n * k / _RATES[matrix.group(4)]
    if instruction.startswith("ds_"):
        return max(float(_SLOT), _LANES * _ds_bytes(instruction) / _LDS_BYTES)
    if instruction.startswith("v_") and "f64" in instruction:
        return 2.0 * _SLOT
    return float(_SLOT)


def _ds_bytes(instruction: str) -> int:
    """Bytes that an LDS instruction moves per lane."""
    match = re.search(r"(read|write|load|store)(2?)(?:st64)?_[biu](\d+)", instruction)
    return (2 if match.group(2) else 1) * int(match.group(3)) // 8 if match else 4


def matrix_share(instructions: Sequence[str]) -> float:
    """The share of matrix instructions in a loop's issue cycles."""
    total = sum(map(cycles, instructions))
    return sum(cycles(x) for x in instructions if _MATRIX.match(x)) / total if total else 0.0


def main_loop(assembly: str) -> tuple[str, ...]:
    """The innermost loop with the most cycles of matrix instructions; () if no loop has any."""
    with_matrix = [loop for loop in loops(assembly) if matrix_share(loop) > 0]
    return max(with_matrix, key=lambda loop: matrix_share(loop) * sum(map(cycles, loop)), default=())
