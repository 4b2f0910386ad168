"""Barriers in shared memory (`mbarrier`): threads arrive at one, and others wait for the end of a phase.

An arrival is a release of its warp, a wait that succeeds is an acquire (PTX ISA, "Parallel Synchronization and
Communication Instructions: mbarrier"). Copies that a barrier tracks have landed for threads that waited at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .barriers import AsyncCopies, MemoryBarrier, Parked
from .buffers import AccessFault
from .formats import Array
from .instructions import PtxError, PtxInstruction, PtxOperand
from .machine import PtxMachine, instruction
from .memory import SHARED_WINDOW
from .threads import Mask

_SIZE = 8  # bytes of an mbarrier
_MAX_ARRIVALS = (1 << 20) - 1


def _at(m: PtxMachine, ins: PtxInstruction, operand: PtxOperand, mask: Mask) -> Iterator[tuple[tuple[int, int], Array]]:
    """The workgroup and offset of each barrier that threads name, with the threads."""
    if any(x in ins.modifiers for x in ("cluster", "shared::cluster", "expect_tx", "complete_tx")):
        raise PtxError(f"{ins.opcode}.{'.'.join(ins.modifiers)} is not interpreted")
    threads = m.active(mask)
    addresses = m.addresses(operand)[threads]
    if not any(x in ins.modifiers for x in ("shared", "shared::cta")):
        addresses = addresses - SHARED_WINDOW
    offsets = m.shared.offsets(addresses, _SIZE, "bytes of an mbarrier")
    for block, offset in np.unique(np.stack([m.block_of[threads], offsets], axis=1), axis=0).tolist():
        yield (block, offset), threads[(m.block_of[threads] == block) & (offsets == offset)]


def _initialised(m: PtxMachine, at: tuple[int, int], threads: Array, mask: Mask) -> MemoryBarrier:
    """The barrier at a place. Raises AccessFault if it is not initialised, or not known to be by these threads."""
    m.shared.check_read(m.place(threads, np.full(threads.size, at[1])), _SIZE)
    barrier = m.mbarriers.get(at)
    if barrier is None:
        lane = int(np.searchsorted(m.active(mask), threads[0]))
        raise AccessFault(f"byte {at[1]} of shared memory is not an mbarrier: nobody has initialised it", lane)
    return barrier


def _release(m: PtxMachine, barrier: MemoryBarrier, block: int, warp: int) -> None:
    """Merge what a warp knows into what those that wait for the phase will learn."""
    barrier.clock = np.maximum(barrier.clock, m.shared.clocks.time[block, warp])
    m.order.tell(block + m.first_block, warp, barrier.others)
    m.shared.clocks.tick(block, np.array([warp]))


def _init(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    counts = m.read(ins.operands[1], "u32")
    for (block, offset), threads in _at(m, ins, ins.operands[0], mask):
        count = int(counts[threads[0]])
        if not 0 < count <= _MAX_ARRIVALS:
            raise PtxError(f"an mbarrier of {count} arrivals: from 1 to {_MAX_ARRIVALS}")
        m.shared.store(m.place(threads, np.full(threads.size, offset)), np.zeros((threads.size, 1), np.uint64))
        m.mbarriers[block, offset] = MemoryBarrier(count, count, np.zeros(m.warps_per_block, np.int32))


def _inval(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    for at, threads in _at(m, ins, ins.operands[0], mask):
        _initialised(m, at, threads, mask)
        m.shared.check_write(m.place(threads, np.full(threads.size, at[1])), _SIZE)
        del m.mbarriers[at]


def _arrive(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """The state that it returns: number of phases that had ended (high word), arrivals that this one lacked (low)."""
    counts = m.read(ins.operands[2], "u32") if len(ins.operands) > 2 else np.ones(m.threads, np.uint32)
    states = np.zeros(m.threads, np.uint64)
    for at, threads in _at(m, ins, ins.operands[1], mask):
        barrier = _initialised(m, at, threads, mask)
        if not ins.has("relaxed"):
            for warp in np.unique(m.warp_of[threads]).tolist():
                _release(m, barrier, at[0], warp)
        for thread in threads.tolist():
            states[thread] = barrier.phase << 32 | barrier.pending
            count = int(counts[thread])
            if ins.has("noComplete") and count >= barrier.pending:
                raise PtxError("mbarrier.arrive.noComplete ends the phase")
            if ins.modifiers[0] == "arrive_drop":
                barrier.expected -= count
            m.resume(barrier.arrive(count))
    m.write(ins.operands[0], states, mask)


def _wait(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """A `try_wait` may time out on a device. Here a thread's first one returns false, and the next one blocks until the
    phase has ended."""
    given = m.read(ins.operands[2], "u32" if ins.has("parity") else "u64").astype(np.int64)
    ended, stay = np.zeros((2, m.threads), np.bool_)
    for at, threads in _at(m, ins, ins.operands[1], mask):
        barrier = _initialised(m, at, threads, mask)
        now = barrier.phase & 1 if ins.has("parity") else barrier.phase
        then = given[threads] if ins.has("parity") else given[threads] >> 32
        ended[threads] = then != now
        if ins.modifiers[0] == "try_wait":
            known = np.isin(threads, list(barrier.asked))
            again = threads[known & ~ended[threads]]
            ended[threads[~known]] = False
            barrier.asked.update(threads[~known].tolist())
            barrier.asked.difference_update(threads[ended[threads]].tolist())
            if again.size:
                waiting = np.zeros(m.threads, np.bool_)
                waiting[again] = True
                barrier.parked.append(Parked(m.pc, waiting))
                stay |= waiting
        if barrier.ended is None or not ended[threads].any():
            continue
        clock, others, copies = barrier.ended
        if not ins.has("relaxed"):
            warps = np.unique(m.warp_of[threads[ended[threads]]])
            m.shared.clocks.learn(at[0], warps, clock)
            for warp in warps.tolist():
                m.order.learn(at[0] + m.first_block, warp, others)
        for landed in copies:
            m.shared.land(landed.at, landed.values.shape[1])
        m.copies = [c for c in m.copies if not any(c is landed for landed in copies)]
        copies.clear()
    if stay.any():
        m.stays = stay
        mask = ~stay if mask is None else mask & ~stay
    if mask is None or mask.any():
        m.write(ins.operands[0], ended, mask)


def _pending_count(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    m.write(ins.operands[0], m.read(ins.operands[1], "u64").astype(np.uint32), mask)


_OPERATIONS: dict[str, Callable[[PtxMachine, PtxInstruction, Mask], None]] = {
    "init": _init, "inval": _inval, "arrive": _arrive, "arrive_drop": _arrive, "test_wait": _wait, "try_wait": _wait,
    "pending_count": _pending_count,
}  # fmt: skip


@instruction("mbarrier")
def _mbarrier(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    operation = _OPERATIONS.get(ins.modifiers[0])
    if operation is None:
        raise PtxError(f"{ins.opcode}.{'.'.join(ins.modifiers)} is not interpreted")
    operation(m, ins, mask)


def track_copies(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """`cp.async.mbarrier.arrive{.noinc} [barrier]`: an arrival as soon as the thread's copies have landed. Without
    `.noinc` the phase first expects one more arrival for it."""
    for at, threads in _at(m, ins, ins.operands[0], mask):
        barrier = _initialised(m, at, threads, mask)
        kept: list[AsyncCopies] = []
        for c in m.copies:
            ours = np.isin(c.threads, threads)
            if ours.any():
                landing = c.part(ours)
                m.shared.arrive(landing.at, landing.values)
                m.shared.send_on(landing.at, landing.values.shape[1])
                barrier.copies.append(landing)
                kept.append(landing)
            if not ours.all():
                kept.append(c.part(~ours))
        m.copies = kept
        for warp in np.unique(m.warp_of[threads]).tolist():
            _release(m, barrier, at[0], warp)
        if ins.has("noinc"):
            m.resume(barrier.arrive(threads.size))
