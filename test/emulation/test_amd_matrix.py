"""AMD's matrix instructions, compared with loops over the tables of the instruction set guides."""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("tinygrad")
from emulation.amd_kernels import gang, instructions, operation_of


def mfma_row(m: int, register: int, lane: int) -> int:
    """The row of the result element in a register of a lane: CDNA 3 ISA guide, "Dense matrix layouts"."""
    return 8 * (register // 4) + 4 * (lane // 32) + register % 4 if m == 32 else 4 * (lane // 16) + register


def mfma_k(bits: int, scaled: bool, m: int, k: int, lane: int, place: int) -> int:
    """The index along K of the element at a place of an operand's lane."""
    group, run = lane // m, k * m // 64
    if scaled and bits == 8:  # two runs of 16
        return 16 * group + place if place < 16 else k // 2 + 16 * group + place - 16
    return run * group + place


MFMA = [
    # machine, name in tinygrad, rows, K, type of the operands, bits
    ("gfx942", "v_mfma_i32_16x16x32_i8", 16, 32, "i8"), ("gfx942", "v_mfma_i32_32x32x16_i8", 32, 16, "i8"),
    ("gfx950", "v_mfma_i32_16x16x64_i8", 16, 64, "i8"), ("gfx950", "v_mfma_i32_32x32x32_i8", 32, 32, "i8"),
    ("gfx942", "v_mfma_f32_16x16x16_f16", 16, 16, "f16"), ("gfx942", "v_mfma_f32_32x32x8_f16", 32, 8, "f16"),
    ("gfx950", "v_mfma_f32_16x16x32_f16", 16, 32, "f16"), ("gfx950", "v_mfma_f32_32x32x16_f16", 32, 16, "f16"),
    ("gfx942", "v_mfma_f32_16x16x16_bf16", 16, 16, "bf16"), ("gfx950", "v_mfma_f32_16x16x32_bf16", 16, 32, "bf16"),
    ("gfx942", "v_mfma_f32_16x16x32_fp8_fp8", 16, 32, "e4m3fnuz"), ("gfx942", "v_mfma_f32_16x16x32_bf8_bf8", 16, 32, "e5m2fnuz"),
    ("gfx950", "v_mfma_f32_16x16x32_fp8_fp8", 16, 32, "e4m3"), ("gfx950", "v_mfma_f32_16x16x128_f8f6f4", 16, 128, "e4m3"),
    ("gfx950", "v_mfma_f32_32x32x64_f8f6f4", 32, 64, "e4m3"),
]  # fmt: skip
TYPES_OF = {
    "i8": np.int8, "u8": np.uint8, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "e5m2": ml_dtypes.float8_e5m2, "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip


def numbers(kind: str, rng: Any, *shape: int) -> Any:
    if kind in ("i8", "u8"):
        return rng.integers(-128 if kind == "i8" else 0, 128 if kind == "i8" else 256, shape).astype(TYPES_OF[kind])
    return rng.integers(-8, 9, shape).astype(TYPES_OF[kind])  # exact in every type


def placed(lanes: int, count: int, kind: Any, find: Any) -> Any:
    """Registers `uint32[registers, 1, lanes]` with the element `find(lane, place)` at each place."""
    made = np.zeros((lanes, count), kind)
    for lane in range(lanes):
        for place in range(count):
            made[lane, place] = find(lane, place)
    return np.ascontiguousarray(made.view(np.uint32).T)[:, None, :]


def multiplied(machine: str, data: Any, lanes: int, a: Any, b: Any, c: Any) -> Any:
    """The registers from v96 on, after an instruction with operands from v0, v32 and v64 on."""
    g = gang(lanes)
    for first, words in ((0, a), (32, b), (64, c)):
        g.u32[first : first + len(words)] = words
    operation_of(machine, data, lanes).run(g)
    return g.u32[96 : 96 + len(c), 0]


@pytest.mark.parametrize(("machine", "name", "m", "k", "kind"), MFMA, ids=[f"{x[0]}-{x[1]}-{x[4]}" for x in MFMA])
def test_mfma(machine: str, name: str, m: int, k: int, kind: str) -> None:
    i = instructions(machine)
    rng = np.random.default_rng(k)
    a, b = numbers(kind, rng, m, k), numbers(kind, rng, m, k)
    result = np.int32 if kind == "i8" else np.float32
    c = rng.integers(-999, 999, (m, m)).astype(result)
    bits = 8 * np.dtype(TYPES_OF[kind]).itemsize
    count, registers = k * m // 64, m * m // 64
    scaled = "f8f6f4" in name

    def operand(x: Any) -> Any:
        return placed(64, count, TYPES_OF[kind], lambda lane, e: x[lane % m, mfma_k(bits, scaled, m, k, lane, e)])

    addend = placed(64, registers, result, lambda lane, r: c[mfma_row(m, r, lane), lane % m])
    words = count * bits // 32
    v = i.v
    data = getattr(i, name)(v[96 : 95 + registers], v[0 : words - 1], v[32 : 31 + words], v[64 : 63 + registers])
    got = multiplied(machine, data, 64, operand(a), operand(b), addend).view(result)
    want = a.astype(np.float64) @ b.astype(np.float64).T + c
    for r in range(registers):
        for lane in range(64):
            assert got[r, lane] == want[mfma_row(m, r, lane), lane % m], (r, lane)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("m", [16, 32])
def test_scaled_mfma(m: int, bits: int) -> None:
    """A scale belongs to 32 codes in the order of K, whatever registers hold them."""
    i = instructions("gfx950")
    k, rng = 2048 // m, np.random.default_rng(m + bits)
    codes = rng.integers(0, 16, (2, m, k)).astype(np.uint8)  # of e2m1
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes]
    exponents = rng.integers(120, 134, (2, m, k // 32)).astype(np.uint8)

    def operand(side: int) -> Any:
        if bits == 8:
            one = values[side].astype(ml_dtypes.float8_e4m3fn)
            return placed(64, 32, one.dtype, lambda lane, e: one[lane % m, mfma_k(8, True, m, k, lane, e)])
        halves = placed(64, 32, np.uint8, lambda lane, e: codes[side][lane % m, 32 * (lane // m) + e])
        octets = np.ascontiguousarray(halves[:, 0].T).view(np.uint8)
        return np.ascontiguousarray(octets[:, 0::2] | octets[:, 1::2] << 4).view(np.uint32).T[:, None]

    g = gang(64)
    lane = np.arange(64)
    for first, side in ((0, 0), (32, 1)):
        x = operand(side)
        g.u32[first : first + len(x)] = x
        g.u32[120 + side, 0] = exponents[side][lane % m, lane // m].astype(np.uint32) << (8 * side)
    registers, words = m * m // 64, bits
    v = i.v
    cls = f"v_mfma_scale_f32_{m}x{m}x{k}_f8f6f4"
    form = 0 if bits == 8 else 4
    raw = getattr(i, cls)(
        v[96 : 95 + registers], v[0 : words - 1], v[32 : 31 + words], v[64 : 63 + registers], cbsz=form, blgp=form,
        scale_src0=256 + 120, scale_src1=256 + 121, opsel=2, x2encoding=0xD3AC,
    )  # fmt: skip
    data = raw.to_bytes()
    word = int.from_bytes(data, "little")
    word = word & ~(0x1FF << 114) | 128 << 114  # the addend is the constant 0
    operation_of("gfx950", word.to_bytes(16, "little"), 64).run(g)
    factor = np.repeat(2.0 ** (exponents.astype(np.int64) - 127.0), 32, axis=-1)
    want = (values[0] * factor[0]) @ (values[1] * factor[1]).T
    got = g.f32[96 : 96 + registers, 0]
    for r in range(registers):
        for x in range(64):
            assert got[r, x] == np.float32(want[mfma_row(m, r, x), x % m]), (r, x)


WMMA = [
    ("i32_16x16x16_iu8", "i8"),
    ("i32_16x16x16_iu8", "u8"),
    ("f32_16x16x16_f16", "f16"),
    ("f32_16x16x16_bf16", "bf16"),
]
WMMA_CASES = [(m, n, k) for m in ("gfx1100", "gfx1201") for n, k in WMMA]
WMMA_CASES += [("gfx1201", "f32_16x16x16_fp8_fp8", "e4m3"), ("gfx1201", "f32_16x16x16_bf8_bf8", "e5m2")]


@pytest.mark.parametrize(("machine", "name", "kind"), WMMA_CASES)
def test_wmma(machine: str, name: str, kind: str) -> None:
    """RDNA 3: lanes 16-31 hold the operands a second time, and the odd rows of the result. RDNA 4: they hold the other
    half of K, and rows 8 to 15 of the result."""
    i, gfx12 = instructions(machine), machine == "gfx1201"
    rng = np.random.default_rng(len(name))
    a, b = numbers(kind, rng, 16, 16), numbers(kind, rng, 16, 16)
    result = np.int32 if kind in ("i8", "u8") else np.float32
    c = rng.integers(-999, 999, (16, 16)).astype(result)
    count = 8 if gfx12 else 16

    def operand(x: Any) -> Any:
        return placed(32, count, TYPES_OF[kind], lambda lane, e: x[lane % 16, e + (8 * (lane // 16) if gfx12 else 0)])

    def row(register: int, lane: int) -> int:
        return register + 8 * (lane // 16) if gfx12 else 2 * register + lane // 16

    addend = placed(32, 8, result, lambda lane, r: c[row(r, lane), lane % 16])
    words = count * np.dtype(TYPES_OF[kind]).itemsize // 4
    v = i.v
    signed = {"neg": 3} if kind == "i8" else {}
    data = getattr(i, f"v_wmma_{name}")(v[96:103], v[0 : words - 1], v[32 : 31 + words], v[64:71], **signed)
    got = multiplied(machine, data, 32, operand(a), operand(b), addend).view(result)
    want = a.astype(np.float64) @ b.astype(np.float64).T + c
    for r in range(8):
        for lane in range(32):
            assert got[r, lane] == want[row(r, lane), lane % 16], (r, lane)
