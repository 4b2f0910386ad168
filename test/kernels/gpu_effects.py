"""Ops of GPU kernels that read or write memory, or that several threads execute together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from kernels.gpu_workgroup import EFFECTS, Array, KernelError, Memory, Workgroup, dtype_of, element

from qmlir.core.mlir import ir


def _load(w: Workgroup, op: Any, mask: Array) -> None:
    memory = w.get(op.operands[0])
    where = memory.at([w.get(v) for v in list(op.operands)[1:]], mask, "a load")
    out = w.full(op.results[0].type, 0)
    out[mask] = memory.array[where]
    if memory.shared:
        who = np.arange(w.threads)[mask]
        other = memory.written[where]
        if ((other != -1) & (other != who)).any():
            raise KernelError("shared memory is read that another thread wrote, without a barrier between")
        memory.read[where] = np.where((memory.read[where] != -1) & (memory.read[where] != who), -2, who)
    w.values[op.results[0]] = out


def _store(w: Workgroup, op: Any, mask: Array) -> None:
    value, memory = w.get(op.operands[0]), w.get(op.operands[1])
    where = memory.at([w.get(v) for v in list(op.operands)[2:]], mask, "a store")
    _one_writer(memory, where, value[mask])
    if memory.shared:
        who = np.arange(w.threads)[mask]
        for seen, verb in ((memory.read, "read"), (memory.written, "wrote")):
            if ((seen[where] != -1) & (seen[where] != who)).any():
                raise KernelError(f"shared memory is written that another thread {verb}, without a barrier between")
        memory.written[where] = who
    memory.array[where] = value[mask]


def _atomic(w: Workgroup, op: Any, mask: Array) -> None:
    """An atomic addition, one thread after the other in the order of their numbers. Until a barrier, no thread may load
    or store sums in shared memory. Workgroups run one after the other here, so those of global memory need no order."""
    assert "addi" in str(op.attributes["kind"]) or int(ir.IntegerAttr(op.attributes["kind"]).value) == 1
    value, memory = w.get(op.operands[0]), w.get(op.operands[1])
    where = memory.at([w.get(v) for v in list(op.operands)[2:]], mask, "an atomic sum")
    who = np.arange(w.threads)[mask]
    for seen in (memory.written, memory.read) if memory.shared else ():
        if ((seen[where] != -1) & (seen[where] != -3) & (seen[where] != who)).any():
            raise KernelError("an atomic sum of shared memory that another thread uses, without a barrier between")
    out = w.full(op.results[0].type, 0)
    for place in zip(who, *where, strict=True):
        thread, at = place[0], place[1:]
        out[thread] = memory.array[at]
        memory.array[at] += value[thread]
    if memory.shared:
        memory.written[where] = -3
    w.values[op.results[0]] = out


_BUFFER = 40  # an address has its buffer's number above these bits


def _pointer(w: Workgroup, op: Any, mask: Array) -> None:
    number = next(i for i, memory in enumerate(w.buffers) if memory is w.get(op.operands[0]))
    w.values[op.results[0]] = w.full(op.results[0].type, number << _BUFFER)


def _address(w: Workgroup, op: Any, mask: Array) -> None:
    w.values[op.results[0]] = w.get(op.operands[0])


def _count(w: Workgroup, op: Any, mask: Array) -> None:
    """An atomic i32 addition in global memory. Workgroups run one after the other here; the emulated devices check how
    their stores are ordered."""
    assert int(ir.IntegerAttr(op.attributes["bin_op"]).value) == 1, "a sum"
    address, value = (w.get(v) for v in op.operands)
    out = w.full(op.results[0].type, 0)
    for thread in np.flatnonzero(mask):
        number, offset = divmod(int(address[thread]), 1 << _BUFFER)
        (place,) = w.buffers[number].at([np.array([offset // 4])], np.ones(1, bool), "an atomic sum")
        out[thread] = w.buffers[number].array[place[0]]
        w.buffers[number].array[place[0]] += value[thread]
    w.values[op.results[0]] = out


def _consecutive(w: Workgroup, memory: Memory, first: Sequence[Array], lanes: int, mask: Array) -> tuple[Array, ...]:
    """The indices of `lanes` consecutive elements along the last axis, for each active thread."""
    assert not memory.shared
    *outer, last = first
    spread = [np.broadcast_to(w[:, None], (len(w), lanes)) for w in outer]
    where = [*spread, last[:, None] + np.arange(lanes)]
    return memory.at(where, mask, "a vector")


def _load_run(w: Workgroup, op: Any, mask: Array) -> None:
    memory = w.get(op.operands[0])
    out = w.full(op.results[0].type, 0)
    where = _consecutive(w, memory, [w.get(v) for v in list(op.operands)[1:]], out.shape[1], mask)
    out[mask] = memory.array[where]
    w.values[op.results[0]] = out


def _store_run(w: Workgroup, op: Any, mask: Array) -> None:
    value, memory = w.get(op.operands[0]), w.get(op.operands[1])
    where = _consecutive(w, memory, [w.get(v) for v in list(op.operands)[2:]], value.shape[1], mask)
    _one_writer(memory, tuple(i.reshape(-1) for i in where), value[mask].reshape(-1))
    memory.array[where] = value[mask]


def _one_writer(memory: Memory, where: tuple[Array, ...], values: Array) -> None:
    """Check that no two threads store different values to one element at once."""
    flat = np.ravel_multi_index(where, memory.shape) if where else np.zeros(len(values), int)
    order = np.argsort(flat, kind="stable")
    same = flat[order][1:] == flat[order][:-1]
    bits = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)[order]
    if (same & (bits[1:] != bits[:-1]).any(1)).any():
        raise KernelError("two threads write different values to one place at once")


def _alloc(w: Workgroup, op: Any, mask: Array) -> None:
    kind = ir.MemRefType(op.results[0].type)
    dtype, lanes = element(kind.element_type)
    shape = [*kind.shape, lanes] if lanes else list(kind.shape)
    memory = Memory(np.full(shape, 77, dtype), lanes, shared=True)
    w.shared.append(memory)
    w.values[op.results[0]] = memory


def _barrier(w: Workgroup, op: Any, mask: Array) -> None:
    if not mask.all():
        raise KernelError("a barrier that some threads do not reach")
    for memory in w.shared:
        memory.barrier()


def _subspan(w: Workgroup, op: Any, mask: Array) -> None:
    w.values[op.results[0]] = w.buffers[int(ir.IntegerAttr(op.attributes["binding"]).value)]


def _shuffle(w: Workgroup, op: Any, mask: Array) -> None:
    value, offset, _ = (w.get(v) for v in op.operands)
    lane = np.arange(w.threads)
    inside = lane % w.subgroup
    source = inside ^ offset if "xor" in str(op.attributes["mode"]) else offset
    if (mask & ((source < 0) | (source >= w.subgroup))).any():
        raise KernelError("a shuffle from a lane that the subgroup does not have")
    theirs = lane - inside + np.clip(source, 0, w.subgroup - 1)
    if (mask & ~mask[theirs]).any():
        raise KernelError("a shuffle from a lane that is not active")
    w.values[op.results[0]] = value[theirs]
    w.values[op.results[1]] = w.full(op.results[1].type, True)


def _cooperative(t: Any) -> tuple[int, int, Any]:
    """Rows, columns and dtype of a cooperative matrix's type."""
    rows, columns, element = re.fullmatch(r'!gpu.mma_matrix<(\d+)x(\d+)x(\w+), "\wOp">', str(t)).groups()  # type: ignore[union-attr]
    return int(rows), int(columns), dtype_of(element.removeprefix("s"))


def _tile(w: Workgroup, op: Any, position: int) -> list[tuple[Memory, Any]]:
    """The memory of each subgroup's cooperative matrix, and the flat positions of its elements there."""
    memory = w.get(op.operands[position])
    row, column = (w.get(v) for v in list(op.operands)[position + 1 :])
    stride = int(ir.IntegerAttr(op.attributes["leadDimension"]).value)
    assert stride == memory.shape[1], "a matrix of a memref's rows"
    rows, columns, dtype = _cooperative((op.results[0] if len(op.results) else op.operands[0]).type)
    if "transpose" in op.attributes:
        rows, columns = columns, rows
    per = memory.array.dtype.itemsize * max(memory.lanes, 1) // np.dtype(dtype).itemsize  # per memref element
    found = []
    for first in range(0, w.threads, w.subgroup):
        mine = slice(first, first + w.subgroup)
        if len(set(row[mine])) != 1 or len(set(column[mine])) != 1:
            raise KernelError("a subgroup loads one matrix from several places")
        if row[first] + rows > memory.shape[0] or column[first] * per + columns > memory.shape[1] * per:
            raise KernelError("a cooperative matrix past the end of its memory")
        down, across = np.arange(rows) + row[first], np.arange(columns) + column[first] * per
        found.append((memory, down[:, None] * stride * per + across))
    return found


def _matrix_load(w: Workgroup, op: Any, mask: Array) -> None:
    dtype = _cooperative(op.results[0].type)[2]
    found = []
    for number, (memory, where) in enumerate(_tile(w, op, 0)):
        _record_access(w, memory, where, number, dtype, write=False)
        tile = memory.array.reshape(-1).view(dtype)[where].astype(_exact_dtype(dtype))
        found.append(tile.T if "transpose" in op.attributes else tile)
    w.values[op.results[0]] = np.stack(found)


def _matrix_store(w: Workgroup, op: Any, mask: Array) -> None:
    dtype = _cooperative(op.operands[0].type)[2]
    for number, (memory, where) in enumerate(_tile(w, op, 1)):
        _record_access(w, memory, where, number, dtype, write=True)
        memory.array.reshape(-1).view(dtype)[where] = w.get(op.operands[0])[number]


def _record_access(w: Workgroup, memory: Memory, where: Array, subgroup: int, dtype: Any, *, write: bool) -> None:
    """Record an access by a subgroup as one by its first thread, which represents the others."""
    per = memory.array.reshape(-1).view(dtype).size // memory.written.size
    at = np.unravel_index(np.unique(where // per), memory.shape)
    who = subgroup * w.subgroup
    for seen in (memory.written, memory.read) if write else (memory.written,):
        other = seen[at]
        if ((other != -1) & (other // w.subgroup != subgroup)).any() or (not write and (other != -1).any()):
            raise KernelError("shared memory of a cooperative matrix is used by others without a barrier between")
    (memory.written if write else memory.read)[at] = who


def _exact_dtype(dtype: Any) -> Any:
    """The dtype in which the products and sums of an instruction are computed."""
    return np.int64 if np.dtype(dtype).kind == "i" else np.float64


def _matrix_constant(w: Workgroup, op: Any, mask: Array) -> None:
    rows, columns, dtype = _cooperative(op.results[0].type)
    w.values[op.results[0]] = np.full((w.threads // w.subgroup, rows, columns), w.get(op.operands[0])[0], dtype)


def _matrix_compute(w: Workgroup, op: Any, mask: Array) -> None:
    if not mask.all():
        raise KernelError("a cooperative matrix that some threads do not reach")
    a, b, c = (w.get(v) for v in op.operands)
    w.values[op.results[0]] = (a @ b + c).astype(c.dtype)


EFFECTS.update(
    {
        "gpu.subgroup_mma_load_matrix": _matrix_load,
        "gpu.subgroup_mma_store_matrix": _matrix_store,
        "gpu.subgroup_mma_constant_matrix": _matrix_constant,
        "gpu.subgroup_mma_compute": _matrix_compute,
        "memref.load": _load,
        "memref.store": _store,
        "memref.alloc": _alloc,
        "memref.atomic_rmw": _atomic,
        "memref.extract_aligned_pointer_as_index": _pointer,
        "llvm.atomicrmw": _count,
        "llvm.inttoptr": _address,
        "llvm.fence": lambda w, op, mask: None,
        "spirv.MemoryBarrier": lambda w, op, mask: None,
        "vector.load": _load_run,
        "vector.store": _store_run,
        "gpu.barrier": _barrier,
        "amdgpu.lds_barrier": _barrier,
        "hal.interface.binding.subspan": _subspan,
        "gpu.shuffle": _shuffle,
    }
)
