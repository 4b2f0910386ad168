"""Instructions on the bits of registers: logic, shifts, fields, counts and permutations of bytes."""

from __future__ import annotations

import numpy as np

from .formats import DTYPES, Array, unsigned
from .instructions import PtxError, PtxInstruction, width_of
from .machine import PtxMachine, instruction
from .threads import Mask


@instruction("and", "or", "xor")
def _logic(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    f = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[ins.opcode]
    a, b = (m.read(o, ins.type) for o in ins.operands[1:3])
    m.write(ins.operands[0], f(a, b), mask)


@instruction("not")
def _not(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    m.write(ins.operands[0], ~m.read(ins.operands[1], ins.type), mask)


@instruction("cnot")
def _cnot(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a = m.read(ins.operands[1], ins.type)
    m.write(ins.operands[0], (a == 0).astype(a.dtype), mask)


@instruction("shl")
def _shl(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a, by = m.read(ins.operands[1], ins.type), m.read(ins.operands[2], "u32")
    bits = 8 * a.dtype.itemsize
    shifted = a << np.minimum(by, bits - 1).astype(a.dtype)
    m.write(ins.operands[0], np.where(by >= bits, a.dtype.type(0), shifted), mask)


@instruction("shr")
def _shr(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a, by = m.read(ins.operands[1], ins.type), m.read(ins.operands[2], "u32")
    bits = 8 * a.dtype.itemsize
    shifted = a >> np.minimum(by, bits - 1).astype(a.dtype)
    fill = shifted if a.dtype.kind == "i" else a.dtype.type(0)
    m.write(ins.operands[0], np.where(by >= bits, fill, shifted), mask)


@instruction("shf")
def _funnel(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    low, high, by = (m.read(o, "u32").astype(np.uint64) for o in ins.operands[1:4])
    by = np.minimum(by, np.uint64(32)) if ins.has("clamp") else by & np.uint64(31)
    both = high << np.uint64(32) | low
    value = both << by >> np.uint64(32) if ins.has("l") else both >> by
    m.write(ins.operands[0], value.astype(np.uint32), mask)


@instruction("lop3")
def _lop3(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """Any function of three bits: the result is bit `4a + 2b + c` of the table."""
    a, b, c = (m.read(o, "b32") for o in ins.operands[1:4])
    table = int(m.read(ins.operands[4], "u32")[0])
    value = np.zeros_like(a)
    for i in range(8):
        if table >> i & 1:
            value |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    m.write(ins.operands[0], value, mask)


def _low_bits(length: Array) -> Array:
    """Words of 64 bits whose lowest `length` bits are set (u64; all of them from 64 on)."""
    ones = (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1)
    return np.where(length >= 64, ~np.uint64(0), ones)


@instruction("bfe")
def _bfe(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a = m.read(ins.operands[1], ins.type)
    start, length = (m.read(o, "u32").astype(np.int64) & 255 for o in ins.operands[2:4])
    bits = 8 * a.dtype.itemsize
    wide = a.view(unsigned(a.dtype)).astype(np.uint64)
    if a.dtype.kind == "u":
        kept = _low_bits(length.astype(np.uint64))
        value = np.where(start >= bits, np.uint64(0), wide >> np.minimum(start, 63).astype(np.uint64)) & kept
        m.write(ins.operands[0], value.astype(unsigned(a.dtype)), mask)
        return
    signed = a.astype(np.int64)
    end = np.minimum(start + length, bits)
    up = (64 - end).astype(np.int64)
    value = np.where(end <= start, np.where(length == 0, 0, signed >> 63), signed << up >> np.minimum(up + start, 63))
    m.write(ins.operands[0], value.astype(a.dtype), mask)


@instruction("bfi")
def _bfi(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a, b = (m.read(o, ins.type).astype(np.uint64) for o in ins.operands[1:3])
    start, length = (m.read(o, "u32").astype(np.uint64) & np.uint64(255) for o in ins.operands[3:5])
    inside = np.minimum(start, np.uint64(63))
    field = np.where(start < 64, _low_bits(length) << inside, np.uint64(0))
    m.write(ins.operands[0], (a << inside & field | b & ~field).astype(DTYPES[ins.type]), mask)


@instruction("clz", "popc", "brev", "bfind")
def _bit_counts(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a = np.ascontiguousarray(m.read(ins.operands[1], f"b{width_of(ins.type)}"))
    bits = np.unpackbits(a.view(np.uint8).reshape(a.size, -1), axis=1, bitorder="little")
    first = np.argmax(bits[:, ::-1], axis=1)
    if ins.opcode == "popc":
        value = bits.sum(axis=1)
    elif ins.opcode == "clz":
        value = np.where(a == 0, bits.shape[1], first)
    elif ins.opcode == "bfind" and ins.type[0] == "u":
        value = np.where(a == 0, -1, bits.shape[1] - 1 - first)
    elif ins.opcode == "brev":
        packed = np.packbits(bits[:, ::-1], axis=1, bitorder="little")
        m.write(ins.operands[0], np.ascontiguousarray(packed).view(a.dtype).reshape(-1), mask)
        return
    else:
        raise PtxError("bfind of signed numbers is not interpreted")
    m.write(ins.operands[0], value.astype(np.int32), mask)


@instruction("prmt")
def _prmt(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """Select four of eight bytes by a selector's nibbles; a nibble's top bit replicates the byte's sign instead."""
    if ins.modifiers[-1] != "b32":
        raise PtxError("prmt with a mode is not interpreted")
    a, b, selector = (np.ascontiguousarray(m.read(o, "b32")) for o in ins.operands[1:4])
    source = np.concatenate([a.view(np.uint8).reshape(-1, 4), b.view(np.uint8).reshape(-1, 4)], axis=1)
    nibbles = (selector[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)) & np.uint32(15)
    selected = np.take_along_axis(source, (nibbles & np.uint32(7)).astype(np.int64), axis=1)
    signs = np.where(selected & 128, np.uint8(255), np.uint8(0))
    value = np.where(nibbles & 8, signs, selected)
    m.write(ins.operands[0], np.ascontiguousarray(value).view(np.uint32).reshape(-1), mask)
