"""Scalar instructions (SOP1, SOP2, SOPK, SOPC, SOPP): one value for each wave."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ...dialect.dtypes import NumpyType
from ..launch import EmulationError
from .arithmetic import COMPARISONS, LANES
from .decode import EXEC, LITERAL, VCC, AmdInstruction
from .floats import fma32
from .gang import Gang
from .generation import Generation
from .operands import TYPES, WIDTH, Builder, DecodedOperation, Outcome, ReadOperand
from .scalar_functions import COMPARE, FLOAT, I64, LOGIC, ONE, TWO, U32, U64, add_signed, as_signed
from .waves import Array

# Factors and addend of `a * b + c`.
_FUSED = {
    "fmac_f32": ("ssrc0", "ssrc1", "sdst"), "fmaak_f32": ("ssrc0", "ssrc1", "literal"),
    "fmamk_f32": ("ssrc0", "literal", "ssrc1"),
}  # fmt: skip
# Scalar float instructions that compute the function of a vector instruction.
_AS_VECTOR = re.compile(
    r"(rndne|floor|ceil|trunc)_f(32|16)|cvt_(f32_i32|f32_u32|i32_f32|u32_f32|f32_f16|f16_f32|pk_rtz_f16_f32)"
)

_IGNORED = re.compile(
    r"s_(nop|clause|delay_alu|sendmsg|setprio|sleep|wait_alu|waitcnt_depctr|code_end|icache_inv|inst_prefetch|"
    r"set_inst_prefetch_distance|dcache_\w+|wait_idle|round_mode|denorm_mode|ttracedata\w*|sched_\w+|sethalt|incperflevel|"
    r"decperflevel|version|wakeup|prefetch_inst\w*|wait_expcnt|wait_event)$"
)


def build(ins: AmdInstruction, generation: Generation, lanes: int) -> DecodedOperation | None:
    """The operation of a scalar instruction, None if it is of another kind."""
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


def _find(b: Builder, name: str) -> tuple[Callable[[Gang], Outcome] | None, bool]:
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
    if name in FLOAT and form.startswith("SOP2"):
        p, q, put = b.read_scalar(f["ssrc0"]), b.read_scalar(f["ssrc1"]), b.write_scalar(f["sdst"])
        function = FLOAT[name]
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
        raise EmulationError(f"s_{name} is not emulated: IREE's programs do not call functions")
    branch = _branch(b, name)
    return branch, branch is not None


def _two(b: Builder, name: str) -> Callable[[Gang], None]:
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


def _as_vector(b: Builder, name: str) -> Callable[[Gang], None]:
    """A scalar float instruction, with the function of the vector instruction of the same name."""
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


def _one(b: Builder, bits: int, result: int, function: Callable[[Array], Array], sets: bool) -> Callable[[Gang], None]:
    f = b.instruction.fields
    x, store = b.read_scalar(f["ssrc0"], bits), b.write_scalar(f["sdst"], result)

    def run(g: Gang) -> None:
        found = function(x(g))
        if sets:
            g.scc[g.at] = found != 0
        store(g, found)

    return run


def _immediate(b: Builder, name: str) -> Callable[[Gang], None]:
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
    add = add_signed(1)

    def run(g: Gang) -> None:
        found, scc = add(old(g), word, g.scc[g.at])
        g.scc[g.at] = scc
        store(g, found)

    return run


def _compare(b: Builder, name: str, signed: bool, bits: int) -> Callable[[Gang], None]:
    f, function = b.instruction.fields, COMPARE[name]
    if "simm16" in f:
        x = b.read_scalar(f["sdst"])
        value = f["simm16"] - (1 << 16) if signed and f["simm16"] >> 15 else f["simm16"]
        word = np.array(value, I64).astype(U32)[()]
        y: ReadOperand = lambda g: word  # noqa: E731
    else:
        x, y = b.read_scalar(f["ssrc0"], bits), b.read_scalar(f["ssrc1"], bits)

    def run(g: Gang) -> None:
        p, q = x(g), y(g)
        g.scc[g.at] = function(as_signed(p), as_signed(q)) if signed else function(p, q)

    return run


def _bit_compare(b: Builder, wanted: int, bits: int) -> Callable[[Gang], None]:
    f = b.instruction.fields
    x, place = b.read_scalar(f["ssrc0"], bits), b.read_scalar(f["ssrc1"])
    kind: NumpyType = np.dtype(U32 if bits == 32 else U64)
    last, one = kind.type(bits - 1), kind.type(1)

    def run(g: Gang) -> None:
        bit = (np.asarray(x(g)) >> (np.asarray(place(g)).astype(kind) & last)) & one
        g.scc[g.at] = bit == wanted

    return run


def _save_exec(b: Builder, name: str, bits: int) -> Callable[[Gang], None]:
    """EXEC becomes `source op EXEC`, its old value is stored; `not0` negates the source, `not1` EXEC."""
    f = b.instruction.fields
    reverse: dict[str, Callable[[Array, Array], Array]] = {
        "and_not1": lambda s, e: s & ~e, "and_not0": lambda s, e: ~s & e,
        "or_not1": lambda s, e: s | ~e, "or_not0": lambda s, e: ~s | e,
    }  # fmt: skip
    function = reverse.get(name) or LOGIC[name]
    x, old = b.read_scalar(f["ssrc0"], bits), b.read_scalar(EXEC, bits)
    store, to_exec = b.write_scalar(f["sdst"], bits), b.write_scalar(EXEC, bits)

    def run(g: Gang) -> None:
        before = np.array(old(g))
        found = function(np.array(x(g)), before)
        g.scc[g.at] = found != 0
        store(g, before)
        to_exec(g, found)

    return run


def _branch(b: Builder, name: str) -> Callable[[Gang], Outcome] | None:
    """A branch, the end of the program, or a barrier; see `DecodedOperation.run`."""
    ins = b.instruction
    after = ins.address + ins.size
    if name == "endpgm":
        return lambda g: "end"
    if name == "trap":
        raise EmulationError("s_trap: the program aborted")
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
