"""Runs GPU kernels as numpy: the IR that is handed to IREE, one workgroup at a time, all of its threads together.

What a thread may not do is an error: reading or writing past a tensor's end, a barrier that not all threads reach,
reading shared memory that another thread wrote, or writing what another read, without a barrier between. Matrix
instructions follow the layouts of AMD's ISA guides: CDNA3 section 7 and the matrix instruction calculator for MFMA,
RDNA3 and RDNA4 section 7.9 for WMMA.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from qmlir.core.mlir import ir

Array = NDArray[Any]


class KernelError(AssertionError):
    """A kernel did what no kernel may."""


_FLOATS = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip


def dtype_of(t: Any) -> Any:
    text = str(t)
    if text == "index":
        return np.int64
    if text in _FLOATS:
        return _FLOATS[text]
    return {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}[text]


def _element(t: Any) -> tuple[Any, int]:
    """The dtype and the lanes (0: no vector) of a type."""
    if isinstance(t, ir.VectorType):
        assert len(t.shape) == 1
        return dtype_of(t.element_type), int(t.shape[0])
    return dtype_of(t), 0


class Memory:
    """A buffer seen through a memref's type; shared memory watches for races."""

    def __init__(self, array: Array, lanes: int, shared: bool = False) -> None:
        self.array, self.lanes, self.shared = array, lanes, shared
        self.shape = array.shape[: array.ndim - bool(lanes)]
        if shared:
            self.written = np.full(self.shape, -1)
            self.read = np.full(self.shape, -1)

    def at(self, where: Sequence[Array], mask: Array, what: str) -> tuple[Array, ...]:
        """The indices of the threads that are active, checked."""
        chosen = tuple(w[mask] for w in where)
        for axis, (index, size) in enumerate(zip(chosen, self.shape, strict=True)):
            if index.size and (index.min() < 0 or index.max() >= size):
                raise KernelError(f"{what} at {index.min()}..{index.max()} of axis {axis}, which has {size}")
        return chosen

    def barrier(self) -> None:
        self.written[...] = self.read[...] = -1


class Workgroup:
    """The threads of one workgroup."""

    def __init__(
        self, block: tuple[int, int, int], threads: int, subgroup: int, buffers: Sequence[Memory],
        sizes: Sequence[int],
    ) -> None:  # fmt: skip
        self.block, self.threads, self.subgroup = block, threads, subgroup
        self.buffers, self.sizes = buffers, sizes
        self.values: dict[Any, Any] = {}
        self.shared: list[Memory] = []
        self.counts: dict[str, int] = {}
        self.everyone = np.ones(threads, bool)

    # ---- values

    def get(self, value: Any) -> Any:
        return self.values[value]

    def full(self, t: Any, value: Any) -> Array:
        dtype, lanes = _element(t)
        return np.full((self.threads, lanes) if lanes else self.threads, value, dtype)

    # ---- regions

    def run(self, block: Any, mask: Array) -> list[Any]:
        """Run a block; the values that its terminator yields."""
        for op in block.operations:
            op = op.operation
            if op.name in ("scf.yield", "func.return"):
                return [self.get(v) for v in op.operands]
            self.counts[op.name] = self.counts.get(op.name, 0) + 1
            self._one(op, mask)
        return []

    def _one(self, op: Any, mask: Array) -> None:
        if op.name == "scf.for":
            self._for(op, mask)
        elif op.name == "scf.if":
            self._if(op, mask)
        elif op.name in _EFFECTS:
            _EFFECTS[op.name](self, op, mask)
        elif op.name in _PURE:
            result = _PURE[op.name](self, op, *[self.get(v) for v in op.operands])
            dtype, _ = _element(op.results[0].type)
            self.values[op.results[0]] = np.asarray(result).astype(dtype, copy=False)
        else:
            raise KernelError(f"the interpreter does not know {op.name}")

    def _if(self, op: Any, mask: Array) -> None:
        test = self.get(op.operands[0])
        made = [self.full(result.type, 0) for result in op.results]
        for region, taken in zip(op.regions, (mask & test, mask & ~test), strict=False):
            if taken.any() and list(region.blocks):
                found = self.run(region.blocks[0], taken)
                made = [_where(taken, new, old) for new, old in zip(found, made, strict=True)]
        for result, value in zip(op.results, made, strict=True):
            self.values[result] = value

    def _for(self, op: Any, mask: Array) -> None:
        start, stop, step, *carried = [self.get(v) for v in op.operands]
        body = op.regions[0].blocks[0]
        index = start.copy()
        values = list(carried)
        while (active := mask & (index < stop)).any():
            self.values[body.arguments[0]] = index.copy()
            for argument, value in zip(list(body.arguments)[1:], values, strict=True):
                self.values[argument] = value
            following = self.run(body, active)
            values = [_where(active, new, old) for new, old in zip(following, values, strict=True)]
            index = np.where(active, index + step, index)
        for result, value in zip(op.results, values, strict=True):
            self.values[result] = value


def _where(mask: Array, new: Array, old: Array) -> Array:
    if new.ndim == 3:  # cooperative matrices, which all threads have
        return new
    return np.where(mask[:, None] if new.ndim == 2 else mask, new, old)


# ---------------------------------------------------------------------------------------------- memory, threads

Effect = Callable[[Workgroup, Any, Array], None]


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
    """One thread after the other, in the order of their numbers; what it leaves is nobody's until a barrier."""
    assert "addi" in str(op.attributes["kind"]) or int(ir.IntegerAttr(op.attributes["kind"]).value) == 1
    value, memory = w.get(op.operands[0]), w.get(op.operands[1])
    where = memory.at([w.get(v) for v in list(op.operands)[2:]], mask, "an atomic sum")
    who = np.arange(w.threads)[mask]
    for seen in (memory.written, memory.read):
        if ((seen[where] != -1) & (seen[where] != -3) & (seen[where] != who)).any():
            raise KernelError("an atomic sum of shared memory that another thread uses, without a barrier between")
    out = w.full(op.results[0].type, 0)
    for place in zip(who, *where, strict=True):
        thread, at = place[0], place[1:]
        out[thread] = memory.array[at]
        memory.array[at] += value[thread]
    memory.written[where] = -3
    w.values[op.results[0]] = out


_BUFFER = 40  # bits of an address below the number of its buffer


def _pointer(w: Workgroup, op: Any, mask: Array) -> None:
    number = next(i for i, memory in enumerate(w.buffers) if memory is w.get(op.operands[0]))
    w.values[op.results[0]] = w.full(op.results[0].type, number << _BUFFER)


def _address(w: Workgroup, op: Any, mask: Array) -> None:
    w.values[op.results[0]] = w.get(op.operands[0])


def _count(w: Workgroup, op: Any, mask: Array) -> None:
    """An atomic sum of i32 in global memory. Workgroups run one behind the other here: what orders their stores is for
    the emulated devices to judge."""
    assert int(ir.IntegerAttr(op.attributes["bin_op"]).value) == 1, "a sum"
    address, value = (w.get(v) for v in op.operands)
    out = w.full(op.results[0].type, 0)
    for thread in np.flatnonzero(mask):
        number, offset = divmod(int(address[thread]), 1 << _BUFFER)
        (place,) = w.buffers[number].at([np.array([offset // 4])], np.ones(1, bool), "an atomic sum")
        out[thread] = w.buffers[number].array[place[0]]
        w.buffers[number].array[place[0]] += value[thread]
    w.values[op.results[0]] = out


def _run_of(w: Workgroup, memory: Memory, first: Sequence[Array], lanes: int, mask: Array) -> tuple[Array, ...]:
    """The indices of neighbours along the last axis, of each active thread."""
    assert not memory.shared
    *outer, last = first
    spread = [np.broadcast_to(w[:, None], (len(w), lanes)) for w in outer]
    where = [*spread, last[:, None] + np.arange(lanes)]
    return memory.at(where, mask, "a vector")


def _load_run(w: Workgroup, op: Any, mask: Array) -> None:
    memory = w.get(op.operands[0])
    out = w.full(op.results[0].type, 0)
    where = _run_of(w, memory, [w.get(v) for v in list(op.operands)[1:]], out.shape[1], mask)
    out[mask] = memory.array[where]
    w.values[op.results[0]] = out


def _store_run(w: Workgroup, op: Any, mask: Array) -> None:
    value, memory = w.get(op.operands[0]), w.get(op.operands[1])
    where = _run_of(w, memory, [w.get(v) for v in list(op.operands)[2:]], value.shape[1], mask)
    _one_writer(memory, tuple(i.reshape(-1) for i in where), value[mask].reshape(-1))
    memory.array[where] = value[mask]


def _one_writer(memory: Memory, where: tuple[Array, ...], values: Array) -> None:
    """No two threads store different values to one place at once."""
    flat = np.ravel_multi_index(where, memory.shape) if where else np.zeros(len(values), int)
    order = np.argsort(flat, kind="stable")
    same = flat[order][1:] == flat[order][:-1]
    bits = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)[order]
    if (same & (bits[1:] != bits[:-1]).any(1)).any():
        raise KernelError("two threads write different values to one place at once")


def _alloc(w: Workgroup, op: Any, mask: Array) -> None:
    kind = ir.MemRefType(op.results[0].type)
    dtype, lanes = _element(kind.element_type)
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
    """Where each subgroup's cooperative matrix lies: its memory, and the flat positions of its elements."""
    memory = w.get(op.operands[position])
    row, column = (w.get(v) for v in list(op.operands)[position + 1 :])
    stride = int(ir.IntegerAttr(op.attributes["leadDimension"]).value)
    assert stride == memory.shape[1], "a matrix of a memref's rows"
    rows, columns, dtype = _cooperative((op.results[0] if len(op.results) else op.operands[0]).type)
    if "transpose" in op.attributes:
        rows, columns = columns, rows
    per = memory.array.dtype.itemsize * max(memory.lanes, 1) // np.dtype(dtype).itemsize  # elements of a memref's one
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
        _touch(w, memory, where, number, dtype, write=False)
        tile = memory.array.reshape(-1).view(dtype)[where].astype(_exactly(dtype))
        found.append(tile.T if "transpose" in op.attributes else tile)
    w.values[op.results[0]] = np.stack(found)


def _matrix_store(w: Workgroup, op: Any, mask: Array) -> None:
    dtype = _cooperative(op.operands[0].type)[2]
    for number, (memory, where) in enumerate(_tile(w, op, 1)):
        _touch(w, memory, where, number, dtype, write=True)
        memory.array.reshape(-1).view(dtype)[where] = w.get(op.operands[0])[number]


def _touch(w: Workgroup, memory: Memory, where: Array, subgroup: int, dtype: Any, *, write: bool) -> None:
    """Note an access by a subgroup's first thread; its other threads stand for it."""
    per = memory.array.reshape(-1).view(dtype).size // memory.written.size
    at = np.unravel_index(np.unique(where // per), memory.shape)
    who = subgroup * w.subgroup
    for seen in (memory.written, memory.read) if write else (memory.written,):
        other = seen[at]
        if ((other != -1) & (other // w.subgroup != subgroup)).any() or (not write and (other != -1).any()):
            raise KernelError("shared memory of a cooperative matrix is used by others without a barrier between")
    (memory.written if write else memory.read)[at] = who


def _exactly(dtype: Any) -> Any:
    """What products and sums of an instruction are made in."""
    return np.int64 if np.dtype(dtype).kind == "i" else np.float64


def _matrix_constant(w: Workgroup, op: Any, mask: Array) -> None:
    rows, columns, dtype = _cooperative(op.results[0].type)
    w.values[op.results[0]] = np.full((w.threads // w.subgroup, rows, columns), w.get(op.operands[0])[0], dtype)


def _matrix_compute(w: Workgroup, op: Any, mask: Array) -> None:
    if not mask.all():
        raise KernelError("a cooperative matrix that some threads do not reach")
    a, b, c = (w.get(v) for v in op.operands)
    w.values[op.results[0]] = (a @ b + c).astype(c.dtype)


_EFFECTS: dict[str, Effect] = {
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
    "vector.load": _load_run,
    "vector.store": _store_run,
    "gpu.barrier": _barrier,
    "amdgpu.lds_barrier": _barrier,
    "hal.interface.binding.subspan": _subspan,
    "gpu.shuffle": _shuffle,
}


# --------------------------------------------------------------------------------------------------- pure ops

Pure = Callable[..., Any]


def _constant(w: Workgroup, op: Any) -> Array:
    value = op.attributes["value"]
    t = op.results[0].type
    if isinstance(value, ir.DenseElementsAttr):
        if not value.is_splat:
            return np.broadcast_to(np.array(value), (w.threads, t.shape[0])).copy()
        value = value.get_splat_value()
    return w.full(t, value.value)


_COMPARE = {0: np.equal, 1: np.not_equal, 2: np.less, 3: np.less_equal, 4: np.greater, 5: np.greater_equal}


def _unsigned(a: Array) -> Array:
    return a.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize])


def _cmpi(w: Workgroup, op: Any, a: Array, b: Array) -> Array:
    kind = int(ir.IntegerAttr(op.attributes["predicate"]).value)
    if kind >= 6:
        a, b, kind = _unsigned(a), _unsigned(b), kind - 4
    return np.asarray(_COMPARE[kind](a, b))


def _cmpf(w: Workgroup, op: Any, a: Array, b: Array) -> Array:
    kind = int(ir.IntegerAttr(op.attributes["predicate"]).value)
    unordered = np.isnan(a) | np.isnan(b)
    ordered = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal, 6: np.not_equal}
    if kind == 14:
        return unordered
    if kind == 7:
        return ~unordered
    if kind in ordered:
        return np.asarray(ordered[kind](a, b)) & ~unordered
    return np.asarray(ordered[kind - 7](a, b)) | unordered


def _shift(op: Callable[[Array, Array], Any], signed: bool) -> Pure:
    def run(w: Workgroup, _: Any, a: Array, b: Array) -> Array:
        return np.asarray(op(a, b) if signed else op(_unsigned(a), _unsigned(b))).view(a.dtype)

    return run


def _two(op: Callable[[Array, Array], Any]) -> Pure:
    def run(w: Workgroup, _: Any, a: Array, b: Array) -> Any:
        with np.errstate(all="ignore"):
            return op(a, b)

    return run


def _one(op: Callable[[Array], Any]) -> Pure:
    def run(w: Workgroup, _: Any, a: Array) -> Any:
        with np.errstate(all="ignore"):
            return op(a)

    return run


def _bitcast(w: Workgroup, op: Any, a: Array) -> Array:
    dtype, lanes = _element(op.results[0].type)
    return np.ascontiguousarray(a).view(dtype).reshape((w.threads, lanes) if lanes else w.threads)


def _extract(w: Workgroup, op: Any, a: Array, *dynamic: Array) -> Array:
    assert not dynamic
    (position,) = ir.DenseI64ArrayAttr(op.attributes["static_position"])
    return a[:, position]


def _broadcast(w: Workgroup, op: Any, a: Array) -> Array:
    _, lanes = _element(op.results[0].type)
    return np.repeat(a[:, None], lanes, 1)


def _dot4(a: Array, b: Array, total: Array) -> Array:
    left, right = (np.ascontiguousarray(x).view(np.int8).reshape(-1, 4).astype(np.int64) for x in (a, b))
    exact = (left * right).sum(1) + total
    if (np.abs(exact) >= 1 << 31).any():
        raise KernelError("a dot product leaves i32")
    return exact


def _assembly(w: Any, op: Any, *operands: Array) -> Array:
    text = op.attributes["asm_string"].value
    if text or op.attributes["constraints"].value != "=v,0":
        raise KernelError(f"the interpreter does not know the assembly {text!r}")
    return operands[0]  # the number itself, in a vector register


def _intrinsic(w: Workgroup, op: Any, *operands: Array) -> Any:
    name = ir.StringAttr(op.attributes["intrin"]).value
    if name == "llvm.amdgcn.sdot4":
        return _dot4(*operands[:3])
    if name == "llvm.amdgcn.sudot4":
        assert operands[0].all()
        assert operands[2].all()
        return _dot4(operands[1], operands[3], operands[4])
    if name == "llvm.roundeven":
        return np.round(operands[0])
    raise KernelError(f"the interpreter does not know {name}")


def _fma(w: Workgroup, op: Any, a: Array, b: Array, c: Array) -> Array:
    return a.astype(np.float64) * b + c


def _matrix(w: Workgroup, op: Any, a: Array, b: Array, total: Array) -> Array:
    """A matrix instruction, of every wave."""
    lanes = np.arange(w.subgroup)
    across, part = lanes % 16, lanes // 16
    count, registers = a.shape[1], total.shape[1]
    duplicated = op.name == "amdgpu.wmma" and count == 16
    parts = 1 if duplicated else w.subgroup // 16
    if registers != 256 // w.subgroup:
        raise KernelError(f"{op.name} with {registers} registers of the result in a wave of {w.subgroup}")
    k = int(ir.IntegerAttr(op.attributes["k"]).value)
    if k != parts * count:
        raise KernelError(f"{op.name} of K = {k} with {count} elements in a lane")
    wide = np.int64 if np.issubdtype(total.dtype, np.integer) else np.float64
    out = np.empty_like(total)
    r = np.arange(registers)
    row = 2 * r[None] + part[:, None] if duplicated else registers * part[:, None] + r[None]
    for first in range(0, w.threads, w.subgroup):
        sides = []
        for side in (a, b):
            mine = side[first : first + w.subgroup].astype(wide)
            if duplicated and not np.array_equal(mine[:16], mine[16:], equal_nan=wide == np.float64):
                raise KernelError("the halves of a wave hold different operands")
            dense = np.zeros((16, k), wide)
            for lane in range(16 * parts):
                dense[across[lane], part[lane] * count : (part[lane] + 1) * count] = mine[lane]
            sides.append(dense)
        product = sides[0] @ sides[1].T
        out[first : first + w.subgroup] = total[first : first + w.subgroup] + product[row, across[:, None]]
    return out


_PURE: dict[str, Pure] = {
    "arith.constant": _constant,
    "gpu.thread_id": lambda w, op: np.arange(w.threads),
    "gpu.block_id": lambda w, op: np.full(w.threads, w.block["xyz".index(str(op.attributes["dimension"])[-2])]),
    "hal.interface.constant.load": lambda w, op: np.full(w.threads, w.sizes[int(op.attributes["ordinal"].value)]),
    "arith.addi": _two(np.add), "arith.subi": _two(np.subtract), "arith.muli": _two(np.multiply),
    "arith.divui": _two(np.floor_divide), "arith.remui": _two(np.remainder),
    "arith.minui": _two(lambda a, b: np.where(_unsigned(a) < _unsigned(b), a, b)),
    "arith.minsi": _two(np.minimum), "arith.maxsi": _two(np.maximum),
    "arith.andi": _two(np.bitwise_and), "arith.ori": _two(np.bitwise_or), "arith.xori": _two(np.bitwise_xor),
    "arith.shli": _shift(np.left_shift, False), "arith.shrui": _shift(np.right_shift, False),
    "arith.shrsi": _shift(np.right_shift, True),
    "arith.cmpi": _cmpi, "arith.cmpf": _cmpf,
    "arith.select": lambda w, op, c, a, b: np.where(c[:, None] if a.ndim > c.ndim else c, a, b),
    "arith.extsi": _one(lambda a: a), "arith.trunci": _one(lambda a: a),
    "arith.extui": _one(lambda a: a if a.dtype == np.bool_ else _unsigned(a)),
    "arith.sitofp": _one(lambda a: a), "arith.uitofp": _one(_unsigned), "arith.fptosi": _one(np.trunc),
    "arith.extf": _one(lambda a: a), "arith.truncf": _one(lambda a: a),
    "arith.index_cast": _one(lambda a: a), "arith.index_castui": _one(lambda a: a),
    "arith.bitcast": _bitcast, "vector.bitcast": _bitcast,
    "arith.addf": _two(np.add), "arith.subf": _two(np.subtract), "arith.mulf": _two(np.multiply),
    "arith.divf": _two(np.divide), "arith.maximumf": _two(np.maximum), "arith.minimumf": _two(np.minimum),
    "arith.negf": _one(np.negative), "math.exp": _one(np.exp), "math.absf": _one(np.abs), "math.tanh": _one(np.tanh),
    "math.fma": _fma, "math.roundeven": _one(np.round), "math.trunc": _one(np.trunc),
    "math.copysign": _two(np.copysign),
    "math.round": _one(lambda a: np.copysign(np.floor(np.abs(a) + 0.5), a)), "math.floor": _one(np.floor),
    "llvm.intr.arithmetic.fence": _one(lambda a: a), "llvm.arithmetic.fence": _one(lambda a: a),
    "llvm.call_intrinsic": _intrinsic, "llvm.inline_asm": _assembly,
    "spirv.SDotAccSat": lambda w, op, a, b, c: _dot4(a, b, c), "spirv.FMul": _two(np.multiply),
    "vector.from_elements": lambda w, op, *values: np.stack(values, 1),
    "vector.extract": _extract, "vector.broadcast": _broadcast,
    "amdgpu.mfma": _matrix, "amdgpu.wmma": _matrix,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- executables


def _memory(array: Array, kind: Any) -> Memory:
    """A tensor's bytes as a memref reads them."""
    dtype, lanes = _element(kind.element_type)
    flat = np.ascontiguousarray(array).reshape(-1).view(dtype)
    sizes = [-1 if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]
    return Memory(flat.reshape([*sizes, lanes] if lanes else sizes), lanes)


def run(
    module: Any, inputs: Sequence[Array], result: Array | Sequence[Array], *sizes: int, entry: str | None = None
) -> Mapping[str, int]:
    """Run the executable `entry` of a module, or its only one; writes `result` (or results), returns how often each op
    ran (once a workgroup).

    Args:
        inputs: the operands of the dispatch, without the sizes that are known at run time.
        sizes: those, the number of rows first.
    """
    executables = [o.operation for o in module.body.operations if o.operation.name == "hal.executable.source"]
    (made,) = (o for o in executables if entry in (None, o.attributes["sym_name"].value))
    body = made.regions[0].blocks[0]
    inner = next(o.operation for o in body.operations if o.operation.name == "builtin.module")
    export = _taken(body, sizes[0] if sizes else 0)
    name = export.attributes["sym_name"].value
    functions = [o.operation for o in inner.regions[0].blocks[0].operations]
    function = next(f for f in functions if f.attributes["sym_name"].value == name)
    info = str(function.attributes["translation_info"])
    threads = int(info.split("workgroup_size = [")[1].split(",")[0])
    subgroup = int(info.split("subgroup_size = ")[1].split(">")[0])
    entry = function.regions[0].blocks[0]
    spans = [o.operation for o in entry.operations if o.operation.name == "hal.interface.binding.subspan"]
    kinds = {int(ir.IntegerAttr(o.attributes["binding"]).value): ir.MemRefType(o.results[0].type) for o in spans}
    results = [result] if isinstance(result, np.ndarray) else list(result)
    buffers = [_memory(array, kinds[i]) for i, array in enumerate([*inputs, *results])]
    grid = _grid(export, sizes[0] if sizes else 0)
    counts: dict[str, int] = {}
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                group = Workgroup((x, y, z), threads, subgroup, buffers, sizes)
                group.run(entry, group.everyone)
                for name, count in group.counts.items():
                    counts[name] = counts.get(name, 0) + count
    assert math.prod(grid) > 0
    return counts


def _taken(body: Any, rows: int) -> Any:
    """The export that the host launches for so many rows: from the first one on, the fallback of one whose condition
    does not hold."""
    exports = [o.operation for o in body.operations if o.operation.name == "hal.executable.export"]
    by_name = {o.attributes["sym_name"].value: o for o in exports}
    export = exports[0]
    while len(export.regions) > 1 and list(export.regions[1].blocks) and not _host(export.regions[1], rows)[0]:
        export = by_name[ir.FlatSymbolRefAttr(export.attributes["condition_fallback"]).value]
    return export


def _grid(export: Any, rows: int) -> tuple[int, int, int]:
    x, y, z = _host(export.regions[0], rows)
    return x, y, z


def _host(region: Any, rows: int) -> list[int]:
    """What a region of an export returns for so many rows."""
    block = region.blocks[0]
    group = Workgroup((0, 0, 0), 1, 1, [], [rows])
    for argument in list(block.arguments)[1:]:
        group.values[argument] = np.array([rows])
    for op in block.operations:
        if op.operation.name == "hal.return":
            return [int(group.get(v)[0]) for v in op.operation.operands]
        group._one(op.operation, group.everyone)
    raise AssertionError("an export without a count")
