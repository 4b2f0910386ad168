"""LDS, the memory of a workgroup, with checks for races and for unwritten values."""

from __future__ import annotations

import numpy as np

from .shadow import InstructionFault
from .waves import Array, AtomicFunction, Waves

U32 = np.uint32
NOBODY = 0xFFFF  # in place of an origin number: the LDS itself was never written
_MANY = 63  # in place of a wave number: several waves


class Lds:
    """The LDS of all workgroups of a gang.

    Each byte records which wave of the workgroup wrote it last and which read it last, and in which epoch: the number
    of barriers that the wave had passed. Two waves may access the same byte in the same epoch only if both read it.

    Attributes:
        size: bytes of a workgroup.
        reads_beyond: a load beyond its end returns unwritten values; IREE's kernels do such loads and drop the result.
    """

    def __init__(self, groups: int, size: int, waves: int, reads_beyond: bool = False) -> None:
        self.reads_beyond = reads_beyond
        self.size, self.pitch = size, (size + 15) & ~15
        self.data = np.zeros(max(16, groups * self.pitch), np.uint8)
        self.words = self.data.view(U32)
        self.writer = np.zeros(len(self.data), U32)
        self.reader = np.zeros(len(self.data), U32)
        self.unset = np.zeros(len(self.data), np.uint16)
        self.epoch = np.ones(waves, U32)
        self.tracked = False  # whether an unwritten value was stored to LDS
        self.bytes = 0
        self.conflicts = 0

    def _offsets(self, g: Waves, place: Array, on: Array, size: int) -> Array:
        wrong = on & ((place < 0) | (place + size > self.size))
        if wrong.any():
            wave, lane = np.argwhere(wrong)[0]
            at = int(place[wave, lane])
            raise InstructionFault(
                f"it accesses {size} bytes at {at} of the workgroup's {self.size} bytes of LDS", int(wave), int(lane)
            )
        found: Array = np.where(on, place, 0) + g.lds_base[g.at][:, None]
        return found

    def _stamp(self, g: Waves) -> Array:
        found: Array = self.epoch[g.at] << U32(6) | g.wave[g.at].astype(U32)
        return found[:, None, None]

    def load(self, g: Waves, place: Array, on: Array, size: int) -> tuple[Array, Array | None]:
        """Load `uint32[waves, lanes, words]`, smaller sizes zero-extended; also return the origin numbers of unwritten
        words, of the same shape, or None if there are none."""
        beyond = on & ((place < 0) | (place + size > self.size)) if self.reads_beyond else None
        if beyond is not None and beyond.any():
            values, unknown = self.load(g, np.where(beyond, 0, place), on & ~beyond, size)
            outside = beyond[..., None]
            found = np.where(outside, NOBODY, np.zeros(values.shape, np.uint16) if unknown is None else unknown)
            return np.where(outside, U32(0), values), found.astype(np.uint16)
        offsets = self._offsets(g, place, on, size)
        octets = offsets[..., None] + np.arange(size)
        stamp, active = self._stamp(g), on[..., None]
        written = self.writer[octets]
        race = active & (written >> U32(6) == stamp >> U32(6)) & (written != stamp)
        if race.any():
            self._race(race, place, written, "reads", "wrote")
        before = self.reader[octets]
        other = (before >> U32(6) == stamp >> U32(6)) & (before != stamp)
        marks = np.where(other, stamp | U32(_MANY), stamp)
        self.reader[octets[on]] = marks[on]
        again = active & (self.reader[octets] != marks) & (self.reader[octets] >> U32(6) == stamp >> U32(6))
        if again.any():  # several waves read the byte with this instruction
            self.reader[octets[again]] = (self.reader[octets] | U32(_MANY))[again]
        unknown = None
        if (active & (written == 0)).any() or self.tracked:
            octet = np.where(active, np.where(written == 0, NOBODY, self.unset[octets]), 0).astype(np.uint16)
            unknown = octet.reshape(*on.shape, max(1, size // 4), -1).max(axis=-1) if octet.any() else None
        self.bytes += size * int(on.sum())
        if size % 4 == 0 and not (offsets & 3).any():
            return self.words[(offsets >> 2)[..., None] + np.arange(size // 4)], unknown
        values = self.data[octets]
        if size % 4:
            values = np.concatenate([values, np.zeros((*offsets.shape, 4 - size % 4), np.uint8)], axis=-1)
        return np.ascontiguousarray(values).view(U32), unknown

    def store(self, g: Waves, place: Array, on: Array, values: Array, size: int, unknown: Array | None = None) -> None:
        """Store `uint32[waves, lanes, words]`; `unknown`, of the same shape: origin numbers of unwritten values."""
        if not on.any():
            return
        offsets = self._offsets(g, place, on, size)
        octets = offsets[..., None] + np.arange(size)
        self._written(g, place, octets, on)
        if unknown is not None or self.tracked:
            found = np.zeros((int(on.sum()), 1), np.uint16) if unknown is None else unknown[on]
            self.unset[octets[on]] = np.repeat(found, size // found.shape[-1], axis=-1)
            self.tracked = self.tracked or bool(found.any())
        what = np.ascontiguousarray(values[on]).view(np.uint8).reshape(int(on.sum()), -1)[:, :size]
        self.data[octets[on]] = what
        lost = self.data[octets[on]] != what
        if lost.any() and unknown is None:
            lane, octet = np.argwhere(lost)[0]
            wave, lane = np.argwhere(on)[lane]
            at = int(place[wave, lane]) + int(octet)
            raise InstructionFault(f"two lanes write different values to byte {at} of LDS", int(wave), int(lane))
        self.bytes += size * len(what)

    def _written(self, g: Waves, place: Array, octets: Array, on: Array) -> None:
        stamp, active = self._stamp(g), on[..., None]
        for what, before in (("wrote", self.writer[octets]), ("read", self.reader[octets])):
            race = active & (before >> U32(6) == stamp >> U32(6)) & (before != stamp)
            if race.any():
                self._race(race, place, before, "writes", what)
        marks = np.broadcast_to(stamp, octets.shape)
        self.writer[octets[on]] = marks[on]
        after = self.writer[octets]
        race = active & (after != marks)
        if race.any():
            self._race(race, place, after, "writes", "writes")

    def _race(self, race: Array, place: Array, stamps: Array, verb: str, other: str) -> None:
        wave, lane, octet = np.argwhere(race)[0]
        mark = int(stamps[wave, lane, octet]) & 63
        who = "several waves" if mark == _MANY else f"wave {mark} of the workgroup"
        raise InstructionFault(
            f"it {verb} byte {int(place[wave, lane]) + int(octet)} of LDS, which {who} {other} with no barrier between",
            int(wave), int(lane),
        )  # fmt: skip

    def atomic(
        self,
        g: Waves,
        place: Array,
        on: Array,
        function: AtomicFunction,
        kind: type[np.generic],
        operand: Array,
    ) -> Array:
        """Execute an atomic lane by lane and return the old values; atomics of several waves do not race."""
        size = np.dtype(kind).itemsize
        offsets = self._offsets(g, place, on, size)
        out = np.zeros(place.shape, kind)
        self.writer[(offsets[..., None] + np.arange(size))[on]] = (np.zeros_like(self._stamp(g)) | U32(_MANY)).max()
        for wave, lane in np.argwhere(on):
            cell = self.data[int(offsets[wave, lane]) :][:size].view(kind)
            out[wave, lane] = cell[0]
            cell[0] = function(cell[0], operand[wave, lane])
        self.bytes += 2 * size * int(on.sum())
        return out
