"""Barriers and fences."""

from __future__ import annotations

import numpy as np

from .instructions import PtxError, PtxInstruction
from .machine import PtxMachine, instruction
from .threads import Mask


@instruction("bar", "barrier")
def _bar(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """`bar.sync a{, threads}`; `bar.warp.sync members` is ignored: lanes count as ordered anyway."""
    kinds = [x for x in ins.modifiers if x not in ("cta", "aligned")]
    if kinds[0] == "warp":
        return
    if kinds[0] not in ("sync", "arrive"):
        raise PtxError(f"{ins.opcode}.{'.'.join(ins.modifiers)} is not interpreted")
    first = int(m.active(mask)[0])
    values = [int(m.read(o, "u32")[first]) for o in ins.operands]
    m.park(values[0], mask, values[1] if len(values) > 1 else None, waits=kinds[0] == "sync")


@instruction("membar")
def _membar(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    m.order.fence(m.access(m.active(mask)), ins.modifiers)


@instruction("fence")
def _fence(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    if not ins.has("proxy"):
        m.order.fence(m.access(m.active(mask)), ins.modifiers)
        return
    threads = m.active(mask)
    for block, warp in np.unique(np.stack([m.block_of[threads], m.warp_of[threads]], axis=1), axis=0).tolist():
        m.shared.fence(block, warp)


@instruction("nanosleep", "griddepcontrol", "setmaxnreg", "pmevent", "nop")
def _nothing(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    pass


@instruction("trap", "brkpt")
def _trap(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    raise PtxError("the kernel executes trap or brkpt")
