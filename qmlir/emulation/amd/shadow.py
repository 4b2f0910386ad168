"""Checks that hardware does not make: uses of unwritten values, and of results that have not arrived.

A value is unwritten if it comes from a register or memory that nobody wrote. Compilers read, move and compute with such
values; it is an error if an address or a value stored to global memory depends on one. Each lane of a register has an
origin number: the index in `RegisterShadow.origins` of where its unwritten value comes from, 0 for a written value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np

from ..launch import EmulationError
from .decode import ACC, VGPR, AmdInstruction
from .generation import Generation
from .waves import Array, Waves, register_name, registers_of

# Counters of outstanding instructions. CDNA counts stores as loads; all but gfx12 count LDS and scalar loads together.
LOAD, STORE, LDS, SCALAR = range(4)
COUNTERS = ("load", "store", "LDS", "scalar load")
_SCALAR_BITS = ((1 << 128) - 1) << ACC
_VECTOR_BITS = (1 << ACC) - 1


# See `operands.DecodedOperation.flow`.
Flow: TypeAlias = "str | Callable[..., None]"


class Effects(Protocol):
    """The fields of `operands.DecodedOperation` that describe what an instruction reads and writes."""

    instruction: AmdInstruction
    uses: int
    defines: int
    flow: Flow
    loads: bool
    counter: int
    addresses: int
    stored: int
    reaches: Callable[[Waves], Array] | None
    chooses: Callable[[Waves], Array] | None
    choices: tuple[int, ...]


class RegisterShadow:
    """For the registers of a gang: origins of unwritten values, and results that are outstanding."""

    def __init__(self, g: Waves, generation: Generation) -> None:
        self.generation = generation
        self.origins = ["", "a register that nobody wrote"]
        self.copied: set[int] = set()  # origins in device memory: their values may be stored and stay unwritten
        self.unset = np.ones(g.u32.shape, np.uint16)
        self.unset_scalars = np.ones(g.s_u32.shape, np.uint16)
        self.masks: dict[int, Array] = {}  # origins of each lane in scalar registers that hold lane masks
        self.unwritten = ((1 << len(g.u32)) - 1) | _SCALAR_BITS
        self.issued = np.zeros((4, g.waves), np.int64)
        self.done = np.zeros((4, g.waves), np.int64)
        # Issue number and counter of the last load of each half of a register: loads of 16 bits or less fill one half.
        self.arrives = np.zeros((2, ACC + 128, g.waves), np.int64)
        self.by = np.zeros((2, ACC + 128, g.waves), np.int8)
        self.pending = 0
        self.last_lds_store = np.zeros((2, g.waves), np.int64)  # issue numbers: of LDS, of loads to LDS

    # ---- before and after an instruction

    def before(self, g: Waves, op: Effects) -> None:
        """Check that the registers of an instruction have arrived, and its addresses and stored values are written."""
        waiting = (op.uses | op.defines) & self.pending
        if waiting:
            self._check_arrived(g, op, waiting)
        if (op.addresses | op.stored) & self.unwritten:
            self._check_written(g, op)

    def after(self, g: Waves, op: Effects) -> None:
        """Propagate unwritten values to the results."""
        flow = op.flow
        if flow == "memory":
            return
        found = None
        unwritten = op.uses & self.unwritten
        if unwritten and flow == "lane":
            found = self.found(g, op)
        elif unwritten and flow == "scalar":
            self._scalars(g, op, unwritten)
            return
        elif callable(flow):  # even if all it reads is written: it says which result lanes become written
            flow(g, self)
            return
        if found is not None or op.defines & self.unwritten:
            self.set(g, op.defines, found)

    def found(self, g: Waves, op: Effects) -> Array | None:
        """Origin numbers of the result of a per-lane instruction, as `joined`."""
        if op.chooses is None:
            return self.joined(g, op.uses & self.unwritten)
        sides = []
        for number in op.choices:
            part = np.zeros(g.on.shape, np.uint16)
            if number >= VGPR:
                part = self.unset[number - VGPR][g.at]
            elif number < 128:
                part = np.broadcast_to(self.unset_scalars[number][g.at][:, None], g.on.shape)
            sides.append(part)
        return np.where(op.chooses(g), sides[1], sides[0])

    def joined(self, g: Waves, registers: int) -> Array | None:
        """Origin numbers `[waves, lanes]`, taken from any of these registers; None: no active lane is unwritten."""
        found: Array | None = None
        for number in registers_of(registers):
            if number >= VGPR:
                part = self.unset[number - VGPR][g.at]
            else:
                part = self._lanes_of(g, number)
            found = part.copy() if found is None else np.maximum(found, part)
        return found if found is not None and (found[g.on] > 0).any() else None

    def _scalars(self, g: Waves, op: Effects, unwritten: int) -> None:
        numbers = [n for n in registers_of(unwritten) if n < VGPR]
        found = (
            np.max([self.unset_scalars[n][g.at] for n in numbers], axis=0) if numbers else np.zeros(g.count, np.uint16)
        )
        lanes = None
        if any(n in self.masks for n in numbers):
            lanes = np.max([self._lanes_of(g, n) for n in numbers], axis=0)
        for number in registers_of(op.defines):
            if number < VGPR:
                self.set_scalar(g, number, found, lanes)

    def _lanes_of(self, g: Waves, number: int) -> Array:
        """Origin numbers of a scalar register, for each lane."""
        if number in self.masks:
            held: Array = self.masks[number][g.at]
            return held
        return np.broadcast_to(self.unset_scalars[number][g.at][:, None], g.on.shape)

    def set_scalar(self, g: Waves, number: int, found: Array, lanes: Array | None = None) -> None:
        """Set the origin numbers of a scalar register of the selected waves; `lanes`: for each lane, of a lane mask."""
        if lanes is not None and number not in self.masks:
            self.masks[number] = np.repeat(self.unset_scalars[number][:, None], g.lanes, axis=1)
        self.unset_scalars[number, g.at] = found
        if number in self.masks:
            self.masks[number][g.at] = found[:, None] if lanes is None else lanes
        self.update(number)

    def set(self, g: Waves, registers: int, found: Array | None) -> None:
        """Set the origin numbers of the active lanes of registers to `found` (None: written)."""
        for number in registers_of(registers):
            if number >= VGPR:
                g.put(self.unset[number - VGPR], 0 if found is None else found)
                self.update(number)
            elif found is None:
                self.set_scalar(g, number, np.zeros(g.count, np.uint16))
            else:
                found = np.where(g.on, found, 0) if found.shape == g.on.shape else found
                self.set_scalar(g, number, found.max(axis=1), found if found.shape == g.on.shape else None)

    def update(self, number: int) -> None:
        """Update whether any lane of a register is unwritten."""
        at = number - VGPR if number >= VGPR else ACC + number
        some = (self.unset[number - VGPR] if number >= VGPR else self.unset_scalars[number]).any()
        self.unwritten = self.unwritten | 1 << at if some else self.unwritten & ~(1 << at)

    def origin(self, text: str, *, memory: bool = False) -> int:
        """The origin number of unwritten values from the place that `text` names; `memory`: it is in device memory."""
        if text not in self.origins and len(self.origins) < 60000:
            self.origins.append(text)
            if memory:
                self.copied.add(len(self.origins) - 1)
        return self.origins.index(text) if text in self.origins else 1

    def _check_written(self, g: Waves, op: Effects) -> None:
        for registers, what in ((op.addresses, "its address"), (op.stored, "what it stores")):
            lanes = op.reaches(g) if op.reaches is not None and registers is op.stored else g.on
            for number in registers_of(registers & self.unwritten):
                if number >= VGPR:
                    part = np.where(lanes, self.unset[number - VGPR][g.at], 0)
                else:
                    part = np.broadcast_to(self.unset_scalars[number][g.at][:, None], g.on.shape) * g.on.any(
                        axis=1, keepdims=True
                    )
                if registers is op.stored and self.copied:
                    part = np.where(np.isin(part, list(self.copied)), 0, part)
                if part.any():
                    wave, lane = np.argwhere(part)[0]
                    raise InstructionFault(
                        f"{what} comes from {self.origins[part[wave, lane]]} ({register_name(number)})",
                        int(wave),
                        int(lane),
                    )

    # ---- waiting

    def arrived(self, g: Waves, registers: int) -> None:
        """Check that registers that an instruction reads by an index have arrived."""
        for number in registers_of(registers & self.pending):
            at = number - VGPR
            late = self._late(g, at, 3)
            if late.any():
                raise InstructionFault(
                    f"it reads {register_name(number)} before it is waited for", int(np.argmax(late)), -1
                )

    def _late(self, g: Waves, at: int, halves: int) -> Array:
        """The waves for which these halves of a register have not arrived."""
        late = np.zeros(g.count, np.bool_)
        for half in (0, 1):
            if halves >> half & 1:
                late |= self.arrives[half, at][g.at] > self.done[self.by[half, at][g.at], g.index]
        return late

    def _check_arrived(self, g: Waves, op: Effects, waiting: int) -> None:
        for number in registers_of(waiting):
            at = number - VGPR if number >= VGPR else ACC + number
            kinds = self.by[:, at, g.at]
            if op.loads and number not in registers_of(op.uses & waiting) and (kinds == op.counter).all():
                continue  # results of the same counter arrive in order
            late = self._late(g, at, op.instruction.halves.get(number, 3))
            if late.any():
                wave = int(np.argmax(late))
                kinds = kinds.max(axis=0)
                verb = "reads" if op.uses >> at & 1 else "overwrites"
                raise InstructionFault(
                    f"it {verb} {register_name(number)} before the {COUNTERS[kinds[wave]]} that fills it was waited "
                    "for",
                    wave, -1,
                )  # fmt: skip

    def issue(self, g: Waves, counter: int, registers: int, halves: int = 3) -> None:
        """Record that an instruction of a counter was issued, whose results go to these halves of these registers."""
        if counter == STORE and not self.generation.store_counter:
            counter = LOAD
        self.issued[counter, g.at] += 1
        if registers:
            now = self.issued[counter, g.at]
            for number in registers_of(registers):
                at = number - VGPR if number >= VGPR else ACC + number
                for half in (0, 1):
                    if halves >> half & 1:
                        self.arrives[half, at, g.at] = now
                        self.by[half, at, g.at] = counter
            self.pending |= registers

    def wait(self, g: Waves, counter: int, most: int) -> None:
        """Record a wait until at most `most` instructions of a counter are outstanding."""
        shared = counter in (LDS, SCALAR) and self.generation.shared_counter
        if shared:
            mixed = (self.issued[SCALAR, g.at] > self.done[SCALAR, g.at]) & (most > 0)
            for kind in (LDS, SCALAR) if most == 0 else (LDS,):
                reached = np.maximum(self.done[kind, g.at], self.issued[kind, g.at] - most)
                self.done[kind, g.at] = np.where(mixed, self.done[kind, g.at], reached)
        elif counter == SCALAR and most > 0:
            return  # scalar loads arrive in any order
        else:
            self.done[counter, g.at] = np.maximum(self.done[counter, g.at], self.issued[counter, g.at] - most)
        if self.pending:
            numbers = registers_of(self.pending)
            at = np.array([n - VGPR if n >= VGPR else ACC + n for n in numbers])
            late = (self.arrives[:, at] > self.done[self.by[:, at], np.arange(g.waves)]).any(axis=(0, 2))
            self.pending = sum(1 << int(a) for a in at[late])

    def lds_stored(self, g: Waves, through_load: bool = False) -> None:
        """Record that the LDS instruction, or load to LDS, that was just issued writes LDS."""
        counter = LOAD if through_load else LDS
        self.last_lds_store[int(through_load), g.at] = self.issued[counter, g.at]

    def barrier(self, g: Waves) -> None:
        """Check that writes to LDS before a barrier have been waited for."""
        for through_load, counter in enumerate((LDS, LOAD)):
            late = self.last_lds_store[through_load, g.at] > self.done[counter, g.at]
            if late.any():
                raise InstructionFault(
                    f"a wave comes to a barrier before its last {'load to' if through_load else 'store to'} LDS was "
                    "waited for: other waves may read stale data",
                    int(np.argmax(late)), -1,
                )  # fmt: skip


class InstructionFault(EmulationError):
    """A fault of an instruction, in a wave of the selection and a lane (-1: in no particular one)."""

    def __init__(self, text: str, wave: int = -1, lane: int = -1) -> None:
        super().__init__(text)
        self.wave, self.lane = wave, lane
