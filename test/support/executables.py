"""Read the device executables in a `.vmfb` by IREE's schemas (runtime/src/iree/schemas)."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = 64  # bytes before an executable's FlatBuffer


@dataclass(frozen=True)
class _Table:
    """A table of a FlatBuffer, which starts at the offset `at`."""

    data: bytes
    at: int

    def _field(self, number: int) -> int:
        """Return the offset of a field, 0 if the table does not have it."""
        vtable = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        slot = 4 + 2 * number
        if slot >= struct.unpack_from("<H", self.data, vtable)[0]:
            return 0
        offset: int = struct.unpack_from("<H", self.data, vtable + slot)[0]
        return offset and self.at + offset

    def number(self, field: int) -> int:
        at = self._field(field)
        return int(struct.unpack_from("<I", self.data, at)[0]) if at else 0

    def _vector(self, field: int) -> tuple[int, int]:
        """Return the offset of a vector's elements, and their number."""
        at = self._field(field)
        if not at:
            return 0, 0
        start = at + struct.unpack_from("<I", self.data, at)[0]
        return start + 4, struct.unpack_from("<I", self.data, start)[0]

    def bytes(self, field: int, width: int = 1) -> bytes:
        start, count = self._vector(field)
        return self.data[start : start + count * width]

    def tables(self, field: int) -> Iterator[_Table]:
        start, count = self._vector(field)
        for at in range(start, start + 4 * count, 4):
            yield _Table(self.data, at + struct.unpack_from("<I", self.data, at)[0])


def _executables(vmfb: bytes, kind: str) -> Iterator[_Table]:
    with zipfile.ZipFile(io.BytesIO(vmfb)) as archive:
        for name in archive.namelist():
            if name.endswith(f"_{kind}_fb.fb"):
                data = archive.read(name)[_HEADER:]
                yield _Table(data, struct.unpack_from("<I", data)[0])


def cuda_shared_bytes(vmfb: bytes) -> dict[str, int]:
    """Return the dynamic shared memory that a launch of each kernel requests (cuda_executable_def.fbs: ExportDef)."""
    return {
        export.bytes(1).decode(): export.number(3)
        for executable in _executables(vmfb, "cuda_nvptx")
        for export in executable.tables(0)
    }


def spirv_modules(vmfb: bytes) -> list[bytes]:
    """The shaders (vulkan_executable_def.fbs: ShaderModuleDef)."""
    return [shader.bytes(0, 4) for executable in _executables(vmfb, "vulkan_spirv") for shader in executable.tables(3)]


def spirv_shared_bytes(module: bytes) -> dict[str, int]:
    """The bytes of variables of storage class Workgroup in the interface of each entry point."""
    from qmlir.compiler.device_code import spirv_instructions

    sizes: dict[int, int] = {}  # bytes of each type
    constants: dict[int, int] = {}
    pointers: dict[int, int] = {}  # the pointee types of pointers into workgroup memory
    variables: dict[int, int] = {}
    entries: dict[str, tuple[int, ...]] = {}
    for opcode, words in spirv_instructions(module):
        if opcode == 15:  # OpEntryPoint: model, function, name, interface
            name = struct.pack(f"<{len(words) - 2}I", *words[2:]).split(b"\0")[0]
            entries[name.decode()] = words[2 + len(name) // 4 + 1 :]
        elif opcode in (21, 22):  # OpTypeInt, OpTypeFloat
            sizes[words[0]] = words[1] // 8
        elif opcode == 43:  # OpConstant
            constants[words[1]] = words[2]
        elif opcode == 23:  # OpTypeVector
            sizes[words[0]] = sizes[words[1]] * words[2]
        elif opcode == 28 and words[1] in sizes and words[2] in constants:  # OpTypeArray
            sizes[words[0]] = sizes[words[1]] * constants[words[2]]
        elif opcode == 30 and all(member in sizes for member in words[1:]):  # OpTypeStruct
            sizes[words[0]] = sum(sizes[member] for member in words[1:])
        elif opcode == 32 and words[1] == 4:  # OpTypePointer, Workgroup
            pointers[words[0]] = words[2]
        elif opcode == 59 and words[2] == 4:  # OpVariable, Workgroup
            variables[words[1]] = sizes[pointers[words[0]]]
    return {name: sum(variables.get(i, 0) for i in interface) for name, interface in entries.items()}
