"""The registers of waves that run together, and which of them execute the next instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ...dialect.dtypes import Array as Array
from .decode import ACC, EXEC, VGPR

ALL = slice(None)
# From the old value in memory and an operand, both numpy scalars, to the new value.
AtomicFunction: TypeAlias = "Callable[..., ArrayLike]"
SCALARS = 128


class Waves:
    """Waves of some workgroups: one array each for their vector and scalar registers, and the lanes that are active.

    An instruction is executed for a selection of the waves at once: `at` indexes the wave axis, `count` is the number
    of selected waves, `on` the mask of their active lanes, and `whole` says that all lanes of all waves are active.
    """

    def __init__(self, waves: int, lanes: int, vectors: int) -> None:
        self.waves, self.lanes = waves, lanes
        self.u32 = np.zeros((vectors, waves, lanes), np.uint32)
        self.i32, self.f32 = self.u32.view(np.int32), self.u32.view(np.float32)
        self.u16 = self.u32.view(np.uint16).reshape(vectors, waves, lanes, 2)
        self.i16, self.f16 = self.u16.view(np.int16), self.u16.view(np.float16)
        self.s_u32 = np.zeros((SCALARS, waves), np.uint32)
        self.s_i32, self.s_f32 = self.s_u32.view(np.int32), self.s_u32.view(np.float32)
        self.scc = np.zeros(waves, np.bool_)
        self.exec = np.zeros((waves, lanes), np.bool_)
        # The workgroup of each wave, the wave's index in it, and the first byte of the workgroup's LDS.
        self.group = np.zeros(waves, np.int64)
        self.wave = np.zeros(waves, np.int64)
        self.lds_base = np.zeros(waves, np.int64)
        self.at: slice | Array = ALL
        self.index = np.arange(waves)
        self.count = waves
        self.on: Array = self.exec
        self.full = self.every = self.whole = False
        self.pc = 0

    def select(self, waves: Array) -> None:
        """Execute for these waves from now on."""
        self.every = len(waves) == self.waves
        self.at = ALL if self.every else waves
        self.index = waves
        self.count = len(waves)
        self.refresh()

    def refresh(self) -> None:
        self.on = self.exec[self.at]
        self.full = bool(self.on.all())
        self.whole = self.full and self.every

    def set_exec(self, lanes: Array) -> None:
        """Set EXEC of the selected waves to `bool[count, lanes]`."""
        self.exec[self.at] = lanes
        words = packed(lanes)
        for i in range(words.shape[1]):
            self.s_u32[EXEC + i, self.at] = words[:, i]
        self.refresh()

    def exec_written(self) -> None:
        """Update the active lanes after the registers of EXEC were written as scalars."""
        words = self.s_u32[EXEC : EXEC + self.lanes // 32, self.at]
        self.exec[self.at] = unpacked(words.T, self.lanes)
        self.refresh()

    def put(self, target: Array, value: Array | int) -> None:
        """Write active lanes of `target[waves, lanes]`."""
        if self.whole:
            target[...] = value
        elif self.every:
            np.copyto(target, value, where=self.on, casting="unsafe")
        else:
            part = target[self.at]
            np.copyto(part, value, where=self.on, casting="unsafe")
            target[self.at] = part

    def put_lanes(self, target: Array, value: Array | int, lanes: Array) -> None:
        """Write these lanes `bool[count, lanes]`, active or not."""
        part = target[self.at]
        np.copyto(part, value, where=lanes, casting="unsafe")
        target[self.at] = part

    def mask(self, register: int) -> Array:
        """A lane mask `bool[count, lanes]` in scalar registers."""
        return unpacked(self.s_u32[register : register + self.lanes // 32, self.at].T, self.lanes)

    def put_mask(self, register: int, lanes: Array) -> None:
        words = packed(lanes)
        for i in range(words.shape[1]):
            self.s_u32[register + i, self.at] = words[:, i]
        if register == EXEC:
            self.exec_written()


def packed(lanes: Array) -> Array:
    """`bool[n, lanes]` as `uint32[n, lanes / 32]`."""
    return np.packbits(lanes, axis=1, bitorder="little").view(np.uint32)


def unpacked(words: Array, lanes: int) -> Array:
    """`uint32[n, lanes / 32]` as `bool[n, lanes]`."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    return np.unpackbits(octets, axis=1, bitorder="little", count=lanes).view(np.bool_)


def register_bits(first: int, count: int) -> int:
    """A set of registers as an integer: vector registers from bit 0, scalar registers from bit 512."""
    ones = (1 << count) - 1
    if first >= VGPR:
        return ones << (first - VGPR)
    return ones << (ACC + first) if first < SCALARS else 0


def registers_of(bits: int) -> list[int]:
    """The numbers of the registers in a set."""
    found, at = [], 0
    while bits:
        low = (bits & -bits).bit_length() - 1
        at = low
        found.append(at + VGPR if at < ACC else at - ACC)
        bits &= bits - 1
    return found


def register_name(number: int) -> str:
    if number >= ACC:
        return f"a{number - ACC}"
    if number >= VGPR:
        return f"v{number - VGPR}"
    return {106: "vcc_lo", 107: "vcc_hi", 126: "exec_lo", 127: "exec_hi"}.get(number, f"s{number}")
