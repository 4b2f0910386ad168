"""Instructions that move data between registers, and between them and memory."""

from __future__ import annotations

import numpy as np

from .barriers import AsyncCopies
from .buffers import AccessFault
from .formats import DTYPES, Array, unsigned
from .instructions import PtxError, PtxInstruction, Vector, width_of
from .machine import PtxMachine, instruction
from .mbarrier import track_copies
from .memory import LOCAL_WINDOW, SHARED_WINDOW
from .threads import WARP, Mask

_SPACES = ("global", "shared", "local", "param", "const")


def _space(ins: PtxInstruction) -> str:
    return next((s for s in _SPACES if ins.has(s)), "generic")


def _lanes(ins: PtxInstruction) -> int:
    return next((int(v[1:]) for v in ins.modifiers if v in ("v2", "v4", "v8")), 1)


@instruction("mov")
def _mov(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    target, source = ins.operands
    if isinstance(target, Vector):
        whole = np.ascontiguousarray(m.read(source, ins.type))
        size = width_of(ins.type) // 8 // len(target.items)
        parts = whole.view(np.dtype(f"u{size}")).reshape(-1, len(target.items))
        for i, item in enumerate(target.items):
            m.write(item, parts[:, i].copy(), mask)
    elif isinstance(source, Vector):
        size = width_of(ins.type) // 8 // len(source.items)
        parts = np.stack([m.read(s, f"b{8 * size}") for s in source.items], axis=1)
        m.write(target, np.ascontiguousarray(parts).view(np.dtype(f"u{width_of(ins.type) // 8}")).reshape(-1), mask)
    else:
        m.write(target, m.read(source, ins.type), mask)


@instruction("cvta")
def _cvta(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """Convert between the addresses of a space and generic ones."""
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(_space(ins), 0)
    value = m.read(ins.operands[1], "u64").astype(np.int64)
    m.write(ins.operands[0], (value - window if ins.has("to") else value + window).astype(np.uint64), mask)


@instruction("isspacep")
def _isspacep(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(_space(ins), 0)
    value = m.read(ins.operands[1], "u64").astype(np.int64)
    m.write(
        ins.operands[0], (value >= window) & (value < window + (1 << 56)) if window else value < SHARED_WINDOW, mask
    )


@instruction("ld", "ldu")
def _ld(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    targets = m.items(ins.operands[0])
    dtype = DTYPES[ins.type]
    if _space(ins) == "param":
        _ld_param(m, ins, mask)
        return
    threads = m.active(mask)
    addresses = m.addresses(ins.operands[1])[threads]
    width = dtype.itemsize * len(targets)
    values = _load(m, ins, _space(ins), threads, addresses, width)
    for i, target in enumerate(targets):
        everywhere = np.zeros(m.threads, unsigned(dtype))
        everywhere[threads] = values[:, i]
        m.write(target, everywhere.view(dtype), mask)


def _ld_param(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    size, threads = width_of(ins.type) // 8, m.active(mask)
    first = m.addresses(ins.operands[1])[threads]
    for i, target in enumerate(m.items(ins.operands[0])):
        everywhere = np.zeros(m.threads, f"u{size}")
        everywhere[threads] = m.parameter(first + i * size, size).view(everywhere.dtype)[:, 0]
        m.write(target, everywhere.view(DTYPES[ins.type]), mask)


def _load(m: PtxMachine, ins: PtxInstruction, space: str, threads: Array, addresses: Array, width: int) -> Array:
    """Load `[threads, elements]` as unsigned integers of the width of the instruction's type."""
    dtype = np.dtype(f"u{width_of(ins.type) // 8}")
    if space == "generic":
        space, addresses = _resolved(addresses)
    if space == "shared":
        offsets = m.shared.offsets(addresses, width)
        _count_banks(m, ins, threads, addresses, width)
        return m.shared.load(m.place(threads, offsets), width, dtype)
    if space == "local":
        return _local(m, threads, addresses, width, dtype)[0]
    return m.memory.load(addresses, width, dtype, m.order, m.access(threads))


def _resolved(addresses: Array) -> tuple[str, Array]:
    """The space of generic addresses, and the addresses in it."""
    for space, window in (("local", LOCAL_WINDOW), ("shared", SHARED_WINDOW)):
        inside = addresses >= window
        if inside.all():
            return space, addresses - window
        if inside.any():
            raise PtxError(f"generic addresses, some in {space} memory and some not")
    return "global", addresses


def _local(
    m: PtxMachine, threads: Array, addresses: Array, width: int, dtype: np.dtype[np.generic]
) -> tuple[Array, Array, Array]:
    wrong = (addresses < 0) | (addresses + width > m.local.shape[1]) | (addresses % width != 0)
    if wrong.any():
        lane = int(np.flatnonzero(wrong)[0])
        raise AccessFault(f"{width} bytes at {int(addresses[lane])} of {m.local.shape[1]} of local memory", lane)
    index = addresses[:, None] // dtype.itemsize + np.arange(width // dtype.itemsize)
    memory = m.local.view(dtype)
    return memory[threads[:, None], index], threads[:, None], index


@instruction("st")
def _st(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    threads = m.active(mask)
    bits = f"b{width_of(ins.type)}"
    values = np.stack([m.read(v, bits)[threads] for v in m.items(ins.operands[1])], axis=1)
    addresses = m.addresses(ins.operands[0])[threads]
    space = _space(ins)
    if space == "generic":
        space, addresses = _resolved(addresses)
    width = values.shape[1] * values.dtype.itemsize
    if space == "shared":
        offsets = m.shared.offsets(addresses, width)
        _count_banks(m, ins, threads, addresses, width)
        m.shared.store(m.place(threads, offsets), values)
    elif space == "local":
        _, who, index = _local(m, threads, addresses, width, values.dtype)
        m.local.view(values.dtype)[who, index] = values
    else:
        m.memory.store(addresses, values, m.order, m.access(threads))


def _count_banks(m: PtxMachine, ins: PtxInstruction, threads: Array, addresses: Array, width: int) -> None:
    """Count bank conflicts of the first block only: the others do the same."""
    first = threads < m.warps_per_block * WARP
    if first.any():
        m.shared.count_conflicts(ins.line, addresses[first], threads[first], width)


@instruction("ldmatrix")
def _ldmatrix(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """Matrices of 8 rows of 16 bytes; lane i holds the address of row `i % 8` of matrix `i // 8`."""
    if not ins.has("m8n8") or ins.type != "b16":
        raise PtxError("only ldmatrix.m8n8.b16 is interpreted")
    warps = m.whole_warps(mask, "ldmatrix")
    targets = m.items(ins.operands[0])
    count = len(targets)
    addresses = m.addresses(ins.operands[1]).reshape(-1, WARP)[warps, : 8 * count].reshape(-1)
    threads = (warps[:, None] * WARP + np.arange(8 * count)).reshape(-1)
    offsets = m.shared.offsets(addresses, 16)
    if (first := threads < m.warps_per_block * WARP).any():
        m.shared.count_conflicts(ins.line, addresses[first], threads[first], 16)
    rows = m.shared.load(m.place(threads, offsets), 16, np.dtype(np.uint16)).reshape(warps.size, count, 8, 8)
    if ins.has("trans"):
        rows = rows.swapaxes(2, 3)
    words = np.ascontiguousarray(rows).view(np.uint32).reshape(warps.size, count, WARP)
    for i, target in enumerate(targets):
        value = np.zeros((m.threads // WARP, WARP), np.uint32)
        value[warps] = words[:, i]
        m.write(target, value.reshape(-1), mask)


@instruction("stmatrix")
def _stmatrix(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    warps = m.whole_warps(mask, "stmatrix")
    sources = m.items(ins.operands[1])
    count = len(sources)
    addresses = m.addresses(ins.operands[0]).reshape(-1, WARP)[warps, : 8 * count].reshape(-1)
    threads = (warps[:, None] * WARP + np.arange(8 * count)).reshape(-1)
    words = np.stack([m.read(s, "b32").reshape(-1, WARP)[warps] for s in sources], axis=1)
    rows = np.ascontiguousarray(words).view(np.uint16).reshape(warps.size, count, 8, 8)
    if ins.has("trans"):
        rows = rows.swapaxes(2, 3)
    offsets = m.shared.offsets(addresses, 16)
    if (first := threads < m.warps_per_block * WARP).any():
        m.shared.count_conflicts(ins.line, addresses[first], threads[first], 16)
    m.shared.store(m.place(threads, offsets), np.ascontiguousarray(rows).reshape(-1, 8))


# ---- asynchronous copies


@instruction("cp")
def _cp(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    if ins.modifiers[:2] == ("async", "commit_group"):
        m.committed[m.active(mask)] += 1
    elif ins.modifiers[:2] == ("async", "wait_group"):
        _wait(m, mask, int(m.read(ins.operands[0], "u32")[0]))
    elif ins.modifiers[:2] == ("async", "wait_all"):
        _wait(m, mask, -1)
    elif ins.modifiers[:3] == ("async", "mbarrier", "arrive"):
        track_copies(m, ins, mask)
    elif ins.modifiers[0] == "async" and ins.modifiers[1] in ("ca", "cg"):
        _copy(m, ins, mask)
    else:
        raise PtxError(f"{ins.opcode}.{'.'.join(ins.modifiers)} is not interpreted")


def _copy(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """`cp.async [shared], [global], bytes{, bytes to read}`; bytes beyond those read become zeros."""
    threads = m.active(mask)
    width = int(m.read(ins.operands[2], "u32")[0])
    to = m.addresses(ins.operands[0])[threads]
    if (to >= SHARED_WINDOW).any():
        raise PtxError("the target is not an address of shared memory")
    source = m.addresses(ins.operands[1])[threads]
    given = np.full(threads.size, width)
    more = [o for o in ins.operands[3:] if not ins.has("L2::cache_hint") or o is not ins.operands[-1]]
    if more:
        given = m.read(more[0], "u32")[threads].astype(np.int64)
    if (given > width).any():
        raise AccessFault(f"{int(given.max())} bytes of {width} are to be read", int(np.argmax(given)))
    values = np.zeros((threads.size, width), np.uint8)
    m.memory.bytes_read += int(given.sum())
    for size in np.unique(given[given > 0]).tolist():
        which = np.flatnonzero(given == size)
        for buffer, part, offsets in m.memory.find(source[which], size, align=width):
            m.memory.check_readable(buffer, m.order, m.access(threads[which[part]]), offsets, size)
            values[which[part], :size] = buffer.data[(offsets + buffer.start)[:, None] + np.arange(size)]
    offsets = m.shared.offsets(to, width)
    _count_banks(m, ins, threads, to, width)
    at = m.place(threads, offsets)
    m.shared.send(at, width)
    m.copies.append(AsyncCopies(threads, m.committed[threads], at, values))


def _wait(m: PtxMachine, mask: Mask, pending: int) -> None:
    """Wait until at most `pending` of a thread's groups are in flight; -1: for all copies, committed or not."""
    waiting = np.zeros(m.threads, np.bool_)
    waiting[m.active(mask)] = True
    kept = []
    for c in m.copies:
        done = waiting[c.threads]
        if pending >= 0:
            done = done & (c.groups < m.committed[c.threads] - pending)
        if done.any():
            landed = c.part(done)
            m.shared.arrive(landed.at, landed.values)
        if not done.all():
            kept.append(c.part(~done))
    m.copies = kept


@instruction("prefetch", "prefetchu", "discard", "applypriority", "createpolicy")
def _hint(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    if ins.opcode == "createpolicy":
        m.write(ins.operands[0], np.zeros(m.threads, np.uint64), mask)


# ---- atomics


@instruction("atom", "red")
def _atom(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """The atomics of the threads are executed one after the other, in the order of the threads."""
    kind = ins.type
    dtype = DTYPES.get(kind)
    if dtype is None or _lanes(ins) > 1:
        raise PtxError("packed atomics are not interpreted")
    operation = next(
        (o for o in ("add", "and", "or", "xor", "min", "max", "exch", "cas", "inc", "dec") if ins.has(o)), None
    )
    if operation is None:
        raise PtxError("an unknown atomic")
    sources = ins.operands[1:] if ins.opcode == "atom" else ins.operands
    threads = m.active(mask)
    addresses = m.addresses(sources[0])[threads]
    operands = [m.read(s, kind)[threads] for s in sources[1:]]
    space = _space(ins)
    if space == "generic":
        space, addresses = _resolved(addresses)
    old = np.empty(threads.size, dtype)
    if space == "shared":
        offsets = m.shared.offsets(addresses, dtype.itemsize)
        m.shared.check_updated(m.place(threads, offsets), dtype.itemsize, plain=operation == "exch")
        memory = m.shared.data.view(dtype)
        index = (m.block_of[threads] * m.shared.stride + offsets) // dtype.itemsize
        parts = [(memory, index, np.arange(threads.size))]
    else:
        parts = []
        for buffer, which, offsets in m.memory.find(addresses, dtype.itemsize):
            m.memory.check_writable(buffer)
            m.memory.check_updated(buffer, offsets, dtype.itemsize, plain=operation == "exch")
            parts.append(
                (buffer.data.view(dtype), (offsets + buffer.start) // dtype.itemsize, np.arange(threads.size)[which])
            )
    who = m.access(threads)
    for memory, index, which in parts:
        for i, lane in zip(index.tolist(), which.tolist(), strict=True):
            if space != "shared":
                m.order.atomic(who, lane, int(addresses[lane]), ins.modifiers)
            old[lane] = memory[i]
            memory[i] = _combined(operation, memory[i], [o[lane] for o in operands], dtype)
    if ins.opcode == "atom":
        everywhere = np.zeros(m.threads, dtype)
        everywhere[threads] = old
        m.write(ins.operands[0], everywhere, mask)


def _combined(operation: str, old: Array, operands: list[Array], dtype: np.dtype[np.generic]) -> Array:
    new = operands[0]
    if operation == "cas":
        return operands[1] if old == new else old
    if operation == "inc":
        return np.asarray(0 if old >= new else old + 1, dtype)
    if operation == "dec":
        return np.asarray(new if old == 0 or old > new else old - 1, dtype)
    if operation == "exch":
        return np.asarray(new, dtype)
    return np.asarray(_COMBINED[operation](old, new), dtype)


_COMBINED: dict[str, np.ufunc] = {"add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
                                  "min": np.minimum, "max": np.maximum}  # fmt: skip
