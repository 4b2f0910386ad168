"""Instructions of LDS, the memory of a workgroup: loads, stores, atomics, and lanes that pass values through it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from .decode import VGPR
from .device_memory import ATOMICS
from .gang import Gang
from .lds import NOBODY
from .operands import Builder, DecodedOperation
from .shadow import LDS as COUNTER
from .waves import Array, register_bits, registers_of

U32, I64 = np.uint32, np.int64
_BITS = {"b8": 8, "u8": 8, "i8": 8, "b16": 16, "u16": 16, "i16": 16, "b32": 32, "b64": 64, "b96": 96, "b128": 128}


def build(b: Builder) -> DecodedOperation | None:
    """The operation of an LDS instruction, None if it is of another kind."""
    ins = b.instruction
    if ins.form != "DS":
        return None
    name = ins.name
    if match := re.fullmatch(r"ds_(load|store)_2addr(_stride64)?_b(32|64)", name):
        return _two(b, match[1] == "load", 64 if match[2] else 1, int(match[3]) // 8)
    if match := re.fullmatch(r"ds_(load|store)_(d16_hi_|d16_)?([uib]\d+)(_d16)?(_d16_hi)?", name):
        half = "hi" if "hi" in name else "lo" if "d16" in name else ""
        return _one(b, match[1] == "load", match[3], half)
    if match := re.fullmatch(r"ds_load_(?:b64_)?tr(4|8|16)?_?(b4|b8|b16|b64)", name):
        return _transposed(b, int(match[1] or match[2][1:]))
    if name in ("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32"):
        return _permute(b, name)
    if match := re.fullmatch(r"ds_(\w+?)(_rtn)?_(u32|i32|b32|f32|u64|b64)", name):
        return _atomic(b, f"{match[1]}_{match[3]}", bool(match[2]))
    return None


def _address(b: Builder) -> Callable[[Gang, int], Array]:
    """The addresses of an access with an offset. They wrap at 32 bits: LLVM adds offsets to negative addresses."""
    v = b.read(b.instruction.fields["addr"], "u32")
    return lambda g, offset: np.broadcast_to((np.asarray(v(g)).astype(I64) + offset) & 0xFFFFFFFF, g.on.shape)


def _register(b: Builder, field: str) -> int:
    number = b.instruction.fields[field]
    return number + (256 if b.instruction.get("acc") else 0)


def _finish(b: Builder, run: Callable[[Gang], None], loads: bool, addresses: int) -> DecodedOperation:
    return DecodedOperation(
        b.instruction, run, b.uses, b.defines, "shared", "memory", loads=loads, counter=COUNTER, addresses=addresses
    )


def _loaded(
    g: Gang, registers: int, first: int, parts: Sequence[tuple[Array | None, Array, int]], halves: int = 3
) -> None:
    """Record that these halves of registers from `first` on were loaded, in parts: the origin numbers of unwritten
    words (None: there are none), their addresses in LDS, and the number of registers."""
    for unknown, place, count in parts:
        if unknown is not None:
            wave, lane, word = np.argwhere(unknown)[0]
            text = f"LDS that nobody wrote (byte {int(place[wave, lane]) + 4 * int(word)})"
            unknown = np.where(unknown == NOBODY, g.shadow.origin(text), unknown).astype(np.uint16)
        for i in range(count):
            register = register_bits(first + i, 1)
            if unknown is not None or register & g.shadow.unwritten:
                some = unknown is not None and (unknown[..., i][g.on] > 0).any()
                g.shadow.set(g, register, unknown[..., i] if unknown is not None and some else None)
        first += count
    g.shadow.issue(g, COUNTER, registers, halves)


def _unknown(g: Gang, first: int, count: int) -> Array | None:
    """Origin numbers of unwritten values in registers that are stored to LDS, for each word; None: there are none."""
    if not register_bits(first, count) & g.shadow.unwritten:
        return None
    words = [g.shadow.joined(g, register_bits(first + i, 1) & g.shadow.unwritten) for i in range(count)]
    return np.stack([np.zeros(g.on.shape, np.uint16) if w is None else w for w in words], axis=-1)


def _one(b: Builder, load: bool, what: str, half: str) -> DecodedOperation:
    f = b.instruction.fields
    address, addresses = _address(b), b.uses
    offset, size = f["offset0"] | f["offset1"] << 8, _BITS[what] // 8
    if load:
        number = _register(b, "vdst")
        stores = [b.write(number, "u16", int(half == "hi"))] if half else [
            b.write(number + i, "u32") for i in range(max(1, size // 4))
        ]  # fmt: skip
        registers = b.defines

        def read(g: Gang) -> None:
            place = address(g, offset)
            values, unknown = g.lds.load(g, place, g.on, size)
            if what[0] == "i":
                values = ((values << U32(32 - 8 * size)).view(np.int32) >> (32 - 8 * size)).view(U32)
            for i, store in enumerate(stores):
                store(g, values[..., i])
            _loaded(g, registers, number, [(unknown, place, len(stores))], {"lo": 1, "hi": 2}.get(half, 3))
            _count_conflicts(g, place, size)

        return _finish(b, read, True, addresses)
    number = _register(b, "data0")
    reads = [b.read(number + i, "u32") for i in range(max(1, size // 4))]
    if size < 4 and number not in registers_of(addresses):
        b.instruction.halves[number] = 2 if half == "hi" else 1

    def write(g: Gang) -> None:
        values = np.stack([np.broadcast_to(r(g), g.on.shape) for r in reads], axis=-1)
        if half == "hi":
            values = values >> U32(16)
        place = address(g, offset)
        g.lds.store(g, place, g.on, values, size, _unknown(g, number, len(reads)))
        g.shadow.issue(g, COUNTER, 0)
        g.shadow.lds_stored(g)
        _count_conflicts(g, place, size)

    return _finish(b, write, False, addresses)


def _two(b: Builder, load: bool, stride: int, size: int) -> DecodedOperation:
    f = b.instruction.fields
    address, addresses = _address(b), b.uses
    offsets = [f[name] * size * stride for name in ("offset0", "offset1")]
    words = size // 4
    if load:
        number = _register(b, "vdst")
        stores = [b.write(number + i, "u32") for i in range(2 * words)]
        registers = b.defines

        def read(g: Gang) -> None:
            places = [address(g, offset) for offset in offsets]
            found = [g.lds.load(g, place, g.on, size) for place in places]
            for i, store in enumerate(stores):
                store(g, found[i // words][0][..., i % words])
            parts = [(u, place, words) for (_, u), place in zip(found, places, strict=True)]
            _loaded(g, registers, number, parts)
            _count_conflicts(g, address(g, 0), size)

        return _finish(b, read, True, addresses)
    reads = [b.read(_register(b, f"data{i}") + j, "u32") for i in range(2) for j in range(words)]
    first = [_register(b, f"data{i}") for i in range(2)]

    def write(g: Gang) -> None:
        values = [np.broadcast_to(r(g), g.on.shape) for r in reads]
        for i, offset in enumerate(offsets):
            part = np.stack(values[i * words : (i + 1) * words], axis=-1)
            g.lds.store(g, address(g, offset), g.on, part, size, _unknown(g, first[i], words))
        g.shadow.issue(g, COUNTER, 0)
        g.shadow.lds_stored(g)
        _count_conflicts(g, address(g, 0), size)

    return _finish(b, write, False, addresses)


def _transposed(b: Builder, bits: int) -> DecodedOperation:
    """Each lane loads 64 bits; each block of 16 lanes then transposes its matrix."""
    f = b.instruction.fields
    address, addresses = _address(b), b.uses
    offset = f["offset0"] | f["offset1"] << 8
    number = _register(b, "vdst")
    stores = [b.write(number + i, "u32") for i in range(2)]
    registers = b.defines
    lane_of, element_of = transpose_sources(bits, b.lanes)

    def run(g: Gang) -> None:
        place = address(g, offset)
        values, unknown = g.lds.load(g, place, g.on, 8)
        octets = np.ascontiguousarray(values).view(np.uint8)
        elements = octets.view(np.uint16) if bits == 16 else octets
        if bits == 4:
            elements = np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:2], 16)
        transposed: Array = np.ascontiguousarray(elements[:, lane_of, element_of])
        if bits == 4:
            transposed = np.ascontiguousarray(transposed[..., 0::2] | transposed[..., 1::2] * 16).astype(np.uint8)
        words = transposed.view(U32)
        for i, store in enumerate(stores):
            store(g, words[..., i])
        if unknown is not None:
            unknown = np.broadcast_to(unknown.max(axis=(1, 2), keepdims=True), unknown.shape)
        _loaded(g, registers, number, [(unknown, place, len(stores))])

    return _finish(b, run, True, addresses)


def transpose_sources(bits: int, lanes: int) -> tuple[Array, Array]:
    """The lane and the element that element j of lane i comes from, `[lanes, n]` each with n = 64 / bits.

    A block of 16 lanes holds a matrix of n rows and 16 columns, `16 / n` lanes per row; lane i gets column i (CDNA 4
    ISA guide, "Transpose loads"; MLIR's `amdgpu.transpose_load`).
    """
    n = 64 // bits
    lane, j = np.arange(lanes)[:, None], np.arange(n)[None, :]
    inside = lane % 16
    source = (lane - inside) + 16 // n * j + inside // n
    return source, np.broadcast_to(inside % n, source.shape)


def _permute(b: Builder, name: str) -> DecodedOperation:
    f = b.instruction.fields
    offset = f["offset0"] | f["offset1"] << 8
    store = b.write(_register(b, "vdst"), "u32")
    registers = b.defines
    if name == "ds_swizzle_b32":
        fetch = b.read(f["addr"], "u32")
        sources = swizzle_lanes(offset, b.lanes)

        def swizzle(g: Gang) -> None:
            def moved(x: Array) -> Array:
                return np.where(g.on[:, sources], x[:, sources], x.dtype.type(0))

            store(g, moved(np.broadcast_to(fetch(g), g.on.shape)))
            _permuted(g, registers, f["addr"], moved)

        return _finish(b, swizzle, True, 0)
    address, data = b.read(f["addr"], "u32"), b.read(f["data0"], "u32")

    def run(g: Gang) -> None:
        lane = ((np.asarray(address(g)).astype(I64) + offset) // 4) % g.lanes
        lane = np.broadcast_to(lane, g.on.shape)

        def moved(x: Array) -> Array:
            if name == "ds_bpermute_b32":
                return np.where(np.take_along_axis(g.on, lane, 1), np.take_along_axis(x, lane, 1), x.dtype.type(0))
            found = np.zeros_like(x)
            waves, lanes = np.nonzero(g.on)
            found[waves, lane[waves, lanes]] = x[waves, lanes]
            return found

        store(g, moved(np.broadcast_to(data(g), g.on.shape)))
        _permuted(g, registers, f["data0"], moved)

    return _finish(b, run, True, 0)


def _permuted(g: Gang, registers: int, data: int, moved: Callable[[Array], Array]) -> None:
    """Move the origin numbers of a vector register as its values were moved."""
    if (register_bits(data, 1) | registers) & g.shadow.unwritten:
        g.shadow.set(g, registers, moved(g.shadow.unset[data - VGPR][g.at]))
    g.shadow.issue(g, COUNTER, registers)


def swizzle_lanes(offset: int, lanes: int) -> Array:
    """The lane that each lane reads with `ds_swizzle_b32`."""
    lane = np.arange(lanes)
    if offset & 0x8000:  # a permutation of each four lanes
        return (lane & ~3) + (offset >> 2 * (lane & 3) & 3)
    inside = lane & 31
    both, either, change = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return (lane & ~31) + (((inside & both) | either) ^ change)


def _atomic(b: Builder, what: str, returns: bool) -> DecodedOperation | None:
    what = what.replace("wrxchg", "swap").replace("storexchg", "swap")
    if what not in ATOMICS:
        return None
    f = b.instruction.fields
    kind, function = ATOMICS[what]
    address, addresses = _address(b), b.uses
    names = {U32: "u32", np.uint64: "u64", np.int32: "i32", np.float32: "f32"}
    operand = b.read(_register(b, "data0"), names[kind])
    store = b.write(_register(b, "vdst"), names[kind]) if returns else None
    registers = b.defines
    offset = f["offset0"] | f["offset1"] << 8

    def run(g: Gang) -> None:
        place = address(g, offset)
        old = g.lds.atomic(g, place, g.on, function, kind, np.broadcast_to(operand(g), g.on.shape))
        if store is not None:
            store(g, old)
        if registers & g.shadow.unwritten:
            g.shadow.set(g, registers, None)
        g.shadow.issue(g, COUNTER, registers)
        g.shadow.lds_stored(g)

    return _finish(b, run, returns, addresses)


def _count_conflicts(g: Gang, place: Array, size: int) -> None:
    """Count bank conflicts: cycles beyond those that the words of an access need, as several share a 4-byte bank."""
    words = np.where(g.on, place >> 2, -1)[..., None] + np.arange(max(1, size // 4))
    words = np.sort(np.where(g.on[..., None], words, -1).reshape(g.count, -1), axis=1)
    fresh = (np.diff(words, axis=1, prepend=-1) != 0) & (words >= 0)
    wave, at = np.nonzero(fresh)
    used = np.bincount(wave * g.banks + words[wave, at] % g.banks, minlength=g.count * g.banks)
    by_bank = used.reshape(g.count, g.banks)
    g.lds.conflicts += int((by_bank.max(axis=1) - -(-by_bank.sum(axis=1) // g.banks)).sum())
