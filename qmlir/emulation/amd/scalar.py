"""Scalar instructions (SOP1, SOP2, SOPK, SOPC, SOPP): one value for each wave."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ..launch import EmulationError
from .arithmetic import COMPARISONS, LANES, leading_signs, leading_zeros, reversed_bits
from .decode import EXEC, LITERAL, VCC, AmdInstruction
from .floats import fma32
from .gang import Gang
from .generation import Generation
from .operands import TYPES, WIDTH, Builder, DecodedOperation, ReadOperand
from .waves import Array

U32, U64, I64 = np.uint32, np.uint64, np.int64
# From two operands and SCC to the result and the new SCC, None where that stays.
Two: TypeAlias = "Callable[[Array, Array, Array], tuple[Array, Array | None]]"


def _signed(x: Array) -> Array:
    return np.asarray(x).astype(U32).view(np.int32).astype(I64)


def _add(carry: bool, sign: int) -> Two:
    def function(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        total = np.asarray(a).astype(I64) + sign * (np.asarray(b).astype(I64) + (scc if carry else 0))
        return total.astype(U32), (total < 0) | (total >= 1 << 32)

    return function


def _add_signed(sign: int) -> Two:
    def function(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        total = _signed(a) + sign * _signed(b)
        return total.astype(U32), (total < -(1 << 31)) | (total >= 1 << 31)

    return function


def _logic(function: Callable[[Array, Array], Array]) -> Two:
    def run(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        found = function(a, b)
        return found, found != 0

    return run


def _plain(function: Callable[[Array, Array], Array]) -> Two:
    return lambda a, b, scc: (function(a, b), None)


def _extreme(function: Callable[[Array, Array], Array], signed: bool) -> Two:
    def run(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        x, y = (_signed(a), _signed(b)) if signed else (np.asarray(a), np.asarray(b))
        found = function(x, y)
        return found.astype(U32), found == x

    return run


def _field(signed: bool, bits: int) -> Two:
    def run(a: Array, b: Array, scc: Array) -> tuple[Array, Array]:
        offset = (np.asarray(b).astype(U64) & U64(bits - 1)).astype(U64)
        width = (np.asarray(b).astype(U64) >> U64(16)) & U64(127)
        mask = np.where(width >= 64, ~U64(0), (U64(1) << np.minimum(width, U64(63))) - U64(1))
        value = np.asarray(a).astype(U32).view(np.int32).astype(I64).view(U64) if signed and bits == 32 else a
        found = (np.asarray(value).astype(U64) >> offset) & mask
        if signed:
            sign = (found >> np.maximum(width, U64(1)) - U64(1)) & U64(1)
            found = np.where((width > 0) & (sign == 1), found | ~mask, found)
        found = found.astype(U32) if bits == 32 else found
        return found, found != 0

    return run


def _shift(function: Callable[[Array, Array], Array], bits: int) -> Two:
    kind: Any = U32 if bits == 32 else U64
    return _logic(lambda a, b: function(np.asarray(a).astype(kind), np.asarray(b).astype(kind) & kind(bits - 1)))


def _arithmetic_right(a: Array, s: Array) -> Array:
    kind = np.int32 if a.dtype == U32 else np.int64
    return (a.view(kind) >> s.astype(kind)).view(a.dtype)


def _wide(shift: int, signed: bool) -> Two:
    def run(a: Array, b: Array) -> Array:
        x, y = (_signed(a), _signed(b)) if signed else (np.asarray(a).astype(U64), np.asarray(b).astype(U64))
        return ((x * y) >> x.dtype.type(shift)).astype(U32)

    return _plain(run)


TWO: dict[str, Two] = {
    "add_u32": _add(False, 1), "addc_u32": _add(True, 1), "sub_u32": _add(False, -1), "subb_u32": _add(True, -1),
    "add_i32": _add_signed(1), "sub_i32": _add_signed(-1), "mul_i32": _plain(lambda a, b: a * b),
    "mul_hi_u32": _wide(32, False), "mul_hi_i32": _wide(32, True),
    "min_u32": _extreme(np.minimum, False), "max_u32": _extreme(np.maximum, False),
    "min_i32": _extreme(np.minimum, True), "max_i32": _extreme(np.maximum, True),
    "bfe_u32": _field(False, 32), "bfe_i32": _field(True, 32), "bfe_u64": _field(False, 64),
    "bfe_i64": _field(True, 64),
    "bfm_b32": _plain(lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31))),
    "pack_ll_b32_b16": _plain(lambda a, b: (a & U32(65535)) | (b << U32(16))),
    "pack_lh_b32_b16": _plain(lambda a, b: (a & U32(65535)) | (b & U32(0xFFFF0000))),
    "pack_hh_b32_b16": _plain(lambda a, b: (a >> U32(16)) | (b & U32(0xFFFF0000))),
    "add_nc_u64": _plain(lambda a, b: a + b), "sub_nc_u64": _plain(lambda a, b: a - b),
    "add_u64": _plain(lambda a, b: a + b), "sub_u64": _plain(lambda a, b: a - b), "mul_u64": _plain(lambda a, b: a * b),
    "lshl1_add_u32": lambda a, b, scc: _add(False, 1)(np.asarray(a).astype(U64) << U64(1), b, scc),
    "lshl2_add_u32": lambda a, b, scc: _add(False, 1)(np.asarray(a).astype(U64) << U64(2), b, scc),
    "lshl3_add_u32": lambda a, b, scc: _add(False, 1)(np.asarray(a).astype(U64) << U64(3), b, scc),
    "lshl4_add_u32": lambda a, b, scc: _add(False, 1)(np.asarray(a).astype(U64) << U64(4), b, scc),
    "absdiff_i32": _logic(lambda a, b: np.abs(_signed(a) - _signed(b)).astype(U32)),
}  # fmt: skip
_LOGIC: dict[str, Callable[[Array, Array], Array]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b, "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}  # fmt: skip
for _name, _function in _LOGIC.items():
    for _bits in (32, 64):
        TWO[f"{_name}_b{_bits}"] = _logic(_function)
for _bits in (32, 64):
    TWO[f"lshl_b{_bits}"] = _shift(lambda a, s: a << s, _bits)
    TWO[f"lshr_b{_bits}"] = _shift(lambda a, s: a >> s, _bits)
    TWO[f"ashr_i{_bits}"] = _shift(_arithmetic_right, _bits)


def _first_one(a: Array) -> Array:
    a = np.asarray(a).astype(U64)
    low = a & (~a + U64(1))
    return np.where(a == 0, -1, np.log2(np.maximum(low, U64(1)).astype(np.float64)).astype(I64)).astype(U32)


def _ones(a: Array) -> Array:
    a = np.asarray(a)
    return sum((a >> a.dtype.type(i)) & a.dtype.type(1) for i in range(8 * a.dtype.itemsize)).astype(U32)


# name: (bits of the operand, bits of the result, function, whether SCC says that the result is not 0)
ONE: dict[str, tuple[int, int, Callable[[Array], Array], bool]] = {
    "mov_b32": (32, 32, lambda a: a, False), "mov_b64": (64, 64, lambda a: a, False),
    "not_b32": (32, 32, lambda a: ~a, True), "not_b64": (64, 64, lambda a: ~a, True),
    "brev_b32": (32, 32, reversed_bits, False), "abs_i32": (32, 32, lambda a: np.abs(_signed(a)).astype(U32), True),
    "sext_i32_i8": (32, 32, lambda a: np.asarray(a).astype(np.uint8).view(np.int8).astype(U32), False),
    "sext_i32_i16": (32, 32, lambda a: np.asarray(a).astype(np.uint16).view(np.int16).astype(U32), False),
    "ctz_i32_b32": (32, 32, _first_one, False), "ctz_i32_b64": (64, 32, _first_one, False),
    "clz_i32_u32": (32, 32, lambda a: leading_zeros(a).astype(U32), False),
    "clz_i32_u64": (64, 32, lambda a: leading_zeros(a, 64).astype(U32), False),
    "cls_i32": (32, 32, lambda a: leading_signs(a).astype(U32), False),
    "cls_i32_i64": (64, 32, lambda a: leading_signs(a, 64).astype(U32), False),
    "bcnt1_i32_b32": (32, 32, _ones, True), "bcnt1_i32_b64": (64, 32, _ones, True),
}  # fmt: skip
_FLOAT: dict[str, Callable[..., Array]] = {  # gfx11.5 and gfx12 have scalar floats
    "add_f32": lambda a, b: a + b, "sub_f32": lambda a, b: a - b, "mul_f32": lambda a, b: a * b,
    "min_f32": np.fmin, "max_f32": np.fmax, "min_num_f32": np.fmin, "max_num_f32": np.fmax,
    "minimum_f32": np.minimum, "maximum_f32": np.maximum,
}  # fmt: skip
# Factors and addend of `a * b + c`.
_FUSED = {
    "fmac_f32": ("ssrc0", "ssrc1", "sdst"), "fmaak_f32": ("ssrc0", "ssrc1", "literal"),
    "fmamk_f32": ("ssrc0", "literal", "ssrc1"),
}  # fmt: skip
# Of scalar floats, those that vector instructions compute as well.
_AS_VECTOR = re.compile(
    r"(rndne|floor|ceil|trunc)_f(32|16)|cvt_(f32_i32|f32_u32|i32_f32|u32_f32|f32_f16|f16_f32|pk_rtz_f16_f32)"
)

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}  # fmt: skip
_IGNORED = re.compile(
    r"s_(nop|clause|delay_alu|sendmsg|setprio|sleep|wait_alu|waitcnt_depctr|code_end|icache_inv|inst_prefetch|"
    r"set_inst_prefetch_distance|dcache_\w+|wait_idle|round_mode|denorm_mode|ttracedata\w*|sched_\w+|sethalt|incperflevel|"
    r"decperflevel|version|wakeup|prefetch_inst\w*|wait_expcnt|wait_event)$"
)


def build(ins: AmdInstruction, generation: Generation, lanes: int) -> DecodedOperation | None:
    """The operation of a scalar instruction, None where this is another kind."""
    if not ins.form.startswith("SOP"):
        return None
    b = Builder(ins, generation, lanes)
    name = ins.name[2:]
    if _IGNORED.match(ins.name):
        return DecodedOperation(ins, lambda g: None, kind="other", flow="cross")
    run, control = _find(b, name)
    if run is None:
        return None
    kind = "branch" if control else "scalar"
    return DecodedOperation(ins, run, b.uses, b.defines, kind, flow="scalar", control=control)


def _find(b: Builder, name: str) -> tuple[Callable[[Gang], object] | None, bool]:
    f, form = b.instruction.fields, b.instruction.form
    if match := re.fullmatch(r"(cmp|cmpk)_(eq|lg|gt|ge|lt|le)_([iu])(32|64)", name):
        return _compare(b, match[2], match[3] == "i", int(match[4])), False
    if match := re.fullmatch(r"bitcmp([01])_b(32|64)", name):
        return _bit_compare(b, int(match[1]), int(match[2])), False
    if match := re.fullmatch(r"(\w+?)_saveexec_b(32|64)", name):
        return _save_exec(b, match[1], int(match[2])), False
    if match := re.fullmatch(r"cselect_b(32|64)", name):
        bits = int(match[1])
        x, y = b.read_scalar(f["ssrc0"], bits), b.read_scalar(f["ssrc1"], bits)
        store = b.write_scalar(f["sdst"], bits)
        return lambda g: store(g, np.where(g.scc[g.at], x(g), y(g))), False
    if name in TWO and form.startswith("SOP2"):
        return _two(b, name), False
    if name in ONE:
        return _one(b, *ONE[name]), False
    if form.startswith("SOPK") and name in ("movk_i32", "addk_i32", "mulk_i32", "cmovk_i32"):
        return _immediate(b, name), False
    if name in _FLOAT and form.startswith("SOP2"):
        p, q, put = b.read_scalar(f["ssrc0"]), b.read_scalar(f["ssrc1"]), b.write_scalar(f["sdst"])
        function = _FLOAT[name]
        return lambda g: put(
            g, np.asarray(function(*(np.asarray(o(g)).view(np.float32) for o in (p, q)))).view(U32)
        ), False
    if _AS_VECTOR.fullmatch(name):
        return _as_vector(b, name), False
    if match := re.fullmatch(r"cmp_(\w+)_f32", name):
        function = COMPARISONS[match[1]]
        p, q = b.read_scalar(f["ssrc0"]), b.read_scalar(f["ssrc1"])

        def compare(g: Gang) -> None:
            g.scc[g.at] = function(*(np.asarray(o(g)).view(np.float32) for o in (p, q)))

        return compare, False
    if name in _FUSED:
        three = [b.read_scalar(LITERAL if n == "literal" else f[n]) for n in _FUSED[name]]
        put = b.write_scalar(f["sdst"])
        return lambda g: put(g, np.asarray(fma32(*(np.asarray(o(g)).view(np.float32) for o in three))).view(U32)), False
    if match := re.fullmatch(r"bitset([01])_b32", name):
        one = match[1] == "1"
        place, old, put = b.read_scalar(f["ssrc0"]), b.read_scalar(f["sdst"]), b.write_scalar(f["sdst"])

        def set_bit(g: Gang) -> None:
            bit = U32(1) << (place(g) & U32(31))
            put(g, old(g) | bit if one else old(g) & ~bit)

        return set_bit, False
    if name == "getpc_b64":
        to = b.write_scalar(f["sdst"], 64)
        after = b.instruction.address + b.instruction.size
        return lambda g: to(g, U64(g.base + after)), False
    if name in ("setpc_b64", "swappc_b64"):
        raise EmulationError(f"s_{name} is not emulated: programs of IREE call no functions")
    branch = _branch(b, name)
    return branch, branch is not None


def _two(b: Builder, name: str) -> Callable[[Gang], object]:
    f, function = b.instruction.fields, TWO[name]
    bits = 64 if "64" in name else 32
    second = 32 if re.match(r"lsh|ash|bfe", name) else bits
    x, y = b.read_scalar(f["ssrc0"], bits), b.read_scalar(f["ssrc1"], second)
    store = b.write_scalar(f["sdst"], bits)

    def run(g: Gang) -> None:
        found, scc = function(x(g), y(g), g.scc[g.at])
        if scc is not None:
            g.scc[g.at] = scc
        store(g, found)

    return run


def _as_vector(b: Builder, name: str) -> Callable[[Gang], object]:
    """A scalar instruction on floats by the function of the vector instruction of its name."""
    f = b.instruction.fields
    result, kinds, function = LANES[f"v_{name}"]
    fetch = [b.read_scalar(f[f"ssrc{i}"]) for i in range(len(kinds.split()))]
    store = b.write_scalar(f["sdst"])

    def operand(x: Array, kind: str) -> Array:
        x = np.asarray(x).astype(U32)
        return x.astype(np.uint16).view(TYPES[kind]) if WIDTH[kind] == 16 else x.view(TYPES[kind])

    def run(g: Gang) -> None:
        found = function(*(operand(o(g), kind) for o, kind in zip(fetch, kinds.split(), strict=True)))
        bits = np.asarray(found).astype(TYPES[result]).view(TYPES[f"u{WIDTH[result]}"])
        store(g, bits.astype(U32))

    return run


def _one(
    b: Builder, bits: int, result: int, function: Callable[[Array], Array], sets: bool
) -> Callable[[Gang], object]:
    f = b.instruction.fields
    x, store = b.read_scalar(f["ssrc0"], bits), b.write_scalar(f["sdst"], result)

    def run(g: Gang) -> None:
        found = function(x(g))
        if sets:
            g.scc[g.at] = found != 0
        store(g, found)

    return run


def _immediate(b: Builder, name: str) -> Callable[[Gang], object]:
    f = b.instruction.fields
    value = f["simm16"] - (1 << 16) if f["simm16"] >> 15 else f["simm16"]
    word = np.array(value, I64).astype(U32)[()]
    store = b.write_scalar(f["sdst"])
    if name == "movk_i32":
        return lambda g: store(g, word)
    old = b.read_scalar(f["sdst"])
    if name == "mulk_i32":
        return lambda g: store(g, old(g) * word)
    if name == "cmovk_i32":
        return lambda g: store(g, np.where(g.scc[g.at], word, old(g)))
    add = _add_signed(1)

    def run(g: Gang) -> None:
        found, scc = add(old(g), word, g.scc[g.at])
        g.scc[g.at] = scc
        store(g, found)

    return run


def _compare(b: Builder, name: str, signed: bool, bits: int) -> Callable[[Gang], object]:
    f, function = b.instruction.fields, _COMPARE[name]
    if "simm16" in f:
        x = b.read_scalar(f["sdst"])
        value = f["simm16"] - (1 << 16) if signed and f["simm16"] >> 15 else f["simm16"]
        word = np.array(value, I64).astype(U32)[()]
        y: ReadOperand = lambda g: word  # noqa: E731
    else:
        x, y = b.read_scalar(f["ssrc0"], bits), b.read_scalar(f["ssrc1"], bits)

    def run(g: Gang) -> None:
        p, q = x(g), y(g)
        g.scc[g.at] = function(_signed(p), _signed(q)) if signed else function(p, q)

    return run


def _bit_compare(b: Builder, wanted: int, bits: int) -> Callable[[Gang], object]:
    f = b.instruction.fields
    x, place = b.read_scalar(f["ssrc0"], bits), b.read_scalar(f["ssrc1"])
    kind: Any = U32 if bits == 32 else U64

    def run(g: Gang) -> None:
        bit = (np.asarray(x(g)) >> (np.asarray(place(g)).astype(kind) & kind(bits - 1))) & kind(1)
        g.scc[g.at] = bit == wanted

    return run


def _save_exec(b: Builder, name: str, bits: int) -> Callable[[Gang], object]:
    """EXEC becomes `source op EXEC`, its old value is kept; `not0`/`not1` negate the one or the other."""
    f = b.instruction.fields
    reverse: dict[str, Callable[[Array, Array], Array]] = {
        "and_not1": lambda s, e: s & ~e, "and_not0": lambda s, e: ~s & e,
        "or_not1": lambda s, e: s | ~e, "or_not0": lambda s, e: ~s | e,
    }  # fmt: skip
    function = reverse.get(name) or _LOGIC[name]
    x, old = b.read_scalar(f["ssrc0"], bits), b.read_scalar(EXEC, bits)
    store, to_exec = b.write_scalar(f["sdst"], bits), b.write_scalar(EXEC, bits)

    def run(g: Gang) -> None:
        before = np.array(old(g))
        found = function(np.array(x(g)), before)
        g.scc[g.at] = found != 0
        store(g, before)
        to_exec(g, found)

    return run


def _branch(b: Builder, name: str) -> Callable[[Gang], object] | None:
    """Control returns the next address of each selected wave, or one for all."""
    ins = b.instruction
    after = ins.address + ins.size
    if name == "endpgm":
        return lambda g: "end"
    if name == "trap":
        raise EmulationError("s_trap: the program gave up")
    if name in ("barrier", "barrier_wait"):
        return lambda g: "barrier"
    if name.startswith("barrier_signal"):
        return lambda g: "signal"
    if not (name == "branch" or name.startswith("cbranch_")):
        return None
    offset = ins.fields["simm16"]
    target = after + 4 * (offset - (1 << 16) if offset >> 15 else offset)
    if name == "branch":
        return lambda g: target
    kind = name[8:]

    def scc(g: Gang) -> Array:
        found: Array = g.scc[g.at]
        return found

    def vcc(g: Gang) -> Array | np.bool_:
        return g.s_u32[VCC : VCC + g.lanes // 32, g.at].any(axis=0)

    def exec_(g: Gang) -> Array | np.bool_:
        return g.on.any(axis=1)

    test = {"scc": scc, "vcc": vcc, "exec": exec_}.get(kind[: 3 if kind[0] != "e" else 4])
    if test is None:
        raise EmulationError(f"{ins.name} is not emulated")
    if test is vcc:
        b.read_mask(VCC)
    wanted = kind.endswith(("1", "nz"))

    def run(g: Gang) -> Array | int:
        taken = test(g) == wanted
        if taken.all():
            return target
        if not taken.any():
            return after
        return np.where(taken, target, after)

    return run
