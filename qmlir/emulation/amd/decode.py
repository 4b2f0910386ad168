"""Decode machine code into instructions, with the fields of tinygrad's tables and the same names for all generations.

tinygrad's tables come from AMD's machine-readable ISA documents. They lack the buffer instructions of RDNA, and
instructions of gfx90a that later chips dropped, such as some MFMA; these are decoded here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..launch import EmulationError
from .generation import Generation

# Numbering of all operands: 0-127 scalar and special, 128-255 constants, 256-511 VGPRs, 512-767 accumulation VGPRs.
VCC, NULL_RDNA, M0_RDNA, M0_CDNA, EXEC, LITERAL, VGPR, ACC = 106, 124, 125, 124, 126, 255, 256, 512


@dataclass
class AmdInstruction:
    """A decoded instruction.

    Attributes:
        name: lower-case mnemonic in RDNA 3's spelling, without the encoding's suffix.
        form: the encoding, such as `VOP3`.
        address: its address in the image.
        size: its size in bytes.
        fields: the fields of the encoding; operands have the numbering above.
        regs: number of registers of each operand.
        literal: its 32-bit literal constant.
        halves: bit mask of the halves of a vector register that it reads or writes: 1 for the low half, 2 for the high
            one. Registers without an entry are read or written whole.
    """

    name: str
    form: str
    address: int
    size: int
    fields: dict[str, int]
    regs: dict[str, int] = field(default_factory=dict)
    literal: int = 0
    halves: dict[int, int] = field(default_factory=dict)

    def touch(self, register: int, count: int, halves: int = 3) -> None:
        """Record that it reads or writes these halves of `count` registers."""
        for number in range(register, register + count):
            self.halves[number] = self.halves.get(number, 0) | halves

    def get(self, name: str, default: int = 0) -> int:
        return self.fields.get(name, default)


_RENAMED = [(re.compile(a), b) for a, b in (
    (r"_e(32|64)$", ""),
    (r"^ds_read_", "ds_load_"), (r"^ds_write_", "ds_store_"),
    (r"^ds_read2", "ds_load_2addr"), (r"^ds_write2", "ds_store_2addr"), (r"2addrst64", "2addr_stride64"),
    (r"^(global|flat|scratch|buffer|s_buffer|s)_(load|store|load_lds)_dwordx(\d+)$",
     lambda m: f"{m[1]}_{m[2]}_b{32 * int(m[3])}"),
    (r"^(global|flat|scratch|buffer|s_buffer|s)_(load|store|load_lds)_dword$", r"\1_\2_b32"),
    (r"_(load|load_lds)_ubyte", r"_\1_u8"), (r"_(load|load_lds)_sbyte", r"_\1_i8"),
    (r"_(load|load_lds)_ushort", r"_\1_u16"), (r"_(load|load_lds)_sshort", r"_\1_i16"),
    (r"_store_byte", "_store_b8"), (r"_store_short", "_store_b16"),
    (r"_load_short_d16", "_load_d16_b16"), (r"_load_([ui]8)_d16", r"_load_d16_\1"), (r"_load_u16_d16", "_load_d16_b16"),
    (r"_store_(b8|b16)_d16_hi", r"_store_d16_hi_\1"), (r"_load_d16_(\w+)_hi$", r"_load_d16_hi_\1"),
    (r"^v_(add|sub|subrev)_(u32|u16|i32|i16)$", r"v_\1_nc_\2"),
    (r"^v_addc_co_u32", "v_add_co_ci_u32"), (r"^v_subb_co_u32", "v_sub_co_ci_u32"),
    (r"^v_subbrev_co_u32", "v_subrev_co_ci_u32"),
    (r"^s_(and|or)n2_", r"s_\1_not1_"), (r"^([vs]_.*)_num_(f\d+)$", r"\1_\2"),
    (r"^s_(add|sub)_co_([ui]32)$", r"s_\1_\2"), (r"^s_add_co_ci_u32", "s_addc_u32"),
    (r"^s_sub_co_ci_u32", "s_subb_u32"),
    (r"^s_addk_co_i32", "s_addk_i32"), (r"^v_ffbh_i32", "v_cls_i32"), (r"^v_ffbh_u32", "v_clz_i32_u32"),
    (r"^v_ffbl_b32", "v_ctz_i32_b32"), (r"^s_ff1_i32_", "s_ctz_i32_"), (r"^s_flbit_i32_b", "s_clz_i32_u"),
    (r"^s_flbit_i32$", "s_cls_i32"), (r"^s_flbit_i32_i64", "s_cls_i32_i64"),
    (r"^v_mad_co_u64_u32", "v_mad_u64_u32"), (r"^v_mad_co_i64_i32", "v_mad_i64_i32"),
    (r"^v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32"), (r"^(global|flat|buffer)_atomic_add$", r"\1_atomic_add_u32"),
)]  # fmt: skip


def canonical(name: str) -> str:
    """RDNA 3's name of an instruction that any generation may name differently."""
    name = name.lower()
    for pattern, new in _RENAMED:
        name = pattern.sub(new, name)
    return name


def decode(data: bytes, address: int, generation: Generation) -> AmdInstruction:
    """Decode the instruction at the start of `data`.

    Raises:
        EmulationError: it is not a known instruction.
    """
    own = _decode_missing(data, address, generation)
    if own is not None:
        return own
    from tinygrad.renderer.amd import decode_inst

    if generation.cdna and data[2:4] != _LD_SCALE:
        data = data[:8]  # tinygrad detects a 16-byte instruction by its second half alone
    try:
        found = decode_inst(data, generation.tables)
    except (ValueError, AssertionError) as e:
        raise EmulationError(
            f"{data[:4][::-1].hex()} at {address:#x} is not a known instruction of {generation.name}"
        ) from e
    kind = type(found).__name__
    fields = {}
    for name, _ in found._fields:
        value = getattr(found, name)
        fields[name] = value.offset if hasattr(value, "offset") and hasattr(value, "sz") else value
    op = fields.pop("op", None)
    name = canonical(op.name) if op is not None else ""
    name = dict(generation.renamed).get(name, name)
    if name.startswith("v_mad_mix"):  # gfx900's name; the emulated chips fuse (LLVM's `FeatureFmaMixInsts`)
        name = name.replace("v_mad", "v_fma")
    for part in ("opx", "opy"):  # two operations in one instruction
        if part in fields:
            fields[part] = canonical(fields[part].name).replace("v_dual_", "v_")
            name = f"{name}{'::' if name else ''}{fields[part]}"
    regs = {n: max(1, bits // 32) for n, bits in found.op_bits.items()}
    size = found.size()
    if kind.startswith("VOP3P") and kind.endswith("X2"):
        fields |= {"neg": fields["blgp"]}
    if not generation.cdna and kind.startswith("VOP") and fields.get("src0") in _DPP8_OPERANDS:
        word = int.from_bytes(data[size : size + 4], "little")  # tinygrad's size excludes it
        fields |= {"vsrc0": VGPR + (word & 255), "lanes": word >> 8, "fi": int(fields["src0"] == _DPP8_OPERANDS[1])}
        kind, size = f"{kind}_DPP8", size + 4
    return AmdInstruction(name, kind, address, size, fields, regs, fields.get("literal", 0) or 0)


_WRITE_BACK = {62: "buffer_wbinvl1", 63: "buffer_wbinvl1_vol"}  # dropped after MI200 (MI200 ISA guide, MUBUF)
_DPP8_OPERANDS = (0xE9, 0xEA)  # src0: a word with the lanes follows; the second also reads inactive lanes
_LD_SCALE = b"\xac\xd3"  # opcode in the first half of a scaled matrix instruction, which has 16 bytes


def _decode_missing(data: bytes, address: int, generation: Generation) -> AmdInstruction | None:
    word = int.from_bytes(data[:8], "little")
    if generation.tables == "rdna3" and word >> 26 & 63 == 0b111000:
        name = _buffer("rdna3", word >> 18 & 255)
        fields = {
            "offset": word & 0xFFF, "offen": word >> 54 & 1, "idxen": word >> 55 & 1,
            "vaddr": VGPR + (word >> 32 & 255), "vdata": VGPR + (word >> 40 & 255), "srsrc": 4 * (word >> 48 & 31),
            "soffset": word >> 56 & 255,
            "return": word >> 14 & 1,
        }  # fmt: skip
        size = 8
    elif generation.tables == "rdna4" and word >> 26 & 63 == 0b110001:
        word = int.from_bytes(data[:12], "little")
        name = _buffer("rdna4", word >> 14 & 255)
        fields = {
            "offset": word >> 72 & 0xFFFFFF, "offen": word >> 62 & 1, "idxen": word >> 63 & 1,
            "vaddr": VGPR + (word >> 64 & 255), "vdata": VGPR + (word >> 32 & 255), "srsrc": word >> 41 & 511,
            "soffset": word & 127, "return": word >> 52 & 1,
        }  # fmt: skip
        size = 12
    elif generation.mad and word >> 26 & 63 == 0b111000 and word >> 18 & 127 in _WRITE_BACK:
        return AmdInstruction(_WRITE_BACK[word >> 18 & 127], "MUBUF", address, 8, {})
    elif generation.mad and word >> 16 & 0xFFFF == 0b110100 << 10 | 0x1C1:  # VOP3; dropped later
        fields = {
            "vdst": VGPR + (word & 255), "abs": word >> 8 & 7, "opsel": word >> 11 & 15, "clmp": word >> 15 & 1,
            "src0": word >> 32 & 511, "src1": word >> 41 & 511, "src2": word >> 50 & 511, "omod": word >> 59 & 3,
            "neg": word >> 61 & 7,
        }  # fmt: skip
        return AmdInstruction("v_mad_f32", "VOP3", address, 8, fields)
    else:
        names = dict(generation.matrix)
        opcode = word >> 16 & 127
        if word >> 23 & 511 != 0b110100111 or opcode not in names:
            return None
        fields = {
            "vdst": VGPR + (word & 255), "src0": word >> 32 & 511, "src1": word >> 41 & 511, "src2": word >> 50 & 511,
            "cbsz": word >> 8 & 7, "abid": word >> 11 & 15, "acc_cd": word >> 15 & 1, "acc": word >> 59 & 3,
            "blgp": word >> 61 & 7,
        }  # fmt: skip
        return AmdInstruction(names[opcode], "VOP3P_MFMA", address, 8, fields)
    if name is None:
        raise EmulationError(f"a buffer instruction with an unknown opcode at {address:#x}: {data.hex()}")
    return AmdInstruction(name, "BUFFER", address, size, fields)


def _buffer(instructions: str, opcode: int) -> str | None:
    """Name of an RDNA buffer instruction, None if unknown. tinygrad has their opcodes, but not their encoding."""
    from tinygrad.runtime.autogen.amd.rdna3.enum import MUBUFOp
    from tinygrad.runtime.autogen.amd.rdna4.enum import VBUFFEROp

    found = {op.value: op.name for op in (MUBUFOp if instructions == "rdna3" else VBUFFEROp)}.get(opcode)
    return None if found is None else canonical(found)
