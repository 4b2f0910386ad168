"""Differences between the emulated GPUs as data: other code reads this table, never a GPU's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    """One GPU. Sources: the ISA guides of MI200, MI300, CDNA 4, RDNA 3, RDNA 3.5 and RDNA 4, and LLVM's AMDGPU usage.

    Attributes:
        name: LLVM's name, such as `gfx942`.
        tables: name of tinygrad's tables of its instructions.
        cdna: separate accumulation registers, offsets of at most 13 bits in flat instructions, waves of 64 lanes.
        store_counter: stores have their own counter; without it they are counted as loads.
        shared_counter: LDS and scalar loads share one counter.
        offset_bits: bits of the signed offset of a global or scratch access.
        scalar_offset_bits: bits of the signed offset of a scalar load.
        ids_in_traps: the index of a workgroup is in trap registers (ttmp7 and ttmp9), not after the user SGPRs.
        scratch_offset: a wave gets the offset of its private memory in a register.
        fnuz: the one-byte floats have an unsigned zero; otherwise they are those of the OCP.
        shared_bytes: bytes of LDS that one workgroup may have.
        banks: number of banks of LDS.
        writes_back: each die has an L2 cache, which is written back before other dies see its stores.
        mad: it has `v_mad_f32`, which rounds the product.
        renamed: names in the tables, which are those of later chips of the family, and the names of the instructions
            that have these opcodes on this GPU.
        matrix: opcodes and names of MFMA instructions that the tables lack.
    """

    name: str
    tables: str
    cdna: bool
    store_counter: bool
    shared_counter: bool
    offset_bits: int
    scalar_offset_bits: int
    ids_in_traps: bool = False
    scratch_offset: bool = False
    fnuz: bool = False
    shared_bytes: int = 64 << 10
    banks: int = 32
    writes_back: bool = False
    mad: bool = False
    renamed: tuple[tuple[str, str], ...] = ()
    matrix: tuple[tuple[int, str], ...] = ()


def _cdna(name: str, **more: bool | int) -> Generation:
    return Generation(name, "cdna", True, False, True, 13, 21, **more)  # type: ignore[arg-type]


def _rdna3(name: str) -> Generation:
    return Generation(name, "rdna3", False, True, True, 13, 21)


# MI200 ISA guide, VOP2 and VOP3P.
_GFX90A = Generation(
    "gfx90a", "cdna", True, False, True, 13, 21,
    scratch_offset=True, mad=True,
    renamed=(("v_dot2c_f32_bf16", "v_mac_f32"), ("v_fmamk_f32", "v_madmk_f32"), ("v_fmaak_f32", "v_madak_f32")),
    matrix=((0x63, "v_mfma_f32_32x32x4_2b_bf16_1k"), (0x64, "v_mfma_f32_16x16x4_4b_bf16_1k"),
            (0x66, "v_mfma_f32_32x32x8_bf16"), (0x67, "v_mfma_f32_16x16x16_bf16"),
            (0x6C, "v_mfma_f32_32x32x4_bf16"), (0x6D, "v_mfma_f32_16x16x8_bf16"),
            (0x54, "v_mfma_i32_32x32x8_i8"), (0x55, "v_mfma_i32_16x16x16_i8")),
)  # fmt: skip

GENERATIONS = {g.name: g for g in (
    _GFX90A,
    _cdna("gfx942", fnuz=True, writes_back=True),
    _cdna("gfx950", shared_bytes=160 << 10, banks=64, writes_back=True),
    _rdna3("gfx1100"),
    _rdna3("gfx1151"),
    Generation("gfx1201", "rdna4", False, True, False, 24, 24, ids_in_traps=True),
)}  # fmt: skip
