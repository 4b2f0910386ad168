"""Runs a kernel: all threads of several blocks at once, as numpy arrays.

Threads at the same instruction are a fragment; the fragment that is furthest behind runs first, so that threads meet
again after a branch. A barrier takes threads out until the last one of their block has come. What each instruction does
is in `arithmetic`, `movement`, `matrix`, `warps` and `synchronisation`, which fill `HANDLERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..launch import Counts, InstructionProgress
from .barriers import AsyncCopies, Barrier, MemoryBarrier, Parked
from .buffers import AccessFault
from .formats import DTYPES, PACKED, Array, unsigned
from .memory import SHARED_START, GlobalMemory, SharedMemory, SharedPlace
from .ordering import Access, WarpOrder
from .text import (
    Immediate,
    PtxAddress,
    PtxEntry,
    PtxError,
    PtxInstruction,
    PtxModule,
    PtxOperand,
    Register,
    Symbol,
    Vector,
    width_of,
)

Mask = Array | None  # which threads take part; None: all
Handler = Callable[["PtxMachine", PtxInstruction, Mask], None]
HANDLERS: dict[str, Handler] = {}

WARP = 32
_DIMENSIONS = "xyz"
# What the lanes of a warp do together: those that come first wait for the others. Blocks of a kernel are in no order
# that would bring them there at the same time.
CONVERGENT = frozenset(
    ("bar", "barrier", "mma", "ldmatrix", "stmatrix", "wgmma", "shfl", "vote", "redux", "match", "elect")
)
# A fragment that goes back this often lets others run: it may be waiting for them.
PATIENCE = 256


def instruction(*names: str) -> Callable[[Handler], Handler]:
    """Register what an opcode does."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


@dataclass
class WgmmaProduct:
    """A `wgmma` on its way: accumulators that it owns, shared memory that it reads."""

    warpgroup: int
    registers: frozenset[str]
    reads: list[Array]
    group: int


@dataclass(frozen=True)
class PtxReport:
    """What a run counted.

    Attributes:
        executed: instructions by opcode with modifiers, counted once for all threads of a fragment.
        conflicts: extra passes because of shared memory's banks, by the text of the instruction, of one block.
        passes: all passes of these.
        counts: what all warps of all blocks did.
    """

    executed: Mapping[str, int]
    conflicts: Mapping[str, int]
    passes: Mapping[str, int]
    counts: Counts


class PtxMachine:
    """The threads of `blocks` of one grid.

    Args:
        parameters: bytes of each parameter of the entry, by name.
        symbols: addresses of the module's variables.
        order: of the launch, whose workgroups from number `first_block` on these are.
        seed: of the order of warps between barriers; None: all at once.
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
        self.module, self.entry, self.memory = module, entry, memory
        self.progress, self.counts = progress, Counts()
        self.grid, self.block = grid, block
        self.parameters = dict(parameters)
        self.limit = limit
        per_block = block[0] * block[1] * block[2]
        self.warps_per_block = -(-per_block // WARP)
        padded = self.warps_per_block * WARP
        self.threads = len(blocks) * padded
        self.everyone = np.arange(self.threads)
        self.linear = self.everyone % padded
        self.block_of = self.everyone // padded
        self.warp_of = self.linear // WARP  # within the block
        self.lane_of = self.linear % WARP
        self.alive = self.linear < per_block
        self.special = self._special(blocks)
        self.registers: dict[str, Array] = {}
        # Where nobody has written a register. In IREE's own kernels LLVM reads what it then does not use.
        self.undefined: dict[str, Array] = {} if memory.lenient else dict.fromkeys(entry.registers, self.alive)
        self.widths = {name: np.dtype(f"u{max(8, w) // 8}") for name, w in entry.registers.items() if w > 1}
        self.symbols = dict(symbols)
        self.locals, local_size = self._place("local", 0)
        self.local = np.zeros((self.threads, max(16, (local_size + 15) // 16 * 16)), np.uint8)
        places, static = self._place("shared", SHARED_START)
        self.symbols.update(places)
        size = static + dynamic_shared
        self.shared = SharedMemory(len(blocks), self.warps_per_block, size, self._granule(), memory.lenient)
        self.order, self.first_block = order or WarpOrder(self.warps_per_block), first_block
        self.copies: list[AsyncCopies] = []
        self.committed = np.zeros(self.threads, np.int64)
        self.products: list[WgmmaProduct] = []
        self.products_committed = np.zeros(self.threads, np.int64)
        self.fenced_at = np.full(self.threads // WARP // 4 + 1, -1, np.int64)  # by warpgroup: when wgmma.fence ran
        # When a register of a wgmma was written by something else, by warpgroup.
        self.written_at: dict[str, Array] = {
            name: np.full(self.threads // WARP // 4 + 1, -1, np.int64) for name in _of_products(entry)
        }
        self.barriers: dict[tuple[int, int], Barrier] = {}
        self.mbarriers: dict[tuple[int, int], MemoryBarrier] = {}  # by workgroup and offset
        self.executed: dict[str, int] = {}
        self.clock = 0
        first = self.alive.copy()
        self.fragments: dict[int, Array] = {0: first}
        self.gathering: dict[int, Array] = {}  # at an instruction of CONVERGENT, until the rest of the warp is there
        self.forced = False
        self.pc = 0
        self.random = None if seed is None else np.random.default_rng((seed, first_block))
        # Warps that run together: those of a warpgroup, where the kernel has products of one.
        self.together = 4 if any(i.opcode == "wgmma" for i in entry.instructions) else 1

    # ---- set-up

    def _special(self, blocks: Sequence[tuple[int, int, int]]) -> dict[str, Array]:
        x, y, _ = self.block
        ids = np.array(blocks, np.uint32)[self.block_of]
        tid = (self.linear % x, self.linear // x % y, self.linear // (x * y))
        special: dict[str, Array] = {"%laneid": self.lane_of, "%warpid": self.warp_of}
        for i, d in enumerate(_DIMENSIONS):
            special[f"%tid.{d}"] = tid[i]
            special[f"%ctaid.{d}"] = ids[:, i]
            special[f"%ntid.{d}"] = np.full(self.threads, self.block[i])
            special[f"%nctaid.{d}"] = np.full(self.threads, self.grid[i])
        lane = self.lane_of.astype(np.uint64)
        one = np.uint64(1)
        for name, mask in (
            ("lt", (one << lane) - one),
            ("le", (one << (lane + one)) - one),
            ("eq", one << lane),
            ("ge", ~((one << lane) - one)),
            ("gt", ~((one << (lane + one)) - one)),
        ):
            special[f"%lanemask_{name}"] = mask & np.uint64(0xFFFFFFFF)
        return {name: value.astype(np.uint32) for name, value in special.items()}

    def _place(self, space: str, start: int) -> tuple[dict[str, int], int]:
        """Addresses of the variables of a space, the ones without a size last, and how many bytes the others take."""
        found = [v for v in (*self.module.variables.values(), *self.entry.variables.values()) if v.space == space]
        places, at = {}, start
        for v in sorted(found, key=lambda v: v.size == 0):
            if self.module.variables.get(v.name) is v and v.size and not re_uses(self.entry, v.name):
                continue
            at = -(-at // v.align) * v.align
            places[v.name] = at
            at += v.size
        return places, at - start

    def _granule(self) -> int:
        """4 bytes, or less where the kernel has shorter accesses to shared memory."""
        sizes = [4]
        for i in self.entry.instructions:
            if i.opcode in ("ld", "st") and not any(i.has(space) for space in ("param", "global", "local", "const")):
                lanes = next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)
                sizes.append(width_of(i.type) // 8 * lanes)
        return min(sizes)

    # ---- operands

    def read(self, operand: PtxOperand, kind: str) -> Array:
        """An operand as the type says: an array of all threads, or a scalar."""
        if kind == "pred":
            return self.predicate(operand)
        dtype = DTYPES[kind] if kind in DTYPES else np.dtype(f"u{width_of(kind) // 8}")
        bits = unsigned(dtype)
        if isinstance(operand, Register):
            value = self._register(operand.name)
            if value.dtype != bits:
                value = value.astype(bits)
            return value.view(dtype)
        if isinstance(operand, Immediate):
            mask = (1 << 8 * dtype.itemsize) - 1
            value = np.array(operand.value & mask, bits)
            if operand.bits == 64 and kind == "f32":
                value = np.array(operand.value, np.uint64).view(np.float64).astype(np.float32).view(np.uint32)
            return np.full(self.threads, value, bits).view(dtype)
        if isinstance(operand, Symbol):
            return np.full(self.threads, self.address_of(operand.name), np.uint64).astype(bits).view(dtype)
        raise PtxError(f"an operand of type .{kind} cannot be {operand}")

    def read_packed(self, operand: PtxOperand, kind: str) -> Array:
        """A packed operand as `[threads, elements]`, the lowest first."""
        element, count = PACKED[kind]
        bits = np.dtype(f"u{width_of(kind) // 8}")
        raw = np.ascontiguousarray(self.read(operand, f"b{8 * bits.itemsize}"))
        made: Array = raw.view(DTYPES[element]).reshape(self.threads, count)
        return made

    def predicate(self, operand: PtxOperand) -> Array:
        if isinstance(operand, Immediate):
            return np.full(self.threads, bool(operand.value))
        if isinstance(operand, Register):
            value = self.registers.get(operand.name)
            return np.zeros(self.threads, np.bool_) if value is None else value
        raise PtxError(f"{operand} is not a predicate")

    def _register(self, name: str) -> Array:
        value = self.registers.get(name)
        if value is not None:
            return value
        if name in self.special:
            return self.special[name]
        if name in ("%clock", "%clock64", "%globaltimer"):
            return np.full(self.threads, self.clock, np.uint64)
        if name in self.widths:  # never written: some lane of the warp may be elsewhere
            return np.zeros(self.threads, self.widths[name])
        raise PtxError(f"unknown register {name}")

    def address_of(self, name: str) -> int:
        for table in (self.symbols, self.locals):
            if name in table:
                return table[name]
        raise PtxError(f"unknown symbol {name}")

    def addresses(self, operand: PtxOperand) -> Array:
        """Of `[base + offset]`, as int64."""
        if isinstance(operand, PtxAddress):
            return self.read(operand.base, "u64").astype(np.int64) + operand.offset
        return self.read(operand, "u64").astype(np.int64)

    def write(self, operand: PtxOperand, value: Array, mask: Mask) -> None:
        """Into a register: floats as their bits, integers extended by their sign."""
        if not isinstance(operand, Register):
            raise PtxError(f"{operand} is not a register")
        if operand.name == "_":
            return
        if value.dtype == np.bool_:
            new = value
        else:
            if value.dtype.kind not in "iu":
                value = value.view(unsigned(value.dtype))
            width = self.widths.get(operand.name)
            if width is None:
                raise PtxError(f"unknown register {operand.name}")
            if value.dtype.itemsize < width.itemsize and value.dtype.kind == "i":
                value = value.astype(np.dtype(f"i{width.itemsize}"))
            new = value.astype(width, copy=False) if value.dtype.kind == "u" else value.astype(width)
        if operand.name in self.undefined:
            left = self.undefined[operand.name] & ~mask if mask is not None else None
            if left is not None and left.any():
                self.undefined[operand.name] = left
            else:
                del self.undefined[operand.name]
        if operand.name in self.written_at and self.entry.instructions[self.pc].opcode != "wgmma":
            self.written_at[operand.name][self.active(mask) // (4 * WARP)] = self.clock
        if mask is not None:
            old = self.registers.get(operand.name)
            new = np.where(mask, new, np.zeros((), new.dtype) if old is None else old)
        elif new.shape != (self.threads,):
            new = np.broadcast_to(new, (self.threads,))
        self.registers[operand.name] = new

    def check_defined(self, names: Iterable[str], mask: Mask) -> None:
        """Raises AccessFault where a register is read that nobody has written."""
        for name in names:
            wrong = self.undefined.get(name)
            if wrong is None:
                continue
            if mask is not None:
                wrong = wrong & mask
            if wrong.any():
                lane = int(np.searchsorted(self.active(mask), np.flatnonzero(wrong)[0]))
                raise AccessFault(f"{name} is read, and nobody has written it", lane)

    def items(self, operand: PtxOperand) -> tuple[PtxOperand, ...]:
        """The parts of a vector operand; one that is none is its only part."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    def active(self, mask: Mask) -> Array:
        """Numbers of the threads that take part."""
        return self.everyone if mask is None else np.flatnonzero(mask)

    def place(self, threads: Array, offsets: Array) -> SharedPlace:
        return SharedPlace(self.block_of[threads], self.warp_of[threads], offsets)

    def access(self, threads: Array) -> Access:
        """Who accesses global memory."""
        blocks = self.block_of[threads] + self.first_block
        return Access(blocks, self.warp_of[threads], self.shared.clocks, self.first_block)

    def whole_warps(self, mask: Mask, what: str) -> Array:
        """The warps, over all blocks, that take part, each with all its lanes. Raises AccessFault."""
        if mask is None:
            return np.arange(self.threads // WARP)
        lanes = mask.reshape(-1, WARP)
        some, every = lanes.any(axis=1), lanes.all(axis=1)
        if (some & ~every).any():
            warp = int(np.flatnonzero(some & ~every)[0])
            thread = int(np.flatnonzero(mask)[np.searchsorted(np.flatnonzero(mask), warp * WARP)])
            raise AccessFault(f"{what} by a part of a warp", int(np.searchsorted(self.active(mask), thread)))
        return np.flatnonzero(every)

    # ---- running

    def run(self) -> PtxReport:
        """Until every thread has ended. Raises PtxError with the instruction and the thread at fault."""
        with np.errstate(all="ignore"):
            while self.fragments or self.gathering:
                if not self.fragments:  # nobody else will come
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
        """Raises PtxError; they go on so many instructions `behind` the one at which they wait."""
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
        threads: Array | None = self._some(self.fragments.pop(self.pc))
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

    def _some(self, threads: Array) -> Array:
        """The threads of a fragment that go first: all, or with a seed those of some warps."""
        if self.random is None:
            return threads
        units = np.repeat(self.random.random(-(-self.threads // (WARP * self.together))) < 0.5, WARP * self.together)
        first = threads & units[: self.threads]
        if not first.any() or (first == threads).all():
            return threads
        self.fragments[self.pc] = threads & ~first
        return first

    def _gathered(self, ins: PtxInstruction, threads: Array) -> Array | None:
        """Those of the threads whose warps are complete, with the ones that have waited here; the others wait."""
        waiting = self.gathering.pop(self.pc, None)
        if waiting is not None:
            threads = threads | waiting
        if self.forced:
            self.forced = False
            return threads
        wanted = self.alive.reshape(-1, WARP)
        if ins.opcode in ("shfl", "vote", "redux", "match", "elect"):
            wanted = wanted & self._members(ins, threads)
        lanes = threads.reshape(-1, WARP)
        some, missing = np.asarray(lanes.any(axis=1)), np.asarray((wanted & ~lanes).any(axis=1))
        late = (some & missing)[:, None] & lanes
        if late.any():
            self.gathering[self.pc] = late.reshape(-1)
            threads = threads & ~late.reshape(-1)
        return threads if threads.any() else None

    def _members(self, ins: PtxInstruction, threads: Array) -> Array:
        """`[warps, lanes]` that the masks of the threads name."""
        masks = np.where(threads, self.read(ins.operands[-1], "b32"), np.uint32(0)).reshape(-1, WARP)
        named = np.bitwise_or.reduce(masks, axis=1)
        made: Array = (named[:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1)).astype(np.bool_)
        return made

    def _let_others_run(self, threads: Array) -> None:
        """These threads go round in a loop: they may wait for what others do."""
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
        """Run one instruction; returns the threads that go on where that are not all of `threads`."""
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
            f"{tuple(int(self.special[f'%ctaid.{d}'][thread]) for d in _DIMENSIONS)})"
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
        """Threads come to a barrier of their block; those that wait go on when the last one has come."""
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
        """Those that waited go on; the others had only arrived."""
        for parked in waiting:
            if parked.pc >= 0:
                other = self.fragments.get(parked.pc)
                self.fragments[parked.pc] = parked.threads if other is None else other | parked.threads

    def _released_by_exit(self, gone: Array) -> None:
        """A barrier that all threads of a block must come to does not wait for those that have ended."""
        for block, number in list(self.barriers):
            if number == 0 and gone[self.block_of == block].any():
                barrier = self.barriers[block, number]
                if barrier.arrived == int((self.alive & (self.block_of == block)).sum()):
                    self._release(block, number)


def _of_products(entry: PtxEntry) -> set[str]:
    """The registers of the entry's `wgmma.mma_async`, but for descriptors."""
    return {
        r.name
        for i in entry.instructions
        if i.opcode == "wgmma" and i.has("mma_async")
        for operand in i.operands[:2]
        if isinstance(operand, Vector)
        for r in operand.items
        if isinstance(r, Register)
    }


def re_uses(entry: PtxEntry, name: str) -> bool:
    """Whether an entry names a variable of the module: only then is it its own."""
    return name in entry.text
