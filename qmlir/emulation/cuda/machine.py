"""Runs a kernel: all threads of several blocks at once, as numpy arrays.

Threads at the same instruction form a fragment. The fragment that is furthest behind runs first, so that threads meet
again after a branch. Threads at a barrier are set aside until the last one of their block has arrived. The instructions
are implemented in `arithmetic`, `bits`, `movement`, `matrix`, `warps` and `synchronisation`, which fill `HANDLERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..launch import Counts, InstructionProgress
from .barriers import AsyncCopies, Barrier, MemoryBarrier, Parked
from .buffers import AccessFault
from .formats import Array
from .instructions import (
    PtxEntry,
    PtxError,
    PtxInstruction,
    PtxModule,
)
from .memory import GlobalMemory
from .ordering import WarpOrder
from .threads import DIMENSIONS, WARP, Mask, PtxThreads

Handler = Callable[["PtxMachine", PtxInstruction, Mask], None]
HANDLERS: dict[str, Handler] = {}
# Instructions that the lanes of a warp execute together: lanes that arrive first wait for the others. The order of a
# kernel's basic blocks does not ensure that they arrive at the same time.
CONVERGENT = frozenset(
    ("bar", "barrier", "mma", "ldmatrix", "stmatrix", "wgmma", "shfl", "vote", "redux", "match", "elect")
)
# After this many backward branches a fragment lets others run: it may be waiting for them.
PATIENCE = 256


def instruction(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of opcodes."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


@dataclass
class WgmmaProduct:
    """A `wgmma` in flight: the registers that it owns, and the shared memory that it reads."""

    warpgroup: int
    registers: frozenset[str]
    reads: list[Array]
    group: int


@dataclass(frozen=True)
class PtxReport:
    """Counters of a run.

    Attributes:
        executed: instructions by opcode, counted once for all threads of a fragment.
        conflicts: extra passes caused by bank conflicts of the first block of a batch, by text of the instruction.
        passes: all passes of these instructions.
        counts: totals of all warps of all blocks.
    """

    executed: Mapping[str, int]
    conflicts: Mapping[str, int]
    passes: Mapping[str, int]
    counts: Counts


class PtxMachine(PtxThreads):
    """Runs threads to their end.

    Args:
        limit: number of instructions after which a run counts as endless, which is an error.
        seed: seed of the order of warps between barriers; None: all at once.
    """

    def __init__(
        self,
        module: PtxModule,
        entry: PtxEntry,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        blocks: Sequence[tuple[int, int, int]],
        memory: GlobalMemory,
        parameters: Mapping[str, bytes],
        symbols: Mapping[str, int],
        dynamic_shared: int,
        limit: int = 20_000_000,
        order: WarpOrder | None = None,
        first_block: int = 0,
        progress: InstructionProgress | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(module, entry, grid, block, blocks, memory, parameters, symbols, dynamic_shared, order,
                         first_block)  # fmt: skip
        self.limit, self.progress, self.counts = limit, progress, Counts()
        self.copies: list[AsyncCopies] = []
        self.committed = np.zeros(self.threads, np.int64)
        self.products: list[WgmmaProduct] = []
        self.products_committed = np.zeros(self.threads, np.int64)
        self.fenced_at = np.full(self.threads // WARP // 4 + 1, -1, np.int64)  # by warpgroup: clock of last wgmma.fence
        self.barriers: dict[tuple[int, int], Barrier] = {}
        self.mbarriers: dict[tuple[int, int], MemoryBarrier] = {}  # by workgroup and offset
        self.executed: dict[str, int] = {}
        first = self.alive.copy()
        self.fragments: dict[int, Array] = {0: first}
        self.gathering: dict[int, Array] = {}  # threads that wait at a CONVERGENT pc for their warp
        self.forced = False
        self.random = None if seed is None else np.random.default_rng((seed, first_block))
        # Number of warps that run together: those of a warpgroup if the kernel has `wgmma`.
        self.together = 4 if any(i.opcode == "wgmma" for i in entry.instructions) else 1

    # ---- running

    def run(self) -> PtxReport:
        """Run until every thread has ended. Raises PtxError with the instruction and the thread at fault."""
        with np.errstate(all="ignore"):
            while self.fragments or self.gathering:
                if not self.fragments:  # no other thread will arrive
                    pc = min(self.gathering)
                    self.fragments[pc] = self.gathering.pop(pc)
                    self.forced = True
                self._fragment()
        for (block, number), barrier in self.barriers.items():
            self._deadlock(block, f"barrier {number}", barrier.parked, 1)
        for (block, offset), memory_barrier in self.mbarriers.items():
            if memory_barrier.parked:
                self._deadlock(block, f"the mbarrier at byte {offset}", memory_barrier.parked, 0)
        texts = {i.line: f"{i.line}: {i.text}" for i in self.entry.instructions}
        return PtxReport(
            self.executed,
            {texts[line]: n for line, n in self.shared.conflicts.items()},
            {texts[line]: n for line, n in self.shared.passes.items()},
            self._counted(),
        )

    def _deadlock(self, block: int, what: str, parked: list[Parked], behind: int) -> None:
        """Raises PtxError. The threads' `pc` is `behind` instructions after the one at which they wait."""
        waiting = sum(int(p.threads.sum()) for p in parked)
        where = sorted({self.entry.instructions[p.pc - behind].line for p in parked})
        raise PtxError(
            f"deadlock: {waiting} threads of block {block} wait at {what} (line {where}), the others "
            "have ended or wait elsewhere"
        )

    def _counted(self) -> Counts:
        blocks = self.threads // (self.warps_per_block * WARP)
        self.counts.shared_bytes = self.shared.bytes
        self.counts.bank_conflicts = sum(self.shared.conflicts.values()) * blocks
        return self.counts

    def _fragment(self) -> None:
        """Run the fragment that is furthest behind until it meets another, splits, or stops."""
        self.pc = min(self.fragments)
        threads: Array | None = self._first_to_run(self.fragments.pop(self.pc))
        instructions = self.entry.instructions
        backward, warps = 0, 0
        counted: Array | None = None
        while threads is not None:
            mask: Mask = None if threads.all() else threads
            ins = instructions[self.pc]
            if mask is not None and ins.opcode in CONVERGENT:
                threads = self._gathered(ins, threads)
                if threads is None:
                    return
                mask = None if threads.all() else threads
            self.clock += 1
            if self.clock > self.limit:
                raise PtxError(f"no end after {self.limit} instructions, at line {ins.line}: {ins.text}")
            self.executed[ins.opcode] = self.executed.get(ins.opcode, 0) + 1
            if threads is not counted:
                counted, warps = threads, int(np.count_nonzero(threads.reshape(-1, WARP).any(axis=1)))
            kinds = self.counts.instructions
            kinds[ins.kind] = kinds.get(ins.kind, 0) + warps
            if self.progress is not None and self.clock % 256 == 0:
                self.progress(self.counts.total)
            taken = self._guarded(ins, threads)
            if ins.opcode == "bra":
                here = self.pc
                threads = self._branch(ins, threads, taken)
                backward += self.pc <= here
                if threads is not None and self.fragments and backward > PATIENCE:
                    self._let_others_run(threads)
                    return
            elif ins.opcode in ("ret", "exit"):
                self.alive &= ~taken
                self._released_by_exit(taken)
                threads = self._rest(threads & ~taken, self.pc + 1)
            else:
                keep = self._execute(ins, mask if taken is threads else taken, threads)
                self.pc += 1
                threads = threads if keep is None else self._rest(keep, self.pc)
            if threads is not None and self.pc in self.fragments:
                self.fragments[self.pc] = self.fragments[self.pc] | threads
                return

    def _first_to_run(self, threads: Array) -> Array:
        """The threads of a fragment that run first: all, or with a seed those of some warps; the others stay behind."""
        if self.random is None:
            return threads
        units = np.repeat(self.random.random(-(-self.threads // (WARP * self.together))) < 0.5, WARP * self.together)
        first = threads & units[: self.threads]
        if not first.any() or (first == threads).all():
            return threads
        self.fragments[self.pc] = threads & ~first
        return first

    def _gathered(self, ins: PtxInstruction, threads: Array) -> Array | None:
        """The threads, including those that have waited here, whose warps are complete; None if there are none. The
        others wait. For `wgmma` all warps of a warpgroup must arrive, in any order."""
        waiting = self.gathering.pop(self.pc, None)
        if waiting is not None:
            threads = threads | waiting
        if self.forced:
            self.forced = False
            return threads
        unit = 4 * WARP if ins.opcode == "wgmma" and self.threads % (4 * WARP) == 0 else WARP
        wanted = self.alive.reshape(-1, unit)
        if ins.opcode in ("shfl", "vote", "redux", "match", "elect"):
            wanted = wanted & self._members(ins, threads)
        lanes = threads.reshape(-1, unit)
        some, missing = np.asarray(lanes.any(axis=1)), np.asarray((wanted & ~lanes).any(axis=1))
        late = (some & missing)[:, None] & lanes
        if late.any():
            self.gathering[self.pc] = late.reshape(-1)
            threads = threads & ~late.reshape(-1)
        return threads if threads.any() else None

    def _members(self, ins: PtxInstruction, threads: Array) -> Array:
        """`bool[warps, lanes]`: the lanes that the masks of the threads name."""
        masks = np.where(threads, self.read(ins.operands[-1], "b32"), np.uint32(0)).reshape(-1, WARP)
        named = np.bitwise_or.reduce(masks, axis=1)
        made: Array = (named[:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1)).astype(np.bool_)
        return made

    def _let_others_run(self, threads: Array) -> None:
        """Run the other fragments for a while: these threads are in a loop and may be waiting for them."""
        ours = self.pc
        others = sorted(self.fragments)
        for pc in others:
            if pc not in self.fragments:
                continue
            kept, self.fragments = self.fragments, {pc: self.fragments[pc]}
            del kept[pc]
            budget = self.clock + 4096
            while self.fragments and self.clock < budget:
                self._fragment()
            for at, more in kept.items():
                self.fragments[at] = self.fragments[at] | more if at in self.fragments else more
        self.fragments[ours] = self.fragments[ours] | threads if ours in self.fragments else threads

    def _rest(self, threads: Array, pc: int) -> Array | None:
        self.pc = pc
        return threads if threads.any() else None

    def _guarded(self, ins: PtxInstruction, threads: Array) -> Array:
        if ins.guard is None:
            return threads
        if ins.guard.register in self.undefined:
            try:
                self.check_defined((ins.guard.register,), threads)
            except AccessFault as e:
                raise self._named(ins, e, threads) from None
        p = self.registers[ins.guard.register]
        return threads & ~p if ins.guard.negated else threads & p

    def _branch(self, ins: PtxInstruction, threads: Array, taken: Array) -> Array | None:
        rest = threads & ~taken
        if not rest.any():
            self.pc = ins.target
            return threads
        if not taken.any():
            self.pc += 1
            return threads
        behind, ahead = sorted(((ins.target, taken), (self.pc + 1, rest)), key=lambda pair: pair[0])
        if behind[0] == ahead[0]:
            self.pc = behind[0]
            return threads
        other = self.fragments.get(ahead[0])
        self.fragments[ahead[0]] = ahead[1] if other is None else other | ahead[1]
        self.pc = behind[0]
        return behind[1]

    def _execute(self, ins: PtxInstruction, mask: Mask, threads: Array) -> Array | None:
        """Run one instruction. Returns the threads that continue; None if all of `threads` do."""
        handler = HANDLERS.get(ins.opcode)
        try:
            if handler is None:
                raise PtxError(f"the interpreter does not know the instruction {ins.opcode}")
            if mask is not None and not mask.any():
                return None
            if self.products:
                self._check_accumulators(ins, mask)
            self.stays: Array | None = None
            self.check_defined(ins.sources, mask)
            handler(self, ins, mask)
        except AccessFault as e:
            raise self._named(ins, e, mask) from None
        except (KeyError, ValueError, IndexError, StopIteration, PtxError) as e:
            if isinstance(e, PtxError) and str(e).startswith("line "):
                raise
            raise PtxError(f"line {ins.line}: {ins.text}: {type(e).__name__} {e}") from e
        return None if self.stays is None else threads & ~self.stays

    def _named(self, ins: PtxInstruction, fault: AccessFault, mask: Mask) -> PtxError:
        active = self.active(mask)
        thread = int(active[min(fault.lane, active.size - 1)])
        return PtxError(
            f"line {ins.line}: {ins.text}: {fault} (thread {int(self.linear[thread])} of block "
            f"{tuple(int(self.special[f'%ctaid.{d}'][thread]) for d in DIMENSIONS)})"
        )

    def _check_accumulators(self, ins: PtxInstruction, mask: Mask) -> None:
        if ins.opcode == "wgmma":
            return
        groups = set((self.active(mask) // (4 * WARP)).tolist())
        for product in self.products:
            touched = product.registers & ins.registers
            if touched and product.warpgroup in groups:
                raise PtxError(
                    f"line {ins.line}: {ins.text}: {min(touched)} belongs to a wgmma that has not been waited for"
                )

    # ---- barriers

    def park(self, number: int, mask: Mask, count: int | None, waits: bool) -> None:
        """Threads arrive at a barrier of their block; those that wait resume when the last one has arrived."""
        active = np.zeros(self.threads, np.bool_)
        active[self.active(mask)] = True
        self._whole_live_warps(active)
        for block in np.unique(self.block_of[active]).tolist():
            mine = active & (self.block_of == block)
            barrier = self.barriers.setdefault((block, number), Barrier())
            barrier.arrived += int(mine.sum())
            barrier.parked.append(Parked(self.pc + 1 if waits else -1, mine))
            needed = count or int((self.alive & (self.block_of == block)).sum())
            if barrier.arrived > needed:
                raise PtxError(f"{barrier.arrived} threads came to barrier {number}, which wants {needed}")
            if barrier.arrived == needed:
                self._release(block, number)
        if waits:
            self.stays = active

    def _whole_live_warps(self, active: Array) -> None:
        lanes, alive = active.reshape(-1, WARP), self.alive.reshape(-1, WARP)
        partial = lanes.any(axis=1) & (lanes != alive).any(axis=1)
        if partial.any():
            warp = int(np.flatnonzero(partial)[0])
            raise PtxError(
                f"divergent barrier: {int(lanes[warp].sum())} of {int(alive[warp].sum())} lanes of warp "
                f"{warp % self.warps_per_block} come to it"
            )

    def _release(self, block: int, number: int) -> None:
        barrier = self.barriers.pop((block, number))
        self.resume(barrier.parked)
        warps = np.unique(self.warp_of[np.logical_or.reduce([p.threads for p in barrier.parked])])
        self.order.join(block + self.first_block, warps)
        self.shared.clocks.join(block, warps)

    def resume(self, waiting: Iterable[Parked]) -> None:
        """Resume the threads that waited; the others had only arrived."""
        for parked in waiting:
            if parked.pc >= 0:
                other = self.fragments.get(parked.pc)
                self.fragments[parked.pc] = parked.threads if other is None else other | parked.threads

    def _released_by_exit(self, gone: Array) -> None:
        """Release barrier 0 of a block if it waited only for threads that have ended."""
        for block, number in list(self.barriers):
            if number == 0 and gone[self.block_of == block].any():
                barrier = self.barriers[block, number]
                if barrier.arrived == int((self.alive & (self.block_of == block)).sum()):
                    self._release(block, number)
