"""AMD code objects: ELF files with the kernels of one program (LLVM's "User Guide for AMDGPU Backend", section
"Code Object")."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...dialect.dtypes import Array
from ..launch import EmulationError
from .generation import GENERATIONS, Generation
from .operands import DecodedOperation

_EM_AMDGPU = 224
# e_flags & 0xff of an ELF file for AMD GPUs (LLVM's BinaryFormat/ELF.h).
_NAMES = {0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950", 0x41: "gfx1100", 0x4A: "gfx1151", 0x4E: "gfx1201"}


@dataclass(frozen=True)
class KernelDescriptor:
    """A kernel descriptor, 64 bytes of `.rodata`.

    Attributes:
        name: name of the kernel.
        entry: address of its first instruction within the image.
        shared_bytes: bytes of LDS that the compiler allocated for a workgroup.
        scratch_bytes: bytes of private memory of a work item.
        lanes: lanes of a wave, 32 or 64.
        user_registers: number of user SGPRs, which hold values passed by the driver.
        user: bit mask of the seven kinds of user SGPRs that are present.
        preloaded: number of SGPRs preloaded with words of the kernarg segment, from word `preload_offset` on.
        workgroup_ids: whether the x, y, z index of the workgroup follows the user SGPRs, each in an SGPR.
        workitem_ids: the indices of a work item that are passed; 0: x; 1: x and y; 2: x, y and z.
        float_mode: rounding and denormal modes.
        wave_offset: whether the offset of the wave's private memory follows the workgroup's index in an SGPR.
    """

    name: str
    entry: int
    shared_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    lanes: int
    user_registers: int
    user: int
    preloaded: int
    preload_offset: int
    workgroup_ids: tuple[bool, bool, bool]
    workitem_ids: int
    float_mode: int
    wave_offset: bool


@dataclass(frozen=True)
class CodeObject:
    """A loaded code object.

    Attributes:
        generation: the GPU it was compiled for.
        image: its segments, each at its address, constants included.
        code: start and end address of the instructions in the image.
        kernels: kernel descriptors by name.
        decoded: operations of the instructions decoded so far, by the lanes of a wave and the address.
    """

    generation: Generation
    image: npt.NDArray[np.uint8]
    code: tuple[int, int]
    kernels: dict[str, KernelDescriptor]
    decoded: dict[int, dict[int, DecodedOperation]] = field(default_factory=dict)

    @property
    def base(self) -> int:
        """The address of the image in this process."""
        return int(self.image.ctypes.data)


@functools.lru_cache(maxsize=32)
def load(code: bytes) -> CodeObject:
    """Read a code object.

    Raises:
        EmulationError: `code` is not a code object, or is for a GPU that is not emulated.
    """
    if code[:4] != b"\x7fELF" or len(code) < 64 or struct.unpack_from("<H", code, 18)[0] != _EM_AMDGPU:
        raise EmulationError("the driver was given data that is not an AMD GPU code object")
    name = _NAMES.get(struct.unpack_from("<I", code, 48)[0] & 0xFF)
    if name is None:
        known = ", ".join(sorted(_NAMES.values()))
        raise EmulationError(f"the code object is for a GPU that is not emulated; emulated are {known}")
    sections = _sections(code)
    segments = [struct.unpack_from("<IIQQQQQQ", code, at) for at in _headers(code)]
    loaded = [s for s in segments if s[0] == 1]
    image = np.zeros(max(s[3] + s[6] for s in loaded), np.uint8)
    for _, _, offset, address, _, in_file, _, _ in loaded:
        image[address : address + in_file] = np.frombuffer(code, np.uint8, in_file, offset)
    text = sections[".text"]
    kernels = {name[:-3]: _kernel(name[:-3], at, image) for name, at in _symbols(code, sections) if name[-3:] == ".kd"}
    return CodeObject(GENERATIONS[name], image, (text[3], text[3] + text[5]), kernels)


def _headers(code: bytes) -> list[int]:
    (at,) = struct.unpack_from("<Q", code, 32)
    size, count = struct.unpack_from("<HH", code, 54)
    return [at + i * size for i in range(count)]


def _sections(code: bytes) -> dict[str, tuple[int, ...]]:
    (at,) = struct.unpack_from("<Q", code, 40)
    size, count, names = struct.unpack_from("<HHH", code, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", code, at + i * size) for i in range(count)]
    return {_text(code, headers[names][4] + h[0]): h for h in headers}


def _symbols(code: bytes, sections: dict[str, tuple[int, ...]]) -> list[tuple[str, int]]:
    table, names = sections[".dynsym"], sections[".dynstr"]
    found = []
    for at in range(table[4], table[4] + table[5], 24):
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", code, at)
        found.append((_text(code, names[4] + name), value))
    return found


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()


def _kernel(name: str, at: int, image: Array) -> KernelDescriptor:
    d = image[at : at + 64].tobytes()
    shared, scratch, kernarg = struct.unpack_from("<III", d, 0)
    (entry,) = struct.unpack_from("<q", d, 16)
    rsrc1, rsrc2 = struct.unpack_from("<II", d, 48)
    properties, preload = struct.unpack_from("<HH", d, 56)
    return KernelDescriptor(
        name, at + entry, shared, scratch, kernarg,
        lanes=32 if properties >> 10 & 1 else 64, user_registers=rsrc2 >> 1 & 31, user=properties & 127,
        preloaded=preload & 127, preload_offset=preload >> 7,
        workgroup_ids=(bool(rsrc2 >> 7 & 1), bool(rsrc2 >> 8 & 1), bool(rsrc2 >> 9 & 1)),
        workitem_ids=rsrc2 >> 11 & 3, float_mode=rsrc1 >> 12 & 255,
        wave_offset=bool(rsrc2 & 1),
    )  # fmt: skip
