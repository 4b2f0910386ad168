"""Run a launch: start its waves and execute them until they end."""

from __future__ import annotations

import numpy as np

from ..launch import Counts, EmulationError, KernelLaunch, Settings
from ..memory import Allocation, Memory
from . import code_object, device_memory, lanes, lds_instructions, matrix, packed, scalar, vector
from .decode import ACC, EXEC, AmdInstruction, decode
from .gang import Gang
from .generation import Generation
from .lds import Lds
from .operands import Builder, DecodedOperation
from .ordering import WaveOrder
from .reach import Reach
from .shadow import LDS, LOAD, SCALAR, STORE, InstructionFault, RegisterShadow
from .waves import Array, register_bits

_BY_IREE = "_dispatch_"  # in the names of kernels that IREE generates, not in those of qmlir's kernels
RUNNING, WAITING, ENDED = range(3)
_WAVES = 32  # that are executed together, if a launch has as many
_FAIR = 20000  # instructions that some waves may execute while others of their gang are ready
_REPORT = 4096

DecodedProgram = dict[int, DecodedOperation]


class AmdExecutor:
    """Executes code objects for AMD GPUs."""

    def run(self, launch: KernelLaunch, memory: Memory, settings: Settings) -> Counts:
        """Execute a launch to its end.

        Raises:
            EmulationError: the device would refuse the launch, or the kernel has a fault.
        """
        with np.errstate(all="ignore"):
            return _Run(launch, memory, settings).execute()


class _Run:
    """One launch."""

    def __init__(self, launch: KernelLaunch, memory: Memory, settings: Settings) -> None:
        self.launch, self.settings = launch, settings
        self.object = code_object.load(launch.code)
        wanted = settings.target.rpartition(":")[2]
        self.generation = self.object.generation
        if wanted != self.generation.name:
            raise EmulationError(f"the code object is for {self.generation.name}, the emulated device is a {wanted}")
        if launch.function not in self.object.kernels:
            known = ", ".join(sorted(self.object.kernels))
            raise EmulationError(f"the code object has no kernel {launch.function}; it has {known}")
        self.kernel = self.object.kernels[launch.function]
        self.shared = self.kernel.shared_bytes + launch.shared_bytes
        self._check_limits()
        self.program: DecodedProgram = self.object.decoded.setdefault(self.kernel.lanes, {})
        self.random = None if settings.seed is None else np.random.default_rng(settings.seed)
        # Code by LLVM may load beyond the end of the kernarg segment, up to its alignment.
        size = (max(self.kernel.kernarg_bytes, len(launch.arguments)) + 127) & ~63
        self.arguments = np.frombuffer(launch.arguments.ljust(size, b"\0"), np.uint8).copy()
        own = [_own_allocation(self.arguments), _own_allocation(self.object.image)]
        self.waves = -(-int(np.prod(launch.block)) // self.kernel.lanes)  # per workgroup
        order = WaveOrder(int(np.prod(launch.grid)), self.waves, self.generation.writes_back)
        self.reach = Reach(memory, own, _pointers(self.arguments, memory), launch.function, order)
        self.counts: dict[str, int] = {}
        self.executed = self.reported = self.shared_accessed = self.conflicts = 0

    def _check_limits(self) -> None:
        launch, kernel = self.launch, self.kernel
        threads = int(np.prod(launch.block))
        limit = self.generation.shared_bytes
        if threads > 1024 or threads == 0:
            raise EmulationError(
                f"{launch.function} has workgroups of {threads} work items; the device's limit is 1024"
            )
        if self.shared > limit:
            raise EmulationError(
                f"{launch.function} needs {self.shared} bytes of LDS; {self.generation.name} has {limit}"
            )
        if kernel.float_mode != 0xF0:
            raise EmulationError(f"{launch.function} sets a float mode ({kernel.float_mode:#x}) that is not emulated")
        if any(size <= 0 or size >= 1 << 32 for size in launch.grid):
            raise EmulationError(f"{launch.function} is launched with a grid of {launch.grid}")

    def execute(self) -> Counts:
        x, y, z = self.launch.grid
        groups = np.arange(x * y * z)
        if self.random is not None:
            self.random.shuffle(groups)
        together = max(1, _WAVES // self.waves)
        for at in range(0, len(groups), together):
            self._gang(groups[at : at + together], self.waves)
        return Counts(self.counts, self.reach.read, self.reach.stored, self.shared_accessed, self.conflicts)

    # ---- starting waves

    def _gang(self, groups: Array, waves: int) -> None:
        vectors = ACC if self.generation.cdna else ACC - 256
        g = Gang(len(groups) * waves, self.kernel.lanes, vectors)
        g.group, g.wave = np.repeat(groups, waves), np.tile(np.arange(waves), len(groups))
        g.lds = Lds(len(groups), self.shared, g.waves, _BY_IREE in self.launch.function)
        g.lds_base = np.repeat(np.arange(len(groups)), waves) * g.lds.pitch
        g.reach, g.base = self.reach, self.object.base
        g.shadow = RegisterShadow(g, self.generation)
        g.banks = self.generation.banks
        g.scratch_bytes = self.kernel.scratch_bytes
        if g.scratch_bytes:
            private = np.zeros(g.waves * g.lanes * g.scratch_bytes, np.uint8)
            held = _own_allocation(private)
            held.written = np.zeros(len(private), np.bool_)
            held.origins = np.zeros(len(private), np.uint16)
            g.scratch_base = held.start
            self.reach.own.append(held)
        self._registers(g)
        self._waves(g)
        if g.scratch_bytes:
            self.reach.own.pop()
        self.shared_accessed += g.lds.bytes
        self.conflicts += g.lds.conflicts

    def _registers(self, g: Gang) -> None:
        """Set the initial values of the waves' registers (LLVM's "Initial Kernel Execution State")."""
        kernel, launch = self.kernel, self.launch
        known = 0
        address = int(self.arguments.ctypes.data)
        at = 0
        # Private segment buffer, dispatch, queue, kernarg segment, dispatch id, flat scratch, private segment size.
        for bit, registers in enumerate((4, 2, 2, 2, 2, 2, 1)):
            if not kernel.user >> bit & 1:
                continue
            if bit == 0 and g.scratch_bytes:
                for i, word in enumerate((g.scratch_base & 0xFFFFFFFF, g.scratch_base >> 32, 0xFFFFFFFF, 1 << 23)):
                    g.s_u32[at + i] = word
                known |= register_bits(at, 4)
            if bit == 3:
                g.s_u32[at], g.s_u32[at + 1] = address & 0xFFFFFFFF, address >> 32
                known |= register_bits(at, 2)
            at += registers
        words = self.arguments[: len(self.arguments) & ~3].view(np.uint32)
        for i in range(kernel.preloaded):
            if kernel.preload_offset + i < len(words):
                g.s_u32[at + i] = words[kernel.preload_offset + i]
            known |= register_bits(at + i, 1)
        at = kernel.user_registers
        x, y, _ = launch.grid
        ids = (g.group % x, g.group // x % y, g.group // (x * y))
        if self.generation.ids_in_traps:
            g.s_u32[108 + 9], g.s_u32[108 + 7] = ids[0], ids[1] | ids[2] << 16
            known |= register_bits(108 + 9, 1) | register_bits(108 + 7, 1)
        else:
            for enabled, value in zip(kernel.workgroup_ids, ids, strict=True):
                if enabled:
                    g.s_u32[at] = value
                    known |= register_bits(at, 1)
                    at += 1
        if kernel.wave_offset and self.generation.scratch_offset:
            g.s_u32[at] = np.arange(g.waves) * g.lanes * g.scratch_bytes
            known |= register_bits(at, 1)
        bx, by, bz = launch.block
        item = g.wave[:, None] * g.lanes + np.arange(g.lanes)
        exists = item < bx * by * bz
        packed_ids = item % bx
        if kernel.workitem_ids > 0:
            packed_ids = packed_ids | (item // bx % by) << 10
        if kernel.workitem_ids > 1:
            packed_ids = packed_ids | (item // (bx * by)) << 20
        g.u32[0] = packed_ids
        known |= register_bits(256, 1) | register_bits(EXEC, 2)
        g.exec[...] = exists
        g.select(np.arange(g.waves))
        g.set_exec(exists)
        shadow = g.shadow
        for bit in range(ACC + 128):
            if known >> bit & 1:
                (shadow.unset if bit < ACC else shadow.unset_scalars)[bit - (ACC if bit >= ACC else 0)] = 0
        shadow.unwritten &= ~known

    # ---- executing

    def _waves(self, g: Gang) -> None:
        entry = self.kernel.entry + (256 if self.kernel.preloaded else 0)
        pc = np.full(g.waves, entry, np.int64)
        state = np.full(g.waves, RUNNING, np.int8)
        age = np.zeros(g.waves, np.int64)
        while True:
            ready = state == RUNNING
            if not ready.any():
                if (state == ENDED).all():
                    return
                self._barrier(g, pc, state)
                continue
            chosen, stop, budget = self._choose(pc, ready, age)
            g.select(chosen)
            before = self.executed
            outcome, address = self._advance(g, int(pc[chosen[0]]), stop, budget)
            age[chosen] += self.executed - before
            pc[chosen] = address
            if outcome == "barrier":
                state[chosen] = WAITING
                self._barrier(g, pc, state)
            elif outcome == "end":
                state[chosen] = ENDED

    def _choose(self, pc: Array, ready: Array, age: Array) -> tuple[Array, int, int]:
        """Choose the waves to execute: those at the lowest address, so that waves that diverged meet again.

        Also returns the next address at which other waves wait (-1: none), and how many instructions may be executed.
        """
        places = np.unique(pc[ready])
        at = int(places[0])
        budget = 1 << 60
        if len(places) > 1:
            budget = _FAIR
            mine = ready & (pc == at)
            if age[mine].min() > age[ready & ~mine].min() + _FAIR:  # they may be polling for the others
                at = int(pc[ready & ~mine][age[ready & ~mine].argmin()])
        if self.random is not None:
            at = int(self.random.choice(places))
            budget = int(self.random.integers(1, 400))
        chosen = np.flatnonzero(ready & (pc == at))
        if self.random is not None and len(chosen) > 1:
            chosen = np.sort(self.random.choice(chosen, int(self.random.integers(1, len(chosen) + 1)), replace=False))
        later = places[places > at]
        return chosen, int(later[0]) if len(later) else -1, budget

    def _advance(self, g: Gang, pc: int, stop: int, budget: int) -> tuple[str, Array | int]:
        """Execute the selected waves from `pc` until they diverge, reach others at `stop`, use up `budget`, or stop."""
        program, shadow, counts = self.program, g.shadow, self.counts
        count = g.count
        while True:
            op = program.get(pc)
            if op is None:
                op = program[pc] = self._operation(pc)
            try:
                if op.uses & (shadow.pending | shadow.unwritten) or op.defines & shadow.pending:
                    shadow.before(g, op)
                result = op.run(g)
                if (op.uses | op.defines) & shadow.unwritten:
                    shadow.after(g, op)
                if op.control and isinstance(result, str) and result != "end":
                    shadow.barrier(g)
            except InstructionFault as fault:
                raise self._explained(g, op, fault) from fault
            counts[op.kind] = counts.get(op.kind, 0) + count
            self.executed += count
            budget -= 1
            pc = op.following
            if op.control:
                if isinstance(result, str):
                    if result != "signal":
                        return result, pc
                elif isinstance(result, int):
                    pc = result
                    if stop >= 0:
                        return "parted", pc
                elif result is not None:
                    return "parted", result
            if pc == stop or budget <= 0:
                return "parted", pc
            if self.executed - self.reported >= _REPORT and self.settings.progress is not None:
                self.settings.progress(self.executed)
                self.reported = self.executed

    def _barrier(self, g: Gang, pc: Array, state: Array) -> None:
        """Resume the workgroups whose waves have all reached a barrier."""
        waiting = False
        for group in np.unique(g.group[state == WAITING]):
            mine = g.group == group
            if (state[mine] == WAITING).all():
                g.lds.epoch[mine] += np.uint32(1)
                self.reach.order.barrier(g.group[mine] * self.waves + g.wave[mine])
                state[mine] = RUNNING
            else:
                waiting = True
        if waiting and not (state == RUNNING).any():
            stuck = np.flatnonzero(state == WAITING)[0]
            gone = [int(w) for w in g.wave[(g.group == g.group[stuck]) & (state == ENDED)]]
            raise EmulationError(
                f"{self.launch.function}, workgroup {self._group(g, stuck)}: wave {int(g.wave[stuck])} waits at a "
                f"barrier before {pc[stuck]:#x} that waves {gone} never reach: they have ended"
            )

    def _operation(self, pc: int) -> DecodedOperation:
        low, high = self.object.code
        if not low <= pc < high:
            raise EmulationError(f"{self.launch.function} leaves its code: the next instruction would be at {pc:#x}")
        ins = decode(self.object.image[pc : pc + 24].tobytes(), pc, self.generation)
        try:
            op = operation(ins, self.generation, self.kernel.lanes)
        except EmulationError as e:
            raise EmulationError(f"{self.launch.function} at {pc:#x}: {e}") from e
        if op is None:
            raise EmulationError(f"{self.launch.function} at {pc:#x}: {ins.name} ({ins.form}) is not emulated")
        return op

    # ---- messages

    def _group(self, g: Gang, wave: int) -> tuple[int, int, int]:
        x, y, _ = self.launch.grid
        group = int(g.group[wave])
        return group % x, group // x % y, group // (x * y)

    def _explained(self, g: Gang, op: DecodedOperation, fault: InstructionFault) -> EmulationError:
        ins = op.instruction
        where = f"{self.launch.function}, {ins.name} at {ins.address:#x}"
        if fault.wave >= 0:
            wave = int(g.index[fault.wave])
            where += f", workgroup {self._group(g, wave)}, wave {int(g.wave[wave])}"
            if fault.lane >= 0:
                where += f", lane {fault.lane}"
        return EmulationError(f"{where}: {fault}")


def operation(ins: AmdInstruction, generation: Generation, wave_lanes: int) -> DecodedOperation | None:
    """The operation of an instruction, None if it is not emulated."""
    if (wait := _wait(ins, generation)) is not None:
        return wait
    found = scalar.build(ins, generation, wave_lanes) or device_memory.build(ins, generation, wave_lanes)
    for build in (lds_instructions.build, matrix.build, packed.build, lanes.build):
        found = found or build(Builder(ins, generation, wave_lanes))
    return found or vector.build(ins, generation, wave_lanes)


def _wait(ins: AmdInstruction, generation: Generation) -> DecodedOperation | None:
    """The operation of an instruction that waits for counters, None if `ins` is of another kind."""
    value = ins.get("simm16")
    if ins.name == "s_waitcnt":
        if generation.cdna:
            waits = [(LOAD, value & 15 | value >> 10 & 48, 63), (LDS, value >> 8 & 15, 15)]
        else:
            waits = [(LOAD, value >> 10 & 63, 63), (LDS, value >> 4 & 63, 63)]
        found = [(counter, most) for counter, most, none in waits if most != none]
    elif ins.name == "s_waitcnt_vscnt":
        found = [(STORE, value & 63)]
    elif ins.name in _GFX12_WAITS:
        counters = _GFX12_WAITS[ins.name]
        if len(counters) == 2:
            found = [(counters[0], value >> 8 & 63), (counters[1], value & 63)]
        else:
            found = [(counters[0], value & 63)]
    else:
        return None

    stores = (STORE if generation.store_counter else LOAD, 0) in found

    def run(g: Gang) -> None:
        for counter, most in found:
            g.shadow.wait(g, counter, most)
        if stores:
            g.reach.order.waited(g)

    return DecodedOperation(ins, run, kind="wait", flow="cross")


_GFX12_WAITS = {
    "s_wait_loadcnt": (LOAD,), "s_wait_storecnt": (STORE,), "s_wait_dscnt": (LDS,), "s_wait_kmcnt": (SCALAR,),
    "s_wait_loadcnt_dscnt": (LOAD, LDS), "s_wait_storecnt_dscnt": (STORE, LDS),
}  # fmt: skip


def _own_allocation(data: Array) -> Allocation:
    return Allocation(int(data.ctypes.data), data.nbytes, data, None)


def _pointers(arguments: Array, memory: Memory) -> list[tuple[int, int]]:
    """Byte offset and value of the words of the kernel's arguments that are addresses of device memory."""
    words = arguments[: len(arguments) & ~7].view(np.uint64)
    return [(8 * i, int(word)) for i, word in enumerate(words) if memory.find(int(word)) is not None]
