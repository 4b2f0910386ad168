"""Global memory: scalar and vector loads, stores and atomics, by address or by buffer descriptor."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from .decode import VGPR, AmdInstruction
from .gang import Gang
from .generation import Generation
from .operands import Builder, DecodedOperation
from .shadow import LOAD, SCALAR, STORE, InstructionFault
from .waves import Array, AtomicFunction, register_bits

U32, U64, I64 = np.uint32, np.uint64, np.int64


_SIZES = {"b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "i16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
# Type and function of atomics on single elements.
ATOMICS: dict[str, tuple[type[np.generic], AtomicFunction]] = {
    "add_u32": (U32, lambda a, b: a + b), "sub_u32": (U32, lambda a, b: a - b), "swap_b32": (U32, lambda a, b: b),
    "and_b32": (U32, lambda a, b: a & b), "or_b32": (U32, lambda a, b: a | b), "xor_b32": (U32, lambda a, b: a ^ b),
    "max_u32": (U32, max), "min_u32": (U32, min), "max_i32": (np.int32, max), "min_i32": (np.int32, min),
    "add_f32": (np.float32, lambda a, b: a + b), "add_u64": (U64, lambda a, b: a + b),
    "swap_b64": (U64, lambda a, b: b),
    "inc_u32": (U32, lambda a, b: U32(0) if a >= b else a + U32(1)),
    "pk_add_f16": (U32, lambda a, b: (np.array([a]).view(np.float16) + np.array([b]).view(np.float16)).view(U32)[0]),
}  # fmt: skip
_ATOMIC_NAMES = {"add": "add_u32", "sub": "sub_u32", "swap": "swap_b32", "umax": "max_u32", "umin": "min_u32",
                 "smax": "max_i32", "smin": "min_i32", "and": "and_b32", "or": "or_b32", "xor": "xor_b32",
                 "add_x2": "add_u64", "swap_x2": "swap_b64"}  # fmt: skip
_INVALIDATE = ("buffer_gl1_inv", "global_inv", "global_wbinv", "buffer_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol")
_CACHES = (*_INVALIDATE, "buffer_gl0_inv", "global_wb", "buffer_wbl2")


def build(ins: AmdInstruction, generation: Generation, lanes: int) -> DecodedOperation | None:
    """The operation of a global-memory instruction, None if `ins` is of another kind."""
    if ins.name in _CACHES:
        return _caches(ins)
    b = Builder(ins, generation, lanes)
    if ins.form == "SMEM":
        return _scalar(b)
    match = re.fullmatch(r"(global|flat|scratch|buffer)_(load|store|atomic)_(\w+)", ins.name)
    if match is None:
        return None
    place, verb, what = match.groups()
    address, buffer_size = _buffer_address(b) if place == "buffer" else _flat_address(b, place == "scratch")
    addresses = b.uses
    if verb == "atomic":
        return _atomic(b, what, address, buffer_size, addresses)
    if what.startswith("lds_") or ins.get("lds"):
        return _load_to_lds(b, _SIZES[what.removeprefix("lds_")], address, buffer_size, addresses)
    high = "d16_hi_" in what
    size = _SIZES[what.rpartition("_")[2]]
    if verb == "store":
        return _store(b, size, high, address, buffer_size, addresses, place == "scratch")
    return _load(b, what, size, high, address, buffer_size, addresses)


def _caches(ins: AmdInstruction) -> DecodedOperation:
    """Write-back or invalidation of caches: at device scope or wider, stores become visible between workgroups."""
    wide = True
    if "scope" in ins.fields:
        wide = ins.fields["scope"] >= _DEVICE
    elif ins.name in ("buffer_inv", "buffer_wbl2"):
        wide = bool(ins.get("sc1"))

    def run(g: Gang) -> None:
        if ins.name == "buffer_wbl2" and wide:
            g.reach.order.written_back(g)
        elif ins.name in _INVALIDATE and wide:
            g.reach.order.invalidated(g)

    return DecodedOperation(ins, run, kind="wait", flow="cross")


_DEVICE = 2  # gfx12's device scope
LaneAddresses = Callable[[Gang], Array]


def _flat_address(b: Builder, scratch: bool) -> tuple[LaneAddresses, None]:
    f = b.instruction.fields
    bits = b.generation.offset_bits
    raw = f.get("offset", f.get("ioffset", 0))
    offset = raw - (1 << bits) if raw >> (bits - 1) else raw
    if b.instruction.form == "FLAT":
        offset = raw
    vector, scalar = f.get("addr", f.get("vaddr", VGPR)), f.get("saddr", 124)
    if scratch:
        return _scratch_address(b, offset)
    off = (127, 124) if b.cdna else (124,)
    if scalar in off or b.instruction.form == "FLAT":
        v = b.read(vector, "u64")
        return (lambda g: np.broadcast_to(v(g), g.on.shape) + U64(offset & 0xFFFFFFFFFFFFFFFF)), None
    v32, base = b.read(vector, "u32"), b.read_scalar(scalar, 64)
    plus = U64(offset & 0xFFFFFFFFFFFFFFFF)

    def run(g: Gang) -> Array:
        return np.asarray(v32(g)).astype(U64) + (np.broadcast_to(base(g), g.count)[:, None] + plus)

    return run, None


def _scratch_address(b: Builder, offset: int) -> tuple[LaneAddresses, None]:
    """Addresses in private memory, which is one array with `scratch_bytes` for each lane."""
    f = b.instruction.fields
    vector, scalar = f.get("addr", f.get("vaddr", VGPR)), f.get("saddr", 124)
    v = b.read(vector, "u32") if f.get("sve") else None
    s = None if scalar in ((127, 124) if b.cdna else (124,)) else b.read_scalar(scalar)

    def run(g: Gang) -> Array:
        place = np.full(g.on.shape, offset, I64)
        if v is not None:
            place = place + np.asarray(v(g)).astype(I64)
        if s is not None:
            place = place + np.broadcast_to(s(g), g.count).astype(I64)[:, None]
        wrong = g.on & ((place < 0) | (place >= g.scratch_bytes))
        if wrong.any():
            wave, lane = np.argwhere(wrong)[0]
            text = f"it accesses byte {place[wave, lane]} of {g.scratch_bytes} of private memory"
            raise InstructionFault(text, int(wave), int(lane))
        lane_base = (g.index[:, None] * g.lanes + np.arange(g.lanes)) * g.scratch_bytes
        return (place + lane_base).astype(U64) + U64(g.scratch_base)

    return run, None


def _buffer_address(b: Builder) -> tuple[LaneAddresses, Callable[[Gang], Array]]:
    """Functions that return the addresses, and the number of bytes from each address to the end of the buffer."""
    f = b.instruction.fields
    words = [b.read_scalar(f["srsrc"] + i) for i in range(4)]
    start = b.read_scalar(f["soffset"])
    index = b.read(f["vaddr"], "u32") if f["idxen"] else None
    v = b.read(f["vaddr"] + f["idxen"], "u32") if f["offen"] else None
    offset = f["offset"]
    if offset >> 23 & 1:  # RDNA 4's offset is signed; others have 12 unsigned bits
        offset -= 1 << 24

    def within(g: Gang) -> tuple[Array, Array]:
        """The offset that is compared with the buffer's size, and the scalar offset."""
        inside = np.full(g.on.shape, offset, I64)
        if v is not None:
            inside = inside + np.asarray(v(g)).astype(I64)
        if index is not None:
            stride = (np.broadcast_to(words[1](g), g.count).astype(I64) >> 16 & 0x3FFF)[:, None]
            inside = inside + stride * np.asarray(index(g)).astype(I64)
        # The sum wraps at 32 bits on these chips: LLVM folds a constant into `offset` even if the sum wraps.
        return inside & 0xFFFFFFFF, np.broadcast_to(start(g), g.count).astype(I64)[:, None]

    def address(g: Gang) -> Array:
        low, high = (np.broadcast_to(w(g), g.count).astype(U64) for w in words[:2])
        base = low | (high & U64(0xFFFF)) << U64(32)
        inside, scalar = within(g)
        if b.cdna and (np.broadcast_to(words[3](g), g.count) & _PRIVATE).any():  # words of the lanes interleaved
            inside = (inside >> 2) * 4 * g.lanes + (inside & 3) + 4 * np.arange(g.lanes)
        return base[:, None] + (inside + scalar).astype(U64)

    def room(g: Gang) -> Array:
        inside, scalar = within(g)
        left: Array = np.broadcast_to(words[2](g), g.count).astype(I64)[:, None] - scalar - inside
        private = b.cdna and (np.broadcast_to(words[3](g), g.count) & _PRIVATE).any()
        return left + 2 * _MAX_ROOM if private else left

    return address, room


# Bit in the fourth word of a gfx9 buffer descriptor: the lane is added to the address, which makes memory private.
_PRIVATE = U32(1 << 23)
_MAX_ROOM = 1 << 33  # more bytes than a buffer can have; `room` is larger for private memory


def _lanes_in_reach(g: Gang, fits: LaneAddresses | None, size: int) -> Array:
    """The active lanes whose access lies within the buffer; the others read 0 and store nothing."""
    return g.on if fits is None else g.on & (fits(g) >= size)


def _pieces(g: Gang, fits: LaneAddresses | None, size: int) -> tuple[list[tuple[int, int, Array]], Array | None]:
    """Split an access into pieces, each with its first byte, size and lanes, as the hardware compares each word with
    the buffer's end (CDNA 3 and RDNA 3 ISA guides, "Range checking"). Also return the lanes for which the end lies
    within a word: that word is in no piece, because no kernel may rely on it."""
    if fits is None:
        return [(0, size, g.on)], None
    room = fits(g)
    if room.max() > _MAX_ROOM and size > 4:  # private memory: the words of a lane are not contiguous
        return [(at, 4, g.on) for at in range(0, size, 4)], None
    cut = g.on & (room > 0) & (room < size)
    if not cut.any():
        return [(0, size, g.on & (room >= size))], None
    split = cut & (room % min(size, 4) != 0)
    return [(at, 4, g.on & (room >= at + 4)) for at in range(0, size, 4)], split if split.any() else None


def _advanced(g: Gang, fits: LaneAddresses | None, place: Array, at: int) -> Array:
    """The addresses of byte `at` of an access, whose words are interleaved with other lanes' in private memory."""
    if at and fits is not None and fits(g).max() > _MAX_ROOM:
        at *= g.lanes
    return place + U64(at)


def _load_pieces(g: Gang, fits: LaneAddresses | None, place: Array, size: int) -> tuple[Array, Array | None]:
    """Loaded words, and the origin numbers (`RegisterShadow.origins`) of the unwritten ones, None if there are none."""
    pieces, split = _pieces(g, fits, size)
    loaded = [g.reach.load(g, g.shadow, _advanced(g, fits, place, at), on, part) for at, part, on in pieces]
    values = np.concatenate([v for v, _ in loaded], axis=-1) if len(loaded) > 1 else loaded[0][0]
    unknown = None
    if any(u is not None for _, u in loaded):
        unknown = np.concatenate([np.zeros(v.shape, np.uint16) if u is None else u for v, u in loaded], axis=-1)
    if split is not None:
        if unknown is None:
            unknown = np.zeros(values.shape, np.uint16)
        origin = g.shadow.origin("a word that its buffer ends in", memory=True)
        unknown = np.where(split[..., None], np.uint16(origin), unknown)
    return values, unknown


def _load(
    b: Builder, what: str, size: int, high: bool, address: LaneAddresses, fits: LaneAddresses | None, addresses: int
) -> DecodedOperation:
    f = b.instruction.fields
    number = f.get("vdst", f.get("vdata", 0)) + (256 if f.get("acc") else 0)
    d16, signed = "d16" in what, what.rpartition("_")[2][0] == "i"
    half = int(high)
    stores = [b.write(number, "u16", half)] if d16 else [b.write(number + i, "u32") for i in range(max(1, size // 4))]
    registers = b.defines

    def run(g: Gang) -> None:
        place = address(g)
        values, unknown = _load_pieces(g, fits, place, size)
        if signed:
            bits = 32 - 8 * size
            values = (values << U32(bits)).view(np.int32) >> bits
            values = values.view(U32)
        for i, store in enumerate(stores):
            store(g, values[..., i])
        if unknown is not None:
            for i in range(len(stores)):
                g.shadow.set(g, register_bits(number + i, 1), unknown[..., i])
        elif registers & g.shadow.unwritten:
            g.shadow.set(g, registers, None)
        g.shadow.issue(g, LOAD, registers, 1 << half if d16 else 3)

    return DecodedOperation(
        b.instruction, run, b.uses, b.defines, "memory", "memory", loads=True, counter=LOAD, addresses=addresses
    )


def _store(
    b: Builder, size: int, high: bool, address: LaneAddresses, fits: LaneAddresses | None, addresses: int, private: bool
) -> DecodedOperation:
    f = b.instruction.fields
    number = f.get("data", f.get("vsrc", f.get("vdata", 0))) + (256 if f.get("acc") else 0)
    before = b.uses
    b.uses = 0
    reads = [b.read(number + i, "u32") for i in range(max(1, size // 4))]
    stored, b.uses = b.uses, b.uses | before
    if size < 4 and not stored & before:
        b.instruction.halves[number] = 2 if high else 1

    def run(g: Gang) -> None:
        values = np.stack([np.broadcast_to(r(g), g.on.shape) for r in reads], axis=-1)
        if high:
            values = values >> U32(16)
        place = address(g)
        unknown = None
        if stored & g.shadow.unwritten:
            words = [g.shadow.joined(g, register_bits(number + i, 1) & g.shadow.unwritten) for i in range(len(reads))]
            if any(w is not None for w in words):
                unknown = np.stack([np.zeros(g.on.shape, np.uint16) if w is None else w for w in words], axis=-1)
        pieces, split = _pieces(g, fits, size)
        if split is not None:
            wave, lane = np.argwhere(split)[0]
            raise InstructionFault("it stores a word that extends beyond the end of its buffer", int(wave), int(lane))
        for at, part, on in pieces:
            some = slice(at // 4, (at + part + 3) // 4)
            unknown_part = None if unknown is None else unknown[..., some]
            g.reach.store(g, g.shadow, _advanced(g, fits, place, at), on, part, values[..., some], unknown_part)
        g.shadow.issue(g, STORE, 0)

    # Private memory accepts unwritten values: registers are spilled there.
    reaches = None if fits is None else lambda g: g.on & (fits(g) > 0) & (fits(g) <= _MAX_ROOM)
    return DecodedOperation(
        b.instruction, run, b.uses, b.defines, "memory", "memory", addresses=addresses,
        stored=0 if private else stored, reaches=reaches,
    )  # fmt: skip


def _atomic(
    b: Builder, what: str, address: LaneAddresses, fits: LaneAddresses | None, addresses: int
) -> DecodedOperation | None:
    f = b.instruction.fields
    name = _ATOMIC_NAMES.get(what, what)
    if name not in ATOMICS and "cmpswap" not in name:
        return None
    data = f.get("data", f.get("vsrc", f.get("vdata", 0)))
    compare = "cmpswap" in name
    kind, function = (U32, lambda a, p: p[0] if a == p[1] else a) if compare else ATOMICS[name]
    operand = b.read(data, {U32: "u32", U64: "u64", np.int32: "i32", np.float32: "f32"}[kind])
    expected = b.read(data + 1, "u32") if compare else None
    returns = bool(f.get("sc0", 0) or f.get("glc", 0) or f.get("th", 0) & 1 or f.get("return", 0))
    number = f.get("vdst", data) if "vdata" not in f else data
    store = b.write(number, {U32: "u32", U64: "u64", np.int32: "i32", np.float32: "f32"}[kind]) if returns else None
    registers = b.defines
    stored = register_bits(data, np.dtype(kind).itemsize // 4)

    def run(g: Gang) -> None:
        on = _lanes_in_reach(g, fits, np.dtype(kind).itemsize)
        value = np.broadcast_to(operand(g), g.on.shape)
        if expected is not None:
            value = np.stack([value, np.broadcast_to(expected(g), g.on.shape)], axis=-1)
        old = g.reach.atomic(g, address(g), on, function, kind, value, reads="swap" not in name or compare)
        if store is not None:
            store(g, old)
            g.shadow.set(g, registers, None)
        g.shadow.issue(g, LOAD if returns else STORE, registers)

    return DecodedOperation(
        b.instruction, run, b.uses, b.defines, "memory", "memory", loads=returns, counter=LOAD, addresses=addresses,
        stored=stored,
    )  # fmt: skip


def _load_to_lds(
    b: Builder, size: int, address: LaneAddresses, fits: LaneAddresses | None, addresses: int
) -> DecodedOperation:
    """A load into LDS: the words are stored lane after lane from the address in M0 on."""
    m0 = b.read_scalar(124 if b.cdna else 125)
    offset = b.instruction.fields.get("offset", 0)

    def run(g: Gang) -> None:
        place, on = address(g), _lanes_in_reach(g, fits, size)
        values, unknown = g.reach.load(g, g.shadow, place, on, size)
        base = (np.broadcast_to(m0(g), g.count) & U32(0xFFFF)).astype(I64)[:, None]
        to = base + offset + np.arange(g.lanes) * max(4, size)
        g.shadow.issue(g, LOAD, 0)
        g.lds.store(g, to, g.on, values, max(4, size), unknown)
        g.shadow.lds_stored(g, through_load=True)

    return DecodedOperation(b.instruction, run, b.uses, b.defines, "memory", "memory", addresses=addresses)


def _scalar(b: Builder) -> DecodedOperation | None:
    f = b.instruction.fields
    match = re.fullmatch(r"s_(buffer_)?load_(b\d+|u8|i8|u16|i16)", b.instruction.name)
    if match is None:
        return (
            DecodedOperation(b.instruction, lambda g: None, kind="wait", flow="cross")
            if "inv" in b.instruction.name
            else None
        )
    size = int(match[2][1:]) // 8
    bits = b.generation.scalar_offset_bits
    raw = f.get("offset", f.get("ioffset", 0))
    offset = raw - (1 << bits) if raw >> (bits - 1) else raw
    base = b.read_scalar(f["sbase"], 64)
    records = b.read_scalar(f["sbase"] + 2) if match[1] else None
    register = None
    if b.cdna:
        if f["soffset_en"]:
            register = b.read_scalar(f["soffset"])
        elif not f["imm"]:
            register, offset = b.read_scalar(raw & 127), 0
    elif f["soffset"] != 124:
        register = b.read_scalar(f["soffset"])
    addresses = b.uses
    stores = [b.write_scalar(f["sdata"] + i) for i in range(max(1, size // 4))]
    registers = b.defines
    signed = match[2][0] == "i"

    def run(g: Gang) -> None:
        place = np.broadcast_to(base(g), g.count).astype(U64)
        if match[1]:
            place = place & U64(0xFFFFFFFFFFFF)
        inside = np.full(g.count, offset, I64)
        if register is not None:
            inside = inside + np.broadcast_to(register(g), g.count).astype(I64)
        place = ((place + inside.astype(U64)) & ~U64(3 if size >= 4 else 0))[:, None]
        on = np.ones((g.count, 1), np.bool_)
        if records is not None:
            on = (inside + size <= np.broadcast_to(records(g), g.count).astype(I64))[:, None]
        values, unknown = g.reach.load(g, g.shadow, place, on, size)
        if signed:
            values = ((values << U32(32 - 8 * size)).view(np.int32) >> (32 - 8 * size)).view(U32)
        for i, store in enumerate(stores):
            store(g, values[:, 0, i])
        if unknown is not None:
            for i in range(len(stores)):
                g.shadow.set(g, register_bits(f["sdata"] + i, 1), unknown[..., i])
        elif registers & g.shadow.unwritten:
            g.shadow.set(g, registers, None)
        g.shadow.issue(g, SCALAR, registers)

    return DecodedOperation(b.instruction, run, b.uses, b.defines, "memory", "memory", loads=True, addresses=addresses)
