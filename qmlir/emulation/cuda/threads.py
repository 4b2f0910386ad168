"""State of the threads of several blocks; reads and writes of the operands of instructions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .buffers import AccessFault
from .formats import DTYPES, PACKED, Array, unsigned
from .instructions import (
    Immediate,
    PtxAddress,
    PtxEntry,
    PtxError,
    PtxModule,
    PtxOperand,
    Register,
    Symbol,
    Vector,
    width_of,
)
from .memory import SHARED_START, GlobalMemory, SharedMemory, SharedPlace
from .ordering import Access, WarpOrder

Mask = Array | None  # which threads take part; None: all

WARP = 32
DIMENSIONS = "xyz"
_PARAMETER_GAP = 64  # bytes: gaps, so that no access reaches from one parameter into the next


class PtxThreads:
    """The threads of `blocks` of one grid. Arrays have one element per thread, padded to whole warps.

    Args:
        parameters: bytes of each parameter of the entry, by name.
        symbols: addresses of the module's variables.
        order: order of the launch; these are its workgroups from number `first_block` on.
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
        order: WarpOrder | None = None,
        first_block: int = 0,
    ) -> None:
        self.module, self.entry, self.memory = module, entry, memory
        self.grid, self.block = grid, block
        self._parameter_places, self._parameters = _laid_out(parameters)
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
        # Threads for which a register is unwritten. Not kept for IREE's own kernels: LLVM reads values it does not use.
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
        # The clock at which another instruction last wrote a register of a wgmma, by warpgroup.
        self.written_at: dict[str, Array] = {
            name: np.full(self.threads // WARP // 4 + 1, -1, np.int64) for name in _wgmma_registers(entry)
        }
        self.clock = 0  # instructions executed so far
        self.pc = 0

    # ---- set-up

    def _special(self, blocks: Sequence[tuple[int, int, int]]) -> dict[str, Array]:
        x, y, _ = self.block
        ids = np.array(blocks, np.uint32)[self.block_of]
        tid = (self.linear % x, self.linear // x % y, self.linear // (x * y))
        special: dict[str, Array] = {"%laneid": self.lane_of, "%warpid": self.warp_of}
        for i, d in enumerate(DIMENSIONS):
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
        """Addresses of the variables of a space, those without a size last, and the total size in bytes."""
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
        """Granule of the shadow: 4 bytes, or less if the kernel has shorter accesses to shared memory."""
        sizes = [4]
        for i in self.entry.instructions:
            if i.opcode in ("ld", "st") and not any(i.has(space) for space in ("param", "global", "local", "const")):
                lanes = next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)
                sizes.append(width_of(i.type) // 8 * lanes)
        return min(sizes)

    # ---- operands

    def read(self, operand: PtxOperand, kind: str) -> Array:
        """The values of an operand as type `kind`, one per thread."""
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
        """The elements of a packed operand, `[threads, elements]`, the lowest first."""
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
        if name in self.widths:  # not written yet: some lane of the warp may be at another instruction
            return np.zeros(self.threads, self.widths[name])
        raise PtxError(f"unknown register {name}")

    def address_of(self, name: str) -> int:
        for table in (self.symbols, self.locals, self._parameter_places):
            if name in table:
                return table[name]
        raise PtxError(f"unknown symbol {name}")

    def addresses(self, operand: PtxOperand) -> Array:
        """The address `[base + offset]` of each thread, as int64."""
        if isinstance(operand, PtxAddress):
            return self.read(operand.base, "u64").astype(np.int64) + operand.offset
        return self.read(operand, "u64").astype(np.int64)

    def parameter(self, addresses: Array, width: int) -> Array:
        """`width` bytes of the entry's parameters at each address: `[addresses, bytes]`."""
        at = addresses[:, None] + np.arange(width)
        inside = (at >= 0) & (at < len(self._parameters))
        value = self._parameters[np.where(inside, at, 0)]
        if not (inside & (value >= 0)).all():
            raise PtxError(f"{width} bytes at {int(addresses[0])} of the parameters are not all there")
        return value.astype(np.uint8)

    def write(self, operand: PtxOperand, value: Array, mask: Mask) -> None:
        """Write a register: floats as their bits, signed integers sign-extended."""
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
        """Raises AccessFault if a thread reads a register that it has not written."""
        for name in names:
            wrong = self.undefined.get(name)
            if wrong is None:
                continue
            if mask is not None:
                wrong = wrong & mask
            if wrong.any():
                lane = int(np.searchsorted(self.active(mask), np.flatnonzero(wrong)[0]))
                raise AccessFault(f"{name} is read before it is written", lane)

    def items(self, operand: PtxOperand) -> tuple[PtxOperand, ...]:
        """The elements of a vector operand; any other operand is its own only element."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    # ---- participating threads

    def active(self, mask: Mask) -> Array:
        """Numbers of the threads that take part."""
        return self.everyone if mask is None else np.flatnonzero(mask)

    def place(self, threads: Array, offsets: Array) -> SharedPlace:
        return SharedPlace(self.block_of[threads], self.warp_of[threads], offsets)

    def access(self, threads: Array) -> Access:
        """An access of these threads to global memory."""
        blocks = self.block_of[threads] + self.first_block
        return Access(blocks, self.warp_of[threads], self.shared.clocks, self.first_block)

    def whole_warps(self, mask: Mask, what: str) -> Array:
        """The participating warps, numbered over all blocks. Raises AccessFault if only part of a warp participates."""
        if mask is None:
            return np.arange(self.threads // WARP)
        lanes = mask.reshape(-1, WARP)
        some, every = lanes.any(axis=1), lanes.all(axis=1)
        if (some & ~every).any():
            warp = int(np.flatnonzero(some & ~every)[0])
            thread = int(np.flatnonzero(mask)[np.searchsorted(np.flatnonzero(mask), warp * WARP)])
            raise AccessFault(f"{what} by a part of a warp", int(np.searchsorted(self.active(mask), thread)))
        return np.flatnonzero(every)


def _laid_out(parameters: Mapping[str, bytes]) -> tuple[dict[str, int], Array]:
    """Offset of each parameter, and the bytes of all of them; -1 in the gaps between them."""
    places, memory = {}, [-1]
    for name, content in parameters.items():
        memory += [-1] * (_PARAMETER_GAP - len(memory) % _PARAMETER_GAP)
        places[name] = len(memory)
        memory += content
    return places, np.array(memory, np.int16)


def _wgmma_registers(entry: PtxEntry) -> set[str]:
    """The registers of the entry's `wgmma.mma_async` instructions, except descriptors."""
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
    """Whether an entry uses a variable of the module; variables that it does not use take no memory in its launches."""
    return name in entry.text
