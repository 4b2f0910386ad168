"""Matrix products of a warp (`mma.sync`) and of four warps (`wgmma`).

Fragments have the layouts of the PTX ISA ("Matrix Fragments for mma.m16n8k*", "Asynchronous Warpgroup Level Matrix
Instructions"). Sums of floats are computed in f64 and rounded once to the accumulator's type. The hardware keeps fewer
bits than f32 of some of them, so float results are not bit-exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from .block_scales import BlockScales, scaled
from .formats import DTYPES, FLOATS, Array, rounded
from .instructions import Immediate, PtxError, PtxInstruction, PtxOperand, Register, Vector
from .machine import PtxMachine, WgmmaProduct, instruction
from .memory import SHARED_START, SharedPlace
from .threads import WARP, Mask

LANE = np.arange(WARP)
GROUP, IN_GROUP = LANE // 4, LANE % 4
_BITS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "tf32": 32, "f64": 64}

# Values of the e2m1 codes (OCP Microscaling Formats specification, section 5.3.3).
_E2M1 = np.array([s * x for s in (1.0, -1.0) for x in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)])


def _elements(words: Array, kind: str) -> Array:
    """Unpack words `[.., registers]` into f64 values `[.., registers, elements of a register]`."""
    words = np.ascontiguousarray(words)
    if kind in ("s4", "u4"):
        nibbles = (words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & np.uint32(15)
        signed = nibbles.astype(np.int64)
        return (np.where(signed > 7, signed - 16, signed) if kind == "s4" else signed).astype(np.float64)
    if kind == "e2m1":
        nibbles = (words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & np.uint32(15)
        numbers: Array = _E2M1[nibbles]
        return numbers
    if kind == "tf32":
        return (words & np.uint32(0xFFFFE000)).view(np.float32)[..., None].astype(np.float64)
    parts = words.view(np.uint8).reshape(*words.shape, words.dtype.itemsize)
    made: Array = np.ascontiguousarray(parts).view(DTYPES[kind]).astype(np.float64)
    return made


def _registers(m: PtxMachine, operand: PtxOperand, warps: Array) -> Array:
    """The registers of a vector operand, `[warps, lanes, registers]`."""
    values = [m.read(r, "b32").reshape(-1, WARP)[warps] for r in m.items(operand)]
    return np.stack(values, axis=2)


def _a_matrix(words: Array, kind: str, rows: int, k: int) -> Array:
    """A as `[warps, rows, K]`. With 16 rows, register i has row group `i % 2` and part `i // 2` of K."""
    values = _elements(words, kind)
    per = values.shape[-1]
    if values.shape[2] * per * WARP != rows * k:
        raise PtxError(f"{values.shape[2]} registers of A for m{rows}n8k{k} of {kind}")
    out = np.zeros((words.shape[0], rows, k))
    along = IN_GROUP[:, None] * per + np.arange(per)
    row_groups = rows // 8
    for i in range(values.shape[2]):
        row = (GROUP + 8 * (i % row_groups))[:, None]
        out[:, row, along + 4 * per * (i // row_groups)] = values[:, :, i]
    return out


def _b_matrix(words: Array, kind: str, k: int) -> Array:
    """B as `[warps, columns, K]`."""
    values = _elements(words, kind)
    per = values.shape[-1]
    if values.shape[2] * per * WARP != 8 * k:
        raise PtxError(f"{values.shape[2]} registers of B for n8k{k} of {kind}")
    out = np.zeros((words.shape[0], 8, k))
    along = IN_GROUP[:, None] * per + np.arange(per)
    for i in range(values.shape[2]):
        out[:, GROUP[:, None], along + 4 * per * i] = values[:, :, i]
    return out


def _c_places(registers: int, packed: bool) -> list[tuple[Array, Array]]:
    """Row and column of each lane in each accumulator register; in a packed one, of its first element."""
    if packed:
        return [(GROUP + 8 * i, 2 * IN_GROUP) for i in range(registers)]
    return [(GROUP + 8 * (i // 2), 2 * IN_GROUP + i % 2) for i in range(registers)]


def _accumulated(product: Array, old: Array, kind: str, saturate: bool) -> Array:
    """product + old in the accumulator's type."""
    total = product + old
    if kind == "s32":
        whole = total.astype(np.int64)
        return np.clip(whole, -(2**31), 2**31 - 1).astype(np.int32) if saturate else whole.astype(np.int32)
    return rounded(total, DTYPES[kind])


@instruction("mma")
def _mma(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    if ins.has("sp") or not ins.has("row") or not ins.has("col"):
        raise PtxError("only dense row.col products are interpreted")
    shape = next((re.fullmatch(r"m(\d+)n(\d+)k(\d+)", x) for x in ins.modifiers if x.startswith("m")), None)
    if shape is None or shape.group(2) != "8":
        raise PtxError("an unknown shape")
    rows, k = int(shape.group(1)), int(shape.group(3))
    has_scales = ins.has("block_scale")
    d_kind, a_kind, b_kind, c_kind = ins.modifiers[-5:-1] if has_scales else ins.modifiers[-4:]
    warps = m.whole_warps(mask, "mma")
    d, a, b, c, *more = ins.operands
    if a_kind == "f64":
        raise PtxError("products of f64 are not interpreted")
    scales = BlockScales.of(ins, k, (a_kind, b_kind)) if has_scales else None
    left = _a_matrix(_registers(m, a, warps), a_kind, rows, k)
    right = _b_matrix(_registers(m, b, warps), b_kind, k)
    if scales is not None:
        left = scaled(left, scales.rows(m, more[0], more[1], warps))
        right = scaled(right, scales.columns(m, more[2], more[3], warps))
    product = left @ right.swapaxes(1, 2)
    old = np.zeros_like(product)
    packed = c_kind == "f16"
    sources, targets = m.items(c), m.items(d)
    for register, (row, column) in zip(sources, _c_places(len(sources), packed), strict=True):
        value = m.read(register, "b32").reshape(-1, WARP)[warps]
        if packed:
            halves = np.ascontiguousarray(value).view(np.float16).reshape(warps.size, WARP, 2)
            old[:, row, column], old[:, row, column + 1] = halves[..., 0], halves[..., 1]
        else:
            old[:, row, column] = value.view(DTYPES[c_kind])
    result = _accumulated(product, old, d_kind, ins.has("satfinite"))
    for register, (row, column) in zip(targets, _c_places(len(targets), packed), strict=True):
        if packed:
            value = np.stack([result[:, row, column], result[:, row, column + 1]], axis=-1)
            words = np.ascontiguousarray(value.astype(np.float16)).view(np.uint32)[..., 0]
        else:
            words = result[:, row, column].view(np.uint32)
        everywhere = np.zeros((m.threads // WARP, WARP), np.uint32)
        everywhere[warps] = words
        m.write(register, everywhere.reshape(-1), mask)


# ---- wgmma


@dataclass(frozen=True)
class Descriptor:
    """A matrix in shared memory with contiguous K, as described by a 64-bit matrix descriptor.

    Attributes:
        start: address of the first byte.
        leading, stride: bytes between neighbouring core matrices along K, and along the rows.
        swizzle: 0: none; 1, 2, 3: rows of 128, 64, 32 bytes whose 16-byte chunks are permuted.
    """

    start: int
    leading: int
    stride: int
    swizzle: int

    @staticmethod
    def decode(bits: int) -> Descriptor:
        if bits >> 49 & 7:
            raise PtxError("a base offset in a matrix descriptor is not interpreted")
        made = Descriptor((bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, bits >> 62)
        repeat = {0: 128, 1: 1024, 2: 512, 3: 256}[made.swizzle]
        if made.swizzle and made.start % repeat >= repeat // 8:
            raise PtxError(f"a matrix with this swizzle starts at a multiple of {repeat} bytes, not at {made.start}")
        return made

    def addresses(self, rows: int, size: int) -> Array:
        """The address of each byte, `[rows, size]`, where `size` is the bytes along K."""
        row, byte = np.arange(rows)[:, None], np.arange(size)[None]
        if self.swizzle == 0:
            return self.start + row // 8 * self.stride + row % 8 * 16 + byte // 16 * self.leading + byte % 16
        width = {1: 128, 2: 64, 3: 32}[self.swizzle]
        plain = self.start + row // 8 * self.stride + row % 8 * width + byte
        return plain ^ (plain >> 3 & {1: 0x70, 2: 0x30, 3: 0x10}[self.swizzle])


@instruction("wgmma")
def _wgmma(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    warps = m.whole_warps(mask, "wgmma")
    if warps.size % 4 or (warps.reshape(-1, 4)[:, 0] % 4).any() or m.warps_per_block % 4:
        raise PtxError("wgmma is executed by only a part of a warpgroup")
    groups = (warps.reshape(-1, 4)[:, 0] // 4).tolist()
    what = ins.modifiers[0]
    if what == "fence":
        for group in groups:
            m.fenced_at[group] = m.clock
    elif what == "commit_group":
        for group in groups:
            m.products_committed[group * 4 * WARP] += 1
    elif what == "wait_group":
        pending = int(m.read(ins.operands[0], "u32")[0])
        for group in groups:
            _finish(m, group, pending)
    elif what == "mma_async":
        _start(m, ins, mask, groups)
    else:
        raise PtxError(f"wgmma.{what} is not interpreted")


def _finish(m: PtxMachine, group: int, pending: int) -> None:
    """A warpgroup waits until at most `pending` of its committed groups of products are in flight."""
    kept = []
    warps = np.arange(4) + group * 4 % m.warps_per_block
    block = group * 4 // m.warps_per_block
    for product in m.products:
        if product.warpgroup != group or product.group >= m.products_committed[group * 4 * WARP] - pending:
            kept.append(product)
            continue
        for index in product.reads:
            m.shared.end_reading(index, block, warps)
    m.products = kept


def _start(m: PtxMachine, ins: PtxInstruction, mask: Mask, groups: list[int]) -> None:
    shape = next(match for x in ins.modifiers if (match := re.fullmatch(r"m64n(\d+)k(\d+)", x)))
    n, k = int(shape.group(1)), int(shape.group(2))
    d_kind, a_kind, b_kind = [x for x in ins.modifiers if x in FLOATS or x in ("s32", "s8", "u8", "tf32")][:3]
    d, a, b, scale, *more = ins.operands
    signs = [int(o.value) for o in more[:2] if isinstance(o, Immediate)] or [1, 1]
    if any(isinstance(o, Immediate) and o.value for o in more[2:]):
        raise PtxError("transposed matrices are not interpreted")
    if d_kind == "f16":
        raise PtxError("f16 accumulators of wgmma are not interpreted")
    targets = m.items(d)
    if len(targets) * 2 != n:
        raise PtxError(f"{len(targets)} accumulator registers for {n} columns")
    keeps = m.predicate(scale) if not isinstance(scale, Immediate) else np.full(m.threads, bool(scale.value))
    if keeps.any():
        m.check_defined((t.name for t in targets if isinstance(t, Register)), keeps if mask is None else keeps & mask)
    results = np.stack([m.read(t, "b32") for t in targets], axis=1)
    owned = frozenset(t.name for t in targets if hasattr(t, "name"))
    sources = frozenset(r.name for r in m.items(a) if hasattr(r, "name")) if isinstance(a, Vector) else frozenset()
    for group in groups:
        _check_fence(m, group, owned, sources)
        threads = np.arange(4 * WARP) + group * 4 * WARP
        size = k * _BITS[a_kind] // 8
        reads: list[Array] = []
        if isinstance(a, Vector):
            warps = np.arange(4) + 4 * group
            left = _a_matrix(_registers(m, a, warps), a_kind, 16, k).reshape(64, k)
        else:
            left = _in_shared(m, a, threads, 64, size, a_kind, reads)
        right = _in_shared(m, b, threads, n, size, b_kind, reads)
        product = signs[0] * signs[-1] * (left @ right.T)
        row = (threads // WARP % 4 * 16 + threads % WARP // 4)[:, None]
        index = np.arange(n // 2)
        rows = row + index % 4 // 2 * 8
        columns = index // 4 * 8 + index % 2 + (threads % 4 * 2)[:, None]
        old = results[threads].view(DTYPES[d_kind]).astype(np.float64)
        old = np.where(keeps[threads][:, None], old, 0)
        results[threads] = _accumulated(product[rows, columns], old, d_kind, ins.has("satfinite")).view(np.uint32)
        m.products.append(WgmmaProduct(group, owned | sources, reads, int(m.products_committed[group * 4 * WARP])))
    for i, target in enumerate(targets):
        m.write(target, results[:, i].copy(), mask)


def _check_fence(m: PtxMachine, group: int, accumulators: frozenset[str], sources: frozenset[str]) -> None:
    fenced = int(m.fenced_at[group])
    if fenced < 0:
        raise PtxError("no wgmma.fence comes before the first wgmma.mma_async")
    for name in accumulators | sources:
        if name in m.written_at and int(m.written_at[name][group]) > fenced:
            raise PtxError(f"{name} was written after the last wgmma.fence")
    for product in m.products:
        if product.warpgroup == group and product.registers & accumulators and product.registers != accumulators:
            raise PtxError("two wgmma in flight share some of their accumulator registers")


def _in_shared(
    m: PtxMachine, operand: PtxOperand, threads: Array, rows: int, size: int, kind: str, reads: list[Array]
) -> Array:
    """The matrix of a descriptor, as f64 values `[rows, K]`; adds the index for `end_reading` to `reads`."""
    bits = m.read(operand, "u64")[threads]
    if (bits != bits[0]).any():
        raise PtxError("the lanes of a warpgroup have different descriptors")
    addresses = Descriptor.decode(int(bits[0])).addresses(rows, size)
    pieces = addresses[:, ::16].reshape(-1)
    offsets = m.shared.offsets(pieces, 16)
    block, warp = m.block_of[threads[0]], m.warp_of[threads[0]]
    at = SharedPlace(np.full(offsets.size, block), np.full(offsets.size, warp), offsets)
    reads.append(m.shared.start_reading(at, 16))
    raw = m.shared.data[block * m.shared.stride + addresses - SHARED_START]
    values = np.ascontiguousarray(raw).view(DTYPES[kind])
    made: Array = values.astype(np.float64)
    return made
