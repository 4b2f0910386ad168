"""Instructions whose lanes read other lanes: DPP, permutations, reads of one lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ..launch import EmulationError
from .decode import ACC, EXEC, VGPR
from .gang import Gang
from .operands import Builder, DecodedOperation, ReadOperand
from .shadow import InstructionFault, RegisterShadow
from .waves import SCALARS, Array, Waves, register_bits, registers_of


def dpp_lanes(control: int, lanes: int) -> Array:
    """The lane that each lane reads with a DPP control word, -1 if it is outside the row or the wave."""
    lane = np.arange(lanes)
    row, place = lane & ~15, lane & 15
    if control < 0x100:  # quad_perm
        return (lane & ~3) + (control >> (2 * (lane & 3)) & 3)
    kind, by = control & 0x1F0, control & 15
    if kind in (0x100, 0x110, 0x120):
        moved = place + by if kind == 0x100 else place - by  # row_shl, row_shr
        if kind == 0x120:  # row_ror
            return row + (place - by) % 16
        return np.where((moved < 0) | (moved > 15), -1, row + moved)
    if control == 0x130:  # wave_shl
        return np.where(lane + 1 < lanes, lane + 1, -1)
    if control == 0x134:
        return (lane + 1) % lanes
    if control == 0x138:  # wave_shr
        return lane - 1
    if control == 0x13C:
        return (lane - 1) % lanes
    if control == 0x140:  # row_mirror
        return row + 15 - place
    if control == 0x141:  # row_half_mirror
        return (lane & ~7) + 7 - (lane & 7)
    if control == 0x142:  # row_bcast15: the last lane of each row to the next row
        return np.where(lane < 16, -1, row - 1)
    if control == 0x143:  # row_bcast31
        return np.where(lane < 32, -1, 31)
    if kind == 0x150:  # row_share; row_newbcast on CDNA
        return row + by
    if kind == 0x160:  # row_xmask
        return row + (place ^ by)
    raise EmulationError(f"DPP control {control:#x} is not emulated")


def _source_lanes(b: Builder) -> Array:
    f = b.instruction.fields
    if "DPP8" in b.instruction.form:
        lane = np.arange(b.lanes)
        return (lane & ~7) + (f["lanes"] >> (3 * (lane & 7)) & 7)
    return dpp_lanes(f["dpp"], b.lanes)


def dpp(b: Builder, fetch: ReadOperand) -> ReadOperand:
    """A vector operand that DPP reads from other lanes; 0 for lanes without a source."""
    lanes = _source_lanes(b)
    valid, index = lanes >= 0, np.maximum(lanes, 0)
    inactive = bool(b.instruction.get("fi"))

    def run(g: Waves) -> Array:
        x = np.broadcast_to(fetch(g), (g.count, g.lanes))
        usable = valid if inactive or g.full else valid & g.on[:, index]
        return np.where(usable, x[:, index], x.dtype.type(0))

    return run


def dpp_target(b: Builder) -> Callable[[Waves], Array] | None:
    """The lanes that a DPP instruction may write; None if it may write all of them."""
    f = b.instruction.fields
    if "DPP8" in b.instruction.form:
        return None
    lanes = _source_lanes(b)
    lane = np.arange(b.lanes)
    enabled = (f["row_mask"] >> (lane >> 4 & 3) & 1).astype(bool) & (f["bank_mask"] >> (lane >> 2 & 3) & 1).astype(bool)
    if f["bc"]:  # a lane without a source reads 0
        return None if enabled.all() else lambda g: np.broadcast_to(enabled, g.on.shape)
    valid, index = lanes >= 0, np.maximum(lanes, 0)
    inactive = bool(f.get("fi"))
    if enabled.all() and valid.all() and inactive:
        return None
    return lambda g: enabled & valid & (True if inactive else g.on[:, index])


@contextmanager
def only(g: Waves, lanes: Array) -> Iterator[None]:
    """Within this context, only these lanes of the active ones are written."""
    kept = g.on, g.full, g.whole
    g.on = g.on & lanes
    g.full = bool(g.on.all())
    g.whole = g.full and g.every
    try:
        yield
    finally:
        g.on, g.full, g.whole = kept


def dpp_flow(b: Builder, direct: int, mask: Callable[[Gang], Array] | None) -> Callable[[Gang, RegisterShadow], None]:
    """How unwritten values propagate through an instruction with DPP: from the lane that is read, if any, into the
    lanes that are written.

    Args:
        b: builder of the instruction.
        direct: registers of which each lane reads its own value.
        mask: for `v_cndmask`, the lanes that take the second operand.
    """
    lanes, target = _source_lanes(b), dpp_target(b)
    valid, index = lanes >= 0, np.maximum(lanes, 0)
    inactive = bool(b.instruction.get("fi"))

    def flow(g: Gang, shadow: RegisterShadow) -> None:
        found: Array = np.zeros(g.on.shape, np.uint16)
        for number in registers_of(b.across & shadow.unwritten):
            found = np.maximum(found, shadow.unset[number - VGPR][g.at][:, index])
        # Other lanes read 0, whatever the register holds, or are not written.
        found = np.where(valid if inactive else valid & g.on[:, index], found, 0)
        rest = shadow.joined(g, direct & shadow.unwritten)
        if mask is not None:
            found = np.where(mask(g), 0 if rest is None else rest, found)
        elif rest is not None:
            found = np.maximum(found, rest)
        with only(g, g.on if target is None else target(g)):
            shadow.set(g, b.defines, found)

    return flow


def _readfirstlane(b: Builder) -> Callable[[Gang], None]:
    fetch = b.read(b.instruction.fields["src0"], "u32")
    store = b.write_scalar(_scalar_target(b))

    def run(g: Gang) -> None:
        x = np.broadcast_to(fetch(g), (g.count, g.lanes))
        store(g, x[np.arange(g.count), g.on.argmax(axis=1)])

    return run


def _scalar_target(b: Builder) -> int:
    """The scalar register that a lane read writes; CDNA's tables number it as a vector register."""
    number = b.instruction.fields["vdst"]
    return number - VGPR if number >= VGPR else number


def _readlane(b: Builder) -> Callable[[Gang], None]:
    f = b.instruction.fields
    fetch, lane = b.read(f["src0"], "u32"), b.read_scalar(f["src1"])
    store = b.write_scalar(_scalar_target(b))

    def run(g: Gang) -> None:
        x = np.broadcast_to(fetch(g), (g.count, g.lanes))
        store(g, x[np.arange(g.count), np.broadcast_to(lane(g), g.count) & np.uint32(g.lanes - 1)])

    return run


def _writelane(b: Builder) -> Callable[[Gang], None]:
    f = b.instruction.fields
    value, lane = b.read_scalar(f["src0"]), b.read_scalar(f["src1"])
    r = f["vdst"] - VGPR
    b.read(f["vdst"], "u32")
    b.write(f["vdst"], "u32")

    def run(g: Gang) -> None:
        g.u32[r, g.index, np.broadcast_to(lane(g), g.count) & np.uint32(g.lanes - 1)] = value(g)

    return run


def _permlane16(other_row: bool) -> Callable[[Builder], Callable[[Gang], None]]:
    """Each lane reads a lane of its row of 16, or of the adjacent row, selected by its 4 of 64 bits of scalars."""

    def make(b: Builder) -> Callable[[Gang], None]:
        f = b.instruction.fields
        fetch = b.read(f["src0"], "u32")
        low, high = b.read_scalar(f["src1"]), b.read_scalar(f["src2"])
        store = b.write(f["vdst"], "u32")
        lane = np.arange(b.lanes)
        row = (lane & ~15) ^ (16 if other_row else 0)
        shifts = (4 * (lane & 15)).astype(np.uint64)
        fetch_inactive, bound = bool(f.get("opsel", 0) & 1), bool(f.get("opsel", 0) & 2)

        def run(g: Gang) -> None:
            select = np.asarray(low(g)).astype(np.uint64) | np.asarray(high(g)).astype(np.uint64) << np.uint64(32)
            select = np.broadcast_to(select, g.count)
            index = row + ((select[:, None] >> shifts) & np.uint64(15)).astype(np.intp)
            x = np.broadcast_to(fetch(g), (g.count, g.lanes))
            found = np.take_along_axis(x, index, axis=1)
            if not fetch_inactive and not g.full:
                usable = np.take_along_axis(g.on, index, axis=1)
                old = 0 if bound else g.u32[f["vdst"] - VGPR][g.at]
                found = np.where(usable, found, old)
            store(g, found)

        return run

    return make


def _permlane64(b: Builder) -> Callable[[Gang], None]:
    f = b.instruction.fields
    fetch, store = b.read(f["src0"], "u32"), b.write(f["vdst"], "u32")
    index = (np.arange(b.lanes) + 32) % b.lanes
    return lambda g: store(g, np.broadcast_to(fetch(g), (g.count, g.lanes))[:, index])


def _permlane_swap(size: int) -> Callable[[Builder], Callable[[Gang], None]]:
    """Exchange odd rows of the destination and even rows of the source (rows of 16 or 32 lanes)."""

    def make(b: Builder) -> Callable[[Gang], None]:
        f = b.instruction.fields
        first, second = f["vdst"], f["src0"]
        x, y = b.read(first, "u32"), b.read(second, "u32")
        to_x, to_y = b.write(first, "u32"), b.write(second, "u32")
        lane = np.arange(b.lanes)
        odd = (lane // size) % 2 == 1

        def run(g: Gang) -> None:
            a, c = x(g).copy(), y(g).copy()
            to_x(g, np.where(odd, c[:, lane ^ size], a))
            to_y(g, np.where(odd, c, a[:, lane ^ size]))

        return run

    return make


def _mbcnt(high: bool) -> Callable[[Builder], Callable[[Gang], None]]:
    """Add the number of bits set in a mask for the lanes before this one."""

    def make(b: Builder) -> Callable[[Gang], None]:
        f = b.instruction.fields
        mask = b.read(f["src0"], "u32")
        add = b.read(f.get("src1", f.get("vsrc1", 0)), "u32")
        store = b.write(f["vdst"], "u32")
        lane = np.arange(b.lanes) - (32 if high else 0)
        below = np.array([(1 << max(0, min(int(n), 32))) - 1 for n in lane], np.uint32)

        def run(g: Gang) -> None:
            bits = np.asarray(mask(g)) & below
            store(g, add(g) + sum((bits >> np.uint32(i)) & np.uint32(1) for i in range(32)))

        return run

    return make


def _indexed(read: bool) -> Callable[[Builder], Callable[[Gang], None]]:
    """A move from or to a register whose number is the encoded one plus M0."""

    def make(b: Builder) -> Callable[[Gang], None]:
        f = b.instruction.fields
        fetch = None if read else b.read(f["src0"], "u32")
        store = b.write(f["vdst"], "u32") if read else None
        m0 = b.read_scalar(125)
        first = f["src0" if read else "vdst"] - VGPR

        def run(g: Gang) -> None:
            numbers = first + np.broadcast_to(m0(g), g.count).astype(np.int64)
            wrong = (numbers < 0) | (numbers >= len(g.u32))
            if wrong.any():
                raise InstructionFault(
                    f"it indexes register v{numbers[wrong][0]}, which does not exist", int(np.argmax(wrong)), -1
                )
            for number in np.unique(numbers):
                g.shadow.arrived(g, 1 << int(number))
            if store is not None or fetch is None:
                if store is not None:
                    store(g, g.u32[numbers, g.index])
                return
            value = np.broadcast_to(fetch(g), g.on.shape)
            old = g.u32[numbers, g.index]
            g.u32[numbers, g.index] = np.where(g.on, value, old)
            for number in np.unique(numbers):
                g.put_lanes(g.shadow.unset[number], 0, g.on & (numbers == number)[:, None])

        return run

    return make


_ACROSS: dict[str, Callable[[Builder], Callable[[Gang], None]]] = {
    "v_readfirstlane_b32": _readfirstlane, "v_readlane_b32": _readlane, "v_writelane_b32": _writelane,
    "v_permlane16_b32": _permlane16(False), "v_permlanex16_b32": _permlane16(True), "v_permlane64_b32": _permlane64,
    "v_permlane16_swap_b32": _permlane_swap(16), "v_permlane32_swap_b32": _permlane_swap(32),
    "v_movrels_b32": _indexed(True), "v_movreld_b32": _indexed(False),
    "v_mbcnt_lo_u32_b32": _mbcnt(False), "v_mbcnt_hi_u32_b32": _mbcnt(True),
}  # fmt: skip


def build(b: Builder) -> DecodedOperation | None:
    """The operation of a cross-lane instruction, None if it is of another kind."""
    make = _ACROSS.get(b.instruction.name)
    if make is None:
        return None
    flow: Callable[[Gang, RegisterShadow], None] | str
    run = make(b)
    flow = "cross"
    if b.instruction.name.startswith(("v_read", "v_permlane")):
        flow = _flow_of_permutation(b, run)
    elif b.instruction.name == "v_writelane_b32":
        flow = _flow_of_writelane(b)
    return DecodedOperation(b.instruction, run, b.uses, b.defines, flow=flow)


def _flow_of_writelane(b: Builder) -> Callable[[Gang, RegisterShadow], None]:
    """How unwritten values propagate through `v_writelane`: from the scalar to one lane, active or not."""
    f = b.instruction.fields
    lane, value = b.read_scalar(f["src1"]), f["src0"]

    def flow(g: Gang, shadow: RegisterShadow) -> None:
        which = np.broadcast_to(lane(g), g.count) & np.uint32(g.lanes - 1)
        shadow.unset[f["vdst"] - VGPR, g.index, which] = shadow.unset_scalars[value][g.at] if value < SCALARS else 0
        shadow.update(f["vdst"])

    return flow


def _flow_of_permutation(b: Builder, run: Callable[[Gang], None]) -> Callable[[Gang, RegisterShadow], None] | str:
    """How unwritten values propagate through lane reads and permutations: executed again, on origin numbers."""
    numbers = registers_of(b.uses | b.defines)
    vectors = [n - VGPR for n in numbers if n >= VGPR]
    scalars = [n for n in registers_of(b.defines) if n < VGPR]

    def flow(g: Gang, shadow: RegisterShadow) -> None:
        values, words = g.u32[vectors], g.s_u32[scalars]
        g.u32[vectors] = shadow.unset[vectors]
        run(g)
        shadow.unset[vectors], found = g.u32[vectors], g.s_u32[scalars]
        g.u32[vectors], g.s_u32[scalars] = values, words
        for n, unset in zip(scalars, found, strict=True):
            shadow.set_scalar(g, n, unset[g.at].astype(np.uint16))
        for n in vectors:
            shadow.update(n + VGPR)

    # Not if the instruction writes EXEC, which selects lanes, or overwrites a scalar register that it reads (the lane).
    repeatable = not b.uses & b.defines & ~((1 << ACC) - 1)
    return flow if repeatable and not b.defines & register_bits(EXEC, 2) else "cross"
