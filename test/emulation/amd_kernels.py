"""Small kernels for AMD GPUs, assembled with tinygrad's tables and launched on the emulator without a driver."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.emulation.amd import AmdExecutor
from qmlir.emulation.amd.decode import AmdInstruction, decode
from qmlir.emulation.amd.executor import operation
from qmlir.emulation.amd.gang import Gang
from qmlir.emulation.amd.generation import GENERATIONS
from qmlir.emulation.amd.operands import DecodedOperation
from qmlir.emulation.launch import Counts, KernelLaunch, Settings
from qmlir.emulation.memory import Memory

_FLAGS = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx1100": 0x41, "gfx1151": 0x4A, "gfx1201": 0x4E}
_ENTRY, _DESCRIPTOR = 0x200, 0x100


def instructions(machine: str) -> Any:
    """tinygrad's module of a GPU's instructions, as functions that assemble them."""
    return importlib.import_module(f"tinygrad.runtime.autogen.amd.{GENERATIONS[machine].tables}.ins")


def code_object(machine: str, code: Sequence[Any], *, lds: int = 0, lanes: int = 64, scratch: int = 0) -> bytes:
    """An ELF file with the kernel `main`: kernel arguments in s[0:1], the workgroup's x in s2 (ttmp9 on gfx12)."""
    text = b"".join(x if isinstance(x, bytes) else x.to_bytes() for x in code)
    descriptor = bytearray(64)
    struct.pack_into("<III", descriptor, 0, lds, scratch, 64)
    struct.pack_into("<q", descriptor, 16, _ENTRY - _DESCRIPTOR)
    struct.pack_into("<II", descriptor, 48, 0xF0 << 12, 2 << 1 | 1 << 7)
    struct.pack_into("<H", descriptor, 56, 1 << 3 | (1 << 10 if lanes == 32 else 0))
    names = b"\0.text\0.dynsym\0.dynstr\0.shstrtab\0"
    strings = b"\0main.kd\0"
    symbol = struct.pack("<IBBHQQ", 1, 0, 0, 1, _DESCRIPTOR, 64)
    end = _ENTRY + len(text)
    parts = {"text": _ENTRY, "symbols": end, "strings": end + 24, "names": end + 24 + len(strings)}
    headers = parts["names"] + len(names)
    size = len(text)

    def section(name: int, kind: int, at: int, length: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, 0, at, at, length, 0, 0, 0, 0)

    table = b"".join([
        section(0, 0, 0, 0), section(1, 1, parts["text"], size), section(7, 11, parts["symbols"], 24),
        section(15, 3, parts["strings"], len(strings)), section(23, 3, parts["names"], len(names)),
    ])  # fmt: skip
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, headers, _FLAGS[machine], 64, 56, 1, 64, 5, 4)
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, headers, headers, 4096)
    image = bytearray(end)
    image[:64], image[64:120] = head, load
    image[_DESCRIPTOR : _DESCRIPTOR + 64] = descriptor
    image[_ENTRY:] = text
    return bytes(image) + symbol + strings + names + table


class Device:
    """An emulated GPU with buffers."""

    def __init__(self, machine: str) -> None:
        self.machine, self.memory, self._kept = machine, Memory(), []

    def buffer(self, values: Any, written: bool = True) -> int:
        """A buffer with these values; `written`: it counts as written by the host."""
        data = np.array(values)
        self._kept.append(data)
        start = int(data.ctypes.data)
        self.memory.add(start, data.nbytes)
        if written:
            self.memory.mark_written(start, data.nbytes)
        return start

    def read(self, start: int, like: Any) -> Any:
        return next(d for d in self._kept if d.ctypes.data == start)

    def launch(self, code: bytes, *arguments: int, threads: int, groups: int = 1, seed: int | None = None) -> Counts:
        packed = b"".join(struct.pack("<Q", a) for a in arguments)
        launch = KernelLaunch(code, "main", (groups, 1, 1), (threads, 1, 1), 0, packed)
        return AmdExecutor().run(launch, self.memory, Settings(f"rocm:{self.machine}", seed))


def decoded(machine: str, instruction: Any) -> AmdInstruction:
    data = instruction if isinstance(instruction, bytes) else instruction.to_bytes()
    return decode(data.ljust(24, b"\0"), 0, GENERATIONS[machine])


def operation_of(machine: str, instruction: Any, lanes: int) -> DecodedOperation:
    found = operation(decoded(machine, instruction), GENERATIONS[machine], lanes)
    assert found is not None, instruction
    return found


def gang(lanes: int, waves: int = 1) -> Gang:
    """Waves whose lanes are all active."""
    g = Gang(waves, lanes, 512)
    g.select(np.arange(waves))
    g.set_exec(np.ones((waves, lanes), np.bool_))
    return g


def stored_by_gfx942(lines: list[Any], unwritten: str, **kernel: Any) -> Any:
    """The buffer of 64 unwritten words after a wave has stored into it. If `unwritten` is not empty, the launch must be
    refused with a message that matches it, because an unwritten register is stored; the result is None then."""
    device = Device("gfx942")
    target = device.buffer(np.zeros(64, np.int32), written=False)
    if unwritten:
        with pytest.raises(qmlir.EmulationError, match=unwritten):
            device.launch(code_object("gfx942", lines), target, threads=64)
        return None
    device.launch(code_object("gfx942", lines, **kernel), target, threads=64)
    return device.read(target, None)
