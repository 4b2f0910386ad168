"""Instructions that exchange register values between the lanes of a warp."""

from __future__ import annotations

import numpy as np

from .formats import DTYPES, Array
from .instructions import PtxError, PtxInstruction, Register
from .machine import PtxMachine, instruction
from .threads import WARP, Mask


def _rows(value: Array) -> Array:
    return value.reshape(-1, WARP)


def _taking_part(m: PtxMachine, mask: Mask, members: Array) -> Array:
    """`bool[warps, lanes]`: the executing lanes. Each must be in its own mask, with all live lanes that the mask names
    executing too; else raises PtxError."""
    active = np.zeros(m.threads, np.bool_)
    active[m.active(mask)] = True
    named = (_rows(members)[:, :, None] >> np.arange(WARP, dtype=np.uint32)) & np.uint32(1)
    rows = _rows(active)
    if (rows & (named[:, np.arange(WARP), np.arange(WARP)] == 0)).any():
        raise PtxError("a lane that executes the instruction is not in its own member mask")
    absent = (named == 1) & ~rows[:, None, :] & _rows(m.alive)[:, None, :]
    if (absent & rows[:, :, None]).any():
        raise PtxError("a lane of the member mask does not execute the instruction")
    return rows


@instruction("shfl")
def _shfl(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """`shfl.sync.mode.b32 d{|p}, a, b, c, members`."""
    pair = len(ins.operands) == 6
    a, b, c, members = (m.read(o, "b32") for o in ins.operands[2 if pair else 1 :])
    _taking_part(m, mask, members)
    mode = next(x for x in ("up", "down", "bfly", "idx") if ins.has(x))
    lane = np.tile(np.arange(WARP), m.threads // WARP)
    by, clamp, segments = (
        (b & 31).astype(np.int64),
        (c & 31).astype(np.int64),
        (c >> np.uint32(8) & 31).astype(np.int64),
    )
    most = (lane & segments) | (clamp & ~segments)
    least = lane & segments
    source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": least | (by & ~segments)}[mode]
    valid = source >= most if mode == "up" else source <= most
    source = np.where(valid, source, lane)
    value = np.take_along_axis(_rows(a), _rows(source), axis=1).reshape(-1)
    m.write(ins.operands[0], value, mask)
    if pair and isinstance(ins.operands[1], Register):
        m.write(ins.operands[1], valid, mask)


@instruction("vote")
def _vote(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    p = m.predicate(ins.operands[1])
    rows = _taking_part(m, mask, m.read(ins.operands[2], "b32"))
    votes = _rows(p) & rows
    if ins.has("ballot"):
        bits = (votes.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
        m.write(ins.operands[0], np.repeat(bits, WARP), mask)
        return
    every, some = (votes | ~rows).all(axis=1), votes.any(axis=1)
    result = every if ins.has("all") else some if ins.has("any") else every | ~some
    m.write(ins.operands[0], np.repeat(result, WARP), mask)


@instruction("redux")
def _redux(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a = m.read(ins.operands[1], ins.type)
    rows = _taking_part(m, mask, m.read(ins.operands[2], "b32"))
    name = next(x for x in ("add", "min", "max", "and", "or", "xor") if ins.has(x))
    dtype = DTYPES[ins.type]
    info = np.iinfo(dtype)
    f, start = {
        "add": (np.add, 0), "min": (np.minimum, info.max), "max": (np.maximum, info.min), "or": (np.bitwise_or, 0),
        "and": (np.bitwise_and, ~dtype.type(0)), "xor": (np.bitwise_xor, 0),
    }[name]  # fmt: skip
    m.write(ins.operands[0], np.repeat(f.reduce(np.where(rows, _rows(a), dtype.type(start)), axis=1), WARP), mask)


@instruction("match")
def _match(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    if not ins.has("any"):
        raise PtxError("match.all is not interpreted")
    a = m.read(ins.operands[1], ins.type)
    rows = _taking_part(m, mask, m.read(ins.operands[2], "b32"))
    same = (_rows(a)[:, :, None] == _rows(a)[:, None, :]) & rows[:, None, :]
    bits = (same.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
    m.write(ins.operands[0], bits.reshape(-1), mask)


@instruction("activemask")
def _activemask(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    active = np.zeros(m.threads, np.uint32)
    active[m.active(mask)] = 1
    bits = (_rows(active) << np.arange(WARP, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
    m.write(ins.operands[0], np.repeat(bits, WARP), mask)


@instruction("elect")
def _elect(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """`elect.sync d|p, members`: elects the lowest executing lane."""
    rows = _taking_part(m, mask, m.read(ins.operands[2], "b32"))
    first = np.argmax(rows, axis=1)
    m.write(ins.operands[0], np.repeat(first.astype(np.uint32), WARP), mask)
    m.write(ins.operands[1], (np.arange(WARP) == first[:, None]).reshape(-1), mask)
