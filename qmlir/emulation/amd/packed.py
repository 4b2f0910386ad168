"""Packed instructions (VOP3P): two halves at once, mixed precision, dot products."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ..launch import EmulationError
from . import floats
from .arithmetic import LANES
from .decode import VGPR
from .gang import Gang
from .operands import Builder, DecodedOperation, ReadOperand
from .shadow import RegisterShadow
from .waves import Array, Waves, register_bits

_T = TypeVar("_T")

_F16: dict[str, Callable[..., Array]] = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "fma": floats.fma16,
        "min": LANES["v_min_f16"][2], "max": LANES["v_max_f16"][2]}  # fmt: skip
_F32: dict[str, Callable[..., Array]] = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "fma": floats.fma32}
_U16: dict[str, Callable[..., Array]] = {
    "add_u16": lambda a, b: a + b, "add_i16": lambda a, b: a + b, "sub_u16": lambda a, b: a - b,
    "sub_i16": lambda a, b: a - b, "mul_lo_u16": lambda a, b: a * b, "mad_u16": lambda a, b, c: a * b + c,
    "mad_i16": lambda a, b, c: a * b + c, "min_u16": np.minimum, "max_u16": np.maximum, "min_i16": np.minimum,
    "max_i16": np.maximum, "lshlrev_b16": LANES["v_lshlrev_b16"][2], "lshrrev_b16": LANES["v_lshrrev_b16"][2],
    "ashrrev_i16": LANES["v_ashrrev_i16"][2],
}  # fmt: skip


def build(b: Builder) -> DecodedOperation | None:
    """The operation of a packed instruction, None if it is of another kind."""
    name = b.instruction.name
    run: Callable[[Gang], None] | None = None
    if match := re.fullmatch(r"v_pk_(add|mul|fma|min|max)_f16", name):
        run = _halves(b, "f16", _F16[match[1]])
    elif match := re.fullmatch(r"v_pk_(add|mul|fma)_f32", name):
        run = _pairs(b, _F32[match[1]])
    elif name.startswith("v_pk_") and name[5:] in _U16:
        run = _halves(b, "i16" if "_i16" in name else "u16", _U16[name[5:]])
    elif name == "v_pk_mov_b32":
        run = _move(b)
    elif re.fullmatch(r"v_(fma|mad)_mix(lo|hi)?_f(16|32)", name):
        run = _mixed(b)
    elif name.startswith("v_dot") and b.instruction.form.startswith("VOP3P"):
        run = _dot(b)
    if run is None:
        return None
    op = DecodedOperation(b.instruction, run, b.uses, b.defines)
    if isinstance(b.halves, tuple):  # each register of the result depends on other registers
        parts, first = b.halves, b.instruction.fields["vdst"]

        def flow(g: Gang, shadow: RegisterShadow) -> None:
            found = [shadow.joined(g, part & shadow.unwritten) for part in parts]
            for i, unset in enumerate(found):
                shadow.set(g, register_bits(first + i, 1), unset)

        op.flow = flow
    return op


def _selects(b: Builder) -> tuple[int, int, int, int]:
    f = b.instruction.fields
    high = f["opsel_hi"] | f["opsel_hi2"] << 2
    return f["opsel"], high, f["neg"], f["neg_hi"]


def _negated(fetch: ReadOperand, negate: int) -> ReadOperand:
    return (lambda g: -fetch(g)) if negate else fetch


def _half(b: Builder, number: int, kind: str, half: int) -> ReadOperand:
    """One half of an operand; inline constants are 16 bits wide for floats, 32 for integers."""
    if 128 <= number < VGPR:
        if kind == "f16" and 240 <= number <= 248:
            value = b.constant(number, "f16") if half == 0 else np.float16(0)
        else:
            word = np.array([b.constant(number, "u32")], np.uint32)
            value = word.view(np.uint16)[half : half + 1].view(
                {"f16": np.float16, "i16": np.int16}.get(kind, np.uint16)
            )[0]
        return lambda g: value
    return b.read(number, kind, half)


def _operand_count(b: Builder) -> int:
    return 3 if re.search("_(fma|mad)_", b.instruction.name) else 2


def _halves(b: Builder, kind: str, function: Callable[..., Array]) -> Callable[[Gang], None]:
    f = b.instruction.fields
    low, high, negate_low, negate_high = _selects(b)
    if kind != "f16":
        negate_low = negate_high = 0
    n = _operand_count(b)
    first = [_negated(_half(b, f[f"src{i}"], kind, low >> i & 1), negate_low >> i & 1) for i in range(n)]
    second = [_negated(_half(b, f[f"src{i}"], kind, high >> i & 1), negate_high >> i & 1) for i in range(n)]
    store = b.write(f["vdst"], "u32")
    clamp = f.get("clmp", 0) and kind == "f16"

    def run(g: Gang) -> None:
        out = np.empty((g.count, g.lanes, 2), np.uint16)
        for half, operands in enumerate((first, second)):
            x = np.asarray(function(*(o(g) for o in operands)))
            if clamp:
                x = np.where(np.isnan(x), 0, np.clip(x, 0, 1)).astype(np.float16)
            out[..., half] = x.view(np.uint16)
        store(g, out.view(np.uint32)[..., 0])

    return run


def _word(b: Builder, i: int, select: int, kind: str) -> ReadOperand:
    """The word of operand `i`'s register pair that bit `i` of `select` selects; a constant has only one word."""
    number = b.instruction.fields[f"src{i}"]
    return b.read(number + (select >> i & 1 if number < 128 or number >= VGPR else 0), kind)


def _both(b: Builder, low: Callable[[], _T], high: Callable[[], _T]) -> tuple[_T, _T]:
    """The results of `low` and `high`; records in `b.halves` the registers that each word of the result depends on."""
    first = low()
    uses, b.uses = b.uses, 0
    second = high()
    b.halves, b.uses = (uses, b.uses), uses | b.uses
    return first, second


def _pairs(b: Builder, function: Callable[..., Array]) -> Callable[[Gang], None]:
    """Two f32 operations on pairs of registers."""
    f = b.instruction.fields
    low, high, negate_low, negate_high = _selects(b)
    n = _operand_count(b)
    first, second = _both(
        b,
        lambda: [_negated(_word(b, i, low, "f32"), negate_low >> i & 1) for i in range(n)],
        lambda: [_negated(_word(b, i, high, "f32"), negate_high >> i & 1) for i in range(n)],
    )
    to_low, to_high = b.write(f["vdst"], "f32"), b.write(f["vdst"] + 1, "f32")

    def run(g: Gang) -> None:
        x, y = function(*(o(g) for o in first)), function(*(o(g) for o in second))
        to_low(g, x)
        to_high(g, y)

    return run


def _move(b: Builder) -> Callable[[Gang], None]:
    f = b.instruction.fields
    low, *_ = _selects(b)
    x, y = _both(b, lambda: _word(b, 0, low, "u32"), lambda: _word(b, 1, low, "u32"))
    to_low, to_high = b.write(f["vdst"], "u32"), b.write(f["vdst"] + 1, "u32")

    def run(g: Gang) -> None:
        a, c = np.array(x(g)), np.array(y(g))
        to_low(g, a)
        to_high(g, c)

    return run


def _mixed(b: Builder) -> Callable[[Gang], None]:
    """Each operand is f32, or the f16 in one half of a register; `neg_hi` selects the absolute value."""
    f = b.instruction.fields
    name = b.instruction.name
    select, is_half, negate, absolute = _selects(b)

    def operand(i: int) -> ReadOperand:
        number = f[f"src{i}"]
        fetch = _half(b, number, "f16", select >> i & 1) if is_half >> i & 1 else b.read(number, "f32")

        def run(g: Waves) -> Array:
            x = np.asarray(fetch(g)).astype(np.float32)
            x = np.abs(x) if absolute >> i & 1 else x
            return -x if negate >> i & 1 else x

        return run

    operands = [operand(i) for i in range(3)]
    function = floats.fma32 if "fma" in name else lambda x, y, z: x * y + z
    if "mixlo" in name or "mixhi" in name:
        store = b.write(f["vdst"], "f16", int("mixhi" in name))
        as_f16 = _fma_to_f16 if "fma" in name else lambda x, y, z: (x * y + z).astype(np.float16)
        clamp = f.get("clmp", 0)
        return lambda g: store(g, _clamped(as_f16(*(o(g) for o in operands)), clamp))
    store = b.write(f["vdst"], "f32")
    clamp = f.get("clmp", 0)
    return lambda g: store(g, _clamped(function(*(o(g) for o in operands)), clamp))


def _clamped(x: Array, clamp: int) -> Array:
    return np.where(np.isnan(x), 0, np.clip(x, 0, 1)).astype(x.dtype) if clamp else x


def _fma_to_f16(a: Array, b: Array, c: Array) -> Array:
    """The fused sum is rounded to f32, then to f16 (pseudocode of `v_fma_mixlo_f16`)."""
    return floats.fma32(a, b, c).astype(np.float16)


def _dot(b: Builder) -> Callable[[Gang], None]:
    f = b.instruction.fields
    name = b.instruction.name
    match = re.fullmatch(r"v_dot(\d)c?_(f32|i32|u32)_(f16|bf16|i8|u8|iu8|i4|u4|iu4)", name)
    if match is None:
        raise EmulationError(f"{name} is not emulated")
    count, result, kind = int(match[1]), match[2], match[3]
    a, c = b.read(f["src0"], "u32"), b.read(f["src1"], "u32")
    d = b.read(f["src2"], "f32" if result == "f32" else "i32")
    store = b.write(f["vdst"], "f32" if result == "f32" else "i32")
    _, _, negate, _ = _selects(b)
    bits = 32 // count
    signed = (bool(negate & 1), bool(negate & 2)) if kind.startswith("iu") else (kind[0] == "i",) * 2

    def part(x: Array, i: int, is_signed: bool) -> Array:
        field = (np.asarray(x) >> np.uint32(bits * i)) & np.uint32((1 << bits) - 1)
        if kind == "f16":
            return field.astype(np.uint16).view(np.float16).astype(np.float64)
        if kind == "bf16":
            return floats.from_bf16(field).astype(np.float64)
        field = field.astype(np.int64)
        return np.where(field >> (bits - 1) & 1, field - (1 << bits), field) if is_signed else field

    clamp = f.get("clmp", 0)

    def run(g: Gang) -> None:
        x, y = a(g), c(g)
        total = np.asarray(d(g)).astype(np.float64 if result == "f32" else np.int64)
        for i in range(count):
            total = total + part(x, i, signed[0]) * part(y, i, signed[1])
        if clamp and result != "f32":
            total = np.clip(total, -(2**31), 2**31 - 1) if result == "i32" else np.clip(total, 0, 2**32 - 1)
        store(g, total)

    return run
