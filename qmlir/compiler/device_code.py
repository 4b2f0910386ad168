"""Reads the device code that IREE dumps (`--iree-hal-dump-executable-files-to`): its kernels, and the multiplying
instructions of each.

The names of instructions are those of the instruction sets: PTX ISA, AMD's RDNA and CDNA ISA guides, the SPIR-V
specification.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The opcodes that a listing of SPIR-V shows by name (SPIR-V registry).
OPCODES = {
    4450: "OpSDot", 4451: "OpUDot", 4452: "OpSUDot", 4453: "OpSDotAccSat", 4454: "OpUDotAccSat", 4455: "OpSUDotAccSat",
    4456: "OpTypeCooperativeMatrixKHR", 4457: "OpCooperativeMatrixLoadKHR", 4458: "OpCooperativeMatrixStoreKHR",
    4459: "OpCooperativeMatrixMulAddKHR",
}  # fmt: skip
ASSEMBLY = (".s", ".rocmasm", ".ptx")

# The kinds of multiplying instructions, best first: matrix instructions, dot products of bytes, vector or scalar
# multiply-adds.
_KINDS = {
    "matrix": r"(?:wgmma\.mma_async|mma\.sync|wmma\.mma)\.[\w.:]+|v_(?:mfma|wmma|smfmac|swmmac)_\w+"
    r"|OpCooperativeMatrixMulAddKHR.*|tdpb\w+",
    "dot": r"dp4a\.[\w.]+|v_dot\d\w+|Op\w*Dot\w*|v?pdpbus\w+|v?pdpwss\w+|smmla|sdot|usdot",
    "f32 multiply-add": r"fma\.rn\.f32|v_(?:dual_)?(?:pk_)?(?:fma|mad|fmac|mac)\w*_f32\w*|OpExtInst Fma f32|OpFMul f32",
    "integer multiply-add": r"mad\.lo\.s(?:16|32)|mul\.(?:lo|wide)\.[su]\d+|v_(?:pk_)?(?:mad|mul)\w*_[iu]\d+\w*"
    r"|OpIMul",
}


@dataclass(frozen=True)
class DeviceKernel:
    """One kernel. `kind` is a key of `_KINDS`, "" if nothing multiplies; `instruction` is its most frequent one."""

    name: str
    kind: str
    instruction: str


def spirv_instructions(data: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The opcode and operand words of each instruction of a SPIR-V module."""
    words = struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])
    at = 5
    while at < len(words):
        count, opcode = max(words[at] >> 16, 1), words[at] & 0xFFFF
        yield opcode, words[at + 1 : at + count]
        at += count


def spirv_multiplies(data: bytes) -> Counter[str]:
    """The number of occurrences of each multiplying instruction; cooperative matrices by shape and element type."""
    found: Counter[str] = Counter()
    types: dict[int, str] = {}
    constants: dict[int, int] = {}
    values: dict[int, int] = {}  # id of a value -> id of its type
    shapes: dict[int, tuple[int, int]] = {}
    for opcode, words in spirv_instructions(data):
        if opcode in (21, 22):  # OpTypeInt, OpTypeFloat
            types[words[0]] = f"{'i' if opcode == 21 else 'f'}{words[1]}"
        elif opcode == 43:  # OpConstant
            constants[words[1]] = words[2]
        elif opcode == 23:  # OpTypeVector
            types[words[0]] = types.get(words[1], "?")
        elif opcode == 4456:
            types[words[0]] = types.get(words[1], "?")
            shapes[words[0]] = (constants.get(words[3], 0), constants.get(words[4], 0))
        elif opcode == 4459:
            (m, n), left = shapes[words[0]], values.get(words[2], 0)
            k = shapes.get(left, (0, 0))[1]
            found[f"OpCooperativeMatrixMulAddKHR {m}x{n}x{k} {types.get(left, '?')}"] += 1
        elif opcode in OPCODES:
            found[OPCODES[opcode]] += 1
        elif opcode == 132:
            found["OpIMul"] += 1
        elif opcode == 133:
            found[f"OpFMul {types.get(words[0], '?')}"] += 1
        elif opcode == 12 and words[3] == 50 and types.get(words[0], "") == "f32":  # OpExtInst of GLSL.std.450: Fma
            found["OpExtInst Fma f32"] += 1
        if opcode > 50 and len(words) > 1:
            values.setdefault(words[1], words[0])
    return found


def _kernel(name: str, counts: Counter[str]) -> DeviceKernel:
    for kind, pattern in _KINDS.items():
        fitting = {text: count for text, count in counts.items() if re.fullmatch(pattern, text)}
        if fitting:
            return DeviceKernel(name, kind, max(fitting, key=lambda text: (fitting[text], text)))
    return DeviceKernel(name, "", "")


_MNEMONIC = re.compile(r"^\s*(?:@%?\w+\s+)?([a-z][\w.]+(?:::[\w.]+)*)", re.M)


def assembly_parts(text: str) -> Iterator[tuple[str, str]]:
    """Name and text of each kernel. PTX names kernels by `.entry`, assemblers by a label of type @function."""
    starts = [(m.start(), m.group(1)) for m in re.finditer(r"^\.visible \.entry (\w+)\(", text, re.M)]
    starts += [(m.start(), m.group(1)) for m in re.finditer(r"^\s*\.type\s+(\w+),@function", text, re.M)]
    for (start, name), (end, _) in zip(starts, [*starts[1:], (len(text), "")], strict=True):
        yield name, text[start:end]


def kernels(folder: Path) -> list[DeviceKernel]:
    """The GPU kernels in the files that IREE dumped into `folder`."""
    found: list[DeviceKernel] = []
    for path in sorted(folder.iterdir()):
        if path.suffix in (".rocmasm", ".ptx"):
            parts = assembly_parts(path.read_text(errors="replace"))
            found += [_kernel(name, Counter(_MNEMONIC.findall(part))) for name, part in parts]
        elif path.suffix == ".spv":
            found.append(_kernel(path.stem, spirv_multiplies(path.read_bytes())))
    return found
