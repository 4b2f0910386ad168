"""Instructions that compute numbers: arithmetic, comparisons, functions and conversions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..fma import fma64
from .formats import (
    DTYPES,
    FLOATS,
    PACKED,
    ROUNDINGS,
    Array,
    flushed,
    fused,
    odd_sum,
    rounded,
    saturated,
    saturated_small,
    to_integer,
    unsigned,
)
from .instructions import PtxError, PtxInstruction, Register, width_of
from .machine import PtxMachine, instruction
from .threads import Mask

ArrayFunction = Callable[..., Array]


def _mode(ins: PtxInstruction) -> str:
    """The rounding mode that an instruction names; `rn` (nearest even) if it names none."""
    return next((m for m in ins.modifiers if m in ROUNDINGS), "rn")


def _nearest(ins: PtxInstruction) -> None:
    if (mode := _mode(ins)) != "rn":
        raise PtxError(f"{ins.opcode}.{mode}.{ins.type} is not interpreted")


def _sources(m: PtxMachine, ins: PtxInstruction, kind: str, *which: int) -> list[Array]:
    """The operands `which` as values of type `kind`; f32 subnormals are flushed if the instruction has `.ftz`."""
    values = [m.read(ins.operands[i], kind) for i in which]
    return [flushed(v) for v in values] if ins.has("ftz") and kind == "f32" else values


def _finish(m: PtxMachine, ins: PtxInstruction, value: Array, mask: Mask) -> None:
    if value.dtype.kind not in "iub":
        if ins.has("ftz") and value.dtype == np.float32:
            value = flushed(value).astype(np.float32)
        if ins.has("sat"):
            value = np.where(np.isnan(value), 0, np.clip(value, 0, 1)).astype(value.dtype)
        if ins.has("relu"):
            value = np.where(np.isnan(value), value, np.maximum(value, 0)).astype(value.dtype)
    m.write(ins.operands[0], value, mask)


def _pack(values: Array, kind: str) -> Array:
    """Values `[threads, elements]` as the bits of packed registers, `[threads]`."""
    return np.ascontiguousarray(values).view(np.dtype(f"u{width_of(kind) // 8}")).reshape(-1)


def exact_sum(a: Array, b: Array, mode: str) -> Array:
    if a.dtype == np.float64:
        return a + b if mode == "rn" else fma64(np.ones_like(a), a, b, mode)
    return rounded(odd_sum(a.astype(np.float64), b.astype(np.float64)), a.dtype, mode)


def exact_product(a: Array, b: Array, mode: str) -> Array:
    if a.dtype == np.float64:
        return a * b if mode == "rn" else fma64(a, b, np.copysign(0.0, a * b), mode)
    return rounded(a.astype(np.float64) * b.astype(np.float64), a.dtype, mode)


def _elementwise(
    m: PtxMachine, ins: PtxInstruction, mask: Mask, integer: ArrayFunction, real: ArrayFunction, count: int
) -> None:
    """Write a function of `count` operands of the instruction's type; packed types element by element."""
    kind = ins.type
    if kind in PACKED:
        element = PACKED[kind][0]
        f = real if element in FLOATS else integer
        m.write(ins.operands[0], _pack(f(*(m.read_packed(o, kind) for o in ins.operands[1 : 1 + count])), kind), mask)
        return
    also = [x for x in ins.modifiers[:-1] if x in DTYPES]
    if also == ["f32"] and kind in ("f16", "bf16") and ins.opcode in ("add", "sub", "fma"):
        # sm_100 and later: the last operand and the result are f32, the others f16 or bf16.
        values = [*(v.astype(np.float32) for v in _sources(m, ins, kind, *range(1, count))),
                  *_sources(m, ins, "f32", count)]  # fmt: skip
    elif also:
        raise PtxError(f"{ins.opcode} of {' and '.join((*also, kind))} is not interpreted")
    else:
        values = _sources(m, ins, kind, *range(1, 1 + count))
    _finish(m, ins, (real if kind in FLOATS else integer)(*values), mask)


@instruction("add")
def _add(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    if ins.has("cc"):
        raise PtxError("carries are not interpreted")
    integer = (lambda a, b: saturated(a.astype(np.int64) + b, np.int32)) if ins.has("sat") else np.add
    _elementwise(m, ins, mask, integer, lambda a, b: exact_sum(a, b, _mode(ins)), 2)


@instruction("sub")
def _sub(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    integer = (lambda a, b: saturated(a.astype(np.int64) - b, np.int32)) if ins.has("sat") else np.subtract
    _elementwise(m, ins, mask, integer, lambda a, b: exact_sum(a, -b, _mode(ins)), 2)


def _multiplied(a: Array, b: Array, part: str) -> Array:
    """The low half (`lo`), the high half (`hi`) or all (`wide`) of an integer product."""
    if part == "lo":
        return a * b
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        product = a.astype(wide) * b.astype(wide)
        made: Array = product if part == "wide" else (product >> wide.type(8 * a.dtype.itemsize)).astype(a.dtype)
        return made
    half = np.uint64(32)
    low = np.uint64(0xFFFFFFFF)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    high = x1 * y1 + (middle >> half) + ((middle & low) + x0 * y1 >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    made = high.view(a.dtype)
    return made


def _part(ins: PtxInstruction) -> str:
    return next((p for p in ("lo", "hi", "wide") if ins.has(p)), "lo")


@instruction("mul")
def _mul(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    _elementwise(
        m, ins, mask, lambda a, b: _multiplied(a, b, _part(ins)), lambda a, b: exact_product(a, b, _mode(ins)), 2
    )


@instruction("mad")
def _mad(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    if ins.type in FLOATS:
        _fma(m, ins, mask)
        return
    a, b = _sources(m, ins, ins.type, 1, 2)
    product = _multiplied(a, b, _part(ins))
    m.write(ins.operands[0], product + m.read(ins.operands[3], f"{ins.type[0]}{8 * product.dtype.itemsize}"), mask)


@instruction("fma")
def _fma(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    def real(a: Array, b: Array, c: Array) -> Array:
        return fused(a, b, c, a.dtype, _mode(ins))

    _elementwise(m, ins, mask, real, real, 3)


@instruction("div")
def _div(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    def integer(a: Array, b: Array) -> Array:
        safe = np.where(b == 0, b.dtype.type(1), b)
        quotient = np.abs(a.astype(object)) // np.abs(safe.astype(object)) if a.dtype.itemsize == 8 else None
        if quotient is None:
            wide = np.trunc(a.astype(np.float64) / safe.astype(np.float64))
            return wide.astype(np.int64).astype(a.dtype)
        sign = np.where((a < 0) != (safe < 0), -1, 1)
        made: Array = (quotient * sign).astype(a.dtype)
        return made

    _nearest(ins)
    _elementwise(m, ins, mask, integer, lambda a, b: np.divide(a, b).astype(a.dtype), 2)


@instruction("rem")
def _rem(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    _elementwise(m, ins, mask, lambda a, b: np.fmod(a, np.where(b == 0, b.dtype.type(1), b)), np.fmod, 2)


def _float_extremum(ins: PtxInstruction, pick: ArrayFunction) -> ArrayFunction:
    """Float version of `pick` (min or max): a NaN operand loses, unless `.NaN` makes it win; -0 is less than 0."""

    def real(a: Array, b: Array) -> Array:
        less = np.signbit(a) if pick is np.minimum else ~np.signbit(a)
        value = np.where((a == 0) & (b == 0), np.where(less, a, b), pick(a, b))
        either = np.where(np.isnan(a), b, np.where(np.isnan(b), a, value))
        if ins.has("NaN"):
            either = np.where(np.isnan(a) | np.isnan(b), np.array(np.nan, a.dtype), either)
        return either.astype(a.dtype)

    return real


@instruction("min")
def _min(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    _elementwise(m, ins, mask, np.minimum, _float_extremum(ins, np.minimum), 2)


@instruction("max")
def _max(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    _elementwise(m, ins, mask, np.maximum, _float_extremum(ins, np.maximum), 2)


@instruction("abs")
def _abs(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    _elementwise(m, ins, mask, np.abs, np.abs, 1)


@instruction("neg")
def _neg(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    _elementwise(m, ins, mask, lambda a: (0 - a).astype(a.dtype), np.negative, 1)


@instruction("copysign")
def _copysign(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    _elementwise(m, ins, mask, np.copysign, lambda a, b: np.copysign(b, a), 2)


@instruction("dp4a")
def _dp4a(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    total = m.read(ins.operands[3], "s32").astype(np.int64)
    a, b = (
        np.ascontiguousarray(m.read(o, "b32")).view(np.int8 if k == "s32" else np.uint8).reshape(-1, 4).astype(np.int64)
        for o, k in zip(ins.operands[1:3], ins.modifiers[-2:], strict=True)
    )
    m.write(ins.operands[0], (total + (a * b).sum(axis=1)).astype(np.int32), mask)


@instruction("sad")
def _sad(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a, b, c = (m.read(o, ins.type) for o in ins.operands[1:4])
    m.write(ins.operands[0], (np.maximum(a, b) - np.minimum(a, b) + c).astype(a.dtype), mask)


# ---- comparisons and selections

_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def _compared(m: PtxMachine, ins: PtxInstruction, name: str, kind: str, first: int) -> Array:
    """The comparison `name` of two operands, as bools; `[threads, elements]` for a packed type."""
    if kind in PACKED:
        a, b = (m.read_packed(o, kind) for o in ins.operands[first : first + 2])
    else:
        a, b = _sources(m, ins, kind, first, first + 1)
    if PACKED.get(kind, (kind,))[0] in FLOATS:
        unordered = np.isnan(a) | np.isnan(b)
        if name == "num":
            return ~unordered
        if name == "nan":
            return unordered
        if name.endswith("u"):
            return unordered | _COMPARE[name[:-1]](a, b)
        if name == "ne":
            return np.asarray(~unordered & (a != b))
    return np.asarray(_COMPARE[name](a, b))


@instruction("setp")
def _setp(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    pair = len(ins.operands) > 2 and isinstance(ins.operands[1], Register) and ins.operands[1].name in _predicates(m)
    first = 2 if pair and len(ins.operands) > 3 else 1
    value = _compared(m, ins, ins.modifiers[0], ins.type, first)
    combine = next((c for c in ("and", "or", "xor") if ins.has(c)), None)
    other = m.predicate(ins.operands[first + 2]) if combine else None
    f = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    # A second predicate is the negation; for a packed type, it is the result of the upper element.
    found = [value[:, 0], value[:, 1]] if ins.type in PACKED else [value, ~value]
    for predicate, each in zip(ins.operands[:first], found, strict=False):
        m.write(predicate, each if combine is None or other is None else f[combine](each, other), mask)


def _predicates(m: PtxMachine) -> set[str]:
    return {name for name, width in m.entry.registers.items() if width == 1}


@instruction("set")
def _set(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    value = _compared(m, ins, ins.modifiers[0], ins.type, 1)
    kind = ins.modifiers[-2]
    result = value.astype(np.float32) if kind == "f32" else np.where(value, -1, 0).astype(np.int32)
    m.write(ins.operands[0], result, mask)


@instruction("selp")
def _selp(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a, b = (m.read(o, ins.type) for o in ins.operands[1:3])
    m.write(ins.operands[0], np.where(m.predicate(ins.operands[3]), a, b), mask)


@instruction("slct")
def _slct(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    a, b = (m.read(o, ins.modifiers[-2]) for o in ins.operands[1:3])
    m.write(ins.operands[0], np.where(m.read(ins.operands[3], ins.type) >= 0, a, b), mask)


# ---- functions: `.approx` ones are computed in f64 and rounded once, more accurate than the hardware

_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: 1 / x,
}


@instruction(*_FUNCTIONS)
def _function(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    f = _FUNCTIONS[ins.opcode]
    kind = ins.type
    if kind in PACKED:
        x = m.read_packed(ins.operands[1], kind)
        m.write(ins.operands[0], _pack(rounded(f(x.astype(np.float64)), x.dtype), kind), mask)
        return
    (x,), mode = _sources(m, ins, kind, 1), _mode(ins)
    if kind == "f64":
        _nearest(ins)
    _finish(m, ins, rounded(f(x.astype(np.float64)), x.dtype, mode), mask)


# ---- conversions


@instruction("cvt")
def _cvt(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    if ins.modifiers[0] == "pack":
        _cvt_pack(m, ins, mask)
        return
    to, source = ins.modifiers[-2:]
    if to in PACKED or source in PACKED:
        _cvt_packed(m, ins, mask, to, source)
        return
    x = m.read(ins.operands[1], source)
    if ins.has("ftz") and source == "f32":
        x = flushed(x)
    m.write(ins.operands[0], _converted(x, source, to, ins), mask)


def _converted(x: Array, source: str, to: str, ins: PtxInstruction) -> Array:
    dtype = DTYPES[to]
    mode = _mode(ins)
    if to in FLOATS:
        if source in FLOATS and any(ins.has(r) for r in ("rni", "rzi", "rmi", "rpi")):
            whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
            y = whole(x.astype(np.float64)).astype(dtype)
        elif source not in FLOATS and x.dtype.itemsize == 8:
            y = x.astype(dtype) if to != "f16" else x.astype(np.float64).astype(dtype)
        elif ins.has("satfinite"):
            y = saturated_small(x, dtype)
        else:
            y = rounded(x.astype(np.float64), dtype, mode)
        if ins.has("ftz") and to == "f32":
            y = flushed(y).astype(dtype)
        if ins.has("sat"):
            y = np.where(np.isnan(y), 0, np.clip(y, 0, 1)).astype(dtype)
        if ins.has("relu"):
            y = np.where(np.isnan(y), y, np.maximum(y, dtype.type(0))).astype(dtype)
        return y
    if source in FLOATS:
        return to_integer(x, dtype, mode)
    return saturated(x, dtype) if ins.has("sat") else x.astype(dtype)


def _cvt_packed(m: PtxMachine, ins: PtxInstruction, mask: Mask, to: str, source: str) -> None:
    """`cvt.to.source d, high, low`, or a conversion from one packed type to another."""
    if source in PACKED:
        x = m.read_packed(ins.operands[1], source)
        element = PACKED[source][0]
    else:
        high, low = (m.read(o, source) for o in ins.operands[1:3])
        x, element = np.stack([low, high], axis=1), source
    m.write(ins.operands[0], _pack(_converted(x, element, PACKED[to][0], ins), to), mask)


def _cvt_pack(m: PtxMachine, ins: PtxInstruction, mask: Mask) -> None:
    """`cvt.pack.sat.s8.s32.b32 d, a, b, c`: a and b saturated, in the bits below the low half of c."""
    to = ins.modifiers[2]
    dtype = DTYPES[to]
    a, b = (saturated(m.read(o, "s32"), dtype).view(unsigned(dtype)).astype(np.uint32) for o in ins.operands[1:3])
    bits = np.uint32(8 * dtype.itemsize)
    value = a << bits | b
    if len(ins.operands) > 3:
        value = m.read(ins.operands[3], "b32") << np.uint32(2) * bits | value
    m.write(ins.operands[0], value, mask)
