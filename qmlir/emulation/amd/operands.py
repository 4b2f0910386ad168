"""Operands of instructions: their reads and writes, as functions of a gang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..launch import EmulationError
from .decode import ACC, EXEC, LITERAL, NULL_RDNA, VGPR, AmdInstruction
from .gang import Gang
from .generation import Generation
from .shadow import Flow
from .waves import Array, Waves, register_bits

# Returns an array of lanes, or a numpy scalar if all lanes have the same value; these have no common type.
ReadOperand = Callable[[Waves], Any]
Store = Callable[[Waves, Any], None]

WIDTH = {"u16": 16, "i16": 16, "f16": 16, "u32": 32, "i32": 32, "f32": 32, "u64": 64, "i64": 64, "f64": 64}
TYPES: dict[str, type[np.number]] = {
    "u16": np.uint16, "i16": np.int16, "f16": np.float16, "u32": np.uint32, "i32": np.int32, "f32": np.float32,
    "u64": np.uint64, "i64": np.int64, "f64": np.float64,
}  # fmt: skip
_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 0.15915494}


Outcome: TypeAlias = "str | int | Array | None"


@dataclass
class DecodedOperation:
    """A decoded instruction that can be executed.

    Attributes:
        run: executes it for the selected waves. Control instructions return the next address (one, or one per wave),
            or "barrier", "signal" or "end"; others return None.
        uses, defines: sets of registers that it reads and writes (`waves.register_bits`).
        kind: its kind in `Counts`.
        flow: how unwritten values propagate through it: "lane" (per lane), "scalar", "cross" (not followed), "memory"
            (`run` records it), or a function that the shadow calls.
        control: whether `run` returns what is executed next.
        loads: whether its results arrive later.
        counter: the counter of its results if these arrive in order, else -1.
        addresses, stored: registers that form an address, and registers that are stored to memory.
        chooses: for a select, the lanes that take the second of `choices`; the operand not taken does not matter.
        reaches: the lanes whose store has an effect; None: all active lanes.
    """

    instruction: AmdInstruction
    run: Callable[[Gang], Outcome]
    uses: int = 0
    defines: int = 0
    kind: str = "vector"
    flow: Flow = "lane"
    control: bool = False
    loads: bool = False
    counter: int = -1
    addresses: int = 0
    stored: int = 0
    reaches: Callable[[Waves], Array] | None = None
    chooses: Callable[[Waves], Array] | None = None
    choices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.following = self.instruction.address + self.instruction.size


@dataclass
class Builder:
    """Makes the reads and writes of one instruction, and collects the registers that they access.

    Attributes:
        instruction: the instruction.
        generation: the GPU.
        lanes: lanes of a wave.
    """

    instruction: AmdInstruction
    generation: Generation
    lanes: int
    uses: int = 0
    defines: int = 0
    halves: tuple[int, int] | None = None  # the registers that each word of a packed result depends on
    across: int = 0  # registers that DPP reads from other lanes; they are not in `uses`

    @property
    def cdna(self) -> bool:
        return self.generation.cdna

    @property
    def null(self) -> int:
        return -1 if self.cdna else NULL_RDNA

    def constant(self, number: int, kind: str) -> Array:
        """The value of an inline constant or of the literal in the type `kind`."""
        width, dtype = WIDTH[kind], TYPES[kind]
        if number in _FLOATS:
            value = _FLOATS[number]
            if width == 16:  # for integer types too: the bits of the f16 value
                return np.array(value, np.float16).view(dtype)[()]
            if width == 64:
                return np.array(value, np.float64).view(dtype)[()]
            return np.array(value, np.float32).view(dtype)[()]
        if 128 <= number <= 208:
            integer = number - 128 if number <= 192 else 192 - number
        elif number == LITERAL:
            integer = self.instruction.literal
            if kind == "f64":
                integer <<= 32
            elif kind == "i64" and integer >> 31:
                integer -= 1 << 32
        else:
            raise EmulationError(f"operand {number} of {self.instruction.name} is not emulated")
        return np.array(integer & ((1 << width) - 1), TYPES[f"u{width}"]).view(dtype)[()]

    def read(self, number: int, kind: str, half: int = 0) -> ReadOperand:
        """Read an operand: `[waves, lanes]`, `[waves, 1]`, or one value for all lanes."""
        if number != self.null:
            self.uses |= register_bits(number, max(1, WIDTH[kind] // 32))
        if number >= VGPR:
            self.instruction.touch(number, max(1, WIDTH[kind] // 32), 1 << half if WIDTH[kind] == 16 else 3)
            return _vector(number - VGPR, kind, half)
        if number == self.null:
            zero = TYPES[kind](0)
            return lambda g: zero
        if number < 128:
            return _scalar(number, kind, half)
        if number == 253:
            dtype = TYPES[kind]
            return lambda g: g.scc[g.at].astype(dtype)[:, None]
        value = self.constant(number, kind)
        return lambda g: value

    def write(self, number: int, kind: str, half: int = 0, keep: bool = True) -> Store:
        """Store to a vector register; `keep`: a 16-bit result leaves the other half as it is, else it is cleared."""
        self.defines |= register_bits(number, max(1, WIDTH[kind] // 32))
        r = number - VGPR
        self.instruction.touch(number, max(1, WIDTH[kind] // 32), 1 << half if WIDTH[kind] == 16 and keep else 3)
        if kind == "f32":
            return lambda g, x: g.put(g.f32[r], x)
        if kind in ("u32", "i32"):
            if kind == "i32":
                return lambda g, x: g.put(g.i32[r], x)
            return lambda g, x: g.put(g.u32[r], x)
        if WIDTH[kind] == 64:

            def store(g: Waves, x: Array) -> None:
                bits = np.atleast_1d(np.asarray(x, TYPES[kind])).view(np.uint64)
                g.put(g.u32[r], bits.astype(np.uint32))
                g.put(g.u32[r + 1], (bits >> np.uint64(32)).astype(np.uint32))

            return store

        def store16(g: Waves, x: Array) -> None:
            g.put(getattr(g, kind)[r][..., half], x)
            if not keep:
                g.put(g.u16[r][..., 1 - half], 0)

        return store16

    def read_scalar(self, number: int, bits: int = 32) -> ReadOperand:
        """Read a scalar operand: `uint32[waves]` or `uint64[waves]`, or one value for all waves."""
        if number == self.null:
            return lambda g: np.uint64(0) if bits == 64 else np.uint32(0)
        self.uses |= register_bits(number, max(1, bits // 32))
        if number < 128:
            if bits == 32:
                return lambda g: g.s_u32[number][g.at]
            return lambda g: (
                g.s_u32[number][g.at].astype(np.uint64) | (g.s_u32[number + 1][g.at].astype(np.uint64) << np.uint64(32))
            )
        if number == 253:
            return lambda g: g.scc[g.at].astype(np.uint32)
        value = self.constant(number, "u64" if bits == 64 else "u32")
        return lambda g: value

    def write_scalar(self, number: int, bits: int = 32) -> Store:
        """Store to scalar registers; a new EXEC takes effect at once."""
        if number == self.null:
            return lambda g, x: None
        self.defines |= register_bits(number, max(1, bits // 32))
        touches_exec = number in (EXEC, EXEC + 1)

        def store(g: Waves, x: Array) -> None:
            g.s_u32[number, g.at] = x
            if touches_exec:
                g.exec_written()

        def store64(g: Waves, x: Array) -> None:
            g.s_u32[number, g.at] = np.asarray(x).astype(np.uint32)
            g.s_u32[number + 1, g.at] = (np.asarray(x, np.uint64) >> np.uint64(32)).astype(np.uint32)
            if touches_exec:
                g.exec_written()

        return store64 if bits == 64 else store

    def read_mask(self, number: int) -> Callable[[Waves], Array]:
        """Read a lane mask `bool[waves, lanes]`."""
        self.uses |= register_bits(number, self.lanes // 32)
        if number >= 128:
            value = bool(self.constant(number, "u32"))
            return lambda g: np.full((g.count, g.lanes), value)
        return lambda g: g.mask(number)

    def write_mask(self, number: int) -> Callable[[Waves, Array], None]:
        if number == self.null:
            return lambda g, x: None
        self.defines |= register_bits(number, self.lanes // 32)
        return lambda g, x: g.put_mask(number, x)


def _vector(r: int, kind: str, half: int) -> ReadOperand:
    if kind == "f32":
        return lambda g: g.f32[r][g.at]
    if kind == "u32":
        return lambda g: g.u32[r][g.at]
    if kind == "i32":
        return lambda g: g.i32[r][g.at]
    if WIDTH[kind] == 16:
        return lambda g: getattr(g, kind)[r][g.at][..., half]
    dtype = TYPES[kind]

    def pair(g: Waves) -> Array:
        joined = np.empty((g.count, g.lanes, 2), np.uint32)
        joined[..., 0] = g.u32[r][g.at]
        joined[..., 1] = g.u32[r + 1][g.at]
        found: Array = joined.view(dtype)[..., 0]
        return found

    return pair


def _scalar(n: int, kind: str, half: int) -> ReadOperand:
    if WIDTH[kind] == 32:
        view = f"s_{kind}"
        return lambda g: getattr(g, view)[n][g.at][:, None]
    dtype = TYPES[kind]
    if WIDTH[kind] == 16:
        shift = 16 * half
        return lambda g: (g.s_u32[n][g.at] >> shift).astype(np.uint16).view(dtype)[:, None]

    def pair(g: Waves) -> Array:
        joined = np.stack([g.s_u32[n][g.at], g.s_u32[n + 1][g.at]], axis=-1)
        return joined.view(dtype)

    return pair


def is_accumulator(number: int) -> bool:
    return number >= ACC
