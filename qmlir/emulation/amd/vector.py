"""Vector instructions (VOP1, VOP2, VOP3, VOPC, VOPD; SDWA and DPP) as operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..launch import EmulationError
from . import floats
from .arithmetic import COMPARISONS, LANES, SATURATING, classify, saturated
from .decode import LITERAL, VCC, VGPR, AmdInstruction
from .gang import Gang
from .generation import Generation
from .lanes import dpp_flow
from .modifiers import destination, source
from .operands import WIDTH, Builder, DecodedOperation
from .shadow import RegisterShadow
from .waves import Array, register_bits


def build(ins: AmdInstruction, generation: Generation, lanes: int) -> DecodedOperation | None:
    """The operation of a vector instruction, None if it is of another kind."""
    if "::" in ins.name:
        return _dual(ins, generation, lanes)
    b = Builder(ins, generation, lanes)
    name = ins.name
    run: Callable[[Gang], None] | None
    if match := re.fullmatch(r"v_cmp(x?)_(\w+?)_([uif]\d+)", name):
        run = _compare(b, bool(match[1]), match[2], match[3])
    elif name in _SPECIAL:
        run = _SPECIAL[name](b)
    elif name in LANES:
        run = _lanes(b, *LANES[name])
    elif (scalar := name.replace("v_s_", "v_", 1)) in LANES:
        return DecodedOperation(ins, _pseudo_scalar(b, *LANES[scalar]), b.uses, b.defines, flow="scalar")
    else:
        return None
    if "DPP" in ins.form:
        mask, chooser = None, 0
        if name.startswith("v_cndmask"):
            number = ins.fields["src2"] if "VOP3" in ins.form else VCC
            mask, chooser = b.read_mask(number), register_bits(number, lanes // 32)
        flow_across = dpp_flow(b, b.uses & ~chooser, mask)
        return DecodedOperation(ins, run, b.uses | b.across, b.defines, flow=flow_across)
    if name == "v_mov_b64" and ins.form == "VOP1":
        places, target = ins.fields["src0"], ins.fields["vdst"]

        def flow(g: Gang, shadow: RegisterShadow) -> None:
            found = [shadow.joined(g, register_bits(places + i, 1) & shadow.unwritten) for i in (0, 1)]
            for i, unset in enumerate(found):
                shadow.set(g, register_bits(target + i, 1), unset)

        return DecodedOperation(ins, run, b.uses, b.defines, flow=flow)
    if name in _LOW_FROM_LOW:
        return DecodedOperation(ins, run, b.uses, b.defines, flow=_flow_by_words(b, _LOW_FROM_LOW[name]))
    if name == "v_cndmask_b32" and "SDWA" not in ins.form:
        f = ins.fields
        mask = b.read_mask(f["src2"] if "VOP3" in ins.form else VCC)
        sides = (f["src0"], f["src1"] if "src1" in f else f["vsrc1"])
        return DecodedOperation(ins, run, b.uses, b.defines, chooses=mask, choices=sides)
    return DecodedOperation(ins, run, b.uses, b.defines)


# 64-bit operations whose low result word depends on low words only, and the positions of their 64-bit operands: LLVM
# lets the high word of such an operand be an unwritten register.
_LOW_FROM_LOW = {"v_mad_u64_u32": (2,), "v_mad_i64_i32": (2,), "v_lshlrev_b64": (1,), "v_lshl_add_u64": (0, 2)}


def _flow_by_words(b: Builder, wide: tuple[int, ...]) -> Callable[[Gang, RegisterShadow], None]:
    f = b.instruction.fields
    high = 0
    for i in wide:
        high |= register_bits((f[f"src{i}"] if f"src{i}" in f else f[f"vsrc{i}"]) + 1, 1)
    target = register_bits(f["vdst"], 1)

    def flow(g: Gang, shadow: RegisterShadow) -> None:
        low = shadow.joined(g, b.uses & ~high & shadow.unwritten)
        rest = shadow.joined(g, b.uses & shadow.unwritten)
        shadow.set(g, target, low)
        shadow.set(g, b.defines & ~target, rest)

    return flow


# ---- operations


def _lanes(b: Builder, result: str, kinds: str, function: Callable[..., Array]) -> Callable[[Gang], None]:
    fetches = [source(b, i, kind) for i, kind in enumerate(kinds.split())]
    store = destination(b, result)
    if b.instruction.get("clmp") and b.instruction.name in SATURATING:
        function = saturated(b.instruction.name, b.instruction.name[-3:])
    if len(fetches) == 1:
        (first,) = fetches
        return lambda g: store(g, function(first(g)))
    if len(fetches) == 2:
        first, second = fetches
        return lambda g: store(g, function(first(g), second(g)))
    first, second, third = fetches
    return lambda g: store(g, function(first(g), second(g), third(g)))


def _pseudo_scalar(b: Builder, kind: str, _: str, function: Callable[..., Array]) -> Callable[[Gang], None]:
    """gfx12's functions of a float in a scalar register; they ignore the active lanes (RDNA 4 ISA guide, "Pseudo-scalar
    transcendental ALU ops")."""
    f = b.instruction.fields
    if f.get("omod") or f.get("clmp"):
        raise EmulationError(f"{b.instruction.name} with a modified result is not emulated")
    fetch, store = source(b, 0, kind), b.write_scalar(f["vdst"])
    bits = np.dtype(f"u{WIDTH[kind] // 8}")

    def run(g: Gang) -> None:
        found = np.asarray(function(np.asarray(fetch(g))))
        store(g, np.broadcast_to(found.view(bits).astype(np.uint32).reshape(-1), (g.count,)))

    return run


def _compare(b: Builder, to_exec: bool, name: str, kind: str) -> Callable[[Gang], None]:
    f = b.instruction.fields
    if name == "class":
        function: Callable[..., Array] = classify
        a, other = source(b, 0, kind), source(b, 1, "u32")
    else:
        function = COMPARISONS[name]
        a, other = source(b, 0, kind), source(b, 1, kind)
    place = f.get("vdst", f.get("sdst", VCC) if f.get("sd") else VCC)
    if to_exec and not b.cdna:
        b.write_mask(126)
        return lambda g: g.set_exec(function(a(g), other(g)) & g.on)
    store = b.write_mask(place)
    if not to_exec:
        return lambda g: store(g, function(a(g), other(g)) & g.on)

    def both(g: Gang) -> None:
        found = function(a(g), other(g)) & g.on
        store(g, found)
        g.set_exec(found)

    return both


def _carry(sign: int, with_carry: bool, reverse: bool = False) -> Callable[[Builder], Callable[[Gang], None]]:
    def make(b: Builder) -> Callable[[Gang], None]:
        f = b.instruction.fields
        long = "VOP3" in b.instruction.form
        a, c = source(b, 0, "u32"), source(b, 1, "u32")
        carry_in = b.read_mask(f["src2"] if long else VCC) if with_carry else None
        store, carry_out = destination(b, "u32"), b.write_mask(f["sdst"] if long else VCC)

        def run(g: Gang) -> None:
            x, y = np.asarray(a(g)).astype(np.int64), np.asarray(c(g)).astype(np.int64)
            if reverse:
                x, y = y, x
            extra = carry_in(g).astype(np.int64) if carry_in is not None else 0
            total = np.broadcast_to(x + sign * (y + extra), (g.count, g.lanes))
            active = g.on
            store(g, total)
            carry_out(g, ((total < 0) | (total >= 1 << 32)) & active)

        return run

    return make


def _cndmask(kind: str) -> Callable[[Builder], Callable[[Gang], None]]:
    def make(b: Builder) -> Callable[[Gang], None]:
        f = b.instruction.fields
        as_float = {"u32": "f32", "u16": "f16"}[kind]
        plain = not ("VOP3" in b.instruction.form and (f.get("neg", 0) | f.get("abs", 0)))
        a, c = (source(b, i, kind if plain else as_float) for i in (0, 1))
        mask = b.read_mask(f["src2"] if "VOP3" in b.instruction.form else VCC)
        store = destination(b, kind if plain else as_float)
        return lambda g: store(g, np.where(mask(g), c(g), a(g)))

    return make


def _accumulate(kind: str, function: Callable[..., Array]) -> Callable[[Builder], Callable[[Gang], None]]:
    """The destination is the third operand."""

    def make(b: Builder) -> Callable[[Gang], None]:
        operand = kind if kind != "dot" else "u32"
        a, c = source(b, 0, operand), source(b, 1, operand)
        f = b.instruction.fields
        number, half = f["vdst"], 0
        if WIDTH[operand] == 16 and not b.cdna and "VOP3" not in b.instruction.form and number >= VGPR + 128:
            number, half = number - 128, 1
        if WIDTH[operand] == 16 and "VOP3" in b.instruction.form:
            half = f.get("opsel", 0) >> 3 & 1
        total = b.read(number, operand, half)
        store = destination(b, operand)
        return lambda g: store(g, function(a(g), c(g), total(g)))

    return make


def _with_literal(at_end: bool, kind: str) -> Callable[[Builder], Callable[[Gang], None]]:
    """`v_fmaak`: a * b + literal; `v_fmamk`: a * literal + b. `v_madak` and `v_madmk` of gfx90a round twice."""

    def make(b: Builder) -> Callable[[Gang], None]:
        a, c = source(b, 0, kind), source(b, 1, kind)
        literal = b.constant(LITERAL, kind)
        store = destination(b, kind)
        fma = floats.fma32 if kind == "f32" else floats.fma16
        if b.instruction.name.startswith("v_mad"):
            fma = floats.mad32
        if at_end:
            return lambda g: store(g, fma(a(g), c(g), literal))
        return lambda g: store(g, fma(a(g), literal, c(g)))

    return make


def _div_scale(kind: str) -> Callable[[Builder], Callable[[Gang], None]]:
    def make(b: Builder) -> Callable[[Gang], None]:
        operands = [source(b, i, kind) for i in range(3)]
        store, flags = destination(b, kind), b.write_mask(b.instruction.fields["sdst"])

        def run(g: Gang) -> None:
            shape = (g.count, g.lanes)
            s0, s1, s2 = (np.broadcast_to(o(g), shape) for o in operands)
            value, flag = floats.div_scale(s0, s1, s2, kind)
            active = g.on
            store(g, value)
            flags(g, flag & active)

        return run

    return make


def _div_fmas(kind: str) -> Callable[[Builder], Callable[[Gang], None]]:
    def make(b: Builder) -> Callable[[Gang], None]:
        a, c, d = (source(b, i, kind) for i in range(3))
        mask, store = b.read_mask(VCC), destination(b, kind)
        return lambda g: store(g, floats.div_fmas(a(g), c(g), d(g), mask(g), kind))

    return make


def _mad64(kind: str) -> Callable[[Builder], Callable[[Gang], None]]:
    wide_type, wide, narrow = (np.uint64, "u64", "u32") if kind == "u" else (np.int64, "i64", "i32")

    def make(b: Builder) -> Callable[[Gang], None]:
        a, c, d = source(b, 0, narrow), source(b, 1, narrow), source(b, 2, wide)
        store, carry = destination(b, wide), b.write_mask(b.instruction.fields["sdst"])

        def run(g: Gang) -> None:
            product = np.asarray(a(g)).astype(wide_type) * np.asarray(c(g)).astype(wide_type)
            added = d(g)
            total = np.broadcast_to(product + added, (g.count, g.lanes))
            active = g.on
            overflow = total < added if kind == "u" else (added < 0) != (total < added)
            store(g, total)
            carry(g, overflow & active)

        return run

    return make


def _bitop3(kind: str) -> Callable[[Builder], Callable[[Gang], None]]:
    def make(b: Builder) -> Callable[[Gang], None]:
        f = b.instruction.fields
        table = f["omod"] << 6 | f["abs"] << 3 | f["neg"]
        plain = replace(b.instruction, fields={**f, "abs": 0, "omod": 0, "neg": 0})
        b.instruction = plain
        operands = [source(b, i, kind) for i in range(3)]
        store = destination(b, kind)

        def run(g: Gang) -> None:
            x, y, z = (o(g) for o in operands)
            out: int = 0
            for i in range(8):
                if table >> i & 1:
                    out = out | ((x if i & 4 else ~x) & (y if i & 2 else ~y) & (z if i & 1 else ~z))
            store(g, out if not isinstance(out, int) else (x ^ x))

        return run

    return make


def _from_fp8(name: str, packed: bool) -> Callable[[Builder], Callable[[Gang], None]]:
    """Convert one-byte codes to f32; `packed`: two codes."""

    def make(b: Builder) -> Callable[[Gang], None]:
        table = floats.fp8_table(name, b.generation.fnuz)
        f, form = b.instruction.fields, b.instruction.form
        word = source(b, 0, "u16" if packed else "u32")
        byte = 0
        if not packed and "VOP3" in form:
            byte = f.get("opsel", 0) & 3 if b.cdna else (f.get("opsel", 0) & 1) << 1 | f.get("opsel", 0) >> 1 & 1
        if not packed:
            store = destination(b, "f32")
            return lambda g: store(g, table[np.asarray(word(g)) >> np.uint32(8 * byte) & np.uint32(255)])
        low, high = b.write(f["vdst"], "f32"), b.write(f["vdst"] + 1, "f32")

        def run(g: Gang) -> None:
            codes = np.array(word(g))  # a copy: the result may overwrite the operand
            low(g, table[codes & 255])
            high(g, table[codes >> 8])

        return run

    return make


def _to_fp8(name: str) -> Callable[[Builder], Callable[[Gang], None]]:
    def make(b: Builder) -> Callable[[Gang], None]:
        a, c, store = source(b, 0, "f32"), source(b, 1, "f32"), destination(b, "u16")

        def run(g: Gang) -> None:
            low, high = (
                floats.to_fp8(np.broadcast_to(x(g), (g.count, g.lanes)), name, b.generation.fnuz) for x in (a, c)
            )
            store(g, low.astype(np.uint16) | high.astype(np.uint16) << np.uint16(8))

        return run

    return make


def _swap(b: Builder) -> Callable[[Gang], None]:
    f = b.instruction.fields
    a, c = b.read(f["src0"], "u32"), b.read(f["vdst"], "u32")
    to_a, to_c = b.write(f["src0"], "u32"), b.write(f["vdst"], "u32")

    def run(g: Gang) -> None:
        x, y = a(g).copy(), c(g).copy()
        to_a(g, y)
        to_c(g, x)

    return run


def _dual(ins: AmdInstruction, generation: Generation, lanes: int) -> DecodedOperation:
    """Two operations, which both read before either writes."""
    parts = []
    for half, name in zip("xy", ins.name.split("::"), strict=True):
        fields = {"src0": ins.fields[f"src{half}0"], "vsrc1": ins.fields[f"vsrc{half}1"],
                  "vdst": ins.fields[f"vdst{half}"]}  # fmt: skip
        found = build(replace(ins, name=name, form="VOP2", fields=fields), generation, lanes)
        if found is None:
            raise EmulationError(f"{name} of {ins.name} is not emulated")
        parts.append((found, fields["vdst"] - VGPR))
    (x, to_x), (y, _) = parts

    def run(g: Gang) -> None:
        if not x.defines & y.uses:
            x.run(g)
            y.run(g)
            return
        old = g.u32[to_x].copy()
        x.run(g)
        new = g.u32[to_x].copy()
        g.u32[to_x] = old
        y.run(g)
        g.u32[to_x] = new

    def flow(g: Gang, shadow: RegisterShadow) -> None:
        found = [shadow.found(g, part) for part in (x, y)]
        for part, unset in zip((x, y), found, strict=True):
            shadow.set(g, part.defines, unset)

    return DecodedOperation(ins, run, x.uses | y.uses, x.defines | y.defines, flow=flow)


def _nothing(b: Builder) -> Callable[[Gang], None]:
    return lambda g: None


_dot4 = LANES["v_dot4_i32_i8"][2]
_SPECIAL: dict[str, Callable[[Builder], Callable[[Gang], None]]] = {
    "v_nop": _nothing,
    "v_add_co_u32": _carry(1, False), "v_add_co_ci_u32": _carry(1, True),
    "v_sub_co_u32": _carry(-1, False), "v_sub_co_ci_u32": _carry(-1, True),
    "v_subrev_co_u32": _carry(-1, False, True), "v_subrev_co_ci_u32": _carry(-1, True, True),
    "v_cndmask_b32": _cndmask("u32"), "v_cndmask_b16": _cndmask("u16"),
    "v_fmac_f32": _accumulate("f32", floats.fma32), "v_fmac_f16": _accumulate("f16", floats.fma16),
    "v_mac_f32": _accumulate("f32", floats.mad32),
    "v_dot4c_i32_i8": _accumulate("dot", _dot4),
    "v_madak_f32": _with_literal(True, "f32"), "v_madmk_f32": _with_literal(False, "f32"),
    "v_fmaak_f32": _with_literal(True, "f32"), "v_fmamk_f32": _with_literal(False, "f32"),
    "v_fmaak_f16": _with_literal(True, "f16"), "v_fmamk_f16": _with_literal(False, "f16"),
    "v_fmac_f64": _accumulate("f64", floats.fma64),
    "v_div_scale_f32": _div_scale("f32"), "v_div_fmas_f32": _div_fmas("f32"),
    "v_div_scale_f64": _div_scale("f64"), "v_div_fmas_f64": _div_fmas("f64"),
    "v_mad_u64_u32": _mad64("u"), "v_mad_i64_i32": _mad64("i"),
    "v_bitop3_b32": _bitop3("u32"), "v_bitop3_b16": _bitop3("u16"),
    "v_cvt_f32_fp8": _from_fp8("fp8", False), "v_cvt_f32_bf8": _from_fp8("bf8", False),
    "v_cvt_pk_f32_fp8": _from_fp8("fp8", True), "v_cvt_pk_f32_bf8": _from_fp8("bf8", True),
    "v_cvt_pk_fp8_f32": _to_fp8("fp8"), "v_cvt_pk_bf8_f32": _to_fp8("bf8"),
    "v_swap_b32": _swap,
}  # fmt: skip
