"""Ops of GPU kernels that compute values from values, including the matrix instructions of waves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kernels.gpu_workgroup import PURE, Array, KernelError, Pure, Workgroup, element

from qmlir.core.mlir import ir


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
    dtype, lanes = element(op.results[0].type)
    return np.ascontiguousarray(a).view(dtype).reshape((w.threads, lanes) if lanes else w.threads)


def _extract(w: Workgroup, op: Any, a: Array, *dynamic: Array) -> Array:
    assert not dynamic
    (position,) = ir.DenseI64ArrayAttr(op.attributes["static_position"])
    return a[:, position]


def _broadcast(w: Workgroup, op: Any, a: Array) -> Array:
    _, lanes = element(op.results[0].type)
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
    return operands[0]  # the same value, in a vector register


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
    """A matrix instruction, executed by every wave."""
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


PURE.update({
    "arith.constant": _constant,
    "gpu.thread_id": lambda w, op: np.arange(w.threads),
    "gpu.block_id": lambda w, op: np.full(w.threads, w.block["xyz".index(str(op.attributes["dimension"])[-2])]),
    "hal.interface.constant.load": lambda w, op: np.full(w.threads, w.sizes[int(op.attributes["ordinal"].value)]),
    "arith.addi": _two(np.add), "arith.subi": _two(np.subtract), "arith.muli": _two(np.multiply),
    "arith.divui": _two(np.floor_divide), "arith.remui": _two(np.remainder),
    "arith.minui": _two(lambda a, b: np.where(_unsigned(a) < _unsigned(b), a, b)),
    "arith.maxui": _two(lambda a, b: np.where(_unsigned(a) < _unsigned(b), b, a)),
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
})  # fmt: skip
