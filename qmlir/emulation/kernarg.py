"""Layout of an AMD kernel's arguments in its kernarg segment, read from its code object.

The layout is in the note `NT_AMDGPU_METADATA` of the ELF file, as MessagePack (LLVM, "User Guide for AMDGPU Backend",
code object V3 to V5 metadata).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias, TypedDict, cast

from .launch import ArgumentLayout

_NOTE, _METADATA = 7, 32

Packed: TypeAlias = "bool | int | float | str | bytes | list[Packed] | dict[Packed, Packed] | None"
Argument = TypedDict("Argument", {".offset": int, ".size": int, ".value_kind": str})
KernelMetadata = TypedDict(
    "KernelMetadata", {".name": str, ".kernarg_segment_size": int, ".args": "list[Argument]"}, total=False
)
Metadata = TypedDict("Metadata", {"amdhsa.kernels": "list[KernelMetadata]"}, total=False)


def layout(code: bytes, function: str) -> ArgumentLayout | None:
    """The layout of a kernel's arguments; None if the code object has no such kernel."""
    return _layouts(code).get(function)


@lru_cache(maxsize=64)
def _layouts(code: bytes) -> dict[str, ArgumentLayout]:
    found = {}
    for note in _notes(code):
        for kernel in cast(Metadata, _unpacked(note, 0)[0]).get("amdhsa.kernels", []):
            explicit, hidden = [], []
            for argument in kernel.get(".args", []):
                place = (argument[".offset"], argument[".size"])
                kind = argument[".value_kind"]
                if kind.startswith("hidden_"):
                    hidden.append((kind, *place))
                else:
                    explicit.append(place)
            found[kernel[".name"]] = ArgumentLayout(tuple(explicit), kernel[".kernarg_segment_size"], tuple(hidden))
    return found


def _notes(code: bytes) -> Iterator[bytes]:
    """The metadata notes of an ELF file."""
    start, size, count = struct.unpack_from("<Q", code, 40)[0], *struct.unpack_from("<HH", code, 58)
    for i in range(count):
        (kind,) = struct.unpack_from("<I", code, start + i * size + 4)
        at, length = struct.unpack_from("<QQ", code, start + i * size + 24)
        end = at + length
        while kind == _NOTE and at + 12 <= end:
            name_size, body_size, note = struct.unpack_from("<III", code, at)
            body = at + 12 + (name_size + 3) // 4 * 4
            if note == _METADATA and code[at + 12 : at + 12 + name_size].rstrip(b"\0") == b"AMDGPU":
                yield code[body : body + body_size]
            at = body + (body_size + 3) // 4 * 4


_SIZES = {0xC4: "B", 0xC5: ">H", 0xC6: ">I", 0xD9: "B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H",
          0xDF: ">I"}  # fmt: skip
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: "B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: "b", 0xD1: ">h", 0xD2: ">i",
            0xD3: ">q"}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def _unpacked(data: bytes, at: int) -> tuple[Packed, int]:
    """The MessagePack value at an offset, and the offset of the next one."""
    head = data[at]
    at += 1
    if head < 0x80:
        return head, at
    if head >= 0xE0:
        return head - 256, at
    if head in _CONSTANTS:
        return _CONSTANTS[head], at
    if head in _NUMBERS:
        form = _NUMBERS[head]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if head < 0xC0:
        count = head & (31 if head >= 0xA0 else 15)
    else:
        form = _SIZES[head]
        (count,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
    if 0x80 <= head < 0x90 or head >= 0xDE:
        made: dict[Packed, Packed] = {}
        for _ in range(count):
            key, at = _unpacked(data, at)
            made[key], at = _unpacked(data, at)
        return made, at
    if 0x90 <= head < 0xA0 or head >= 0xDC:
        items: list[Packed] = []
        for _ in range(count):
            item, at = _unpacked(data, at)
            items.append(item)
        return items, at
    raw = data[at : at + count]
    return (raw if 0xC4 <= head <= 0xC6 else raw.decode()), at + count


def with_hidden(arguments: bytes, layout: ArgumentLayout, grid: tuple[int, ...], block: tuple[int, ...]) -> bytes:
    """The kernarg segment: the explicit arguments, and the hidden ones that the runtime derives from the launch."""
    segment = bytearray(max(layout.size, len(arguments)))
    segment[: len(arguments)] = arguments
    values = {"hidden_grid_dims": sum(g > 1 for g in grid) or 1}
    for axis, (g, b) in enumerate(zip(grid, block, strict=True)):
        name = "xyz"[axis]
        values |= {f"hidden_block_count_{name}": g, f"hidden_group_size_{name}": b, f"hidden_remainder_{name}": 0}
    for kind, offset, size in layout.hidden:
        segment[offset : offset + size] = values.get(kind, 0).to_bytes(size, "little")
    return bytes(segment)
